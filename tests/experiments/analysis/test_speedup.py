"""Ratios, whole runs and break-even, against hand calculation and statsmodels."""

import math

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from experiments.analysis.intervals import quotient
from experiments.analysis.speedup import (
    ONE_RUN_EACH,
    Basis,
    Called,
    break_even,
    costs,
    end_to_end_speedup,
    ratio_of,
    steady_speedup,
)
from tests.experiments.analysis import frames


def test_the_interval_is_welchs_on_logs():
    fast, slow = np.array([10.1, 9.7, 10.4, 10.0]), np.array([1.0, 1.3, 0.9])
    found = ratio_of(fast, slow)
    means = CompareMeans(DescrStatsW(np.log(fast)), DescrStatsW(np.log(slow)))
    expected = np.exp(means.tconfint_diff(usevar="unequal"))
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert found.basis is Basis.BETWEEN_RUNS
    assert found.called is Called.FASTER


def test_case_a4_two_devices_slower_than_one_stay_slower():
    found = steady_speedup(frames.steady(one=1 / 197, two=1 / 286), ["one"], ["two"])
    assert found.ratio == pytest.approx(197 / 286)
    assert round(found.ratio, 2) == 0.69
    assert found.sentence().startswith("0.69x")
    assert "slower" in found.sentence()
    repeated = ratio_of(np.array([0.69, 0.70, 0.68]), np.array([1.0, 1.01, 0.99]))
    assert repeated.called is Called.SLOWER
    assert repeated.high < 1


def test_one_run_each_is_marked_and_calls_nothing():
    found = steady_speedup(frames.steady(a=100, b=150), ["a"], ["b"])
    assert found.basis is Basis.WITHIN_RUNS
    assert found.called is Called.UNKNOWN
    assert ONE_RUN_EACH in found.note
    half = math.log(found.high / found.ratio)
    # Two errors of 1% each with 10 degrees of freedom: t(20) = 2.086.
    assert half == pytest.approx(2.086 * math.sqrt(2) * 0.01, rel=1e-3)


def test_repeats_on_one_side_lend_their_spread_and_say_so():
    found = ratio_of(np.array([2.0]), np.array([1.0, 1.02, 0.98]))
    assert found.basis is Basis.ONE_SIDE
    assert "assumed" in found.note
    s = np.log([1.0, 1.02, 0.98]).std(ddof=1)
    assert math.log(found.high / found.ratio) == pytest.approx(4.3027 * s * math.sqrt(1 + 1 / 3), rel=1e-4)


def test_runs_that_do_not_differ_at_all_give_no_interval():
    found = ratio_of(np.array([2.0, 2.0]), np.array([1.0, 1.0]))
    assert found.ratio == 2
    assert math.isnan(found.low)
    assert found.basis is Basis.NOTHING
    assert found.called is Called.UNKNOWN


def test_a_run_without_steady_state_is_left_out_and_said():
    found = steady_speedup(frames.steady(a=100, b=101, c=0, d=150, e=151), ["a", "b", "c"], ["d", "e"])
    assert (found.candidate_runs, found.baseline_runs) == (2, 2)
    assert "left out 1: c: no steady state" in found.note
    nothing = steady_speedup(frames.steady(a=100, c=0), ["a"], ["c"])
    assert math.isnan(nothing.ratio)
    assert nothing.sentence().startswith("no speedup: the candidate has no run with a steady state")


def test_an_unknown_run_is_named():
    with pytest.raises(KeyError, match="nobody"):
        steady_speedup(frames.steady(a=100), ["a"], ["nobody"])


def _costs(*rows):
    """(run id, throughput, start-up seconds): 60,000 examples an epoch, 3 epochs, 2 s of warm-up."""
    runs = frames.runs(*({"run_id": r, "time_startup": s, "time_data": 0.0, "time_build": 0.0} for r, _, s in rows))
    return costs(runs, frames.steady(**{r: x for r, x, _ in rows}))


def test_a_whole_run_is_start_and_epochs():
    found = _costs(("a", 6000.0, 8.0)).iloc[0]
    assert found["start"] == pytest.approx(10.0)
    assert found["epoch"] == pytest.approx(10.0)
    assert found["whole"] == pytest.approx(40.0)


def test_end_to_end_counts_the_start():
    cost = _costs(("cpu", 6000.0, 3.0), ("gpu", 60000.0, 13.0))
    found = end_to_end_speedup(cost, ["cpu"], ["gpu"])
    assert found.ratio == pytest.approx((5 + 30) / (15 + 3))  # 1.94x, where steady speed says 10x


def test_a_start_that_compiled_the_gpus_kernels_is_no_part_of_whole_runs():
    compiled = "W: CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer."
    runs = frames.runs({"run_id": "cpu"}, {"run_id": "first", "notice": compiled}, {"run_id": "gpu"})
    cost = costs(runs, frames.steady(cpu=6000.0, first=60000.0, gpu=60000.0))
    assert cost["whole"].isna().tolist() == [False, True, False]
    assert end_to_end_speedup(cost, ["cpu"], ["first", "gpu"]).candidate_runs == 1


