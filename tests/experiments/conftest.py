"""The command line in this process, on the data folder of a test."""

import typing
from collections.abc import Callable

import pytest

from experiments import cli
from experiments.settings import Settings
from tests.support.command_line import Answer, Run


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
