"""Calibration by simulation with known truth: from windows to the sentence, through the product's own functions.

A run's windows have autocorrelated noise (5%, lag-1 0.5), 0.5% of them stall at four times their length, speed drifts
in over the first windows (30% slow at first, the compile window apart), and equal runs differ by 2%. Runs with a flag
that excludes stay out, as they do on every page. Thousands of trials leave out the frames of evidence and the speedup
table, which take a fifth of a second a trial; that these say the same of the same windows is a test of its own here.

By how much equal runs differ is a factor of a whole run. It scales the throughput and changes no flag, so one pool of
runs, the costly part, serves for all factors.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from experiments.analysis.comparable import Thing
from experiments.analysis.evidence import gather
from experiments.analysis.speedup import Called, Ratio, ratio_of
from experiments.analysis.tables import speedups
from experiments.analysis.timing import find_steady
from experiments.analysis.validity import flags, included
from tests.experiments.analysis import frames

TRIALS, REPEATS = 2000, 3
WINDOWS = 150
STEPS, BATCH = 32, 64
EXAMPLES = np.array([1.0] + [STEPS] * (WINDOWS - 1)) * BATCH  # the first window is the one step that compiles


def _windows(rng, runs, warmup=0.3, noise=0.05, rho=0.5, stalls=0.005):
    """[runs, windows] seconds a step, about 1."""
    shocks = rng.standard_normal((runs, WINDOWS + 50)) * np.sqrt(1 - rho**2)
    seconds = np.exp(noise * lfilter([1], [1, -rho], shocks, axis=1)[:, 50:])
    seconds *= 1 + warmup * np.exp(-np.arange(WINDOWS) / 6)
    seconds *= 1 + 3 * (rng.random((runs, WINDOWS)) < stalls)
    seconds[:, 0] *= 20
    return seconds


def _throughputs(windows):
    """[runs] steady throughput as the product finds it; NaN for a run that it leaves out of figures."""
    states = [find_steady(EXAMPLES, each * EXAMPLES / BATCH) for each in windows]
    runs = frames.runs(*({"run_id": str(index)} for index in range(len(states))))
    steady = pd.DataFrame([vars(state) for state in states]).assign(run_id=runs["run_id"])
    used = included(runs, flags(runs, steady, frames.history()))
    return np.where(used, steady["throughput"], np.nan)


def _factors(seed, shape, between):
    return np.exp(between * np.random.default_rng(seed).standard_normal(shape))


def _ratio(candidate, baseline) -> Ratio:
    return ratio_of(candidate[np.isfinite(candidate)], baseline[np.isfinite(baseline)])


def _ratios(candidates, baselines) -> list[Ratio]:
    """[trials, repeats] throughputs of both sides -> the finding of each trial."""
    return [_ratio(*sides) for sides in zip(candidates, baselines, strict=True)]


@pytest.fixture(scope="module")
def windows():
    return _windows(np.random.default_rng(11), TRIALS * 2 * REPEATS)


@pytest.fixture(scope="module")
def throughputs(windows):
    return _throughputs(windows)


@pytest.fixture(scope="module")
def factors():
    """[trials, 2, repeats] how fast each of the equal runs happens to be."""
    return _factors(12, (TRIALS, 2, REPEATS), 0.02)


@pytest.fixture(scope="module")
def of_equal_runs(throughputs, factors) -> list[Ratio]:
    sides = throughputs.reshape(factors.shape) * factors
    return _ratios(sides[:, 1], sides[:, 0])


def _coverage(found: list[Ratio], true: float) -> float:
    return float(np.mean([each.low <= true <= each.high for each in found]))


def _called(found: list[Ratio], *how: Called) -> float:
    return float(np.mean([each.called in how for each in found]))


@pytest.mark.slow
def test_three_repeats_of_equal_runs(of_equal_runs):
    """Coverage between 93% and 98%; called different in at most 6%."""
    assert 0.93 <= _coverage(of_equal_runs, 1.0) <= 0.98
    assert _called(of_equal_runs, Called.FASTER, Called.SLOWER) <= 0.06


@pytest.mark.slow
def test_few_runs_in_which_nothing_is_wrong_are_left_out(throughputs):
    """Noise that happens to look like drift, or to leave a throughput hardly known: in 4 of 100 runs."""
    assert 0 < np.mean(np.isnan(throughputs)) <= 0.06


@pytest.mark.slow
def test_the_speedup_table_says_the_same_of_what_was_recorded(windows, throughputs, factors, of_equal_runs):
    """From history to the table, of trials with a run left out and of trials without."""
    doubtful = np.isnan(throughputs.reshape(TRIALS, -1)).any(axis=1)
    for trial in (*np.flatnonzero(doubtful)[:6], *np.flatnonzero(~doubtful)[:4]):
        seconds = (windows.reshape(*factors.shape, WINDOWS)[trial] / factors[trial, ..., None]).reshape(-1, WINDOWS)
        ids = [f"{precision}-{repeat}" for precision in ("float32", "mixed_bfloat16") for repeat in range(REPEATS)]
        runs = frames.runs(*({"run_id": name, "precision": name.partition("-")[0]} for name in ids))
        recorded = [frames.windows_of(*run, BATCH, STEPS) for run in zip(ids, seconds, strict=True)]
        evidence = gather(runs, pd.concat(recorded, ignore_index=True))
        (row,) = speedups(evidence, ids[0], Thing.PRECISION).table.to_dict("records")
        expected = of_equal_runs[trial]
        assert evidence.used.all() != doubtful[trial]
        assert (row["ratio"], row["low"], row["high"]) == pytest.approx((expected.ratio, expected.low, expected.high))
        assert (row["called"], row["runs"]) == (expected.called, expected.candidate_runs)


@pytest.mark.slow
def test_a_side_that_warms_up_and_spreads_otherwise(throughputs, factors):
    """A baseline that drifts in against a candidate that does not, with another spread between runs."""
    baseline = (throughputs.reshape(factors.shape) * factors)[:1000, 0]
    runs = _throughputs(_windows(np.random.default_rng(13), baseline.size, warmup=0.0)).reshape(baseline.shape)
    found = _ratios(runs * _factors(14, runs.shape, 0.005), baseline)
    assert 0.93 <= _coverage(found, 1.0) <= 0.985
    assert _called(found, Called.FASTER, Called.SLOWER) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize(("between", "of_three", "of_five"), [(0.01, 0.43, 0.84), (0.02, 0.29, 0.64)])
def test_power_for_a_true_five_percent_is_what_the_readme_says(throughputs, between, of_three, of_five):
    """Found as often as that, within three standard errors of the trials that there are; almost never called slower."""
    pool = throughputs[: throughputs.size // 10 * 10].reshape(-1, 2, 5)
    sides = pool * _factors(15, pool.shape, between)
    for repeats, power in ((3, of_three), (5, of_five)):
        found = _ratios(1.05 * sides[:, 1, :repeats], sides[:, 0, :repeats])
        assert 0.93 <= _coverage(found, 1.05) <= 0.985
        assert _called(found, Called.FASTER) == pytest.approx(power, abs=3 * np.sqrt(power * (1 - power) / len(found)))
        assert _called(found, Called.SLOWER) <= 0.002


def test_equal_single_runs_are_never_called_different():
    speeds = _throughputs(_windows(np.random.default_rng(16), 100)) * _factors(17, 100, 0.02)
    found = [_ratio(speeds[i : i + 1], speeds[i + 1 : i + 2]) for i in range(99)]
    assert _called(found, Called.FASTER, Called.SLOWER) == 0
