"""Where a run's time went and what to do: one line a run, with the measured share behind it.

Shares of training time come first, because they last as long as the run does: waiting for input, synchronising,
launching. Then what is paid once: compiling. What was not measured is said, never guessed: a run is called
"computing" only when the other causes were measured and are small.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd

from experiments.analysis.baselines import baselines
from experiments.analysis.comparable import BatchRule, NotThereError, Thing
from experiments.analysis.timing import RULE
from experiments.wording import count
from training.names import Metric

MODERATE_INPUT, HIGH_INPUT = 0.05, 0.20
"""Shares of step time from which a run is moderately, and highly, input-bound: TensorFlow's profiler uses these
(kModeratelyInfeedBoundThresholdInPercent and kHighly... in its input pipeline analysis)."""
MODERATE_OTHER, HIGH_OTHER = 0.03, 0.15
"""The same profiler's thresholds for kernel launch and for device collectives."""
ALSO = 0.05
"""Share of training time from which another cause is named beside the first."""
COMPILING = 0.20
"""Share of the whole run that tracing, compiling and warming up must take to be the verdict."""


class Cause(StrEnum):
    """Where the time went."""

    INPUT = "waiting for input"
    SYNCHRONISING = "synchronising"
    LAUNCHING = "small batch (launch-bound)"
    COMPILING = "compiling"
    COMPUTING = "computing"
    UNKNOWN = "not known"


_IN_TRAINING = {
    Cause.INPUT: (MODERATE_INPUT, HIGH_INPUT),
    Cause.SYNCHRONISING: (MODERATE_OTHER, HIGH_OTHER),
    Cause.LAUNCHING: (MODERATE_OTHER, HIGH_OTHER),
}
"""Causes that take a share of training time, each with the shares from which it is moderate, and high."""

_ADVICE = {
    Cause.INPUT: "hold the set in memory (pipeline=memory), or cache, prefetch and parallelise the input pipeline",
    Cause.SYNCHRONISING: "give each replica a larger batch, or use fewer replicas",
    Cause.LAUNCHING: "use a larger batch, more steps per execution, or XLA",
    Cause.COMPILING: "train longer, or compare steady throughput: start-up is paid once",
    Cause.COMPUTING: "the device is the limit: try a faster one, mixed precision, or more replicas",
    Cause.UNKNOWN: "nothing measured says more",
}


@dataclass(frozen=True)
class Share:
    """A measured share of time.

    Attributes:
        value: 0 to 1; NaN when it was not measured.
        source: what it was measured by, or what to do so that it is, as a request: "train longer".
    """

    value: float
    source: str

    @property
    def known(self) -> bool:
        """Whether it was measured."""
        return math.isfinite(self.value)


@dataclass(frozen=True)
class Verdict:
    """One run's verdict.

    Attributes:
        cause: where the time went.
        share: its share, 0 to 1; NaN for an unknown cause.
        of: what it is a share of: training time, or the whole run.
        shares: every cause's share.
        unmeasured: what to do to know more, each as a request.
        moderate: whether the share is only moderate by the profiler's thresholds.
    """

    cause: Cause
    share: float
    of: str
    shares: dict[Cause, Share]
    unmeasured: tuple[str, ...]
    moderate: bool = False

    def sentence(self) -> str:
        """The verdict in one line, with what to do."""
        if self.cause is Cause.UNKNOWN:
            return f"where the time went is not known: {'; '.join(self.unmeasured)}"
        level = "moderately " if self.moderate else ""
        line = f"{level}{self.cause}: {self.share:.0%} of {self.of} ({self.shares[self.cause].source})"
        also = [f"{cause}: {self.shares[cause].value:.0%}" for cause in self.also()]
        return "; ".join([line, *([f"also {', '.join(also)}"] if also else []), _ADVICE[self.cause]])

    def also(self) -> list[Cause]:
        """Other causes that take a share of training time worth telling, the largest first."""
        others = [
            cause
            for cause in _IN_TRAINING
            if cause is not self.cause and cause in self.shares and self.shares[cause].value >= ALSO
        ]
        return sorted(others, key=lambda cause: -self.shares[cause].value)


def _total(history: pd.DataFrame, metric: str) -> pd.Series:
    points = history[history["metric"] == metric].sort_values(["step", "timestamp"], kind="stable")
    return points.drop_duplicates("step", keep="last").set_index("step")["value"].astype(float)


def _again(metrics: str) -> str:
    """What to do about a metric that every run records, and this one, of another tool or an older version, has not."""
    return f"run it again, {metrics} is then recorded"


