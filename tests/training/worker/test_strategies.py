"""The same seed and global batch train to the same losses on every strategy, and validation counts every example."""

import pytest

from tests.support.training_run import TINY, phases, slowest_step, train
from training.names import Metric, Tag

pytestmark = pytest.mark.slow

# 193 validation examples in batches of 64: the last one has 1, and all replicas but one have none of it. Of a tail that
# each replica has a part of, see workloads/test_vae_distributed.py.
DATA = {"dataset": "digits", "dataset_options": {"examples": 640, "validation_examples": 193}}
COMMON = {**DATA, "epochs": 3, "global_batch_size": 64, "log_device_placement": False}
TWO = {"strategy": "mirrored", "replicas": 2, "logical_devices": 2}
# One epoch: after several a diagnosis follows, which traces the step of four replicas again.
FOUR = {"strategy": "mirrored", "replicas": 4, "logical_devices": 4, "epochs": 1}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2, "cpu_threads": 1}
ELSEWHERE = pytest.mark.parametrize("where", [TWO, FOUR, WORKERS], ids=["2 replicas", "4 replicas", "2 workers"])


@ELSEWHERE
def test_losses_agree_with_one_device(where):
    """Of a model with a train_step of its own, see workloads/test_vae_distributed.py."""
    one, other = train(**COMMON), train(**COMMON | where)
    assert set(other.exit_codes) == {0}
    epochs = where.get("epochs", 3)
    assert other.metric("loss") == pytest.approx(one.metric("loss")[:epochs], rel=1e-4)
    assert other.metric("val_loss") == pytest.approx(one.metric("val_loss")[:epochs], rel=1e-3)
    assert len(one.metric("loss")) == 3
    # Every example counts once: the accuracies are whole multiples of 1/193.
    for right in [193 * accuracy for accuracy in one.metric("val_accuracy") + other.metric("val_accuracy")]:
        assert right == pytest.approx(round(right), abs=1e-3)


@ELSEWHERE
def test_the_replicas_in_sync_are_the_asked_ones(where):
    run = train(**COMMON | where)
    count = where.get("replicas", 1) * where.get("workers", 1)
    assert run.tags()[Tag.REPLICAS_IN_SYNC] == str(count)
    assert run.tags()[Tag.PER_REPLICA_BATCH_SIZE] == str(64 // count)


def test_fewer_validation_examples_than_replicas():
    """With a learning rate of almost nothing the model stays as seeded, so both validate the same one."""
    fields = {**TINY, "dataset_options": {"examples": 128, "validation_examples": 1}, "global_batch_size": 128}
    one, many = (train(**fields | where, learning_rate=1e-12, log_device_placement=False) for where in ({}, TWO))
    for name in ("val_accuracy", "val_loss"):
        assert many.metric(name) == pytest.approx(one.metric(name), abs=1e-6)
    assert one.metric("val_accuracy")[0] in (0, 1)


@pytest.mark.parametrize("where", [TWO, WORKERS], ids=["2 replicas", "2 workers"])
def test_several_replicas_measure_their_all_reduce_and_a_step_of_one_example(where):
    """Of one replica, see test_diagnosis.py."""
    run = train(**COMMON, **where)
    for worker in range(len(run.exit_codes)):
        assert run.end(worker) == ("FINISHED", "")
        assert phases(run, worker)[-2:] == ["measuring", "ended"]
        (reduction,), (step,) = (
            run.metric(name, worker) for name in (Metric.TIME_ALL_REDUCE, Metric.TIME_STEP_ONE_EXAMPLE)
        )
        assert 0 <= reduction < slowest_step(run, 64)
        assert 0 < step < slowest_step(run, 64)
        assert "warning: what a step is made of" not in run.stdout(worker)


def test_every_worker_keeps_a_journal_and_its_windows():
    run = train(**COMMON, **WORKERS)
    first, second = run.points(Metric.WINDOW, worker=0), run.points(Metric.WINDOW, worker=1)
    assert [point[0] for point in first] == [point[0] for point in second]
    assert run.end(0) == run.end(1) == ("FINISHED", "")
    assert run.metric("loss", worker=1) == pytest.approx(run.metric("loss", worker=0), rel=1e-6)


def test_streamed_batches_of_two_workers_are_those_of_one_device():
    streamed = {"examples": 640, "validation_examples": 203, "pipeline": "tf_data"}
    one, run = train(**COMMON), train(**COMMON | {"epochs": 1, "dataset_options": streamed}, **WORKERS)
    assert set(run.exit_codes) == {0}
    assert run.metric("loss") == pytest.approx(one.metric("loss")[:1], rel=1e-4)
    assert run.metric("loss", worker=1) == pytest.approx(run.metric("loss"), rel=1e-6)
