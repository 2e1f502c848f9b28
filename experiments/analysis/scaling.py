"""Scaling curves from runs: which runs make a curve, its points with intervals, and the devices worth using."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.analysis.comparable import FIELDS, BatchRule, Thing, fields, may_differ
from experiments.analysis.intervals import between_runs, t_quantile
from experiments.analysis.scaling_fit import FURTHEST, Fit
from experiments.analysis.scaling_laws import Scaling
from experiments.analysis.speedup import ratio_between
from training.names import Metric, RunStatus

AXES = (Thing.REPLICAS, Thing.WORKERS)
RULES = {Scaling.STRONG: BatchRule.FIXED_GLOBAL, Scaling.WEAK: BatchRule.FIXED_PER_REPLICA}
CURVE_COLUMNS = {
    "curve": "int64",
    "key": "str",
    "scaling": "str",
    "axis": "str",
    "batch": "int64",
    "label": "str",
    "run_id": "str",
    "count": "int64",
}


def _strands(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """One curve for each strategy of several, with the runs of a single one that start it.

    A single one is measured as a team would use it, without the strategy that several need, where such a run exists.
    """
    single = table["count"] == 1
    for strategy in table.loc[~single, "strategy"].unique():
        starts = table[single]
        plain = starts[starts["strategy"] != strategy]
        yield pd.concat([plain if len(plain) else starts, table[~single & (table["strategy"] == strategy)]])


def begun(runs: pd.DataFrame) -> pd.DataFrame:
    """Those `curves` of which a run has finished: one of runs that were all cancelled or failed shows nothing yet.

    Their runs that have not finished stay, to be shown as left out.
    """
    everything = curves(runs)
    finished = set(runs.loc[runs["status"] == RunStatus.FINISHED, "run_id"])
    keys = everything.loc[everything["run_id"].isin(finished), "key"]
    return everything[everything["key"].isin(keys)].reset_index(drop=True)


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Sorts runs into scaling curves. Strong and weak scaling, and replicas and workers, never share one.

    Args:
        runs: rows of RUN_COLUMNS, those to be drawn (see `validity.included`).

    Returns:
        [curve, key, scaling, axis, batch, label, run_id, count], one row for each run of each curve. A curve has runs
        at two or more numbers of devices that agree in every field but that number, the strategy and the batch that
        follows. A run may be in several: a single-device run starts a strong and a weak one. `count` is the number of
        replicas in all, or of workers; `batch` the global size (strong) or the size per replica (weak). `key` names the
        curve by what its runs have in common, so that it stays the same when runs are added.
    """
    everything = fields(runs)
    # A run that someone else logged may lack a size, or call it 0: at which batch it was made is then not known.
    known = runs["total_replicas"].notna() & (runs["global_batch_size"] > 0).fillna(False)
    known &= (runs["per_replica_batch_size"] > 0).fillna(False)
    parts: list[pd.DataFrame] = []
    for axis in AXES:
        column = "workers" if axis is Thing.WORKERS else "total_replicas"
        table = everything.assign(count=runs[column].astype("float64").to_numpy())[known.to_numpy()]
        for scaling, rule in RULES.items():
            allowed = may_differ(axis, rule)
            fixed = "global_batch_size" if scaling is Scaling.STRONG else "per_replica_batch_size"
            keys = [name for name in FIELDS if name not in allowed]
            for _, group in table.groupby(keys, sort=False):
                for strand in _strands(group):
                    if strand["count"].nunique() < 2:
                        continue
                    first = strand.iloc[0]
                    label = f"{first['workload']} on {first['device']}, {axis.value}, {rule.value} of {first[fixed]}"
                    part = pd.DataFrame({"run_id": strand.index, "count": strand["count"].to_numpy()})
                    parts.append(
                        part.assign(
                            curve=len(parts),
                            key=_key(axis, scaling, strand, keys),
                            scaling=str(scaling),
                            axis=str(axis),
                            batch=int(first[fixed]),
                            label=label,
                        )
                    )
    if not parts:
        return pd.DataFrame(columns=list(CURVE_COLUMNS)).astype(CURVE_COLUMNS)
    return pd.concat(parts, ignore_index=True)[list(CURVE_COLUMNS)].astype(CURVE_COLUMNS)


def _key(axis: Thing, scaling: Scaling, strand: pd.DataFrame, keys: list[str]) -> str:
    several = strand.loc[strand["count"] > 1, "strategy"].iloc[0]
    common = "\n".join([str(several), *(f"{name}={strand[name].iloc[0]}" for name in keys)])
    return f"{axis}-{scaling.name.lower()}-{hashlib.sha256(common.encode()).hexdigest()[:10]}"


