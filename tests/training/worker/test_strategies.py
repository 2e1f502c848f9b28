"""The same seed and global batch train to the same losses on every strategy, and validation counts every example."""

import pytest

from tests.support.training_run import TINY, train
from training.names import Metric, Tag

pytestmark = pytest.mark.slow

# 203 examples in batches of 64: the last one has 11, an uneven share for 2 and for 4 replicas.
DATA = {"dataset": "digits", "dataset_options": {"examples": 640, "validation_examples": 203}}
COMMON = {**DATA, "epochs": 3, "global_batch_size": 64, "log_device_placement": False}
TWO = {"strategy": "mirrored", "replicas": 2, "logical_devices": 2}
FOUR = {"strategy": "mirrored", "replicas": 4, "logical_devices": 4}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2, "cpu_threads": 1}
ELSEWHERE = pytest.mark.parametrize("where", [TWO, FOUR, WORKERS], ids=["2 replicas", "4 replicas", "2 workers"])


@ELSEWHERE
def test_losses_agree_with_one_device(where):
    """Of a model with a train_step of its own, see workloads/test_vae_distributed.py."""
    one, other = train(**COMMON), train(**COMMON, **where)
    assert set(other.exit_codes) == {0}
    assert other.metric("loss") == pytest.approx(one.metric("loss"), rel=1e-4)
    assert other.metric("val_loss") == pytest.approx(one.metric("val_loss"), rel=1e-3)
    assert len(one.metric("loss")) == 3


@ELSEWHERE
def test_the_replicas_in_sync_are_the_asked_ones(where):
    run = train(**COMMON, **where)
    count = where.get("replicas", 1) * where.get("workers", 1)
    assert run.tags()[Tag.REPLICAS_IN_SYNC] == str(count)
    assert run.tags()[Tag.PER_REPLICA_BATCH_SIZE] == str(64 // count)


@pytest.mark.parametrize("examples", [1, 129], ids=lambda count: f"{count} validation examples")
@pytest.mark.parametrize("where", [{}, FOUR], ids=["1 device", "4 replicas"])
def test_validation_counts_every_example_also_fewer_than_replicas(examples, where):
    """With a learning rate of almost nothing the model stays as seeded, so accuracies are exact multiples of 1/n."""
    fields = {**TINY, "dataset_options": {"examples": 128, "validation_examples": examples}, "global_batch_size": 128}
    run = train(**fields | where, learning_rate=1e-12, log_device_placement=False)
    (accuracy,), (loss,) = run.metric("val_accuracy"), run.metric("val_loss")
    assert accuracy * examples == pytest.approx(round(accuracy * examples), abs=1e-4)
    one = train(**fields, learning_rate=1e-12, log_device_placement=False)
    assert (accuracy, loss) == pytest.approx((one.metric("val_accuracy")[0], one.metric("val_loss")[0]), abs=1e-6)


def test_batch_normalization_survives_replicas_without_examples():
    """1,025 examples in batches of 128 on two replicas: a remainder of one, and a validation tail of one."""
    run = train(
        workload="vae",
        dataset="synthetic",
        dataset_options={"examples": 1025, "validation_examples": 129},
        global_batch_size=128,
        epochs=2,
        log_device_placement=False,
        **TWO,
    )
    assert run.end() == ("FINISHED", "")
    assert all(0 < value < 1e6 for value in run.metric("val_loss") + run.metric("loss"))


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
