"""A data folder with a real MLflow store for each test. Making one takes seconds, so one is made and then copied."""

import shutil
import sqlite3
import typing
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from experiments import cli
from experiments.settings import Settings
from tests.support.command_line import Answer, Run


def settings_in(home: Path, **variables: str) -> Settings:
    """Settings of a data folder, with nothing from the developer's environment."""
    return Settings.from_environment({"SPEEDUP_LAB_HOME": str(home), **variables})


@pytest.fixture(scope="session")
def store_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a prepared data folder."""
    home = tmp_path_factory.mktemp("template") / "home"
    database = settings_in(home).prepare().database
    assert database is not None
    return database


@pytest.fixture
def new_settings(store_template: Path, tmp_path: Path) -> Callable[[str], Settings]:
    """Makes a data folder, ready to use, by its name."""

    def make(name: str) -> Settings:
        home = tmp_path / name
        home.mkdir()
        shutil.copy(store_template, home / "mlflow.db")
        settings = settings_in(home).prepare()
        with closing(sqlite3.connect(home / "mlflow.db")) as connection, connection:
            connection.execute(
                "UPDATE experiments SET artifact_location = ? WHERE name = ?",
                (settings.artifacts_folder.as_uri(), settings.experiment),
            )
        return settings

    return make


@pytest.fixture
def settings(new_settings: Callable[[str], Settings]) -> Settings:
    """A data folder of this test's own."""
    return new_settings("home")


@pytest.fixture
def cli_run(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, on the data folder of the test."""
    monkeypatch.setenv("SPEEDUP_LAB_HOME", str(settings.home))

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        code = cli.main(list(arguments))
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in place of the supervisor of inline runs."""
    from experiments import foreground
    from tests.experiments.test_foreground import engine

    def use(script: str) -> None:
        def with_script(settings: Settings) -> typing.Any:
            return engine(settings, script)

        monkeypatch.setattr(foreground, "InlineEngine", with_script)

    return use