POINT_COLUMNS = {
    "count": "int64",
    "runs": "int64",
    "throughput": "float64",
    "throughput_low": "float64",
    "throughput_high": "float64",
    "per_device": "float64",
    "speedup": "float64",
    "speedup_low": "float64",
    "speedup_high": "float64",
    "efficiency": "float64",
    "efficiency_low": "float64",
    "efficiency_high": "float64",
    "ideal": "float64",
    "called": "str",
    "note": "str",
}


def points(curve: pd.DataFrame, steady: pd.DataFrame) -> pd.DataFrame:
    """The measured points of one curve.

    Speedup is throughput over that of the fewest devices measured; efficiency is speedup over the ratio of device
    counts, 1 on the ideal line. Neither is clamped: two devices slower than one give a speedup below 1. For weak
    scaling it is throughput too that is compared, not time.

    Args:
        curve: rows of `curves` for one curve: [run_id, count].
        steady: frame of `timing.steady_states`; runs without a steady state are left out.

    Returns:
        [counts, POINT_COLUMNS], ascending; throughput in examples per second with its 95% interval between runs, NaN
        with one run. The first point's speedup and efficiency are 1 without interval.
    """
    table = curve[["run_id", "count"]].merge(steady[steady["steady"]], on="run_id")
    groups = {count: table[table["count"] == count] for count in sorted({int(each) for each in table["count"]})}
    rows: list[dict] = []
    for count, group in groups.items():
        speeds = group["throughput"].to_numpy(float)
        mean = between_runs(np.log(speeds))
        half = t_quantile(mean.df) * math.sqrt(mean.variance) if mean.runs > 1 else math.nan
        throughput = math.exp(mean.mean)
        row = {
            "count": count,
            "runs": len(speeds),
            "throughput": throughput,
            "throughput_low": throughput * math.exp(-half),
            "throughput_high": throughput * math.exp(half),
            "per_device": throughput / count,
            "speedup": 1.0,
            "efficiency": 1.0,
            "ideal": throughput,
            "called": "",
            "note": "" if len(speeds) > 1 else "one run: spread between runs unknown",
        }
        if rows:
            fewest = next(iter(groups))
            base = groups[fewest]
            ratio = ratio_between(group, base)
            share = fewest / count
            row |= {
                "speedup": ratio.ratio,
                "speedup_low": ratio.low,
                "speedup_high": ratio.high,
                "efficiency": ratio.ratio * share,
                "efficiency_low": ratio.low * share,
                "efficiency_high": ratio.high * share,
                "ideal": rows[0]["throughput"] / share,
                "called": str(ratio.called),
                "note": ratio.note,
            }
        rows.append(row)
    return pd.DataFrame(rows, columns=list(POINT_COLUMNS)).astype(POINT_COLUMNS)


def predictions(fit: Fit) -> pd.DataFrame:
    """The fitted curve and what may be predicted from it.

    Returns:
        [count, throughput, low, high, predicted]: every whole number of devices up to the largest measured with the
        interval of the curve, and, where `Fit.refusal` allows, on to twice that with the interval of one new run
        (`predicted` True).
    """
    largest = fit.counts[-1]
    measured = [(count, fit.throughput(count), False) for count in _whole_numbers(1, largest)]
    beyond = [count for count in _whole_numbers(largest + 1, FURTHEST * largest) if not fit.refusal(count)]
    rows = [
        (count, interval.value, interval.low, interval.high, predicted)
        for count, interval, predicted in [*measured, *((count, fit.predict(count), True) for count in beyond)]
    ]
    names = {"count": "int64", "throughput": "float64", "low": "float64", "high": "float64", "predicted": "bool"}
    return pd.DataFrame(rows, columns=list(names)).astype(names)


def _whole_numbers(first: int, last: int, most: int = 64) -> list[int]:
    """Whole numbers from first to last, thinned to about `most` of them: enough for a line."""
    if last < first:
        return []
    return sorted({round(value) for value in np.linspace(first, last, min(most, last - first + 1))})


@dataclass(frozen=True)
class WorthUsing:
    """The number of devices worth using at a chosen efficiency.

    Attributes:
        count: the most devices at which efficiency is still reached.
        low, high: 95% interval; NaN when it comes from measured points only.
        at_limit: whether efficiency was still reached at the last number the data may speak of: then it is "at least".
        note: where the number comes from.
        doubt: why it is not sure; empty when it is.
    """

    count: int
    low: float
    high: float
    at_limit: bool
    note: str
    doubt: str = ""

    def sentence(self, efficiency: float, devices: str = "devices") -> str:
        """The answer in one line, with where it comes from."""
        return self._said(efficiency, devices, f", {self.note}")

    def finding(self, efficiency: float, devices: str = "devices") -> str:
        """The answer alone, with its doubt: what a title may say."""
        return self._said(efficiency, devices, "")

    def _said(self, efficiency: float, devices: str, source: str) -> str:
        least = "at least " if self.at_limit else ""
        known = math.isfinite(self.low) and not self.low == self.high == self.count
        interval = f" ({self.low:.0f} to {self.high:.0f})" if known else ""
        verb = f"{devices.removesuffix('s')}{interval} works" if self.count == 1 else f"{devices}{interval} work"
        doubt = f"; {self.doubt}" if self.doubt else ""
        return f"{least}{self.count} {verb} at {efficiency:.0%} efficiency or better{source}{doubt}"


