"""The answers of the analyses as plain values for JSON and as text for a terminal."""

import math
import typing

import pandas as pd

from experiments.analysis.batch_curve import BatchCurve
from experiments.analysis.comparable import BatchRule
from experiments.analysis.curve import ScalingCurve
from experiments.analysis.tables import Speedups
from experiments.answers import frame_text
from experiments.terminal import safe
from experiments.wording import count

_WIDEST = 60
RULES = {"global": BatchRule.FIXED_GLOBAL, "replica": BatchRule.FIXED_PER_REPLICA}
"""Names of the rules on the command line."""


def records(frame: pd.DataFrame) -> list[dict[str, typing.Any]]:
    """Rows as plain values; None where nothing is known of a whole number or a flag."""
    return [
        {str(name): None if value is pd.NA else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def speedups_document(found: Speedups) -> dict[str, typing.Any]:
    """A speedup table in full."""
    return {
        "title": found.title,
        "by": str(found.thing),
        "rule": str(found.rule),
        "baseline": found.baseline,
        "baseline_run_ids": list(found.baseline_run_ids),
        "baseline_throughput": found.baseline_throughput,
        "table": records(found.table.drop(columns="cell")),
        "left_out": records(found.left_out),
        "notes": list(found.notes),
    }


def batch_document(found: BatchCurve) -> dict[str, typing.Any]:
    """Curves against the batch in full."""
    return {
        "title": found.title,
        "sentences": list(found.sentences),
        "points": records(found.points),
        "ratios": records(found.ratios),
        "crossings": [
            vars(each) | {"batch": each.batch if math.isfinite(each.batch) else None, "sentence": each.sentence()}
            for each in found.crossings
        ],
        "run_ids": list(found.run_ids),
    }


def batch_table(found: BatchCurve) -> pd.DataFrame:
    """The measured points of curves against the batch as people read them."""
    points = found.points
    return pd.DataFrame(
        {
            "device": points["curve"],
            "batch per replica": points["batch"],
            "runs": points["runs"],
            "examples/s": _intervals(points, "throughput", "throughput_low", "throughput_high", _number),
            "note": points["note"],
        }
    )


def batch_text(found: BatchCurve) -> str:
    """Curves against the batch for a terminal."""
    said = "".join(f"{safe(line)}\n" for line in (found.title, *found.sentences))
    return f"{said}\n{frame_text(batch_table(found), _WIDEST)}\n" if len(found.points) else said


def speedups_text(found: Speedups) -> str:
    """A speedup table for a terminal."""
    base = count(len(found.baseline_run_ids), "run")
    if math.isfinite(found.baseline_throughput):
        base += f", {found.baseline_throughput:,.0f} examples/s"
    lines = [safe(found.title), "", f"by        {found.thing}", f"baseline  {safe(found.baseline)} ({base})"]
    lines += [f"to know   {safe(each)}" for each in found.notes]
    if len(found.table):
        lines += ["", frame_text(speedups_table(found), _WIDEST)]
    return "\n".join([*lines, *left_out_lines(found.left_out)]) + "\n"


def speedups_table(found: Speedups) -> pd.DataFrame:
    """A speedup table as people read it."""
    return pd.DataFrame(
        {
            "configuration": found.table["label"],
            "runs": found.table["runs"],
            "examples/s": [_number(value) for value in found.table["throughput"]],
            "speedup": _intervals(found.table, "ratio", "low", "high", _times),
            "called": found.table["called"],
            "interval from": found.table["basis"],
            "end to end": _intervals(found.table, "end_to_end", "end_to_end_low", "end_to_end_high", _times),
            "break even": found.table["break_even"],
        }
    )


def left_out_table(left_out: pd.DataFrame) -> pd.DataFrame:
    """The runs that stay out of figures, and why, as people read it."""
    return pd.DataFrame(
        {
            "left out": left_out["run_id"].str[:8],
            "name": left_out["name"],
            "put back": left_out["can_be_put_back"].map({True: "possible", False: "impossible"}),
            "why": left_out["detail"],
        }
    )


def left_out_lines(left_out: pd.DataFrame) -> list[str]:
    """The same for a terminal; no line when there is none."""
    return ["", frame_text(left_out_table(left_out))] if len(left_out) else []


def curve_document(found: ScalingCurve, efficiency: float) -> dict[str, typing.Any]:
    """A scaling curve in full."""
    worth = found.worth
    return {
        "key": found.key,
        "title": found.title,
        "label": found.label,
        "scaling": str(found.scaling),
        "axis": str(found.axis),
        "batch": found.batch,
        "run_ids": list(found.run_ids),
        "points": records(found.points),
        "parameters": records(found.parameters()),
        "sentences": list(found.sentences),
        "not_fitted": list(found.not_fitted),
        "predictions": records(found.predictions),
        "refusal": found.refusal,
        "efficiency": efficiency,
        "worth_using": worth and {**vars(worth), "sentence": worth.sentence(efficiency, str(found.axis))},
        "left_out": records(found.left_out),
    }


def curve_text(found: ScalingCurve, efficiency: float) -> str:
    """A scaling curve for a terminal."""
    lines = [safe(found.title), "", f"curve     {found.key}", f"measured  {safe(found.label)}, {found.scaling}"]
    if len(found.points):
        lines += ["", frame_text(points_table(found), _WIDEST)]
    lines += ["", *fit_lines(found)]
    if found.worth is not None:
        lines.append(f"worth using: {found.worth.sentence(efficiency, str(found.axis))}")
    return "\n".join([*lines, *left_out_lines(found.left_out)]) + "\n"


def points_table(found: ScalingCurve) -> pd.DataFrame:
    """The measured points of a curve as people read them."""
    points = found.points
    return pd.DataFrame(
        {
            str(found.axis): points["count"],
            "runs": points["runs"],
            "examples/s": _intervals(points, "throughput", "throughput_low", "throughput_high", _number),
            "per device": [_number(value) for value in points["per_device"]],
            "speedup": _intervals(points, "speedup", "speedup_low", "speedup_high", _times),
            "efficiency": _intervals(points, "efficiency", "efficiency_low", "efficiency_high", "{:.0%}".format),
            "called": points["called"],
            "note": points["note"],
        }
    )


def fit_lines(found: ScalingCurve) -> list[str]:
    """What the fits say, what could not be fitted, and what is predicted or refused."""
    lines = []
    for each in found.fits:
        values = ", ".join(
            f"{name} = {value.value:.3g}" + (f" ({value.low:.3g} to {value.high:.3g})" if value.known else "")
            for name, value in each.parameters.items()
        )
        used = ", the one that is used" if each is found.fit else ""
        lines.append(f"{each.law.name}{used}: {values}; source: {each.law.source}")
    lines += [f"  {sentence}" for sentence in found.sentences]
    lines += [f"not fitted: {reason}" for reason in found.not_fitted]
    beyond = found.predictions[found.predictions["predicted"]]
    if len(beyond):
        last = beyond.iloc[-1]
        lines.append(
            f"predicted for {int(last['count'])} {found.axis}: {last['throughput']:,.0f} examples/s "
            f"({last['low']:,.0f} to {last['high']:,.0f}, one new run)"
        )
    if found.refusal:
        lines.append(f"nothing is predicted beyond the measured points: {found.refusal}")
    return lines


def _intervals(table: pd.DataFrame, value: str, low: str, high: str, show: typing.Callable[[float], str]) -> list[str]:
    return [
        show(middle) + (f" ({show(least)} to {show(most)})" if math.isfinite(least) else "")
        for middle, least, most in zip(table[value], table[low], table[high], strict=True)
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x" if ratio >= 100 else "unknown" if math.isnan(ratio) else f"{ratio:.2f}x"


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "unknown"
