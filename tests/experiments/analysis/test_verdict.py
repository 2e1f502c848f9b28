"""Where a run's time went, from what was measured; a cause is named only when it was."""

import math

import pandas as pd
import pytest

from experiments.analysis.timing import steady_states
from experiments.analysis.verdict import Cause, verdict
from tests.experiments.analysis import frames
from training.names import Metric

STREAM = '{"pipeline": "tf_data"}'
TWO = {"workers": 2, "strategy": "multi_worker_mirrored"}


def _verdict(run_id, runs, *histories):
    history = pd.concat(histories, ignore_index=True)
    return verdict(run_id, runs, steady_states(runs, history), history)


def _run(run_id, seconds, batch=64, waited=0.0, **more):
    """Frames of a run of four epochs of 10,000 examples, the first half a second longer."""
    first = [seconds + 0.5, *[seconds] * 3]
    return (
        {"run_id": run_id, "global_batch_size": batch, "time_total": 100.0, **more},
        frames.epochs(run_id, first, 10_000, waited=[waited * each for each in first]),
    )


@pytest.mark.parametrize(
    ("waited", "cause", "moderate"),
    [(0.80, Cause.INPUT, False), (0.20, Cause.INPUT, False), (0.10, Cause.INPUT, True), (0.04, Cause.UNKNOWN, False)],
)
def test_a_sleeping_input_pipeline(waited, cause, moderate):
    run, history = _run("a", 2.0, waited=waited, dataset_options=STREAM)
    found = _verdict("a", frames.runs(run), history)
    assert (found.cause, found.moderate) == (cause, moderate)
    assert found.shares[Cause.INPUT].value == pytest.approx(waited)
    if cause is Cause.INPUT:
        assert f"{waited:.0%} of training time" in found.sentence()


def test_the_small_batch_is_named_from_runs_with_larger_ones():
    # A step takes 2 ms + 0.05 ms an example.
    def at(batch):
        return _run(f"b{batch}", 10_000 / batch * (0.002 + 0.00005 * batch), batch)

    sizes = [at(batch) for batch in (1, 64, 256)]
    runs = frames.runs(*(run for run, _ in sizes))
    histories = [history for _, history in sizes]
    found = _verdict("b1", runs, *histories)
    assert found.cause is Cause.LAUNCHING
    assert found.share == pytest.approx(0.002 / 0.00205, rel=1e-3)
    assert "larger batch" in found.sentence()
    largest = _verdict("b256", runs, *histories)
    assert largest.cause is Cause.UNKNOWN  # nothing larger tells what a step costs whatever its batch
    assert Metric.TIME_STEP_ONE_EXAMPLE in largest.sentence()


def test_a_tiny_model_on_many_replicas_is_synchronising():
    one, first = _run("one", 2.0, 64)
    two, second = _run("two", 2.0, 128, **TWO)  # as long for the same examples: a step takes twice as long
    found = _verdict("two", frames.runs(two, one), first, second)
    assert found.cause is Cause.SYNCHRONISING
    assert found.share == pytest.approx(0.5)
    assert "one replica with the same batch per replica" in found.sentence()


def test_hand_over_to_replicas_is_not_taken_for_input():
    one, first = _run("one", 2.0, 64)
    two, second = _run("two", 2.0, 128, waited=0.36, **TWO)
    found = _verdict("two", frames.runs(two, one), first, second)
    assert found.cause is Cause.SYNCHRONISING
    assert found.shares[Cause.INPUT].value == 0


def test_measured_times_are_preferred():
    run, history = _run("a", 2.0, 100, **TWO)  # 20 ms a step
    measured = frames.history(
        ("a", Metric.TIME_ALL_REDUCE, [0], [0.012]), ("a", Metric.TIME_STEP_ONE_EXAMPLE, [0], [0.013])
    )
    found = _verdict("a", frames.runs(run), history, measured)
    assert found.cause is Cause.SYNCHRONISING
    assert found.share == pytest.approx(0.6)
    # Per-replica batch of 50: a step of one example pays 13 ms, of which its own computing is (20 - 13) / 49.
    assert found.shares[Cause.LAUNCHING].value == pytest.approx((0.013 - 0.007 / 49) / 0.02 - 0.6)
    assert found.unmeasured == ()


def test_compiling_is_a_share_of_the_whole_run():
    run, history = _run("a", 1.0, time_total=2.0)
    found = _verdict("a", frames.runs(run), history)
    assert found.cause is Cause.COMPILING
    assert found.share == pytest.approx(0.25)
    assert "25% of the run" in found.sentence()


def test_computing_only_when_the_rest_was_measured_and_is_small():
    run, history = _run("a", 2.0, 100)
    measured = frames.history(("a", Metric.TIME_STEP_ONE_EXAMPLE, [0], [0.0004]))
    found = _verdict("a", frames.runs(run), history, measured)
    assert found.cause is Cause.COMPUTING
    assert found.share == pytest.approx(1 - (0.0004 - 0.0196 / 99) / 0.02)
    unknown = _verdict("a", frames.runs(run), history)
    assert unknown.cause is Cause.UNKNOWN
    assert math.isnan(unknown.share)
    assert Metric.TIME_STEP_ONE_EXAMPLE in unknown.sentence()