def worth_using(measured: pd.DataFrame, fit: Fit | None, efficiency: float) -> WorthUsing:
    """How many devices work at a chosen efficiency or better.

    By the fitted law up to twice the largest measured number where it may predict, else among the measured points.
    Both are against the fewest devices measured, so that an answer by the law can be read off the points too.

    Args:
        measured: frame of `points`.
        fit: the law to use (see `scaling_fit.preferred`); None to use the measured points.
        efficiency: share of the ideal throughput, above 0, at most 1.

    Raises:
        ValueError: an efficiency outside (0, 1], or no point.
    """
    if not 0 < efficiency <= 1:
        raise ValueError(f"efficiency {efficiency} is not above 0 and at most 1")
    if measured.empty:
        raise ValueError("no measured point")
    largest = int(measured["count"].max())
    if fit is None or fit.refusal(largest + 1):
        reached = measured[measured["efficiency"] >= efficiency]
        count = int(reached["count"].max())
        reason = fit.refusal(largest + 1) if fit is not None else "no law was fitted"
        last = reached.loc[reached["count"] == count].iloc[0]
        surely = reached.index[0] == last.name or last["efficiency_low"] >= efficiency
        doubt = "" if surely else "not surely, by its interval" if last["efficiency_low"] < efficiency else "one run"
        note = f"of the measured numbers ({reason})"
        return WorthUsing(count, math.nan, math.nan, count == largest, note, doubt)
    counts = np.arange(1, FURTHEST * largest + 1)
    # Efficiency falls with every further device, so the counts that reach it are the first ones.
    fewest = int(measured["count"].min())
    best = int((fit.efficiency(counts, fewest) >= efficiency).sum())
    base = fit.law.relative(float(fewest), *fit.region[:, 1:].T) / fewest
    shapes = [fit.law.relative(float(n), *fit.region[:, 1:].T) / n / base >= efficiency for n in counts]
    reached_by = np.sum(shapes, axis=0)
    return WorthUsing(best, float(reached_by.min()), float(reached_by.max()), best == counts[-1], f"by {fit.law.name}")


_DEVICE_METRICS = {"utilisation": Metric.SYSTEM_GPU_UTILIZATION, "memory_mb": Metric.SYSTEM_GPU_MEMORY}


def devices(history: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """Utilisation, memory and throughput of each GPU of a run.

    In synchronous training every replica does the same number of steps, so each GPU has an equal part of the run's
    throughput, and the slowest is the one that is busy while the others wait for it: the highest utilisation. It is
    named only when it stands out by 5 points.

    Args:
        history: long frame [run_id, metric, step, value, timestamp].
        run_id: the run.

    Returns:
        [device, utilisation (median percent), memory_mb (peak), throughput (examples/s, median of the epochs after
        the first), slowest]; empty when nothing was sampled. Memory is what TensorFlow's allocator gave out, where
        that was recorded for every GPU; else what was in use on each, which holds the allocator's reserve and other
        processes too. Of several workers only the first records the former.
    """
    mine = history[history["run_id"] == run_id]
    rows, allocated = [], []
    index = 0
    while True:
        series = {
            name: mine.loc[mine["metric"] == metric.format(index=index), "value"]
            for name, metric in _DEVICE_METRICS.items()
        }
        if all(values.empty for values in series.values()):
            break
        allocated.append(mine.loc[mine["metric"] == Metric.GPU_PEAK_MEMORY.format(index=index), "value"].max())
        rows.append((f"GPU:{index}", series["utilisation"].median(), series["memory_mb"].max()))
        index += 1
    table = pd.DataFrame(rows, columns=["device", "utilisation", "memory_mb"])
    table = table.astype({"device": "str", "utilisation": "float64", "memory_mb": "float64"})
    if all(map(math.isfinite, allocated)):  # two measures in one column could not be compared
        table["memory_mb"] = np.array(allocated, float)
    epochs = mine[mine["metric"] == Metric.EXAMPLES_PER_SECOND]
    later = epochs[epochs["step"] > epochs["step"].min()]
    table["throughput"] = float(later["value"].median()) / max(len(table), 1)
    ordered = table["utilisation"].sort_values(ascending=False).to_numpy()
    stands_out = len(ordered) > 1 and ordered[0] - ordered[1] >= 5
    table["slowest"] = (table["utilisation"] == ordered[0]) if stands_out else False
    return table.astype({"slowest": "bool"})
