"""How much faster: ratios of throughput, of whole runs, and the epochs after which a costly start is paid back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from experiments.analysis.intervals import LEVEL, Interval, LogMean, between_runs, difference, exponential, quotient
from training.names import FROM_PTX


class Basis(StrEnum):
    """What an interval is made of."""

    BETWEEN_RUNS = "spread between runs"
    ONE_SIDE = "spread between the runs of one side, assumed for the other"
    WITHIN_RUNS = "within runs only"
    NOTHING = "no interval"


class Called(StrEnum):
    """What may be said of two configurations."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference found"
    UNKNOWN = "unknown: too few runs"


ONE_RUN_EACH = "one run each: spread between runs unknown"


@dataclass(frozen=True)
class Ratio:
    """A ratio of two speeds; above 1 the candidate is faster.

    Attributes:
        ratio: geometric mean of the candidate's runs over that of the baseline's; never clamped.
        low, high: 95% interval unless another level was asked for; NaN where there is none.
        basis: where the interval comes from.
        called: what the interval allows to say. Only spread between runs allows "faster" or "slower".
        candidate_runs, baseline_runs: how many runs are behind each side.
        note: what a reader must know; empty when all is well.
    """

    ratio: float
    low: float
    high: float
    basis: Basis
    called: Called
    candidate_runs: int
    baseline_runs: int
    note: str = ""

    def sentence(self) -> str:
        """The ratio in words, such as "1.83x (1.71x to 1.96x), faster" or "0.69x (slower); one run each: ..."."""
        if not math.isfinite(self.ratio):
            return f"no speedup: {self.note}"
        interval = "" if not math.isfinite(self.low) else f" ({_times(self.low)} to {_times(self.high)})"
        words: str = self.called
        if self.called is Called.UNKNOWN:
            words = "slower" if self.ratio < 1 else "faster" if self.ratio > 1 else "equal"
        note = f"; {self.note}" if self.note else ""
        return f"{_times(self.ratio)}{interval}, {words}{note}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x" if ratio >= 100 else f"{ratio:.2f}x"


def _within_runs(log_values: np.ndarray, relative_se: np.ndarray, df: np.ndarray) -> LogMean:
    """Mean of the logs with the variance inside the runs, as if no run differed from another."""
    count = len(log_values)
    variances = np.asarray(relative_se, float) ** 2
    if not np.all(np.isfinite(variances)) or not np.all(variances > 0):
        return LogMean(float(np.mean(log_values)), math.nan, 0.0, count)
    total = float(variances.sum())
    pooled = total**2 / float((variances**2 / df).sum())
    return LogMean(float(np.mean(log_values)), total / count**2, pooled, count)