def test_an_unknown_run_is_an_error_and_a_silent_one_is_not():
    run, history = _run("a", 2.0, waited=0.5, dataset_options=STREAM)
    runs = frames.runs(run, {"run_id": "silent"})
    assert _verdict("silent", runs, history).cause is Cause.UNKNOWN
    with pytest.raises(KeyError, match="nobody"):
        verdict("nobody", runs, steady_states(runs, history), history)


def test_a_run_that_someone_else_logged_gets_no_verdict_and_no_error():
    runs = frames.runs({"run_id": "theirs"})
    for name in ("total_replicas", "replicas", "workers", "global_batch_size", "per_replica_batch_size"):
        runs[name] = pd.array([pd.NA], dtype="Int64")
    found = _verdict("theirs", runs, frames.history())
    assert found.cause is Cause.UNKNOWN
    assert found.sentence().startswith("where the time went is not known: run it again, ")


def test_what_else_takes_a_high_share_is_named_too():
    run, history = _run("a", 2.0, waited=0.3, dataset_options=STREAM, **TWO)
    more = frames.history(("a", Metric.TIME_ALL_REDUCE, [0], [2.0 / (10_000 / 64) * 0.5]))
    found = _verdict("a", frames.runs(run), history, more)
    assert found.cause is Cause.SYNCHRONISING
    assert found.also() == [Cause.INPUT]
    assert "; also waiting for input: 30%; " in found.sentence()


def test_a_step_that_only_computes_is_not_launch_bound_at_a_small_batch_either():
    run, history = _run("a", 10_000 / 4 * 0.020, 4)  # 20 ms a step of four
    measured = frames.history(("a", Metric.TIME_STEP_ONE_EXAMPLE, [0], [0.005]))
    assert _verdict("a", frames.runs(run), history, measured).shares[Cause.LAUNCHING].value == pytest.approx(0.0)


def test_a_run_with_xla_is_not_told_to_record_what_it_never_does():
    run, history = _run("a", 2.0, jit_compile_resolved="true")
    assert Metric.TIME_STEP_ONE_EXAMPLE not in _verdict("a", frames.runs(run), history).sentence()


BATCHES = "run one that differs only in a batch twice as large or more"


def test_a_run_of_one_epoch_is_told_to_train_two():
    run = {"run_id": "a", "time_total": 100.0, "time_first_step": 1.0, "epochs": 1}
    once = frames.epochs("a", [2.0], 10_000, waited=[0.0])
    found = _verdict("a", frames.runs(run), once)
    assert found.sentence() == "where the time went is not known: train two epochs or more"
    # Nor would an all-reduce tell a share of a step whose time is not known.
    several = _verdict("a", frames.runs({**run, **TWO}), once)
    assert several.unmeasured == ("train two epochs or more",)


def test_a_run_that_saw_no_steady_state_is_told_to_train_longer():
    run = {"run_id": "a", "time_total": 100.0, "time_first_step": 1.0}
    found = _verdict("a", frames.runs(run), frames.epochs("a", [3.0, 2.0, 1.0], 10_000, waited=[0.0] * 3))
    assert found.sentence() == "where the time went is not known: train longer: no steady state was seen"


def test_what_to_do_is_a_sentence_whatever_is_missing():
    run, history = _run("a", 2.0)
    found = _verdict("a", frames.runs(run), history)
    assert found.sentence() == (
        f"where the time went is not known: {BATCHES}, or run it again, {Metric.TIME_STEP_ONE_EXAMPLE} is then recorded"
    )
    compiled = _verdict("a", frames.runs({**run, "jit_compile_resolved": "true"}), history)
    assert compiled.sentence() == f"where the time went is not known: {BATCHES}"
    several = _verdict("a", frames.runs({**run, **TWO, "time_total": math.nan}), history)
    assert several.sentence() == (
        "where the time went is not known: run one on one replica with the same batch per replica, or run it again, "
        f"{Metric.TIME_ALL_REDUCE} is then recorded; {BATCHES}, or run it again, {Metric.TIME_STEP_ONE_EXAMPLE} is "
        f"then recorded; run it again, {Metric.TIME_TOTAL} and {Metric.TIME_FIRST_STEP} is then recorded"
    )


def test_one_run_is_one_run():
    one, first = _run("one", 2.0, 64)
    two, second = _run("two", 2.0, 128, **TWO)
    found = _verdict("two", frames.runs(two, one), first, second)
    assert found.shares[Cause.SYNCHRONISING].source == "against 1 run on one replica with the same batch per replica"
    large, third = _run("large", 1.0, 256)
    again, fourth = _run("again", 1.0, 256)
    batches = _verdict("one", frames.runs(one, large), first, third)
    assert batches.shares[Cause.LAUNCHING].source == "against 1 run with other batch sizes"
    more = _verdict("one", frames.runs(one, large, again), first, third, fourth)
    assert more.shares[Cause.LAUNCHING].source == "against 2 runs with other batch sizes"
