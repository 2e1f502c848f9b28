"""Where things are, and a store that many first starts make once."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from experiments.locks import LockTimeout, file_lock
from experiments.settings import (
    CHECKOUT,
    ExperimentDeletedError,
    Settings,
    SettingsError,
    bound_store_requests,
    sqlite_path,
    sqlite_uri,
)
from tests.support.stores import settings_in


def test_defaults_lie_in_the_checkout_and_on_this_machine() -> None:
    settings = Settings.from_environment({})
    assert settings.home == CHECKOUT / ".speedup-lab"
    assert settings.tracking_uri == sqlite_uri(CHECKOUT / ".speedup-lab" / "mlflow.db")
    assert (settings.host, settings.port, settings.mlflow_port) == ("127.0.0.1", 8501, 5000)
    assert (settings.ray_address, settings.mlflow_ui) == ("", "")


def test_the_environment_sets_everything(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path,
        MLFLOW_TRACKING_URI="http://tracking:5001",
        RAY_ADDRESS="http://head:8265",
        SPEEDUP_LAB_HOST="0.0.0.0",
        SPEEDUP_LAB_PORT="80",
        SPEEDUP_LAB_RAY_PORT=" 6380 ",
    )
    assert settings.home == tmp_path
    assert settings.tracking_uri == settings.mlflow_ui == "http://tracking:5001"
    assert settings.database is None
    assert (settings.ray_address, settings.host, settings.port, settings.ray_port) == (
        "http://head:8265",
        "0.0.0.0",
        80,
        6380,
    )


@pytest.mark.parametrize("value", ["0", "65536", "-1", "x", "80.0", "٣٤"])
def test_a_port_that_is_none_names_its_variable(value: str) -> None:
    with pytest.raises(SettingsError, match=r"SPEEDUP_LAB_MLFLOW_PORT=.*1 to 65535"):
        Settings.from_environment({"SPEEDUP_LAB_MLFLOW_PORT": value})


@pytest.mark.parametrize("value", ["5s", "0", "-1", "nan", "inf"])
@pytest.mark.parametrize("name", ["SPEEDUP_LAB_TELEMETRY_S", "SPEEDUP_LAB_RECORD_DEADLINE_S"])
def test_a_time_that_is_none_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}='{value}' is no time: give seconds"):
        Settings.from_environment({name: value})


def test_times_are_read_and_have_defaults() -> None:
    found = Settings.from_environment({"SPEEDUP_LAB_TELEMETRY_S": "0.5", "SPEEDUP_LAB_RECORD_DEADLINE_S": ""})
    assert (found.telemetry_s, found.record_deadline_s) == (0.5, 600.0)


def test_the_link_to_mlflow_holds_no_login() -> None:
    found = Settings.from_environment({"MLFLOW_TRACKING_URI": "https://mei:secret@mlflow.example:8443/path"})
    assert found.mlflow_ui == "https://mlflow.example:8443/path"
    assert "mei:secret@" in found.tracking_uri


def test_a_store_that_is_away_is_not_waited_for_long_unless_somebody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "300")
    bound_store_requests(retries=1, timeout_s=10)
    names = ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT")
    assert [os.environ[name] for name in names] == ["1", "300"]
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "mysql+pymysql"])
def test_a_database_is_used_through_a_server_only(scheme: str) -> None:
    with pytest.raises(SettingsError, match=r"start `mlflow server --backend-store-uri` on it") as refused:
        Settings.from_environment({"MLFLOW_TRACKING_URI": f"{scheme}://mei:secret@127.0.0.1/db"})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("uri", ["./mlruns", "mlruns", "file:///tmp/mlruns", "/tmp/mlruns"])
def test_a_folder_is_no_tracking_uri(uri: str) -> None:
    with pytest.raises(SettingsError, match=r"MLFLOW_TRACKING_URI=.*sqlite:////"):
        Settings.from_environment({"MLFLOW_TRACKING_URI": uri})


def test_a_relative_sqlite_uri_means_one_file_wherever_a_process_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_in(tmp_path / "home", MLFLOW_TRACKING_URI="sqlite:///a/runs.db")
    assert settings.tracking_uri == f"sqlite:///{tmp_path}/a/runs.db"
    assert settings.database == tmp_path / "a" / "runs.db"


def test_odd_characters_survive_in_a_uri(tmp_path: Path) -> None:
    path = tmp_path / "a b#c%d?é" / "mlflow.db"
    assert sqlite_path(sqlite_uri(path)) == path


def test_a_data_folder_with_odd_characters_holds_runs_and_artifacts(new_settings: Callable[[str], Settings]) -> None:
    settings = new_settings("a b#c%20é")
    client = settings.client()
    run = client.create_run(settings.experiment_id())
    client.log_text(run.info.run_id, "text", "spec.json")
    assert [path.read_text() for path in settings.artifacts_folder.rglob("spec.json")] == ["text"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"SPEEDUP_LAB_HOME=.*file/home.*folder you can write"):
        settings_in(tmp_path / "file" / "home").prepare()


def test_the_store_is_whole_uses_wal_and_leaves_no_draft(settings: Settings) -> None:
    assert settings.database is not None
    with closing(sqlite3.connect(settings.database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert not list(settings.home.glob(".*draft*"))
    found = settings.client().get_experiment_by_name(settings.experiment)
    assert found is not None
    assert found.artifact_location == settings.artifacts_folder.as_uri()


@pytest.mark.slow
def test_a_store_that_was_there_gets_wal(tmp_path: Path) -> None:
    database = tmp_path / "existing.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    environment = {"SPEEDUP_LAB_HOME": str(tmp_path / "home"), "MLFLOW_TRACKING_URI": f"sqlite:///{database}"}
    for _ in range(2):
        Settings.from_environment(environment).prepare()
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("SELECT count(*) FROM theirs").fetchone() == (0,)


def test_three_first_starts_at_once_from_three_folders_share_one_store(tmp_path: Path) -> None:
    """Two migrations of one new database at once end in "duplicate column name"; ./mlruns folders confuse."""
    code = (
        "from experiments.settings import Settings\n"
        "settings = Settings.from_environment().prepare()\n"
        "print(settings.client().create_run(settings.experiment_id()).info.run_id)\n"
    )
    processes = []
    for name in "abc":
        folder = tmp_path / name
        (folder / "mlruns").mkdir(parents=True)
        environment = os.environ | {"SPEEDUP_LAB_HOME": str(tmp_path / "home"), "PYTHONPATH": str(CHECKOUT)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], outputs
    assert not [errors for _, errors in outputs if "error" in errors.lower() or "duplicate" in errors]
    settings = settings_in(tmp_path / "home")
    runs = settings.client().search_runs([settings.experiment_id()])
    assert {run.info.run_id for run in runs} == {output.strip() for output, _ in outputs}


def test_a_deleted_experiment_says_how_to_restore_it(settings: Settings) -> None:
    client = settings.client()
    experiment_id = settings.experiment_id()
    run_id = client.create_run(experiment_id).info.run_id
    client.delete_experiment(experiment_id)
    with pytest.raises(ExperimentDeletedError, match=r"was deleted.*experiments restore"):
        settings.experiment_id()
    assert settings.restore_experiment() is True
    assert settings.experiment_id() == experiment_id
    assert client.get_run(run_id).info.lifecycle_stage == "active"
    assert settings.restore_experiment() is False


def test_a_renamed_experiment_is_the_same(settings: Settings) -> None:
    client, experiment_id = settings.client(), settings.experiment_id()
    client.delete_experiment_tag(experiment_id, "speedup_lab")  # as an older version made it
    assert settings.experiment_id() == experiment_id
    client.rename_experiment(experiment_id, "our team")
    assert settings.experiment_id() == settings.experiment_id(create=False) == experiment_id
    client.delete_experiment(experiment_id)
    with pytest.raises(ExperimentDeletedError, match="'our team' was deleted"):
        settings.experiment_id()
    assert settings.restore_experiment() is True
    assert settings.experiment_id() == experiment_id


def test_a_store_without_the_experiment_gets_it_only_when_asked(tmp_path: Path, settings: Settings) -> None:
    other = settings_in(settings.home, MLFLOW_TRACKING_URI=settings.tracking_uri)
    client = other.client()
    client.rename_experiment(other.experiment_id(), "something else")
    client.delete_experiment_tag(other.experiment_id(), "speedup_lab")
    assert other.experiment_id(create=False) == ""
    assert other.experiment_id() == other.experiment_id() != ""


def test_a_lock_excludes_and_is_free_again(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with file_lock(path), pytest.raises(LockTimeout, match=r"a\.lock was held"), file_lock(path, timeout_s=0.05):
        pytest.fail("two holders of one lock")
    with file_lock(path, timeout_s=0):
        assert path.exists()