def ratio_of(
    candidate: np.ndarray,
    baseline: np.ndarray,
    candidate_errors: tuple[np.ndarray, np.ndarray] | None = None,
    baseline_errors: tuple[np.ndarray, np.ndarray] | None = None,
    level: float = LEVEL,
) -> Ratio:
    """The ratio of two sets of speeds with its interval.

    Two or more runs on both sides: Welch's t on the logs of the runs' speeds, so that what decides is how much equal
    runs differ. More than one run on one side only: that side's spread is assumed for the other. One run each: the
    interval inside the runs, marked, from which no difference is called. Sources: T. Kalibera and R. Jones,
    "Rigorous benchmarking in reasonable time", ISMM 2013 (repeat at the level where variation enters); Welch as in
    `intervals.difference`.

    Args:
        candidate, baseline: [runs] speeds, such as examples per second, all positive.
        candidate_errors, baseline_errors: ([runs] standard errors of the log speed within each run, [runs] their
            degrees of freedom), used for one run each; None when not known.
        level: how often the interval shall cover.
    """
    runs = len(candidate), len(baseline)
    if 0 in runs:
        side = "candidate" if not runs[0] else "baseline"
        note = f"the {side} has no run with a steady state"
        return Ratio(math.nan, math.nan, math.nan, Basis.NOTHING, Called.UNKNOWN, *runs, note)
    logs = np.log(candidate), np.log(baseline)
    if min(runs) > 1:
        interval, _ = difference(between_runs(logs[0]), between_runs(logs[1]), level)
        basis, note = Basis.BETWEEN_RUNS, ""
    elif max(runs) > 1:
        spread = logs[0] if runs[0] > 1 else logs[1]
        variance, df = float(spread.var(ddof=1)), len(spread) - 1
        value = float(logs[0].mean() - logs[1].mean())
        # One variance serves both sides, so its degrees of freedom count once.
        interval, _ = difference(
            LogMean(value, variance * (1 / runs[0] + 1 / runs[1]), df, 0), LogMean(0.0, 0.0, 1, 0), level
        )
        basis, note = Basis.ONE_SIDE, "one run on one side: its spread is assumed to be the other side's"
    else:
        errors = [
            pair if pair is not None else (np.array([math.nan]), np.zeros(1))
            for pair in (candidate_errors, baseline_errors)
        ]
        sides = [_within_runs(values, *error) for values, error in zip(logs, errors, strict=True)]
        interval, _ = difference(sides[0], sides[1], level)
        basis, note = Basis.WITHIN_RUNS, ONE_RUN_EACH
    if not interval.known:
        basis = Basis.NOTHING
        note = note or "the runs do not differ at all, so their spread is unknown"
    called = Called.UNKNOWN
    if basis in (Basis.BETWEEN_RUNS, Basis.ONE_SIDE):
        called = Called.NO_DIFFERENCE
        if interval.excludes(0.0):
            called = Called.FASTER if interval.value > 0 else Called.SLOWER
    shown = exponential(interval)
    return Ratio(shown.value, shown.low, shown.high, basis, called, *runs, note)


def ratio_between(candidate: pd.DataFrame, baseline: pd.DataFrame, level: float = LEVEL) -> Ratio:
    """`ratio_of` for the throughput of some runs over that of others; both are rows of `timing.steady_states`."""
    sides = candidate, baseline
    speeds = [side["throughput"].to_numpy(float) for side in sides]
    errors = [(side["relative_se"].to_numpy(float), side["df"].to_numpy(float)) for side in sides]
    return ratio_of(speeds[0], speeds[1], errors[0], errors[1], level)


def _chosen(steady: pd.DataFrame, run_ids: Sequence[str]) -> pd.DataFrame:
    chosen = steady[steady["run_id"].isin(list(run_ids))]
    missing = set(run_ids) - set(chosen["run_id"])
    if missing:
        raise KeyError(f"no timing of run {', '.join(sorted(missing))}")
    return chosen


def steady_speedup(
    steady: pd.DataFrame, baseline: Sequence[str], candidate: Sequence[str], level: float = LEVEL
) -> Ratio:
    """Speedup of steady throughput, warm-up, validation and start-up excluded.

    Args:
        steady: frame of `timing.steady_states`.
        baseline, candidate: run ids of equal runs each; runs without a steady state are left out and counted in the
            note.
        level: how often the interval shall cover.

    Raises:
        KeyError: a run that is not in the frame.
    """
    sides, left_out = [], []
    for run_ids in (candidate, baseline):
        rows = _chosen(steady, run_ids)
        left_out += [f"{row.run_id}: {row.reason}" for row in rows[~rows["steady"]].itertuples()]
        sides.append(rows[rows["steady"]])
    found = ratio_between(sides[0], sides[1], level)
    if not left_out:
        return found
    note = "; ".join(filter(None, [found.note, f"left out {len(left_out)}: {left_out[0]}"]))
    return Ratio(**{**vars(found), "note": note})


START_COLUMNS = ("time_startup", "time_data", "time_build")
"""Paid once, before the first step. The first step is the first window of training, so what it took above steady
speed is among the excess of warm-up already."""


