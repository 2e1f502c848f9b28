"""Runs carried out by who submits them. The supervisor here is a script; the real one is in tests/e2e."""

import dataclasses
import errno
import sys
import time
import typing
from collections.abc import Callable

import pytest

from experiments import foreground, live, queue
from experiments.engines.base import FOREGROUND, EngineError
from experiments.engines.inline import InlineEngine
from experiments.foreground import Foreground, cancel, submit
from experiments.settings import Settings
from training.names import Metric, RunStatus, Tag
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.journal import Journal
from training.worker.recorder import Recorder
from training.worker.recording import replay

TINY = RunSpec(dataset="synthetic", cpu_threads=1, epochs=2)

FINISHES = """
import sys
from training.names import Metric, RunStatus
from training.run_folder import RunFolder
from training.worker.journal import Journal
folder = RunFolder(sys.argv[1])
journal = Journal(folder.worker(0).journal)
for epoch in range(2):
    journal.metrics({Metric.LOSS: 0.5 - epoch / 10, Metric.TIME_EPOCH_TRAIN: 1.0}, step=epoch)
Journal(folder.supervisor_journal).end(RunStatus.FINISHED, "")
"""
DIES = "import os; os.kill(os.getpid(), 9)"
HANGS = "import time; time.sleep(600)"


def engine(settings: Settings, script: str) -> InlineEngine:
    """An inline engine with a script for a supervisor."""

    def command(launch: Launch, _: RunSpec) -> list[str]:
        return [sys.executable, "-c", script, launch.folder]

    return InlineEngine(settings, command)


@pytest.fixture
def carry_out(settings: Settings) -> Callable[..., str]:
    """Submits a run and carries it out with a script for a supervisor."""

    def run(script: str, look: Callable[[], bool] = lambda: False) -> str:
        run_id = submit(settings, TINY)
        under_way = Foreground(settings, run_id, engine(settings, script))
        try:
            under_way.start()
            under_way.wait(look)
        finally:
            under_way.close()
        return run_id

    return run


def test_no_controller_takes_a_run_that_its_submitter_carries_out(settings: Settings) -> None:
    run = settings.client().get_run(submit(settings, TINY))
    assert run.info.status == RunStatus.SCHEDULED
    assert run.data.tags[Tag.ENGINE_HANDLE] == FOREGROUND


def test_what_the_supervisor_left_is_recorded(settings: Settings, carry_out: Callable[..., str]) -> None:
    run_id = carry_out(FINISHES)
    run = settings.client().get_run(run_id)
    assert run.info.status == RunStatus.FINISHED
    assert run.data.metrics[Metric.LOSS] == 0.4
    launch = RunFolder.of(settings.runs_folder, run_id).launch()
    assert (launch.run_id, launch.tracking_uri, launch.cpus, launch.gpu_ids) == (run_id, settings.tracking_uri, 1, [])
    assert launch.submitted_at == run.info.start_time / 1000


def test_a_supervisor_that_dies_fails_the_run(settings: Settings, carry_out: Callable[..., str]) -> None:
    run = settings.client().get_run(carry_out(DIES))
    assert run.info.status == RunStatus.FAILED
    assert run.data.tags[Tag.REASON] == "the supervisor was killed by signal 9"


def test_an_end_that_cannot_be_recorded_is_said_once_and_tried_again(
    settings: Settings,
    carry_out: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes = [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.ENOSPC, "No space left on device")]

    def full_at_first(*arguments: typing.Any) -> bool:
        if outcomes:
            raise outcomes.pop()
        return replay(*arguments)

    monkeypatch.setattr(foreground, "replay", full_at_first)
    monkeypatch.setattr(foreground, "RECORD_EVERY_S", 0.05)
    run = settings.client().get_run(carry_out(DIES))
    assert run.info.status == RunStatus.FAILED
    assert [record.getMessage() for record in caplog.records if "No space left" in record.getMessage()] == [
        "the run's end cannot be recorded, trying again: OSError: [Errno 28] No space left on device"
    ]


