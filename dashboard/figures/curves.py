"""Learning curves: one model metric, training and validation, by epoch."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme
from training.names import Metric

CURVE_COLUMNS = ("series", "epoch", "value")
_TITLES = {Metric.LOSS: "Loss", Metric.ACCURACY: "Accuracy"}


def curve_table(history: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The points of a metric and of its validation twin.

    Args:
        history: columns metric, step (epoch from 0), value, as `experiments.results.history` gives them.
        metric: a Keras name, such as `loss`.

    Returns:
        CURVE_COLUMNS: series (`training`, `validation`), epoch (from 1, as people count), value (NaN and infinity
        kept), one row an epoch (the last one written, if an epoch was written twice), in order.
    """
    names = {metric: "training", Metric.VAL_PREFIX + metric: "validation"}
    rows = history[history["metric"].isin(list(names))]
    table = pd.DataFrame(
        {
            "series": rows["metric"].map(names).astype(str),
            "epoch": rows["step"].astype("int64") + 1,
            "value": rows["value"].astype("float64"),
        }
    )
    table = table.drop_duplicates(["series", "epoch"], keep="last")
    return table.sort_values(["series", "epoch"], ignore_index=True)


def not_finite(table: pd.DataFrame, metric: str) -> str:
    """One sentence on values that cannot be drawn: which, and since when. Empty when all can."""
    parts = []
    for series, name in (("training", metric), ("validation", Metric.VAL_PREFIX + metric)):
        bad = table[(table["series"] == series) & ~np.isfinite(table["value"])]
        if len(bad):
            first = bad.iloc[0]
            kind = "NaN" if math.isnan(first["value"]) else "infinite"
            more = f" and at {len(bad) - 1} more" if len(bad) > 1 else ""
            parts.append(f"{name} is {kind} at epoch {first['epoch']}{more}")
    return "; ".join(parts)


def best(table: pd.DataFrame, metric: str) -> tuple[str, int, float] | None:
    """The best finite value, of validation where there is any: series, epoch, value. None without one."""
    finite = table[np.isfinite(table["value"])]
    for series in ("validation", "training"):
        rows = finite[finite["series"] == series]
        if len(rows):
            index = rows["value"].idxmin() if "loss" in metric else rows["value"].idxmax()
            return series, int(rows.at[index, "epoch"]), float(rows.at[index, "value"])
    return None


def curve_title(table: pd.DataFrame, metric: str) -> str:
    """The finding in a sentence."""
    name = _TITLES.get(metric, metric.replace("_", " ").capitalize())
    found = best(table, metric)
    if found is None:
        return f"{name}: no finite value yet"
    series, epoch, value = found
    shown = f"{value:.2%}" if metric == Metric.ACCURACY else f"{value:.4g}"
    epochs = int(table["epoch"].max())
    if epochs == 1:
        return f"{series.capitalize()} {name.lower()} is {shown} after the first epoch"
    return f"Best {series} {name.lower()} is {shown}, at epoch {epoch}"


def curve_figure(table: pd.DataFrame, metric: str, log_scale: bool = False) -> go.Figure:
    """Draws a `curve_table`. Values that cannot be drawn (NaN, infinite; on a log scale also 0 and below) are gaps."""
    figure = go.Figure()
    styles = {
        "training": (theme.TRAINING, "solid", "circle"),
        "validation": (theme.VALIDATION, "dash", "diamond"),
    }
    shown_format = ".2%" if metric == Metric.ACCURACY else ".4g"
    for series, (color, dash, symbol) in styles.items():
        rows = table[table["series"] == series]
        if rows.empty:
            continue
        drawable = np.isfinite(rows["value"]) & ~(log_scale & (rows["value"] <= 0))
        figure.add_scatter(
            x=rows["epoch"].tolist(),
            y=rows["value"].where(drawable).astype(object).where(drawable, None).tolist(),
            name=series,
            mode="lines+markers" if len(rows) <= 60 else "lines",
            line={"color": color, "dash": dash, "width": 2},
            marker={"symbol": symbol, "size": 6},
            connectgaps=False,
            hovertemplate=f"%{{y:{shown_format}}}",
        )
    theme.style(figure, curve_title(table, metric), height=300)
    figure.update_xaxes(title="epoch", dtick=1 if len(table) > 0 and table["epoch"].max() <= 12 else None)
    figure.update_yaxes(
        title=_TITLES.get(metric, metric).lower(),
        type="log" if log_scale else "linear",
        tickformat=".0%" if metric == Metric.ACCURACY else None,
    )
    return figure
