"""Calibration by simulation with known truth: from windows to the sentence, through the product's own functions.

A run's windows have autocorrelated noise (5%, lag-1 0.5), 0.5% of them stall at four times their length, speed drifts
in over the first windows (30% slow at first, the compile window apart), and equal runs differ by 2%.
"""

import numpy as np
import pytest
from scipy.signal import lfilter

from experiments.analysis.speedup import Called, Ratio, ratio_of
from experiments.analysis.timing import find_steady

TRIALS = 2000
WINDOWS = 150


def _throughputs(rng, runs, speed=1.0, between=0.02, warmup=0.3, noise=0.05, rho=0.5, stalls=0.005):
    """[runs] steady throughput as the product finds it; NaN for a run without steady state."""
    shocks = rng.standard_normal((runs, WINDOWS + 50)) * np.sqrt(1 - rho**2)
    wobble = noise * lfilter([1], [1, -rho], shocks, axis=1)[:, 50:]
    seconds = np.exp(wobble + between * rng.standard_normal((runs, 1))) / speed
    seconds *= 1 + warmup * np.exp(-np.arange(WINDOWS) / 6)
    seconds *= 1 + 3 * (rng.random((runs, WINDOWS)) < stalls)
    seconds[:, 0] *= 20
    examples = np.ones(WINDOWS)
    return np.array([find_steady(examples, each).throughput for each in seconds])


def _ratios(rng, repeats, true, trials=TRIALS, **second) -> list[Ratio]:
    baseline = _throughputs(rng, trials * repeats).reshape(trials, repeats)
    candidate = _throughputs(rng, trials * repeats, speed=true, **second).reshape(trials, repeats)
    pairs = zip(candidate, baseline, strict=True)
    return [ratio_of(a[np.isfinite(a)], b[np.isfinite(b)]) for a, b in pairs]


def _coverage(found: list[Ratio], true: float) -> float:
    return float(np.mean([each.low <= true <= each.high for each in found]))


def _called(found: list[Ratio]) -> float:
    return float(np.mean([each.called in (Called.FASTER, Called.SLOWER) for each in found]))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_repeats_of_equal_runs():
    """Coverage between 93% and 98%; called different in at most 6%."""
    found = _ratios(np.random.default_rng(11), 3, 1.0)
    assert 0.93 <= _coverage(found, 1.0) <= 0.98
    assert _called(found) <= 0.06


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_side_that_warms_up_and_spreads_otherwise():
    """A baseline that drifts in against a candidate that does not, with another spread between runs."""
    found = _ratios(np.random.default_rng(12), 3, 1.0, warmup=0.0, between=0.005)
    assert 0.93 <= _coverage(found, 1.0) <= 0.98
    assert _called(found) <= 0.06


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_power_for_a_true_five_percent():
    """Found with five repeats in more than half of the trials, at 2% between runs; called slower in almost none."""
    found = _ratios(np.random.default_rng(13), 5, 1.05, trials=800)
    assert 0.93 <= _coverage(found, 1.05) <= 0.98
    assert _called(found) >= 0.55
    assert np.mean([each.called is Called.SLOWER for each in found]) <= 0.002


def test_equal_single_runs_are_never_called_different():
    rng = np.random.default_rng(14)
    speeds = _throughputs(rng, 100)
    found = [ratio_of(speeds[i : i + 1], speeds[i + 1 : i + 2]) for i in range(99)]
    assert _called(found) == 0