def costs(runs: pd.DataFrame, steady: pd.DataFrame) -> pd.DataFrame:
    """What each run pays once and what it pays an epoch, in seconds.

    `start` is process start, data, model, and what warm-up took above steady speed, the first step's tracing and
    compiling foremost; waiting in the queue is not in it. `epoch` is one steady epoch of training with its
    validation. `whole` is the time such a run takes, start + epochs * epoch.

    Args:
        runs: with run_id, notice and the START_COLUMNS. A part that was not recorded (NaN), or a start in which the
            GPU's kernels were compiled (once on each machine, for up to half an hour), leaves start and whole NaN.
        steady: frame of `timing.steady_states`.

    Returns:
        [run_id, epochs, examples, start, epoch, whole], in the order of `steady`; examples are those of one epoch.
    """
    once = runs.set_index("run_id")[list(START_COLUMNS)].astype(float).sum(axis=1, skipna=False)
    once = once.mask(runs["notice"].str.contains(FROM_PTX, regex=False).to_numpy())
    table = steady[["run_id", "epochs"]].copy()
    table["examples"] = steady["examples_per_epoch"]
    table["start"] = steady["run_id"].map(once) + steady["excess_seconds"]
    table["epoch"] = steady["seconds_per_epoch"] + steady["validation_seconds_per_epoch"].fillna(0.0)
    table["whole"] = table["start"] + table["epochs"] * table["epoch"]
    return table


def end_to_end_speedup(cost: pd.DataFrame, baseline: Sequence[str], candidate: Sequence[str]) -> Ratio:
    """Speedup of whole runs, start-up and compiling included.

    Args:
        cost: frame of `costs`.
        baseline, candidate: run ids. All must have done the same work, epochs and examples in each: a long run hides
            its start. Runs of which a time is missing are left out and counted in the note.

    Raises:
        KeyError: a run that is not in the frame.
    """
    sides = [_chosen(cost, run_ids) for run_ids in (candidate, baseline)]
    epochs = sorted({int(count) for side in sides for count in side["epochs"]})
    counts = len(sides[0]), len(sides[1])
    if len(epochs) > 1:
        note = f"epochs differ ({', '.join(map(str, epochs))}): whole runs compare at equal epochs only"
        return Ratio(math.nan, math.nan, math.nan, Basis.NOTHING, Called.UNKNOWN, *counts, note)
    if unequal := _unequal_epochs(sides):
        return Ratio(math.nan, math.nan, math.nan, Basis.NOTHING, Called.UNKNOWN, *counts, unequal)
    speeds = [1 / side["whole"].dropna().to_numpy() for side in sides]
    if not len(speeds[0]) or not len(speeds[1]):
        return Ratio(math.nan, math.nan, math.nan, Basis.NOTHING, Called.UNKNOWN, *counts, _NO_TIMES)
    found = ratio_of(speeds[0], speeds[1])
    note = "; ".join(filter(None, [found.note, _left_out(sides, ["whole"])]))
    return Ratio(**{**vars(found), "note": note})


_NO_TIMES = "start or epoch times are missing, or are those of compiling kernels"


def _left_out(sides: Sequence[pd.DataFrame], needed: list[str]) -> str:
    """How many runs lack a time that is needed, and one of them; empty when none does."""
    lacking = [str(run_id) for side in sides for run_id in side.loc[side[needed].isna().any(axis=1), "run_id"]]
    return f"left out {len(lacking)}: {lacking[0]}: {_NO_TIMES}" if lacking else ""


SAME_WORK = 0.02
"""Epochs whose examples differ by less than this are the same work: another batch drops another remainder."""