def test_a_cancelled_run_is_killed(settings: Settings, carry_out: Callable[..., str]) -> None:
    looks: list[bool] = [False, True]
    run = settings.client().get_run(carry_out(HANGS, lambda: looks.pop(0) if looks else True))
    assert run.info.status == RunStatus.KILLED
    assert run.data.tags[Tag.REASON] == "stopped by request"


def test_a_supervisor_that_cannot_be_started_fails_the_run(settings: Settings) -> None:
    class Broken(InlineEngine):
        def start(self, *_: object) -> str:
            raise EngineError("no more processes")

    run_id = submit(settings, TINY)
    under_way = Foreground(settings, run_id, Broken(settings))
    assert under_way.start() is True
    under_way.wait(lambda: False)
    run = settings.client().get_run(run_id)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", "could not be started: no more processes")


def test_a_run_is_carried_out_once(settings: Settings) -> None:
    run_id = submit(settings, TINY)
    first, second = (Foreground(settings, run_id, engine(settings, FINISHES)) for _ in range(2))
    assert (first.start(), second.start()) == (True, False)
    first.wait(lambda: False)
    assert Foreground(settings, run_id, engine(settings, FINISHES)).start() is False


def left_behind(settings: Settings, host: str = "") -> str:
    """A run whose command, supervisor and training process were killed together, as with a batch job."""
    run_id = submit(settings, TINY)
    folder = RunFolder.of(settings.runs_folder, run_id)
    folder.write_launch(Launch(run_id, settings.tracking_uri, str(folder.path)))
    Journal(folder.worker(0).journal).metrics({Metric.LOSS: 0.5}, step=0)
    settings.client().update_run(run_id, status="RUNNING")
    if host:
        settings.client().set_tag(run_id, Tag.HOST, host)
    return run_id


def test_a_run_that_was_killed_with_its_job_is_closed_by_the_next_command(
    settings: Settings, carry_out: Callable[..., str]
) -> None:
    run_id = left_behind(settings)
    carry_out(FINISHES)
    run = settings.client().get_run(run_id)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", "its process is gone")
    assert run.data.metrics[Metric.LOSS] == 0.5


def test_cancelling_a_run_that_nobody_carries_out_ends_it(settings: Settings) -> None:
    run_id = left_behind(settings)
    assert cancel(settings, run_id) is RunStatus.KILLED
    assert settings.client().get_run(run_id).data.tags[Tag.REASON] == "stopped by request"


def test_cancelling_a_run_whose_command_died_before_its_start_ends_it(settings: Settings) -> None:
    run_id = submit(settings, TINY)
    assert cancel(settings, run_id) is RunStatus.KILLED
    assert settings.client().get_run(run_id).data.tags[Tag.REASON] == "cancelled before it started"
    assert not Foreground(settings, run_id, engine(settings, HANGS)).start()


def test_a_run_of_another_host_is_given_up_when_its_files_are_silent(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has another host's name each time it starts."""
    run_id = left_behind(settings, host="another")
    assert cancel(settings, run_id) is RunStatus.RUNNING, "somebody may be at work there"
    monkeypatch.setattr(live, "SILENT_S", 0.2)
    time.sleep(0.5)
    assert cancel(settings, run_id) is RunStatus.KILLED


def test_a_run_that_lives_is_not_given_up(settings: Settings) -> None:
    run_id = left_behind(settings)
    supervisor = Recorder(RunFolder.of(settings.runs_folder, run_id))
    assert cancel(settings, run_id) is RunStatus.RUNNING
    supervisor.close()


def test_a_run_deleted_meanwhile_ends_the_waiting(settings: Settings) -> None:
    run_id = submit(settings, TINY)
    under_way = Foreground(settings, run_id, engine(settings, DIES))
    under_way.start()
    settings.client().delete_run(run_id)
    with pytest.raises(queue.UnknownRun):
        under_way.wait(lambda: False)
    under_way.close()


def test_a_cluster_that_is_set_but_away_is_not_asked(settings: Settings) -> None:
    assert submit(dataclasses.replace(settings, ray_address="http://127.0.0.1:9"), TINY)
