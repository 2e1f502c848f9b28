"""A run followed from outside."""

import math

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from experiments import queue
from experiments.queue import UnknownRun
from experiments.settings import Settings
from experiments.watching import Watcher, epoch_line
from training.names import Metric, Phase, RunStatus, Tag
from training.spec import RunSpec


@pytest.fixture
def run_id(settings: Settings) -> str:
    spec = RunSpec(dataset="synthetic", dataset_options={"examples": 640}, cpu_threads=1, epochs=3)
    return queue.submit(settings, spec)


def finish_epoch(settings: Settings, run_id: str, epoch: int, loss: float) -> None:
    client = settings.client()
    for name, value in {Metric.LOSS: loss, Metric.TIME_EPOCH_TRAIN: 2.0, Metric.EXAMPLES_PER_SECOND: 320.0}.items():
        client.log_metric(run_id, name, value, step=epoch)


def finish_epochs(settings: Settings, run_id: str, epochs: tuple[int, ...], loss: float) -> None:
    for epoch in epochs:
        finish_epoch(settings, run_id, epoch, loss)


def test_each_state_and_each_epoch_is_one_line(settings: Settings, run_id: str) -> None:
    lines: list[str] = []
    client = settings.client()
    watcher = Watcher(settings, run_id, lines.append)
    steps = [
        lambda: None,
        lambda: client.set_tag(run_id, Tag.REASON, "waiting for 2 CPUs: next in line"),
        lambda: client.update_run(run_id, status=RunStatus.RUNNING),
        lambda: client.set_tag(run_id, Tag.PHASE, Phase.TRAINING),
        lambda: finish_epoch(settings, run_id, 0, 0.5),
        lambda: client.set_tag(run_id, Tag.PHASE, Phase.VALIDATING),
        # Two epochs between two looks.
        lambda: finish_epochs(settings, run_id, (1, 2), math.nan),
        lambda: client.set_tag(run_id, Tag.REASON, "out of memory\x1b[2J"),
        lambda: client.set_terminated(run_id, RunStatus.FAILED),
    ]

    def next_step(_: float) -> None:
        steps.pop(0)()

    assert watcher.until_the_end(next_step) is RunStatus.FAILED
    assert lines == [
        "SCHEDULED: waiting for the controller",
        "SCHEDULED: waiting for 2 CPUs: next in line",
        "RUNNING",
        "RUNNING: training",
        "epoch 1/3: loss 0.5000, 2 s training, 320 examples/s",
        "epoch 2/3: loss nan, 2 s training, 320 examples/s",
        "epoch 3/3: loss nan, 2 s training, 320 examples/s",
        r"FAILED: out of memory\x1b[2J",
    ]


def test_a_store_that_is_away_is_said_once_and_outlived(
    settings: Settings, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    watcher = Watcher(settings, run_id, lines.append)

    def away(*_: object) -> None:
        raise MlflowException("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_run", away)
        assert [watcher.look(), watcher.look()] == [False, False]
    watcher.look()
    assert lines[0] == "the tracking store does not answer (no answer); the run goes on"
    assert lines[1:] == ["SCHEDULED: waiting for the controller", "the tracking store answers again"]


def test_a_request_to_cancel_is_seen(settings: Settings, run_id: str) -> None:
    settings.client().update_run(run_id, status=RunStatus.RUNNING)
    lines: list[str] = []
    watcher = Watcher(settings, run_id, lines.append)
    assert watcher.look() is False
    queue.cancel(settings, run_id)
    assert watcher.look() is True
    assert lines == ["RUNNING", "RUNNING: stopping"]


def test_a_run_deleted_meanwhile_ends_the_watching(settings: Settings, run_id: str) -> None:
    with pytest.raises(UnknownRun):
        Watcher(settings, run_id, print).until_the_end(lambda _: settings.client().delete_run(run_id))


def test_time_left_is_said_while_there_is_some() -> None:
    values = {"accuracy": 0.5, Metric.TIME_EPOCH_TRAIN: 61.0}
    assert epoch_line(0, 2, values, 90.0) == "epoch 1/2: accuracy 0.5000, 1 min 01 s training, 1 min 30 s left"
    assert epoch_line(1, 2, values, 0.0) == "epoch 2/2: accuracy 0.5000, 1 min 01 s training"
    assert epoch_line(1, None, {"loss": math.inf}, math.nan) == "epoch 2: loss inf"
