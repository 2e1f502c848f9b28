"""What the command line refuses, or cannot do: one line that says what, exit code 2, nothing queued."""

import errno
from pathlib import Path

import pytest

from experiments import queue
from experiments.settings import Settings
from tests.support.command_line import Run, refused
from training.spec import RunSpec

TINY = ("--set", "dataset=synthetic", "--set", "cpu_threads=1", "--set", "epochs=2")
SPEC = RunSpec(dataset="synthetic", cpu_threads=1, epochs=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("COMMAND", "--help")),
        (("walk",), ("invalid choice: 'walk'", "list")),
        (("show",), ("RUN",)),
        (("list", "--limit", "-1"), ("--limit", "no whole number")),
        (("list", "--status", "DONE"), ("DONE", "FINISHED")),
        (("list", "--js"), ("unrecognized",)),
        (("run", "--inline", "--set", "epochs"), ("'epochs'", "field=value")),
        (("run", "--inline", "--set", "epoch=3"), ("epoch", "did you mean epochs")),
        (("run", "--inline", "--set", "epochs=many"), ("epochs='many'", "whole number")),
        (("submit", "--set", "dataset=nosuch"), ("dataset='nosuch'", "choose one of", "synthetic")),
        (("submit", "--set", "dataset=synthetic", "--set", "cpu_threads=4000"), ("cpu_threads=4000", "give fewer")),
        (("submit", "--set", "dataset=synthetic", "--set", "epochs=0", "--set", "seed=-1"), ("epochs=0", "seed=-1")),
        (("submit", "--set", "name=\x1b[2J\nx"), ("name=", "control characters")),
        (("submit", "--spec", "/no/such/file.json"), ("/no/such/file.json", "No such file")),
        (("show", "0" * 32), ("0" * 32, "list")),
        (("show", "abc"), ("'abc'", "is too short", "first 6 characters")),
        (("submit", "--set", "=3"), ("'=3'", "names no field", "field=value")),
        (("submit", "--set", "EPOCHS=3"), ("EPOCHS", "did you mean epochs")),
        (("submit", "--set", "name=\u202eabc"), ("name=", "turn the direction", "remove them")),
        (("submit", "--set", "group=  "), ("group=", "is blank")),
        (("submit", "--spec", ""), ("--spec", "'' is empty", "leave the option out")),
        (("run", "--plan", "xla", "--group", " "), ("--group", "is empty")),
        (("speedup", "--baseline", ""), ("--baseline", "is empty")),
        (("speedup", "--by", ""), ("--by", "is empty")),
        (("speedup", "--put-back", ""), ("--put-back", "is empty")),
        (("speedup", "--put-back", "ffffff"), ("'ffffff'", "is unknown")),
        (("scaling", "--curve", ""), ("--curve", "is empty")),
        (("scaling", "--put-back", "ffffff"), ("'ffffff'", "is unknown")),
        (("report", ""), ("GROUP", "is empty")),
        (("show", "\x1b[31m"), ("is unknown",)),
        (("log", "../../etc/passwd"), ("'../../etc/passwd'", "is unknown")),
        (("cancel", "ffffff"), ("'ffffff'", "is unknown")),
        (("placement", "%"), ("is unknown",)),
    ],
)
def test_bad_input_is_one_line_that_says_what_and_how(cli_run: Run, arguments: tuple[str, ...], words: tuple) -> None:
    answer = cli_run(*arguments)
    refused(answer, *words)
    assert "\x1b" not in answer.err


def test_nothing_is_queued_by_what_is_refused(cli_run: Run, settings: Settings) -> None:
    cli_run("submit", "--set", "dataset=synthetic", "--set", "epochs=0")
    assert settings.client().search_runs([settings.experiment_id()]) == []


@pytest.mark.parametrize("content", ["", "[1]", "{", "3", '{"epochs": "two"}', '{"epoch": 2}', "[" * 100_000])
def test_a_spec_file_that_is_none_is_refused(cli_run: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "spec.json"
    file.write_text(content)
    refused(cli_run("submit", "--spec", str(file)), "spec" if "epoch" not in content else "epoch")


def test_bad_settings_are_refused(cli_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEEDUP_LAB_PORT", "none")
    refused(cli_run("list"), "SPEEDUP_LAB_PORT", "65535")


def test_a_server_that_is_away_is_named(cli_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    refused(cli_run("list"), "tracking store does not answer", "MLFLOW_TRACKING_URI")


def test_a_disk_that_is_full_is_no_server_that_is_away(cli_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(queue, "submit", full)
    refused(cli_run("submit", *TINY), "No space left on device", "SPEEDUP_LAB_HOME")


def test_a_fault_of_ours_is_no_bad_input(cli_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    no_columns: dict[str, int] = {}
    monkeypatch.setattr("experiments.results.Results.runs", lambda self: no_columns["column"])
    with pytest.raises(KeyError, match="column"):
        cli_run("speedup")


def test_a_curve_that_is_not_there_is_named(cli_run: Run) -> None:
    refused(cli_run("scaling", "--curve", "none"), "none")


def test_a_deleted_experiment_is_restored_by_the_command_that_is_named(cli_run: Run, settings: Settings) -> None:
    run_id = queue.submit(settings, SPEC)
    settings.client().delete_experiment(settings.experiment_id())
    refused(cli_run("list"), "was deleted", "python -m experiments restore")
    assert cli_run("restore", "--json").json == {"experiment": settings.experiment, "restored": True}
    assert [row["run_id"] for row in cli_run("list", "--json").json] == [run_id]
    assert cli_run("restore", "--json").json == {"experiment": settings.experiment, "restored": False}


def test_the_log_of_a_foreign_run_with_workers_of_its_own_can_be_read(cli_run: Run, settings: Settings) -> None:
    run_id = settings.client().create_run(settings.experiment_id()).info.run_id
    settings.client().log_param(run_id, "workers", "many")
    assert cli_run("log", run_id).code == 0