def _input_share(history: pd.DataFrame, several: bool, streams: bool) -> Share:
    """Waiting for input over training time, in the epochs after the first (all, when there is but one).

    With several replicas the iterator also hands batches over to the devices, and a set held in memory is cut into
    batches inside the step: what is measured then is no waiting for input, unless the run streams its data.
    """
    waited, trained = _total(history, Metric.TIME_INPUT_WAIT), _total(history, Metric.TIME_EPOCH_TRAIN)
    both = pd.concat([waited, trained], axis=1, keys=["waited", "trained"]).dropna()
    both = both[both.index > 0] if (both.index > 0).any() else both
    if both.empty or both["trained"].sum() <= 0:
        return Share(math.nan, _again(Metric.TIME_INPUT_WAIT))
    if several and not streams:
        return Share(0.0, "the set is held in memory")
    mark = "; at most: handing batches to the replicas is in it" if several else ""
    return Share(float(both["waited"].sum() / both["trained"].sum()), f"measured, {Metric.TIME_INPUT_WAIT}{mark}")


def _steady_by_run(steady: pd.DataFrame) -> dict[str, dict]:
    return {row["run_id"]: row for row in steady[steady["steady"]].to_dict("records")}


def _step_seconds(run: dict, states: dict[str, dict]) -> float:
    state = states.get(run["run_id"])
    return float(run["global_batch_size"]) / state["throughput"] if state else math.nan


def _for_a_step_time(run_id: str, steady: pd.DataFrame) -> str:
    """What to do so that the time of a step is known of a run of which it is not."""
    state = steady[steady["run_id"] == run_id].iloc[0]
    if state["steady"]:
        return "record the batch size"
    if state["epochs"] < RULE.least_epochs:
        return "train two epochs or more"
    return "train longer: no steady state was seen"


def _reference_steps(runs: pd.DataFrame, run_id: str, states: dict[str, dict], thing: Thing) -> pd.DataFrame:
    """Comparable runs by one thing: [run_id, replicas (in all), batch (per replica), seconds (per step)]."""
    others = runs[runs["run_id"].isin(baselines(runs, run_id, thing, rule=BatchRule.FIXED_PER_REPLICA))]
    rows = [
        (other["run_id"], float(other["total_replicas"]), float(other["per_replica_batch_size"]), seconds)
        for other in others.to_dict("records")
        if math.isfinite(seconds := _step_seconds(other, states))
    ]
    return pd.DataFrame(rows, columns=["run_id", "replicas", "batch", "seconds"])


def _synchronising_share(run: dict, runs: pd.DataFrame, steady: pd.DataFrame, history: pd.DataFrame) -> Share:
    """What a step takes longer than on one replica with the same batch per replica (one minus weak efficiency)."""
    if float(run["total_replicas"]) <= 1:
        return Share(0.0, "one replica")
    states = _steady_by_run(steady)
    step = _step_seconds(run, states)
    if not math.isfinite(step):
        return Share(math.nan, _for_a_step_time(run["run_id"], steady))
    measured = _total(history, Metric.TIME_ALL_REDUCE)
    if len(measured):
        return Share(min(float(measured.median()) / step, 1.0), f"measured, {Metric.TIME_ALL_REDUCE}")
    for thing in (Thing.REPLICAS, Thing.WORKERS):
        others = _reference_steps(runs, run["run_id"], states, thing)
        single = others.loc[others["replicas"] == 1, "seconds"]
        if len(single):
            share = 1 - float(single.median()) / step
            source = f"against {count(len(single), 'run')} on one replica with the same batch per replica"
            mark = "; these simulated replicas also share the hardware" if run["simulated"] else ""
            return Share(max(share, 0.0), source + mark)
    other = "run one on one replica with the same batch per replica"
    return Share(math.nan, f"{other}, or {_again(Metric.TIME_ALL_REDUCE)}")


def _launching_share(run: dict, runs: pd.DataFrame, steady: pd.DataFrame, history: pd.DataFrame) -> Share:
    """The part of a step that does not grow with the batch.

    From a step of one example, or from runs that differ in nothing but the batch: with step times at two or more
    batch sizes, seconds = fixed + batch * slope by least squares, and the share is fixed / seconds of this run. The
    line is a fair picture where this run's batch is among the smaller ones; that is also where it matters.
    """
    states = _steady_by_run(steady)
    step, batch = _step_seconds(run, states), float(run["per_replica_batch_size"])
    if not math.isfinite(step):
        return Share(math.nan, _for_a_step_time(run["run_id"], steady))
    measured = _total(history, Metric.TIME_STEP_ONE_EXAMPLE)
    if len(measured):
        # seconds = fixed + batch * slope through both steps; a step of one example computes that one as well.
        one = float(measured.median())
        fixed = (batch * one - step) / (batch - 1) if batch > 1 else one
        share = float(np.clip(min(fixed, one) / step, 0.0, 1.0))
        return Share(share, f"measured, {Metric.TIME_STEP_ONE_EXAMPLE}")
    others = _reference_steps(runs, run["run_id"], states, Thing.BATCH)
    sizes = np.append(others["batch"].to_numpy(float), batch)
    seconds = np.append(others["seconds"].to_numpy(float), step)
    if len(np.unique(sizes)) < 2 or sizes.max() < 2 * batch:
        other = "run one that differs only in a batch twice as large or more"
        # A run with XLA does not measure it: it would have to compile the step once more.
        compiled = run["jit_compile_resolved"] == "true"
        return Share(math.nan, other if compiled else f"{other}, or {_again(Metric.TIME_STEP_ONE_EXAMPLE)}")
    # Errors are relative: weigh by 1 / seconds, else the largest batch alone would place the line.
    weights = 1 / seconds
    design = np.column_stack([np.ones_like(sizes), sizes]) * weights[:, None]
    fixed, _ = np.linalg.lstsq(design, seconds * weights, rcond=None)[0]
    share = float(np.clip(fixed / step, 0.0, 1.0))
    return Share(share, f"against {count(len(others), 'run')} with other batch sizes")