def _unequal_epochs(sides: Sequence[pd.DataFrame]) -> str:
    """Why epochs are not the same work; empty when they are, or when no number of examples is known."""
    examples = pd.concat([side["examples"] for side in sides]).dropna()
    if examples.empty or examples.max() <= examples.min() * (1 + SAME_WORK):
        return ""
    span = f"{examples.min():,.0f} to {examples.max():,.0f}"
    return f"an epoch holds {span} examples: whole runs compare at equal work only"


@dataclass(frozen=True)
class BreakEven:
    """After how many epochs the candidate has paid for its start.

    Attributes:
        epochs: the smallest whole number of epochs after which the candidate's whole run is not slower; 0: from the
            start; infinity: never; NaN: cannot be said.
        low, high: 95% interval in epochs before rounding; NaN when unknown.
        note: the same in words.
        left_out: how many runs could not be used, and why; empty when all were.
    """

    epochs: float
    low: float
    high: float
    note: str
    left_out: str = ""

    def sentence(self) -> str:
        """The note with the interval, where there is one that says something, and the runs that were left out."""
        known = math.isfinite(self.high) and self.high > 0
        interval = f" ({self.low:.1f} to {self.high:.1f} epochs)" if known else ""
        return f"{self.note}{interval}" + (f"; {self.left_out}" if self.left_out else "")


def break_even(cost: pd.DataFrame, baseline: Sequence[str], candidate: Sequence[str]) -> BreakEven:
    """Epochs after which start + n * epoch of the candidate is no more than that of the baseline.

    n = (start_c - start_b) / (epoch_b - epoch_c); its interval by Fieller's theorem with the runs' own spread, the
    smaller side's degrees of freedom, and start and epoch of a run taken as independent.

    Args:
        cost: frame of `costs`.
        baseline, candidate: run ids; runs of which a time is missing are left out and counted.

    Raises:
        KeyError: a run that is not in the frame.
    """
    chosen = [_chosen(cost, run_ids) for run_ids in (candidate, baseline)]
    if unequal := _unequal_epochs(chosen):
        return BreakEven(math.nan, math.nan, math.nan, f"not known: {unequal}")
    sides = [side[["start", "epoch"]].dropna() for side in chosen]
    if not len(sides[0]) or not len(sides[1]):
        return BreakEven(math.nan, math.nan, math.nan, f"not known: {_NO_TIMES}")
    left_out = _left_out(chosen, ["start", "epoch"])
    means = [side.mean() for side in sides]
    later = float(means[0]["start"] - means[1]["start"])
    gained = float(means[1]["epoch"] - means[0]["epoch"])
    least = min(len(side) for side in sides)
    interval = Interval(math.nan, math.nan, math.nan)
    if least > 1:
        variances = np.sum([side.var(ddof=1).to_numpy() / len(side) for side in sides], axis=0)
        interval = quotient(later, float(variances[0]), gained, float(variances[1]), least - 1)
    mark = "" if least > 1 else f"; {ONE_RUN_EACH}" if max(map(len, sides)) == 1 else "; one run on one side"
    if least > 1 and not interval.known:
        note = "not known: the epochs' times cannot be told apart, so neither can this"
        return BreakEven(math.nan, math.nan, math.nan, note, left_out)
    low, high = max(interval.low, 0.0) if interval.known else math.nan, interval.high
    if later <= 0 and gained >= 0:
        high = max(high, 0.0) if interval.known else math.nan
        return BreakEven(0, low, high, f"ahead from the start{mark}", left_out)
    if gained <= 0 and later >= 0:
        return BreakEven(math.inf, math.nan, math.nan, f"never: its epochs take as long or longer{mark}", left_out)
    crossing = later / gained
    if gained < 0:
        note = f"starts sooner but its epochs take longer: ahead up to epoch {crossing:.1f}{mark}"
        return BreakEven(math.inf, low, high, note, left_out)
    whole = math.ceil(crossing)
    words = f"has paid for its start after {whole} epoch{'' if whole == 1 else 's'}{mark}"
    return BreakEven(whole, low, high, words, left_out)
