"""From the record to the analyses: reads the runs and histories that a question needs, and asks it."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import pandas as pd

from experiments import results
from experiments.analysis import curve, tables, timing, validity
from experiments.analysis.comparable import BatchRule, Thing
from experiments.analysis.evidence import Evidence, gather
from experiments.analysis.scaling import curves
from experiments.analysis.verdict import Verdict, references, verdict
from experiments.settings import Settings
from training.names import RunStatus

MOST_POINTS_KEPT = 3_000_000

# Of most runs only the timing counts, and what makes it doubtful: a run has more metrics, each a read of its own.
_TIMING = (*timing.METRICS, *validity.METRICS)

ReadHistories = Callable[[list[str], Collection[str] | None], pd.DataFrame]
"""(run ids, metric names; None for all) -> what `experiments.results.histories` gives of them, or more metrics."""


class Histories:
    """The points of ended runs, read once each. Forgets the longest unused when it holds more than `most` points.

    Many threads may ask it.
    """

    def __init__(self, settings: Settings, most: int = MOST_POINTS_KEPT):
        self._settings, self._most = settings, most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, frozenset[str] | None], pd.DataFrame] = OrderedDict()

    def of(self, run_ids: Iterable[str], metrics: Collection[str] | None = None) -> pd.DataFrame:
        """What `experiments.results.histories` gives of these runs, and of all metrics if that is known already."""
        wanted = list(dict.fromkeys(run_ids))
        some = None if metrics is None else frozenset(metrics)
        with self._lock:
            keys = {run_id: (run_id, None if (run_id, None) in self._kept else some) for run_id in wanted}
            there = {run_id: self._kept[key] for run_id, key in keys.items() if key in self._kept}
        unknown = [run_id for run_id in wanted if run_id not in there]
        read = results.histories(self._settings, unknown, metrics)
        there |= {run_id: read[read["run_id"] == run_id] for run_id in unknown}
        with self._lock:
            for run_id in wanted:
                self._kept[keys[run_id]] = there[run_id]
                self._kept.move_to_end(keys[run_id])
            while sum(map(len, self._kept.values())) > self._most and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return pd.concat([there[run_id] for run_id in wanted], ignore_index=True) if wanted else read


class UnknownGroupError(LookupError):
    """No run is in the group. The message names it and says where to look."""

    def __init__(self, group: str):
        super().__init__(
            f"group {group[:80]!r} has no run: `python -m experiments list --json` shows the group of each run"
        )


def runs_of(settings: Settings, group: str = "") -> pd.DataFrame:
    """Every run, or those of a group, newest first: RUN_COLUMNS.

    Raises:
        UnknownGroupError: no run is in the group.
    """
    runs = results.Results(settings).runs()
    if not group:
        return runs
    mine = runs[runs["group"] == group].reset_index(drop=True)
    if mine.empty:
        raise UnknownGroupError(group)
    return mine


def of(
    settings: Settings,
    runs: pd.DataFrame,
    run_ids: Iterable[str],
    put_back: frozenset[str] = frozenset(),
    metrics: Collection[str] | None = _TIMING,
) -> Evidence:
    """What was measured in some of the runs, in the order of `runs`; its history holds these metrics, None for all."""
    mine = runs[runs["run_id"].isin(list(run_ids))].reset_index(drop=True)
    return gather(mine, results.histories(settings, list(mine["run_id"]), metrics), put_back)


def speedups(
    settings: Settings,
    runs: pd.DataFrame,
    baseline: str,
    thing: Thing,
    rule: BatchRule,
    put_back: frozenset[str] = frozenset(),
) -> tables.Speedups:
    """Every configuration that matches a baseline run, against it."""
    compared = tables.to_compare(runs, baseline, thing, rule)
    return tables.speedups(of(settings, runs, compared, put_back), baseline, thing, rule)


def scaling(
    settings: Settings,
    runs: pd.DataFrame,
    key: str,
    efficiency: float = curve.EFFICIENCY,
    put_back: frozenset[str] = frozenset(),
) -> tuple[Evidence, curve.ScalingCurve]:
    """One scaling curve among these runs, with the evidence behind it, whose history holds every metric.

    Raises:
        KeyError: no such curve.
    """
    found = curves(runs)
    mine = found.loc[found["key"] == key, "run_id"]
    evidence = of(settings, runs, mine, put_back, metrics=None)
    return evidence, curve.read(evidence, key, efficiency)


@dataclass(frozen=True)
class Judgement:
    """What may be said of one run alone.

    Attributes:
        verdict: where its time went; None for a run that has not ended, or that ended too early to tell.
        flags: [flag, excludes, detail], what makes its timing doubtful.
        unchecked: what could have disturbed it and was not recorded.
        ended: how it ended, where it did not finish; else empty.
    """

    verdict: Verdict | None
    flags: pd.DataFrame
    unchecked: tuple[str, ...] = ()
    ended: str = ""

    def sentence(self) -> str:
        """The verdict in one line, marked where the run did not finish; why there is none where there is none."""
        if self.verdict is None:
            return "no verdict: it has not ended, or it ended before its speed was steady"
        mark = f" (the run was cut short: {self.ended})" if self.ended else ""
        return f"{self.verdict.sentence()}{mark}"

    def verdict_fields(self) -> dict[str, object] | None:
        """The verdict as plain values."""
        if self.verdict is None:
            return None
        found = self.verdict
        return {"sentence": self.sentence(), "cause": str(found.cause), "share": found.share, "of": found.of}


def judgement(
    settings: Settings, run_id: str, runs: pd.DataFrame | None = None, histories: ReadHistories | None = None
) -> Judgement:
    """One run's verdict and flags.

    A run has a verdict when it has finished, or has ended otherwise with a steady state: what it did until then is as
    good a measurement, and is marked. While a run goes on its shares still change.

    Its references are the newest finished runs that differ in little and whose timing is not doubtful. That simulated
    replicas share the hardware makes none doubtful where the run is simulated itself: the verdict says it.

    Args:
        settings: where runs are recorded.
        run_id: the run.
        runs: RUN_COLUMNS of all runs, if they have been read already: comparable ones serve as references.
        histories: how to read histories; a caller that asks again and again gives `Histories.of`.
    """
    runs = runs_of(settings) if runs is None else runs
    chosen = runs[runs["run_id"] == run_id]
    nothing = pd.DataFrame({"flag": [], "excludes": [], "detail": []})
    if chosen.empty or chosen["status"].iloc[0] == RunStatus.SCHEDULED:
        return Judgement(None, nothing)
    read = histories or (lambda run_ids, metrics: results.histories(settings, run_ids, metrics))
    run = chosen.iloc[0]
    # Only runs of the same work on the same kind of device can be references; looking closer costs time.
    same = ["workload", "dataset", "device"]
    near = (runs[same] == run[same]).all(axis=1) & (runs["status"] == RunStatus.FINISHED)
    runs = runs[near | (runs["run_id"] == run_id)].reset_index(drop=True)
    others = references(runs, run_id)
    history = pd.concat([read([run_id], None), read(others, _TIMING)], ignore_index=True)
    together = gather(runs[runs["run_id"].isin([run_id, *others])].reset_index(drop=True), history)
    flags = together.flags
    doubtful = flags[flags["excludes"] & ((flags["flag"] != "simulated") | (not run["simulated"]))]
    usable = ~together.runs["run_id"].isin(set(doubtful["run_id"]) - {run_id})
    status, steady = RunStatus(run["status"]), together.steady
    found = None
    if status == RunStatus.FINISHED or (status.is_terminal and steady.loc[steady["run_id"] == run_id, "steady"].any()):
        found = verdict(run_id, together.runs[usable].reset_index(drop=True), steady, history)
    mine = flags.loc[flags["run_id"] == run_id, ["flag", "excludes", "detail"]].reset_index(drop=True)
    ended = str(status) if found is not None and status != RunStatus.FINISHED else ""
    return Judgement(found, mine, tuple(validity.unchecked(run, history)), ended)
