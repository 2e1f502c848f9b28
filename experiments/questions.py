"""From the record to the analyses: reads the runs and histories that a question needs, and asks it."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from experiments import results
from experiments.analysis import curve, tables
from experiments.analysis.comparable import BatchRule, Thing
from experiments.analysis.evidence import Evidence, gather
from experiments.analysis.scaling import curves
from experiments.analysis.verdict import Verdict, references, verdict
from experiments.settings import Settings
from training.names import Metric, RunStatus

_TIMING = (Metric.WINDOW, Metric.TIME_EPOCH_TRAIN, Metric.TIME_EPOCH_VALIDATION, Metric.EXAMPLES_PER_SECOND)


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
    settings: Settings, runs: pd.DataFrame, run_ids: Iterable[str], put_back: frozenset[str] = frozenset()
) -> Evidence:
    """What was measured in some of the runs, in the order of `runs`."""
    mine = runs[runs["run_id"].isin(list(run_ids))].reset_index(drop=True)
    return gather(mine, results.histories(settings, list(mine["run_id"])), put_back)


def speedups(
    settings: Settings,
    runs: pd.DataFrame,
    baseline: str,
    thing: Thing,
    rule: BatchRule,
    put_back: frozenset[str] = frozenset(),
) -> tables.Speedups:
    """Every configuration that matches a baseline run, against it."""
    return tables.speedups(
        of(settings, runs, tables.to_compare(runs, baseline, thing, rule), put_back), baseline, thing, rule
    )


def scaling(
    settings: Settings,
    runs: pd.DataFrame,
    key: str,
    efficiency: float = curve.EFFICIENCY,
    put_back: frozenset[str] = frozenset(),
) -> tuple[Evidence, curve.ScalingCurve]:
    """One scaling curve among these runs, with the evidence behind it.

    Raises:
        KeyError: no such curve.
    """
    found = curves(runs)
    mine = found.loc[found["key"] == key, "run_id"]
    evidence = of(settings, runs, mine, put_back)
    return evidence, curve.read(evidence, key, efficiency)


@dataclass(frozen=True)
class Judgement:
    """What may be said of one run alone.

    Attributes:
        verdict: where its time went; None for a run that has not started.
        flags: [flag, excludes, detail], what makes its timing doubtful.
    """

    verdict: Verdict | None
    flags: pd.DataFrame

    def verdict_fields(self) -> dict[str, object] | None:
        """The verdict as plain values."""
        if self.verdict is None:
            return None
        found = self.verdict
        return {"sentence": found.sentence(), "cause": str(found.cause), "share": found.share, "of": found.of}


def judgement(settings: Settings, run_id: str, runs: pd.DataFrame | None = None) -> Judgement:
    """One run's verdict and flags.

    Args:
        settings: where runs are recorded.
        run_id: the run.
        runs: RUN_COLUMNS of all runs, if they have been read already: comparable ones serve as references.
    """
    runs = runs_of(settings) if runs is None else runs
    chosen = runs[runs["run_id"] == run_id]
    nothing = pd.DataFrame({"flag": [], "excludes": [], "detail": []})
    if chosen.empty or chosen["status"].iloc[0] == RunStatus.SCHEDULED:
        return Judgement(None, nothing)
    # Only runs of the same work on the same kind of device can be references; looking closer costs time.
    same = ["workload", "dataset", "device"]
    runs = runs[(runs[same] == chosen.iloc[0][same]).all(axis=1)].reset_index(drop=True)
    others = references(runs, run_id)
    # Of the references only the timing counts; a run has many more metrics, each a read of its own.
    history = pd.concat(
        [results.histories(settings, [run_id]), results.histories(settings, others, _TIMING)], ignore_index=True
    )
    together = gather(runs[runs["run_id"].isin([run_id, *others])].reset_index(drop=True), history)
    mine = together.flags[together.flags["run_id"] == run_id]
    found = verdict(run_id, together.runs, together.steady, history)
    return Judgement(found, mine[["flag", "excludes", "detail"]].reset_index(drop=True))