def test_end_to_end_refuses_other_numbers_of_epochs():
    cost = _costs(("a", 6000.0, 3.0), ("b", 6000.0, 3.0))
    cost.loc[1, "epochs"] = 5
    assert "epochs differ (3, 5)" in end_to_end_speedup(cost, ["a"], ["b"]).note


@pytest.mark.parametrize(
    ("gpu", "start", "epochs", "words"),
    [
        (60000.0, 13.0, 2, "paid for its start after 2 epochs"),  # 10 s later, 9 s gained an epoch
        (60000.0, 1.0, 0, "ahead from the start"),
        (3000.0, 13.0, math.inf, "never"),
        (3000.0, 1.0, math.inf, "starts sooner"),
    ],
)
def test_break_even(gpu, start, epochs, words):
    found = break_even(_costs(("cpu", 6000.0, 3.0), ("gpu", gpu, start)), ["cpu"], ["gpu"])
    assert found.epochs == epochs
    assert words in found.note
    assert ONE_RUN_EACH in found.note


def test_break_even_has_an_interval_with_repeats_and_none_when_epochs_cannot_be_told_apart():
    cost = _costs(
        ("c1", 6000.0, 3.0), ("c2", 6060.0, 3.1), ("c3", 5950.0, 2.9),
        ("g1", 60000.0, 13.0), ("g2", 61000.0, 13.2), ("g3", 59500.0, 12.9),
    )  # fmt: skip
    found = break_even(cost, ["c1", "c2", "c3"], ["g1", "g2", "g3"])
    assert found.epochs == 2
    assert found.low < 10 / 9 < found.high
    same = _costs(("a", 6000.0, 3.0), ("b", 6500.0, 3.1), ("c", 6010.0, 13.0), ("d", 6520.0, 13.2))
    assert "not known" in break_even(same, ["a", "b"], ["c", "d"]).note


def test_fiellers_interval_covers():
    rng = np.random.default_rng(4)
    trials, n = 4000, 6
    top = 10 + 2 * rng.standard_normal((trials, n))
    bottom = 5 + 1 * rng.standard_normal((trials, n))
    found = [
        quotient(a.mean(), a.var(ddof=1) / n, b.mean(), b.var(ddof=1) / n, n - 1)
        for a, b in zip(top, bottom, strict=True)
    ]
    assert 0.93 < np.mean([each.low <= 2 <= each.high for each in found]) < 0.985


def test_whole_runs_compare_at_equal_work_only():
    """Twice as fast on twice the examples is as long a run: no speedup of 1x, and no "never"."""
    cost = pd.DataFrame(
        {"run_id": ["a", "b"], "epochs": [3, 3], "examples": [30_720.0, 61_440.0]}
        | {"start": [5.0, 5.0], "epoch": [10.0, 10.0], "whole": [35.0, 35.0]}
    )
    found = end_to_end_speedup(cost, ["a"], ["b"])
    assert math.isnan(found.ratio)
    assert found.note == "an epoch holds 30,720 to 61,440 examples: whole runs compare at equal work only"
    assert math.isnan(break_even(cost, ["a"], ["b"]).epochs)
    # Another batch drops another remainder, which is no other work.
    near = cost.assign(examples=[59_968.0, 59_904.0])
    assert end_to_end_speedup(near, ["a"], ["b"]).ratio == pytest.approx(1.0)


def test_whole_runs_without_their_start_say_so():
    cost = pd.DataFrame(
        {"run_id": ["a", "b"], "epochs": [3, 3], "examples": [1.0, 1.0]}
        | {"start": [math.nan, 5.0], "epoch": [10.0, 10.0], "whole": [math.nan, 35.0]}
    )
    assert end_to_end_speedup(cost, ["a"], ["b"]).note.startswith("start or epoch times are missing")


def test_whole_runs_left_out_for_want_of_a_start_are_said():
    cost = _costs(("c1", 6000.0, 3.0), ("c2", 6060.0, 3.1), ("g1", 60000.0, 13.0), ("g2", 61000.0, math.nan))
    why = "left out 1: g2: start or epoch times are missing, or are those of compiling kernels"
    found = end_to_end_speedup(cost, ["c1", "c2"], ["g1", "g2"])
    assert (found.candidate_runs, found.baseline_runs) == (1, 2)
    assert found.note == f"one run on one side: its spread is assumed to be the other side's; {why}"
    paid = break_even(cost, ["c1", "c2"], ["g1", "g2"])
    assert paid.sentence() == f"has paid for its start after 2 epochs; one run on one side; {why}"
    more = _costs(
        ("c1", 6000.0, 3.0), ("c2", 6060.0, 3.1), ("c3", 5950.0, 2.9),
        ("g1", 60000.0, 13.0), ("g2", 61000.0, math.nan), ("g3", 59500.0, 12.9),
    )  # fmt: skip
    interval = break_even(more, ["c1", "c2", "c3"], ["g1", "g2", "g3"]).sentence()
    assert interval.startswith("has paid for its start after 2 epochs (")
    assert interval.endswith(f" epochs); {why}")
    assert break_even(more, ["c1", "c2", "c3"], ["g1", "g3"]).left_out == ""
    assert end_to_end_speedup(more, ["c1", "c2", "c3"], ["g1", "g3"]).note == ""
