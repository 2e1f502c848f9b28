"""A scaling curve: throughput and efficiency against the number of replicas or workers."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme
from experiments.analysis.comparable import Thing
from experiments.analysis.curve import ScalingCurve

RUN_COLUMNS = ("run_id", "count", "throughput")
_BAND = "rgba(31, 131, 191, 0.16)"
_PREDICTED_BAND = "rgba(31, 131, 191, 0.08)"


def run_table(curve: pd.DataFrame, steady: pd.DataFrame) -> pd.DataFrame:
    """Every measured run of a curve.

    Args:
        curve: [run_id, count].
        steady: frame of `timing.steady_states`.

    Returns:
        RUN_COLUMNS, runs with a steady state only, by count.
    """
    table = curve[["run_id", "count"]].merge(steady.loc[steady["steady"], ["run_id", "throughput"]], on="run_id")
    return table[list(RUN_COLUMNS)].sort_values("count", kind="stable", ignore_index=True)


def throughput_figure(curve: ScalingCurve, runs: pd.DataFrame) -> go.Figure:
    """Draws throughput: runs, points with their intervals, the ideal line, the fitted law and what it predicts.

    Args:
        curve: the answer of `experiments.analysis.curve.read`.
        runs: a `run_table`.
    """
    figure = go.Figure()
    points, line = curve.points, curve.predictions
    if len(points):
        furthest = max(int(points["count"].max()), int(line["count"].max()) if len(line) else 0)
        first = points.iloc[0]
        counts = [int(first["count"]), furthest]
        figure.add_scatter(
            x=counts,
            y=[float(first["throughput"]) * count / counts[0] for count in counts],
            mode="lines",
            name="ideal",
            line={"color": theme.GREY, "dash": "dot", "width": 1.5},
            hoverinfo="skip",
        )
    if curve.fit is not None and len(line):
        _add_fit(figure, line, curve.fit.law.name)
    if len(runs):
        figure.add_scatter(
            x=runs["count"].tolist(),
            y=runs["throughput"].tolist(),
            mode="markers",
            name="runs",
            marker={"symbol": "circle-open", "size": 6, "color": theme.GREY},
            hoverinfo="skip",
        )
    if len(points):
        figure.add_scatter(**_points(points, _devices(curve)))
    theme.style(figure, theme.plain(curve.title), height=430)
    theme.legend_below(figure)
    figure.update_layout(hovermode="closest")
    _style_counts(figure, curve)
    figure.update_yaxes(title="examples/s", rangemode="tozero", tickformat=",")
    return figure


def _devices(curve: ScalingCurve) -> str:
    return "worker" if curve.axis is Thing.WORKERS else "replica"


def _add_fit(figure: go.Figure, line: pd.DataFrame, law: str) -> None:
    measured = line[~line["predicted"]]
    # The dashed part starts where the drawn one ends.
    beyond = pd.concat([measured.tail(1), line[line["predicted"]]])
    parts = [(measured, law, "solid", _BAND), (beyond, f"predicted by {law}", "dash", _PREDICTED_BAND)]
    for rows, name, dash, band in parts:
        if len(rows) < 2:
            continue
        known = rows[rows["low"].notna() & rows["high"].notna()]
        if len(known):
            figure.add_scatter(
                x=[*known["count"], *known["count"][::-1]],
                y=[*known["high"], *known["low"][::-1]],
                fill="toself",
                fillcolor=band,
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
            )
        figure.add_scatter(
            x=rows["count"].tolist(),
            y=rows["throughput"].tolist(),
            mode="lines",
            name=name,
            line={"color": theme.BLUE, "dash": dash, "width": 2},
            customdata=[[_interval(low, high)] for low, high in zip(rows["low"], rows["high"], strict=True)],
            hovertemplate=f"{name}<br>%{{x}}: %{{y:,.0f}} examples/s%{{customdata[0]}}<extra></extra>",
        )


def _interval(low: float, high: float) -> str:
    return f" ({low:,.0f} to {high:,.0f})" if math.isfinite(low) and math.isfinite(high) else ", interval unknown"


def _points(points: pd.DataFrame, device: str) -> dict:
    details = [
        [
            _interval(row["throughput_low"], row["throughput_high"]),
            f"{row['per_device']:,.0f}",
            f"{row['speedup']:.2f}x",
            f"{row['efficiency']:.0%}",
            f"{int(row['runs'])} run{'s' if row['runs'] != 1 else ''}" + (f"; {row['note']}" if row["note"] else ""),
        ]
        for row in points.to_dict("records")
    ]
    return {
        "x": points["count"].tolist(),
        "y": points["throughput"].tolist(),
        "mode": "markers",
        "name": "measured, with 95% interval",
        "marker": {"symbol": _symbols(points), "size": 10, "color": theme.VERMILION, "line": {"width": 2}},
        "error_y": theme.whiskers(points["throughput"], points["throughput_low"], points["throughput_high"]),
        "customdata": details,
        "hovertemplate": (
            f"<b>%{{x}} {device}s</b><br>%{{y:,.0f}} examples/s%{{customdata[0]}}"
            f"<br>per {device}: %{{customdata[1]}} examples/s"
            "<br>speedup %{customdata[2]}, efficiency %{customdata[3]}<br>%{customdata[4]}<extra></extra>"
        ),
    }


def _symbols(points: pd.DataFrame) -> list[str]:
    """A point that rests on a single run is hollow: its spread is not known."""
    return ["circle" if runs > 1 else "circle-open" for runs in points["runs"]]


def _style_counts(figure: go.Figure, curve: ScalingCurve) -> None:
    counts = [*curve.points["count"], *curve.predictions["count"]]
    largest = max(counts, default=1)
    named = f"{_devices(curve)}s"
    figure.update_xaxes(title=named, range=[0.5, largest * 1.04 + 0.3])
    if largest <= 16:
        figure.update_xaxes(dtick=1)


def efficiency_title(curve: ScalingCurve, chosen: float) -> str:
    """The number worth using, in a sentence."""
    if curve.worth is None:
        return "No efficiency without a measured point"
    sentence = curve.worth.finding(chosen, f"{_devices(curve)}s")
    return sentence[:1].upper() + sentence[1:]


def efficiency_figure(curve: ScalingCurve, chosen: float) -> go.Figure:
    """Draws efficiency: the points with their intervals, the fitted law, the ideal and the chosen efficiency.

    The law's efficiency, like the points', is against the fewest devices measured, and is drawn from there on.
    """
    figure = go.Figure()
    points, line = curve.points, curve.predictions
    if curve.fit is not None and len(line) and len(points):
        fewest = int(points["count"].iloc[0])
        line = line[line["count"] >= fewest]
        measured = line[~line["predicted"]]
        beyond = pd.concat([measured.tail(1), line[line["predicted"]]])
        for rows, dash in ((measured, "solid"), (beyond, "dash")):
            if len(rows) > 1:
                counts = rows["count"].to_numpy(float)
                figure.add_scatter(
                    x=rows["count"].tolist(),
                    y=curve.fit.efficiency(counts, fewest).tolist(),
                    mode="lines",
                    name=curve.fit.law.name if dash == "solid" else f"predicted by {curve.fit.law.name}",
                    line={"color": theme.BLUE, "dash": dash, "width": 2},
                    hovertemplate="%{x}: %{y:.0%} of ideal<extra></extra>",
                )
    if len(points):
        figure.add_scatter(
            x=points["count"].tolist(),
            y=points["efficiency"].tolist(),
            mode="markers",
            name="measured, with 95% interval",
            marker={"symbol": _symbols(points), "size": 10, "color": theme.VERMILION, "line": {"width": 2}},
            error_y=theme.whiskers(points["efficiency"], points["efficiency_low"], points["efficiency_high"]),
            hovertemplate=f"<b>%{{x}} {_devices(curve)}s</b><br>%{{y:.1%}} of ideal<extra></extra>",
        )
    theme.style(figure, theme.plain(efficiency_title(curve, chosen)), height=430)
    theme.legend_below(figure)
    figure.update_layout(hovermode="closest")
    figure.add_hline(y=1.0, line={"color": theme.GREY, "dash": "dot", "width": 1.5})
    figure.add_hline(
        y=chosen,
        line={"color": theme.AMBER, "dash": "dash", "width": 1.5},
        annotation={"text": f"chosen: {chosen:.0%}", "xanchor": "left"},
        annotation_position="bottom left",
    )
    _style_counts(figure, curve)
    tops = [*points["efficiency"], *points["efficiency_high"].dropna(), 1.0]
    figure.update_yaxes(title="efficiency", tickformat=".0%", range=[0, 1.06 * float(np.max(tops))])
    return figure
