"""What `make run` decides before it starts anything. That it all starts and ends is tests/e2e/test_make_run.py."""

import os
import shlex
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import components, serve
from experiments.settings import Settings, SettingsError

CHECKOUT = Path(__file__).resolve().parents[2]


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"SPEEDUP_LAB_HOME": str(home), **environ})


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_command_ends_with_code_2_and_one_line_a_taken_port(taken_port: int, tmp_path: Path) -> None:
    free = str(components.free_port())
    environ = {
        **os.environ,
        "SPEEDUP_LAB_HOME": str(tmp_path),
        "SPEEDUP_LAB_PORT": str(taken_port),
        "SPEEDUP_LAB_MLFLOW_PORT": str(taken_port),
        "SPEEDUP_LAB_RAY_PORT": str(taken_port),
        "SPEEDUP_LAB_RAY_DASHBOARD_PORT": free,
    }
    result = subprocess.run(
        [sys.executable, "-m", "experiments.serve"],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert f"port {taken_port} for MLflow is taken: set SPEEDUP_LAB_MLFLOW_PORT to a free one" in lines
    assert all("Traceback" not in line for line in lines)
    assert {
        variable for line in lines for variable in environ if variable.startswith("SPEEDUP") and variable in line
    } == {
        "SPEEDUP_LAB_PORT",
        "SPEEDUP_LAB_MLFLOW_PORT",
        "SPEEDUP_LAB_RAY_PORT",
    }


def test_a_port_that_is_no_number_ends_with_code_2_and_names_the_variable(tmp_path: Path) -> None:
    environ = {**os.environ, "SPEEDUP_LAB_HOME": str(tmp_path), "SPEEDUP_LAB_PORT": "eighty"}
    result = subprocess.run(
        [sys.executable, "-m", "experiments.serve"],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("SPEEDUP_LAB_PORT='eighty' is no port")
    assert len(result.stderr.splitlines()) == 1


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refusal = pytest.raises(SettingsError, match=r"SPEEDUP_LAB_HOME=.* cannot be used \(Not a directory\)")
    with refusal, serve._hold(settings(tmp_path / "file")):
        raise AssertionError("a file was taken for a folder")


def test_a_data_folder_in_use_is_named_with_the_process_that_uses_it(tmp_path: Path) -> None:
    here = settings(tmp_path)
    holder = (
        "import sys; from experiments import serve; from experiments.settings import Settings\n"
        "with serve._hold(Settings.from_environment()):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder],
        cwd=CHECKOUT,
        env={**os.environ, "SPEEDUP_LAB_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(SettingsError, match=rf"is in use by another `make run` \(process {process.pid}\)"),
            serve._hold(here),
        ):
            raise AssertionError("the second one got in")
        process.communicate()
    with serve._hold(here):  # and free again once it has ended
        assert (tmp_path / "locks" / "stack.lock").read_text() == str(os.getpid())


def test_the_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    here = settings(tmp_path)
    token = serve._token(here)
    assert len(token) == 64
    assert serve._token(here) == token
    assert stat.S_IMODE(components.token_file(here).stat().st_mode) == 0o600
    assert token not in shlex.join(
        argument for c in components.plan(here, {}, tmp_path, token).components for argument in c.command
    )


def test_a_short_data_folder_is_used_by_its_own_path() -> None:
    home = Path("/" + "h" * (serve.LONGEST_HOME - 1))
    with serve._short_name(home) as short:
        assert short == home


def test_a_long_data_folder_gets_a_short_link_that_goes_away(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 20)
    home.mkdir()
    with serve._short_name(home) as short:
        assert len(str(short)) <= serve.LONGEST_HOME
        (short / "there").touch()
        assert (home / "there").exists()
    assert not short.parent.exists()
    assert (home / "there").exists()


def test_the_link_of_a_killed_one_is_removed_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    home = tmp_path / ("long" * 20)
    home.mkdir()
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp") as others:
        Path(others, "home").symlink_to(tmp_path)
        left = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))
        (left / "home").symlink_to(home)
        with serve._short_name(home):
            assert not left.exists()
            assert Path(others, "home").is_symlink()
    assert home.exists()


def test_a_temporary_folder_that_is_too_long_itself_is_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / ("long" * 20)
    home.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home))
    with serve._short_name(home) as short:
        assert short.parent.parent == Path("/tmp")


def test_what_goes_wrong_meanwhile_is_not_swallowed(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 20)
    home.mkdir()
    with pytest.raises(OSError, match="disk full"), serve._short_name(home) as short:
        raise OSError("disk full")
    assert not short.parent.exists()


def test_the_longest_home_leaves_room_for_rays_longest_socket(tmp_path: Path) -> None:
    # Linux takes 107 bytes and no more.
    deepest = (
        "/" + "h" * (serve.LONGEST_HOME - 1) + "/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
    )
    assert len(deepest) == 107


def test_old_ray_sessions_make_room_and_the_latest_stay(tmp_path: Path) -> None:
    sessions = [tmp_path / "ray" / f"session_2026-01-0{day}_00-00-00_000000_1" for day in range(1, 7)]
    for session in sessions:
        session.mkdir(parents=True)
    serve._make_room(settings(tmp_path))
    assert sorted((tmp_path / "ray").glob("session_*")) == sessions[-serve.RAY_SESSIONS_KEPT :]
