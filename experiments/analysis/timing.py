"""Windows of training -> a run's steady throughput, with its warm-up kept apart.

The rule, in words: the first window (tracing, compiling, autotuning) is always warm-up. What else is warm-up is found
by MSER-5. Throughput is all real examples of the steady windows over all their time. A run with a single epoch, with
too few windows, or that still changes in its second half has no steady state, and says so.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments import wording
from training.names import Metric


@dataclass(frozen=True)
class SteadyRule:
    """What counts as steady.

    Attributes:
        batch: windows averaged before the search; MSER-5 averages 5. Fewer when there are under 10 such batches.
        search_from: with fewer windows than this after the first, no search is made; the windows must then agree.
        clip: the search sees no window further than this many robust standard deviations from the late median, so
            that one stalled window does not decide where warm-up ends. It still counts in the throughput.
        least_windows: fewest steady windows.
        least_epochs: fewest finished epochs; caches fill in the first, so one epoch has no steady state.
        least_steady_epochs: fewest epochs after the first, where only epochs were recorded.
        widest_ratio: without a search, slowest over fastest may not exceed this.
        largest_shift: a shift between halves smaller than this is not worth a refusal.
        largest_t: nor is one with a smaller t statistic.
    """

    batch: int = 5
    search_from: int = 10
    clip: float = 3.0
    least_windows: int = 5
    least_epochs: int = 2
    least_steady_epochs: int = 2
    widest_ratio: float = 1.25
    largest_shift: float = 0.02
    largest_t: float = 3.0


RULE = SteadyRule()
_LEAST_FOR_ERROR = 20  # windows; with fewer, their autocorrelation cannot be told from noise


@dataclass(frozen=True)
class SteadyState:
    """What a run's windows say about its steady speed.

    Attributes:
        steady: whether there is a steady state; if not, `reason` says why and the figures are NaN.
        throughput: real examples per second over the steady windows.
        relative_se: standard error of the log throughput within the run, corrected for autocorrelation; NaN when
            there are too few windows to know it.
        df: degrees of freedom of that standard error.
        windows, warmup_windows: how many were used, how many were left out.
        steady_seconds: time in the windows that were used.
        warmup_seconds: time in the windows that were left out.
        excess_seconds: how much longer they took than steady windows of the same work.
        autocorrelation: lag-1 autocorrelation of the windows' times.
        effective_windows: independent windows that would give the same standard error.
        drift: second half's time per example over the first half's, minus 1 (0.03 = 3% slower at the end).
        drift_t: that drift over its standard error.
    """

    steady: bool
    reason: str = ""
    throughput: float = math.nan
    relative_se: float = math.nan
    df: float = 0.0
    windows: int = 0
    warmup_windows: int = 0
    steady_seconds: float = math.nan
    warmup_seconds: float = math.nan
    excess_seconds: float = math.nan
    autocorrelation: float = math.nan
    effective_windows: float = math.nan
    drift: float = math.nan
    drift_t: float = math.nan


def aggregate_throughput(examples: np.ndarray, seconds: np.ndarray) -> float:
    """All examples over all time: the mean of the rates weighted by time.

    For windows of equal work it is the harmonic mean of their rates, never the arithmetic one, which would count a
    slow window for less than the time it took. Source: J. E. Smith, "Characterizing computer performance with a single
    number", Communications of the ACM 31 (1988).

    Args:
        examples, seconds: [windows].
    """
    return float(np.sum(examples) / np.sum(seconds))


def mser_truncation(values: np.ndarray, batch: int = 5) -> int:
    """How many values at the start to leave out, by the marginal standard error rule.

    Values are averaged in batches; the cut is the one that minimises sum((z - mean)^2) / kept^2 over the batches kept.
    Sources: K. P. White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69
    (1997); K. P. White, M. J. Cobb and S. C. Spratt, "A comparison of five steady-state truncation heuristics",
    Winter Simulation Conference (2000). The last 5 batches are no candidates, as K. Hoad, S. Robinson and R. Davies,
    "Automating warm-up length estimation", J. Operational Research Society 61 (2010), advise.

    Args:
        values: [n], n >= 10, in order of time.
        batch: values in one batch.

    Returns:
        A number of values, a multiple of `batch`. More than half of n means: no steady state was seen.
    """
    count = len(values) // batch
    means = values[: count * batch].reshape(count, batch).mean(axis=1)
    means = means - np.median(means[count // 2 :])  # small numbers: the squares below would cancel otherwise
    kept = np.arange(count, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum(means[::-1] ** 2)[::-1]
    criterion = (squares - sums**2 / kept) / kept**2
    return int(np.argmin(criterion[: count - 4])) * batch


def _half_shift(values: np.ndarray) -> tuple[float, float]:
    """Second half's mean over the first half's, minus 1, and its t statistic from batch means (8 or more values)."""
    half = len(values) // 2
    first, second = values[:half], values[half:]
    shift = second.mean() / first.mean() - 1
    size = max(1, math.isqrt(half))

    def variance(part: np.ndarray) -> float:
        count = len(part) // size
        batches = part[len(part) - count * size :].reshape(count, size).mean(axis=1)
        return float(batches.var(ddof=1)) / count if count > 1 else math.nan

    error = math.sqrt(variance(first) + variance(second)) / first.mean()
    if error > 0:
        return float(shift), float(shift / error)
    return float(shift), math.copysign(math.inf, shift) if shift else 0.0


def _relative_error(examples: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float, float]:
    """Standard error of log(sum(examples) / sum(seconds)) from non-overlapping batch means.

    The residuals seconds - examples/throughput sum to zero; batches of about sqrt(n) windows are nearly independent
    of one another, whatever the autocorrelation inside. What correlation is left between batches widens the error as
    for a first-order autoregression, its estimate corrected for its small-sample bias. Sources: W. G. Cochran,
    "Sampling Techniques" (1977), ratio estimator; square-root rule in J. M. Flegal and G. L. Jones, "Batch means and
    spectral variance estimators in Markov chain Monte Carlo", Annals of Statistics 38 (2010); correlation-adjusted
    batch means in N. M. Steiger et al., "ASAP3", ACM Transactions on Modeling and Computer Simulation 15 (2005); bias
    in M. G. Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41 (1954).

    Returns:
        (relative standard error, degrees of freedom, lag-1 autocorrelation, effective number of windows).
    """
    n = len(seconds)
    residuals = seconds - examples * (seconds.sum() / examples.sum())
    power = float(residuals @ residuals)
    if power <= 1e-20 * float(seconds @ seconds):  # equal to the last digit: no clock, and nothing to learn from
        return math.nan, 0.0, math.nan, math.nan
    autocorrelation = float(residuals[1:] @ residuals[:-1] / power)
    count = n // max(1, math.isqrt(n))
    if n < _LEAST_FOR_ERROR:
        return math.nan, 0.0, autocorrelation, math.nan
    edges = np.linspace(0, n, count + 1).astype(int)[:-1]
    sums = np.add.reduceat(residuals, edges)
    centred = sums - sums.mean()
    squares = float(centred @ centred)
    between = float(centred[1:] @ centred[:-1]) / squares if squares > 0 else 0.0
    between = float(np.clip(between + (1 + 3 * between) / count, 0.0, 0.9))
    variance = count * squares / (count - 1) * (1 + between) / (1 - between)
    naive = n * power / (n - 1)
    effective = float(np.clip(n * naive / variance, 1, n)) if variance > 0 else float(n)
    return math.sqrt(variance) / float(seconds.sum()), float(count - 1), autocorrelation, effective


def find_steady(
    examples: np.ndarray, seconds: np.ndarray, rule: SteadyRule = RULE, least: int | None = None
) -> SteadyState:
    """Finds where warm-up ends and how fast the run is after it.

    Args:
        examples: [windows] real examples trained in each window, in order of time.
        seconds: [windows] seconds each took.
        rule: what counts as steady.
        least: fewest steady windows; the rule's `least_windows` unless given.

    Returns:
        The steady state, or one with `steady=False` and the reason.
    """
    least = rule.least_windows if least is None else least
    usable = np.isfinite(seconds) & np.isfinite(examples) & (seconds > 0) & (examples > 0)
    examples, seconds = np.asarray(examples, float)[usable], np.asarray(seconds, float)[usable]
    after_first = len(seconds) - 1
    if after_first < least:
        there = wording.count(max(after_first, 0), "window")
        return SteadyState(False, f"no steady state: {there} after the first, {least} are needed")
    costs = seconds[1:] / examples[1:]
    cut = 0
    if after_first < rule.search_from:
        if costs.max() > rule.widest_ratio * costs.min():
            spread = costs.max() / costs.min()
            return SteadyState(
                False,
                f"no steady state: {after_first} windows after the first differ by a factor of {spread:.2f}, "
                "too few to tell warm-up from noise",
            )
    else:
        late = costs[after_first // 2 :]
        centre = np.median(late)
        # The factor makes it a normal distribution's standard deviation; windows that agree to 0.1% are equal.
        scale = max(1.4826 * np.median(np.abs(late - centre)), 0.001 * centre)
        clipped = np.clip(costs, centre - rule.clip * scale, centre + rule.clip * scale)
        batch = min(rule.batch, after_first // 10)
        cut = mser_truncation(clipped, batch)
        if cut > after_first // 2:
            shift, t = _half_shift(clipped)
            if abs(shift) > rule.largest_shift and abs(t) > rule.largest_t:
                return SteadyState(
                    False, f"no steady state: speed still changed in the second half (by {abs(shift):.1%})"
                )
            # Noise put the cut so late: no shift worth the name is there. The best cut of the first half is taken.
            cut = mser_truncation(clipped[: after_first // 2], batch)
    first = 1 + cut
    kept_examples, kept_seconds = examples[first:], seconds[first:]
    if len(kept_seconds) < least:
        there = wording.count(len(kept_seconds), "window")
        return SteadyState(False, f"no steady state: {there} after warm-up, {least} are needed")
    throughput = aggregate_throughput(kept_examples, kept_seconds)
    relative_se, df, autocorrelation, effective = _relative_error(kept_examples, kept_seconds)
    drift, drift_t = _half_shift(kept_seconds / kept_examples) if len(kept_seconds) >= 8 else (math.nan, math.nan)
    warmup = float(seconds[:first].sum())
    return SteadyState(
        True,
        throughput=throughput,
        relative_se=relative_se,
        df=df,
        windows=len(kept_seconds),
        warmup_windows=first,
        steady_seconds=float(kept_seconds.sum()),
        warmup_seconds=warmup,
        excess_seconds=warmup - float(examples[:first].sum()) / throughput,
        autocorrelation=autocorrelation,
        effective_windows=effective,
        drift=drift,
        drift_t=drift_t,
    )


STEADY_COLUMNS: dict[str, str] = {
    "run_id": "str",
    "steady": "bool",
    "reason": "str",
    "basis": "str",
    "throughput": "float64",
    "relative_se": "float64",
    "df": "float64",
    "windows": "int64",
    "warmup_windows": "int64",
    "steady_seconds": "float64",
    "warmup_seconds": "float64",
    "excess_seconds": "float64",
    "autocorrelation": "float64",
    "effective_windows": "float64",
    "drift": "float64",
    "drift_t": "float64",
    "epochs": "int64",
    "examples_per_epoch": "float64",
    "seconds_per_epoch": "float64",
    "validation_seconds_per_epoch": "float64",
}
"""Columns of `steady_states`. `basis` is `windows` or `epochs`; `seconds_per_epoch` is one steady epoch of training."""

_SERIES = {
    Metric.WINDOW: "window",
    Metric.TIME_EPOCH_TRAIN: "train",
    Metric.TIME_EPOCH_VALIDATION: "validation",
    Metric.EXAMPLES_PER_SECOND: "rate",
}
METRICS = tuple(_SERIES)
"""What `steady_states` reads of a history."""


def windows(points: pd.DataFrame, global_batch_size: float, steps_per_execution: float) -> pd.DataFrame:
    """The windows of one run.

    A window's work is the steps since the window before it, at most `steps_per_execution`: where a point was lost on
    the way to the tracking server, the next one still speaks of its own steps only. A point that was sent twice counts
    once.

    Args:
        points: `throughput/window` of one run: [step, value, timestamp].
        global_batch_size: examples in one step.
        steps_per_execution: steps of a full window; NaN when unknown.

    Returns:
        [step, examples, seconds] in order of steps; a rate of 0, NaN or infinity leaves seconds NaN.
    """
    points = points.sort_values(["step", "timestamp"], kind="stable").drop_duplicates("step", keep="last")
    steps = points["step"].to_numpy(float)
    rates = points["value"].to_numpy(float)
    work = np.diff(steps, prepend=0.0)
    if np.isfinite(steps_per_execution):
        work = np.minimum(work, steps_per_execution)
    examples = work * global_batch_size
    good = np.isfinite(rates) & (rates > 0)
    seconds = np.divide(examples, rates, out=np.full(len(rates), np.nan), where=good)
    return pd.DataFrame({"step": steps, "examples": examples, "seconds": seconds})


def _by_epoch(points: pd.DataFrame | None) -> pd.Series:
    """One value an epoch, the latest sent; empty without points."""
    if points is None:
        return pd.Series(dtype=float)
    ordered = points.sort_values(["step", "timestamp"], kind="stable").drop_duplicates("step", keep="last")
    return ordered.set_index("step")["value"].astype(float)


def _state_of_run(run: dict, series: dict[str, pd.DataFrame], rule: SteadyRule) -> dict:
    train, rate = _by_epoch(series.get("train")), _by_epoch(series.get("rate"))
    epochs = max(len(train), len(rate))
    examples_by_epoch = (train * rate).dropna()
    per_epoch = float(examples_by_epoch.median()) if len(examples_by_epoch) else math.nan
    found = SteadyState(False, "no steady state: no timing was recorded")
    basis = "windows"
    if epochs < rule.least_epochs:
        if epochs or "window" in series:
            found = SteadyState(
                False, f"no steady-state epoch: {epochs} of at least {rule.least_epochs} epochs finished"
            )
    else:
        table = None
        if "window" in series:
            table = windows(series["window"], run["global_batch_size"], run["steps_per_execution"])
        if table is not None and len(table) > rule.least_windows:
            found = find_steady(table["examples"].to_numpy(), table["seconds"].to_numpy(), rule)
        else:
            # Windows as long as epochs: then the epochs themselves are the windows.
            basis = "epochs"
            found = find_steady(
                examples_by_epoch.to_numpy(),
                train[examples_by_epoch.index].to_numpy(),
                rule,
                rule.least_steady_epochs,
            )
    validation = _by_epoch(series.get("validation"))
    return {
        "run_id": run["run_id"],
        **vars(found),
        "basis": basis if found.steady else "",
        "epochs": epochs,
        "examples_per_epoch": per_epoch,
        "seconds_per_epoch": per_epoch / found.throughput,
        "validation_seconds_per_epoch": float(validation.median()) if len(validation) else math.nan,
    }


def steady_states(runs: pd.DataFrame, history: pd.DataFrame, rule: SteadyRule = RULE) -> pd.DataFrame:
    """The steady state of every run.

    Args:
        runs: [runs] with run_id, global_batch_size, steps_per_execution.
        history: long frame [run_id, metric, step, value, timestamp]; metrics it does not need may be there.
        rule: what counts as steady.

    Returns:
        One row a run in the order of `runs`, columns STEADY_COLUMNS. A run without a steady state keeps its row with
        `steady` False, the reason in words, and NaN figures; its `epochs` and epoch times are still there. Of a
        history that was thinned on the way, throughput is still right, and the seconds of warm-up are only those of
        the windows given.
    """
    wanted = history[history["metric"].isin(list(_SERIES)) & history["run_id"].isin(runs["run_id"])]
    by_run: dict[str, dict[str, pd.DataFrame]] = {}
    for (run_id, metric), points in wanted.groupby(["run_id", "metric"], sort=False):
        by_run.setdefault(str(run_id), {})[_SERIES[str(metric)]] = points
    needed = runs[["run_id", "global_batch_size", "steps_per_execution"]].astype(
        {"global_batch_size": float, "steps_per_execution": float}
    )
    rows = [_state_of_run(run, by_run.get(run["run_id"], {}), rule) for run in needed.to_dict("records")]
    return pd.DataFrame(rows, columns=list(STEADY_COLUMNS)).astype(STEADY_COLUMNS)
