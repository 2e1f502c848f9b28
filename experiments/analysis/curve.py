"""One scaling curve, answered in full: points, fits, what they say, what they refuse to say, what is missing."""

import math
from dataclasses import dataclass

import pandas as pd

from experiments.analysis.comparable import NotThereError, Thing
from experiments.analysis.evidence import Evidence
from experiments.analysis.missing import MISSING_COLUMNS, REPEATS, to_complete, to_halve
from experiments.analysis.scaling import WorthUsing, curves, points, predictions, worth_using
from experiments.analysis.scaling_fit import Fit, fits, preferred
from experiments.analysis.scaling_laws import Scaling
from experiments.analysis.speedup import Called, ratio_between

EFFICIENCY = 0.8
"""Share of the ideal throughput that a device should give to be worth using, unless a reader chooses another."""

FIT_COLUMNS = {
    "law": "str",
    "parameter": "str",
    "value": "float64",
    "low": "float64",
    "high": "float64",
    "preferred": "bool",
    "source": "str",
}


@dataclass(frozen=True)
class ScalingCurve:
    """A scaling curve and all that may be said of it.

    Attributes:
        key: names the curve in an address.
        label: what was measured, in words.
        scaling: strong or weak.
        axis: replicas or workers.
        batch: the batch size that was held.
        drawn: [run_id, count] of the runs that are drawn, newest first.
        points: frame of `scaling.points`; may be empty.
        fits: the laws that were fitted; `fit` is the one to draw, None when none fits.
        not_fitted: why the others were not, each in words.
        predictions: frame of `scaling.predictions`; empty without a fit.
        refusal: why nothing is predicted beyond the measured points; empty when something is.
        worth: how many devices are worth using; None without a point.
        sentences: what the fitted law's parameters mean.
        left_out: frame of `Evidence.left_out`.
        title: the finding in one sentence.
    """

    key: str
    label: str
    scaling: Scaling
    axis: Thing
    batch: int
    drawn: pd.DataFrame
    points: pd.DataFrame
    fits: tuple[Fit, ...]
    fit: Fit | None
    not_fitted: tuple[str, ...]
    predictions: pd.DataFrame
    refusal: str
    worth: WorthUsing | None
    sentences: tuple[str, ...]
    left_out: pd.DataFrame
    title: str

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that are drawn."""
        return tuple(self.drawn["run_id"])

    @property
    def largest_run(self) -> str:
        """The newest run on the most devices measured; empty without a point."""
        if self.points.empty:
            return ""
        return str(self.drawn.loc[self.drawn["count"] == self.points["count"].max(), "run_id"].iloc[0])

    def parameters(self) -> pd.DataFrame:
        """Every fitted parameter with its 95% interval: FIT_COLUMNS."""
        rows = [
            (each.law.name, name, found.value, found.low, found.high, each is self.fit, each.law.source)
            for each in self.fits
            for name, found in each.parameters.items()
        ]
        return pd.DataFrame(rows, columns=list(FIT_COLUMNS)).astype(FIT_COLUMNS)


def read(evidence: Evidence, key: str, efficiency: float = EFFICIENCY) -> ScalingCurve:
    """Answers one curve.

    Args:
        evidence: of all runs of the curve, those left out included.
        key: of a curve of `scaling.curves` over these runs.
        efficiency: above 0, at most 1.

    Raises:
        KeyError: no such curve among these runs.
        ValueError: an efficiency out of bounds.
    """
    if not 0 < efficiency <= 1:
        raise ValueError(f"efficiency {efficiency} is not above 0 and at most 1: choose such as 0.8")
    everything = curves(evidence.runs)
    curve = everything[everything["key"] == key]
    if curve.empty:
        raise NotThereError(f"no curve {key}")
    first = curve.iloc[0]
    scaling, axis = Scaling(first["scaling"]), Thing(first["axis"])
    drawn = curve[curve["run_id"].map(evidence.used)]
    measured = points(drawn, evidence.steady)
    speeds = drawn.merge(evidence.steady[evidence.steady["steady"]], on="run_id")
    found: list[Fit] = []
    not_fitted: list[str] = ["no run of this curve can be used"]
    if len(speeds):
        found, not_fitted = fits(speeds["count"].to_numpy(float), speeds["throughput"].to_numpy(float), scaling)
    best = preferred(found)
    devices = "workers" if axis is Thing.WORKERS else "replicas"
    left_out = evidence.left_out()
    return ScalingCurve(
        key=key,
        label=str(first["label"]),
        scaling=scaling,
        axis=axis,
        batch=int(first["batch"]),
        drawn=drawn[["run_id", "count"]].reset_index(drop=True),
        points=measured,
        fits=tuple(found),
        fit=best,
        not_fitted=tuple(not_fitted),
        predictions=predictions(best) if best is not None else _NO_PREDICTIONS,
        refusal=_refusal(found, best, not_fitted),
        worth=worth_using(measured, best, efficiency) if len(measured) else None,
        sentences=tuple(best.sentences(devices)) if best is not None else (),
        left_out=left_out[left_out["run_id"].isin(curve["run_id"])].reset_index(drop=True),
        title=_title(measured, speeds, devices),
    )


_NO_PREDICTIONS = pd.DataFrame(
    {"count": pd.Series(dtype="int64"), "predicted": pd.Series(dtype="bool")}
    | {name: pd.Series(dtype="float64") for name in ("throughput", "low", "high")}
)[["count", "throughput", "low", "high", "predicted"]]


def _refusal(found: list[Fit], best: Fit | None, not_fitted: list[str]) -> str:
    if best is not None:
        return best.refusal(best.counts[-1] + 1)
    if found:
        return found[0].refusal(found[0].counts[-1] + 1)
    return "; ".join(not_fitted)


def _title(measured: pd.DataFrame, speeds: pd.DataFrame, devices: str) -> str:
    """The finding: what the most devices measured bring, never more than the interval allows.

    Args:
        measured: frame of `scaling.points`.
        speeds: the runs behind it, rows of `timing.steady_states` with their count.
        devices: what is counted, in the plural.
    """
    if measured.empty:
        return "No run of this curve can be used"
    fewest, most = measured.iloc[0], measured.iloc[-1]
    if len(measured) < 2:
        return f"Only {int(fewest['count'])} of the {devices} was measured: no curve yet"
    interval = ""
    if math.isfinite(most["speedup_low"]):
        interval = f" ({most['speedup_low']:.2f}x to {most['speedup_high']:.2f}x)"
    start = f"{int(most['count'])} {devices} train {most['speedup']:.2f}x{interval} as fast as {int(fewest['count'])}"
    peak = int(measured.iloc[int(measured["throughput"].to_numpy().argmax())]["count"])
    if peak not in (int(most["count"]), int(fewest["count"])):
        over = ratio_between(speeds[speeds["count"] == peak], speeds[speeds["count"] == most["count"]])
        if over.called is Called.FASTER:
            return f"{start}; the fastest were {peak}"
    if most["called"] == Called.SLOWER:
        return f"{start}: more is slower"
    if most["called"] == Called.NO_DIFFERENCE:
        return f"{start}: no difference found"
    if most["called"] == Called.UNKNOWN:
        return f"{start}: {most['note'] or 'too few runs to be sure'}"
    return f"{start}: {most['efficiency']:.0%} of ideal"


def missing(
    evidence: Evidence, curve: ScalingCurve, most: int, halve: bool = False, repeats: int = REPEATS
) -> pd.DataFrame:
    """The runs to queue to complete a curve, or to halve its intervals: MISSING_COLUMNS.

    Args:
        evidence: as for `read`.
        curve: the answer of `read`.
        most: the most devices there are to measure on.
        halve: repeats that halve the intervals, instead of points that are not there.
        repeats: runs that every point should have.
    """
    everything = curves(evidence.runs)
    rows = everything[everything["key"] == curve.key]
    if rows.empty or (halve and curve.points.empty):
        return pd.DataFrame(columns=list(MISSING_COLUMNS)).astype(MISSING_COLUMNS)
    if halve:
        return to_halve(rows, curve.points, evidence.runs)
    return to_complete(rows, curve.points, evidence.runs, most, repeats)
