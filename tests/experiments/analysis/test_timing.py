"""A run's steady state: what is left out, what is averaged how, and when nothing may be said."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from experiments.analysis.intervals import t_quantile
from experiments.analysis.timing import (
    STEADY_COLUMNS,
    aggregate_throughput,
    find_steady,
    mser_truncation,
    steady_states,
    windows,
)
from tests.experiments.analysis import frames
from training.names import Metric


def test_the_aggregate_of_equal_work_is_the_harmonic_mean():
    # 100 examples at 100/s take 1 s, 100 at 50/s take 2 s: 200 examples in 3 s, not 75 a second.
    assert aggregate_throughput(np.array([100, 100]), np.array([1.0, 2.0])) == pytest.approx(200 / 3)


def test_the_aggregate_of_unequal_windows_weighs_by_time():
    # A full window of 32 steps in 3.2 s, a last one of 8 steps in 1.6 s.
    assert aggregate_throughput(np.array([32.0, 8.0]), np.array([3.2, 1.6])) == pytest.approx(40 / 4.8)


def test_a_window_has_the_steps_since_the_one_before_and_a_lost_point_adds_none():
    points = frames.history(("a", Metric.WINDOW, [1, 33, 65, 75, 139], [6.4, 64, 64, 64, 64]))
    found = windows(points, 64, 32)
    assert list(found["examples"]) == [64, 2048, 2048, 640, 2048]  # the point of step 107 was lost
    assert list(found["seconds"]) == [10, 32, 32, 10, 32]


def test_a_point_sent_twice_counts_once_and_the_later_wins():
    points = frames.history(("a", Metric.WINDOW, [32, 64, 64], [64, 1, 64]))
    found = windows(points, 64, 32)
    assert list(found["step"]) == [32, 64]
    assert list(found["seconds"]) == [32, 32]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_no_rate_is_left_out(rate):
    found = windows(frames.history(("a", Metric.WINDOW, [32, 64], [64, rate])), 64, 32)
    assert math.isnan(found["seconds"][1])
    state = find_steady(np.ones(40), np.r_[5.0, np.ones(20), math.nan, np.ones(18)])
    assert state.windows == 38


def test_case_a2_epochs_of_12_2_2_seconds():
    found = steady_states(frames.runs({"run_id": "a"}), frames.epochs("a", [12.0, 2.0, 2.0])).iloc[0]
    assert found["steady"]
    assert found["seconds_per_epoch"] == pytest.approx(2.0)  # not 5.33
    assert found["throughput"] == pytest.approx(500)
    assert found["excess_seconds"] == pytest.approx(10.0)
    assert (found["windows"], found["warmup_windows"], found["basis"]) == (2, 1, "epochs")
    assert math.isnan(found["relative_se"])  # two epochs know no interval


def test_case_a2_one_epoch_has_no_steady_state():
    history = pd.concat(
        [frames.epochs("a", [12.0]), frames.history(("a", Metric.WINDOW, range(32, 3200, 32), [64] * 99))]
    )
    found = steady_states(frames.runs({"run_id": "a"}), history).iloc[0]
    assert not found["steady"]
    assert found["reason"] == "no steady-state epoch: 1 of at least 2 epochs finished"
    assert math.isnan(found["throughput"])
    assert found["windows"] == 0


def test_case_a3_validation_is_no_part_of_throughput():
    bare = frames.epochs("a", [2.0] * 4)
    validated = frames.epochs("b", [2.0] * 4, validation=[3.0] * 4)
    found = steady_states(frames.runs({"run_id": "a"}, {"run_id": "b"}), pd.concat([bare, validated]))
    assert list(found["throughput"]) == pytest.approx([500, 500])
    assert found["validation_seconds_per_epoch"][1] == 3.0
    assert list(found["seconds_per_epoch"]) == pytest.approx([2.0, 2.0])


def test_the_first_window_is_always_out_and_warm_up_is_kept_apart():
    seconds = np.r_[9.0, np.linspace(0.2, 0.1, 20), np.full(200, 0.1)]
    state = find_steady(np.full(len(seconds), 64.0), seconds)
    assert state.steady
    assert state.throughput == pytest.approx(640, rel=0.002)
    assert 15 <= state.warmup_windows <= 26
    assert state.warmup_seconds == pytest.approx(seconds[: state.warmup_windows].sum())
    assert state.windows + state.warmup_windows == len(seconds)
    assert state.excess_seconds == pytest.approx(9.0 + 3.0 - 21 * 0.1, rel=0.02)


def test_one_stalled_window_moves_neither_the_cut_nor_hides_its_time():
    rng = np.random.default_rng(0)
    seconds = np.r_[5.0, 1 + 0.01 * rng.standard_normal(150)]
    stalled = seconds.copy()
    stalled[130] = 20.0
    calm, state = (find_steady(np.ones(151), each) for each in (seconds, stalled))
    assert state.warmup_windows == calm.warmup_windows
    assert state.windows / state.throughput == pytest.approx(calm.windows / calm.throughput + 19, rel=1e-3)


def test_speed_that_still_changes_has_no_steady_state():
    seconds = np.r_[5.0, np.linspace(2.0, 1.0, 200)]
    state = find_steady(np.ones(201), seconds)
    assert not state.steady
    assert "still changed in the second half" in state.reason


def test_too_few_windows_that_disagree_are_refused():
    assert find_steady(np.ones(7), np.array([9, 1, 1, 1.1, 1, 1, 1])).steady
    refused = find_steady(np.ones(7), np.array([9, 4, 3, 2, 1, 1, 1]))
    assert "too few to tell warm-up from noise" in refused.reason
    assert "1 window after the first, 5 are needed" in find_steady(np.ones(2), np.ones(2)).reason
    assert "2 windows after the first, 5 are needed" in find_steady(np.ones(3), np.ones(3)).reason


def test_a_slow_drift_inside_the_steady_part_is_measured():
    rng = np.random.default_rng(1)
    seconds = np.r_[5.0, np.full(100, 1.0), np.full(100, 1.06)] + 0.005 * rng.standard_normal(201)
    state = find_steady(np.ones(201), seconds)
    assert not state.steady or state.drift > 0.02


def test_mser_cuts_a_step_at_its_edge():
    assert mser_truncation(np.r_[np.full(20, 3.0), np.tile([1.0, 1.1], 90)], 5) == 20
    assert mser_truncation(np.tile([1.0, 1.1], 100), 5) == 0


def test_the_standard_error_grows_with_autocorrelation_and_covers():
    rng = np.random.default_rng(2)
    n, trials, rho = 200, 800, 0.6
    noise = lfilter([1], [1, -rho], rng.standard_normal((trials, n + 50)), axis=1)[:, 50:] * math.sqrt(1 - rho**2)
    states = [find_steady(np.ones(n), np.exp(0.05 * row - 0.00125)) for row in noise]
    states = [state for state in states if state.steady]
    assert len(states) > 0.97 * trials
    covered = [abs(math.log(s.throughput)) <= t_quantile(s.df) * s.relative_se for s in states]
    assert np.mean(covered) > 0.90
    assert 0.4 < np.median([s.autocorrelation for s in states]) < 0.65
    # Of an AR(1) the effective number is n (1 - rho) / (1 + rho), a quarter here.
    assert 0.1 < np.median([s.effective_windows / s.windows for s in states]) < 0.45


def test_every_run_has_a_row_with_fixed_columns_also_without_any_history():
    found = steady_states(frames.runs({"run_id": "a"}, {"run_id": "b"}), frames.history())
    assert list(found.columns) == list(STEADY_COLUMNS)
    assert list(found["reason"]) == ["no steady state: no timing was recorded"] * 2
    empty = steady_states(frames.runs(), frames.history())
    assert empty.empty
    assert {name: str(dtype) for name, dtype in empty.dtypes.items()} == STEADY_COLUMNS


def test_windows_of_a_run_give_its_throughput():
    found = steady_states(frames.runs({"run_id": "a"}), frames.windows_of("a", [3.0] + [0.01] * 100)).iloc[0]
    assert found["throughput"] == pytest.approx(6400)
    assert found["basis"] == "windows"
    assert found["excess_seconds"] == pytest.approx(3.0 - 0.01)
