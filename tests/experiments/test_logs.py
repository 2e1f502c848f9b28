"""The log of a run, live and ended: its end, what follows, and nothing through links."""

import itertools
import time
from pathlib import Path

import pytest
from mlflow.entities import ViewType

from experiments.results import (
    UnknownRun,
    environment,
    follow,
    log_lines,
    record,
)
from experiments.results.logs import MOST_BYTES
from experiments.settings import Settings
from tests.support.stored_runs import new_run
from training.names import Artifact, RunStatus
from training.run_folder import RunFolder

PLACED = "I0000 00:00:1.2 98 placer.cc:162] dense/MatMul: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0\n"


def live_log(settings: Settings, run_id: str, worker: int = 0) -> Path:
    """The standard error file of a training process, its folder made."""
    files = RunFolder.of(settings.runs_folder, run_id).worker(worker)
    files.path.mkdir(parents=True, exist_ok=True)
    return files.stderr


def test_a_live_log_leaves_out_placement_lines_and_says_what_it_cut(settings: Settings) -> None:
    run_id = new_run(settings)
    assert log_lines(settings, run_id) == []
    live_log(settings, run_id).write_text(PLACED + "a warning\n" + PLACED + "x" * 5_000 + "\nhalf a li")
    lines = log_lines(settings, run_id)
    assert lines[0] == "a warning"
    assert len(lines[1]) < 2_100
    assert lines[2] == "half a li"
    assert log_lines(settings, run_id, last=1) == ["... earlier lines are left out", "half a li"]
    assert log_lines(settings, run_id, worker=1) == []
    assert log_lines(settings, run_id, worker=-1) == []


def test_the_end_of_300_mb_comes_at_once(settings: Settings) -> None:
    run_id = new_run(settings)
    with live_log(settings, run_id).open("wb") as file:
        file.truncate(300 * 2**20)
        file.seek(0, 2)
        file.write(b"\nfirst\n" + b"line\n" * 2_000 + b"last\n")
    began = time.process_time()
    lines = log_lines(settings, run_id)
    assert time.process_time() - began < 1
    assert (len(lines), lines[-1]) == (301, "last")
    assert "left out" in lines[0]


def test_the_log_of_an_ended_run_is_the_artifact(settings: Settings) -> None:
    run_id = new_run(settings)
    live_log(settings, run_id).write_text("live\n")
    settings.client().log_text(run_id, "kept\n", f"{Artifact.LOG_DIR}/worker-0.log")
    assert log_lines(settings, run_id) == ["live"]
    settings.client().set_terminated(run_id, RunStatus.FINISHED)
    assert log_lines(settings, run_id) == ["kept"]


def test_links_lead_nowhere(settings: Settings, tmp_path: Path) -> None:
    """A training process, or someone with access to the folder, must not turn a log into any file."""
    secret = tmp_path / "secret"
    secret.write_text('{"secret": 1}\n')
    run_id = new_run(settings)
    live_log(settings, run_id).symlink_to(secret)
    RunFolder.of(settings.runs_folder, run_id).environment.symlink_to(secret)
    assert log_lines(settings, run_id) == []
    assert environment(settings, run_id) == {}
    root = next(settings.artifacts_folder.glob(run_id)) / "artifacts"
    (root / Artifact.LOG_DIR).mkdir()
    (root / Artifact.LOG_DIR / "worker-0.log").symlink_to(secret)
    (root / Artifact.ENVIRONMENT).symlink_to(secret)
    (root / Artifact.SPEC).unlink()
    (root / Artifact.SPEC).symlink_to(secret)
    settings.client().set_terminated(run_id, RunStatus.FINISHED)
    assert log_lines(settings, run_id) == []
    assert environment(settings, run_id) == {}
    assert record(settings, run_id)["spec"] is None


def test_following_gives_each_line_once_until_the_run_ends(settings: Settings) -> None:
    run_id = new_run(settings)
    file = live_log(settings, run_id)
    file.write_text("one\ntwo\n")
    looks = itertools.count(1)

    def meanwhile(_: float) -> None:
        look = next(looks)
        with file.open("a") as log:
            log.write(f"line {look}\n{PLACED}half of ")
        if look == 2:
            settings.client().set_terminated(run_id, RunStatus.FINISHED)
            with file.open("a") as log:
                log.write("the end\n")

    assert list(follow(settings, run_id, last=1, sleep=meanwhile)) == [
        "two",
        "line 1",
        "half of line 2",
        "half of the end",
    ]


def test_following_gives_what_was_written_last_without_a_line_end(settings: Settings) -> None:
    run_id = new_run(settings)
    file = live_log(settings, run_id)
    file.write_text("one\nAborted")
    ended = lambda _: settings.client().set_terminated(run_id, RunStatus.FAILED)  # noqa: E731
    assert list(follow(settings, run_id, sleep=ended)) == ["one", "Aborted"]


def test_following_gives_all_of_what_came_at_the_end(settings: Settings) -> None:
    """One reading is limited; a process may write more than that in its last moment, its traceback last."""
    run_id = new_run(settings)
    file = live_log(settings, run_id)
    file.write_text("one\n")

    def at_the_end(_: float) -> None:
        file.write_text("one\n" + PLACED * (3 * MOST_BYTES // len(PLACED)) + "ValueError: the cause\n")
        settings.client().set_terminated(run_id, RunStatus.FAILED)

    assert list(follow(settings, run_id, sleep=at_the_end)) == ["one", "ValueError: the cause"]


def test_following_a_long_log_begins_with_a_whole_line(settings: Settings) -> None:
    run_id = new_run(settings)
    line = "x" * 1_022
    live_log(settings, run_id).write_text(f"{line}y\n" * (MOST_BYTES // 1_024 + 1))
    ended = lambda _: settings.client().set_terminated(run_id, RunStatus.FINISHED)  # noqa: E731
    assert set(follow(settings, run_id, last=10**6, sleep=ended)) == {f"{line}y"}


def test_a_run_deleted_while_it_is_followed_ends_the_following(settings: Settings) -> None:
    run_id = new_run(settings)
    live_log(settings, run_id).write_text("one\n")
    with pytest.raises(UnknownRun):
        list(follow(settings, run_id, sleep=lambda _: settings.client().delete_run(run_id)))
    deleted = settings.client().search_runs([settings.experiment_id()], run_view_type=ViewType.DELETED_ONLY)
    assert [run.info.run_id for run in deleted] == [run_id]
