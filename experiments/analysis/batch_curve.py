"""Batch size against throughput: a curve for each device, and the batch from which another device wins."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.analysis.comparable import FIELDS, Thing, cells, fields, may_differ
from experiments.analysis.evidence import Evidence
from experiments.analysis.intervals import between_runs, t_quantile
from experiments.analysis.speedup import Called, Ratio, ratio_between

THINGS = (Thing.BATCH, Thing.DEVICE)
"""Comparisons beside which this curve tells more."""
HARDLY = 0.05
"""A batch is as good as the best when its throughput is within this share of it."""

_CURVE_FIELDS = [name for name in FIELDS if name in may_differ(Thing.DEVICE)]
_BETWEEN_CURVES = may_differ(Thing.BATCH) | may_differ(Thing.DEVICE)
POINT_COLUMNS = {
    "curve": "str",
    "batch": "int64",
    "runs": "int64",
    "throughput": "float64",
    "throughput_low": "float64",
    "throughput_high": "float64",
    "note": "str",
}
"""`batch` is the size per replica; throughput is the geometric mean of all replicas' examples per second together."""
RATIO_COLUMNS = {
    "first": "str",
    "second": "str",
    "batch": "int64",
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "called": "str",
}
"""Throughput of the second curve over that of the first at every batch that both were measured at."""


@dataclass(frozen=True)
class Crossing:
    """Where one curve overtakes another as the batch grows.

    Attributes:
        slower, faster: the curves by what they are above the crossing.
        low, high: the measured batches between which it lies.
        batch: where it lies by interpolation; NaN where a neighbour's sign is not sure.
        sure: whether the ratio surely lies on opposite sides of 1 at `low` and `high`.
    """

    slower: str
    faster: str
    low: int
    high: int
    batch: float
    sure: bool = True

    def sentence(self) -> str:
        """The crossing in one line."""
        between = f"between {self.low:,} and {self.high:,}"
        if not self.sure:
            return (
                f"The {self.faster} may overtake the {self.slower} at a batch {between}: the runs are too few or too "
                "far apart to be sure"
            )
        if math.isnan(self.batch):
            return (
                f"The {self.faster} overtakes the {self.slower} at about a batch {between}: the runs are too few or "
                "too far apart to say where"
            )
        return (
            f"The {self.faster} is faster than the {self.slower} from a batch of {self.batch:,.0f} on: the crossing "
            f"lies {between}"
        )


@dataclass(frozen=True)
class BatchCurve:
    """The curves of runs that differ only in batch size and in what they ran on.

    Attributes:
        title: the finding in one sentence.
        sentences: what else is to be said.
        points: POINT_COLUMNS, curve by curve, CPUs first, ascending.
        ratios: RATIO_COLUMNS.
        crossings: where curves cross, ascending.
        run_ids: the runs behind the points.
    """

    title: str
    sentences: tuple[str, ...]
    points: pd.DataFrame
    ratios: pd.DataFrame
    crossings: tuple[Crossing, ...]
    run_ids: tuple[str, ...]


def sets(runs: pd.DataFrame) -> list[list[str]]:
    """The sets of runs that make a figure: alike but for batch and device, one device at two batches at least.

    Args:
        runs: rows of RUN_COLUMNS.

    Returns:
        Run ids of each set, in the order of `runs`.
    """
    measured = runs[runs["per_replica_batch_size"].notna()].reset_index(drop=True)
    numbers = cells(measured, _BETWEEN_CURVES)
    table = fields(measured).assign(cell=numbers, batch=measured["per_replica_batch_size"].to_numpy())
    found = []
    for _, group in table.groupby("cell", sort=False):
        if (group.groupby(_CURVE_FIELDS, sort=False)["batch"].nunique() > 1).any():
            found.append([str(run_id) for run_id in group.index])
    return found


def members(runs: pd.DataFrame, run_id: str) -> list[str]:
    """The set of `sets` that a run is in; empty when it is in none."""
    return next((each for each in sets(runs) if run_id in each), [])