def _compiling_share(run: dict, states: dict[str, dict]) -> Share:
    """First step and other warm-up beyond steady speed, over the whole run from process start to end of training."""
    state, total = states.get(run["run_id"]), float(run.get("time_total", math.nan))
    excess = state["excess_seconds"] if state else float(run["time_first_step"])
    if not (math.isfinite(total) and math.isfinite(excess) and total > 0):
        return Share(math.nan, _again(f"{Metric.TIME_TOTAL} and {Metric.TIME_FIRST_STEP}"))
    return Share(float(np.clip(excess / total, 0.0, 1.0)), "measured, first step and warm-up beyond steady speed")


def _decide(shares: dict[Cause, Share]) -> tuple[Cause, bool]:
    """(cause, moderate). Training time's causes by their own thresholds, the largest first; then compiling."""
    ranked = sorted((cause for cause in _IN_TRAINING if shares[cause].known), key=lambda cause: -shares[cause].value)
    for cause in ranked:
        if shares[cause].value >= _IN_TRAINING[cause][1]:
            return cause, False
    if shares[Cause.COMPILING].known and shares[Cause.COMPILING].value >= COMPILING:
        return Cause.COMPILING, False
    for cause in ranked:
        if shares[cause].value >= _IN_TRAINING[cause][0]:
            return cause, True
    if all(shares[cause].known for cause in _IN_TRAINING):
        return Cause.COMPUTING, False
    return Cause.UNKNOWN, False


def verdict(run_id: str, runs: pd.DataFrame, steady: pd.DataFrame, history: pd.DataFrame) -> Verdict:
    """Where one run's time went.

    Args:
        run_id: the run.
        runs: rows of RUN_COLUMNS; other comparable runs among them serve as references.
        steady: frame of `timing.steady_states` for these runs.
        history: long frame [run_id, metric, step, value, timestamp]; only this run's points are used.

    Raises:
        KeyError: an unknown run.
    """
    # A run that someone else logged may lack them: as numbers, what is missing stays missing.
    runs = runs.astype(dict.fromkeys(("total_replicas", "per_replica_batch_size", "global_batch_size"), "float64"))
    chosen = runs[runs["run_id"] == run_id]
    if chosen.empty:
        raise NotThereError(f"no run {run_id}")
    run = {str(name): value for name, value in chosen.iloc[0].items()}
    mine = history[history["run_id"] == run_id]
    states = _steady_by_run(steady)
    streams = "tf_data" in str(run["dataset_options"])
    shares = {
        Cause.INPUT: _input_share(mine, float(run["total_replicas"]) > 1, streams),
        Cause.SYNCHRONISING: _synchronising_share(run, runs, steady, mine),
        Cause.LAUNCHING: _launching_share(run, runs, steady, mine),
        Cause.COMPILING: _compiling_share(run, states),
    }
    synchronising, launching = shares[Cause.SYNCHRONISING], shares[Cause.LAUNCHING]
    if synchronising.known and launching.known:
        # What a step pays whatever its batch includes the all-reduce: that part has its own name.
        shares[Cause.LAUNCHING] = Share(max(launching.value - synchronising.value, 0.0), launching.source)
    unmeasured = tuple(dict.fromkeys(share.source for share in shares.values() if not share.known))
    taken = sum(shares[cause].value for cause in (Cause.INPUT, Cause.SYNCHRONISING, Cause.LAUNCHING))
    shares[Cause.COMPUTING] = Share(max(1 - taken, 0.0), "what is left")
    cause, moderate = _decide(shares)
    if cause is Cause.UNKNOWN:
        return Verdict(cause, math.nan, "", shares, unmeasured)
    of = "the run" if cause is Cause.COMPILING else "training time"
    return Verdict(cause, shares[cause].value, of, shares, unmeasured, moderate)


def references(runs: pd.DataFrame, run_id: str, most: int = 30) -> list[str]:
    """The runs whose timing helps a verdict: those that differ in replicas, workers or batch only, the newest first.

    Raises:
        KeyError: an unknown run.
    """
    things = (Thing.REPLICAS, Thing.WORKERS, Thing.BATCH)
    return baselines(runs, run_id, *things, rule=BatchRule.FIXED_PER_REPLICA)[:most]