def read(evidence: Evidence, run_ids: Iterable[str]) -> BatchCurve:
    """Draws up the curves of one set.

    Args:
        evidence: of these runs, others are passed over.
        run_ids: one of `sets`.
    """
    wanted = set(run_ids)
    mine = evidence.used_runs
    mine = mine[mine["run_id"].isin(wanted)].reset_index(drop=True)
    labels = _labels(mine)
    table = evidence.steady[evidence.steady["steady"] & evidence.steady["run_id"].isin(mine["run_id"])]
    table = table.assign(
        curve=table["run_id"].map(labels),
        batch=table["run_id"].map(mine.set_index("run_id")["per_replica_batch_size"]).astype("int64"),
    )
    names = sorted(dict.fromkeys(labels), key=lambda name: (not name.startswith("CPU"), name))
    groups: dict[str, dict[int, pd.DataFrame]] = {
        name: {int(batch): group for batch, group in table[table["curve"] == name].groupby("batch")} for name in names
    }
    points = pd.DataFrame(
        [_point(name, batch, group) for name in names for batch, group in groups[name].items()],
        columns=list(POINT_COLUMNS),
    ).astype(POINT_COLUMNS)
    ratios = pd.DataFrame(
        [
            _ratio(first, second, batch, groups)
            for first, second in itertools.combinations(names, 2)
            for batch in groups[first]
            if batch in groups[second]
        ],
        columns=list(RATIO_COLUMNS),
    ).astype(RATIO_COLUMNS)
    crossings: list[Crossing] = []
    said: list[str] = []
    for first, second in itertools.combinations(names, 2):
        pair = ratios[(ratios["first"] == first) & (ratios["second"] == second)].reset_index(drop=True)
        found = crossings_of(pair)
        crossings += found
        said += [each.sentence() for each in found] or [_without_crossing(first, second, pair)]
    said += [growth(name, groups[name], len(names) > 1) for name in names]
    said += [f"{name} at one run a batch: spread between runs unknown" for name in _alone(points)]
    return BatchCurve(
        title=said[0] if said else "No run at any batch can be used",
        sentences=tuple(said[1:]),
        points=points,
        ratios=ratios,
        crossings=tuple(crossings),
        run_ids=tuple(str(run_id) for run_id in table["run_id"]),
    )


def _labels(runs: pd.DataFrame) -> pd.Series:
    """Device, with its model and threads where several of a kind were measured; indexed by run_id."""
    if runs.empty:
        return pd.Series(dtype="str")
    table = fields(runs)
    table["cpu_threads"] = [_threads(str(value)) for value in table["cpu_threads"]]
    labels = table["device"].map(str.upper).astype("str")
    for name in _CURVE_FIELDS:
        several = table.groupby(table["device"])[name].transform("nunique") > 1
        labels = labels.where(~several, labels + ", " + table[name])
    return labels


def _threads(value: str) -> str:
    return f"{value} CPU thread{'' if value == '1' else 's'}" if value.isdigit() else value


def _point(curve: str, batch: int, group: pd.DataFrame) -> dict:
    mean = between_runs(np.log(group["throughput"].to_numpy(float)))
    half = t_quantile(mean.df) * math.sqrt(mean.variance) if mean.runs > 1 else math.nan
    return {
        "curve": curve,
        "batch": batch,
        "runs": mean.runs,
        "throughput": math.exp(mean.mean),
        "throughput_low": math.exp(mean.mean - half),
        "throughput_high": math.exp(mean.mean + half),
        "note": "" if mean.runs > 1 else "one run: spread between runs unknown",
    }


def _ratio(first: str, second: str, batch: int, groups: dict[str, dict[int, pd.DataFrame]]) -> dict:
    found = ratio_between(groups[second][batch], groups[first][batch])
    row = {"first": first, "second": second, "batch": batch, "ratio": found.ratio}
    return row | {"low": found.low, "high": found.high, "called": str(found.called)}


def crossings_of(ratios: pd.DataFrame) -> list[Crossing]:
    """Where the ratio of two curves goes through 1.

    Between two neighbouring batches at which it surely lies on opposite sides, the log of the ratio is interpolated
    linearly in the log of the batch. Where a batch in between is not sure, only the sure ones around it are given;
    and where none is sure, the neighbours whose estimates lie on opposite sides.

    Args:
        ratios: RATIO_COLUMNS of one pair of curves, ascending.
    """
    rows = [
        (int(row["batch"]), math.log(row["ratio"]), row["called"] in (Called.FASTER, Called.SLOWER))
        for row in ratios.to_dict("records")
    ]
    order = {batch: place for place, (batch, _, _) in enumerate(rows)}
    sure = [row for row in rows if row[2]]
    found = list(_changes(sure)) or list(_changes([row for row in rows if row[1]]))
    answer = []
    for low, high in found:
        batch = math.nan
        if low[2] and high[2] and order[high[0]] == order[low[0]] + 1:
            share = low[1] / (low[1] - high[1])
            batch = math.exp(math.log(low[0]) + share * math.log(high[0] / low[0]))
        names = ratios["first"].iloc[0], ratios["second"].iloc[0]
        slower, faster = names if high[1] > 0 else names[::-1]
        answer.append(Crossing(slower, faster, low[0], high[0], batch, sure=low[2] and high[2]))
    return answer


_Row = tuple[int, float, bool]


def _changes(rows: list[_Row]) -> Iterator[tuple[_Row, _Row]]:
    """Neighbours whose log ratios have opposite signs."""
    return ((low, high) for low, high in itertools.pairwise(rows) if low[1] * high[1] < 0)


def _without_crossing(first: str, second: str, ratios: pd.DataFrame) -> str:
    """What is to be said of two curves that do not cross."""
    if ratios.empty:
        return f"The {first} and the {second} were measured at no batch in common: no crossing can be said"
    smallest, largest = int(ratios["batch"].min()), int(ratios["batch"].max())
    sure = ratios[ratios["called"].isin([Called.FASTER, Called.SLOWER])]
    if sure.empty:
        return f"Whether the {first} or the {second} is faster is not sure at any batch measured"
    unsure = ratios.loc[~ratios.index.isin(sure.index), "batch"]
    doubt = f", though not surely at {', '.join(f'{batch:,}' for batch in unsure)}" if len(unsure) else ""
    if (ratios["ratio"] >= 1).all():
        return f"The {second} is faster than the {first} at every batch measured (from {smallest:,} on){doubt}"
    within = f"within what was measured (from {smallest:,} to {largest:,})"
    return f"The {second} is never faster than the {first} {within}{doubt}"


def growth(curve: str, groups: Mapping[int, pd.DataFrame], several: bool) -> str:
    """What a larger batch buys on one device: only what the runs' spread allows to say.

    Throughput counts as hardly growing from the smallest batch on that is surely, by its 95% interval, within HARDLY
    of the best.

    Args:
        curve: its name.
        groups: batch -> rows of `timing.steady_states` of its runs, ascending.
        several: whether the sentence must say which curve it is about.
    """
    subject = f"Throughput of the {curve}" if several else "Throughput"
    if not groups:
        return f"{subject} is not known: no run can be used"
    batches = list(groups)
    if len(batches) == 1:
        return f"{subject} was measured at one batch only, {batches[0]:,}"
    best = max(batches, key=lambda batch: float(np.log(groups[batch]["throughput"]).mean()))
    first, last = batches[0], batches[-1]
    rise, fall = _of_batches(groups, best, first), _of_batches(groups, last, best)
    if Called.UNKNOWN in {each.called for batch, each in ((first, rise), (last, fall)) if batch != best}:
        more = f", {rise.ratio:.1f}x that at {first:,}" if best != first else ""
        return f"{subject} was highest at batch {best:,}{more}, but with one run each that may be chance"
    falls = f", and is {1 - fall.ratio:.0%} lower at {last:,}" if _surely_lower(fall) else ""
    if rise.called is not Called.FASTER or best == first:
        if falls:
            return f"{subject} is highest at batch {best:,}{falls}"
        if all(_hardly(groups, best, batch) for batch in (first, last)):
            return f"{subject} hardly grows from batch {first:,} to {last:,}"
        return f"{subject} at batch {first:,} to {last:,}: no difference found"
    grows = f"{subject} grows {rise.ratio:.1f}x ({rise.low:.1f}x to {rise.high:.1f}x) from batch {first:,} to {best:,}"
    if falls:
        return grows + falls
    if (
        best == last
        and _of_batches(groups, last, batches[-2]).called is Called.FASTER
        and not _hardly(groups, last, batches[-2])
    ):
        return f"{grows}, the largest measured, and had not stopped growing there"
    enough = next((batch for batch in batches if _hardly(groups, best, batch)), best)
    return f"{grows}, and hardly from {enough:,} on" if enough != last else grows


def _of_batches(groups: Mapping[int, pd.DataFrame], candidate: int, baseline: int) -> Ratio:
    """Throughput at one batch over that at another."""
    return ratio_between(groups[candidate], groups[baseline])


def _surely_lower(fall: Ratio) -> bool:
    return fall.called is Called.SLOWER and fall.ratio < 1 - HARDLY


def _hardly(groups: Mapping[int, pd.DataFrame], best: int, batch: int) -> bool:
    """Whether the best is surely no more than HARDLY above this batch."""
    return batch == best or _of_batches(groups, best, batch).high <= 1 / (1 - HARDLY)


def _alone(points: pd.DataFrame) -> list[str]:
    most = points.groupby("curve", sort=False)["runs"].max()
    return [str(name) for name in most.index[most == 1]]
