"""Batch size against throughput: a curve for each device, and where they cross."""

import math

import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme
from experiments.analysis.batch_curve import BatchCurve, Crossing

# Curves are told apart without their colour too.
_SYMBOLS = ("circle", "diamond", "square", "triangle-up")
_UNSURE_BAND = "rgba(185, 127, 0, 0.14)"


def batch_figure(found: BatchCurve) -> go.Figure:
    """Draws the curves of one set, whiskers for their 95% intervals, both axes logarithmic.

    A crossing that was interpolated is a line; one of which only the bracket is known is a band over it. A point that
    rests on one run is hollow.

    Args:
        found: the answer of `experiments.analysis.batch_curve.read`.
    """
    figure = go.Figure()
    devices: dict[str, int] = {}
    for curve, (name, points) in enumerate(found.points.groupby("curve", sort=False)):
        kind = str(name).partition(",")[0]
        color, _ = theme.device_style(f"{kind}:{devices.get(kind, 0)}")
        devices[kind] = devices.get(kind, 0) + 1
        figure.add_scatter(**_curve(str(name), points, color, _SYMBOLS[curve % len(_SYMBOLS)]))
    theme.style(figure, theme.plain(found.title), height=430)
    theme.legend_below(figure)
    figure.update_layout(hovermode="closest", margin={"t": 84})
    batches = sorted(set(found.points["batch"]))
    figure.update_xaxes(
        title="batch per replica",
        type="log",
        tickmode="array",
        tickvals=batches,
        ticktext=[f"{batch:,}" for batch in batches],
    )
    figure.update_yaxes(title="examples/s", type="log", tickvals=_ticks(found.points), tickformat=",")
    for crossing in found.crossings:
        _add_crossing(figure, crossing)
    return figure


def _curve(name: str, points: pd.DataFrame, color: str, symbol: str) -> dict:
    value, low, high = (points[column] for column in ("throughput", "throughput_low", "throughput_high"))
    details = [
        [
            f" ({least:,.0f} to {most:,.0f})" if math.isfinite(least) else ", interval unknown",
            f"{runs} run{'' if runs == 1 else 's'}",
        ]
        for least, most, runs in zip(low, high, points["runs"], strict=True)
    ]
    shown = theme.plain(name)
    return {
        "x": points["batch"].tolist(),
        "y": value.tolist(),
        "mode": "lines+markers",
        "name": shown,
        "line": {"color": color, "width": 2},
        "marker": {
            "color": color,
            "size": 9,
            "symbol": [symbol if runs > 1 else f"{symbol}-open" for runs in points["runs"]],
            "line": {"width": 2},
        },
        "error_y": theme.whiskers(value, low, high),
        "customdata": details,
        "hovertemplate": (
            f"<b>{shown}, batch %{{x:,}}</b><br>%{{y:,.0f}} examples/s%{{customdata[0]}}"
            "<br>%{customdata[1]}<extra></extra>"
        ),
    }


_STEPS = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9))
"""Ticks within a decade, coarse to fine."""


def _ticks(points: pd.DataFrame) -> list[float]:
    """Round numbers in each decade that was measured: the coarsest of _STEPS of which three can be seen."""
    if points.empty:
        return []
    least, most = points["throughput"].min(), points["throughput"].max()
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    for steps in _STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        if sum(least <= tick <= most for tick in ticks) >= 3:
            break
    return ticks


def _add_crossing(figure: go.Figure, crossing: Crossing) -> None:
    known = math.isfinite(crossing.batch)
    if known:
        figure.add_vline(x=crossing.batch, line={"color": theme.AMBER, "dash": "dash", "width": 1.5})
    else:
        figure.add_vrect(x0=crossing.low, x1=crossing.high, fillcolor=_UNSURE_BAND, line={"width": 0}, layer="below")
    at = crossing.batch if known else math.sqrt(crossing.low * crossing.high)
    where = f"from about {at:,.0f}" if known else f"from between {crossing.low:,} and {crossing.high:,}"
    perhaps = "" if crossing.sure else "perhaps "
    # On a logarithmic axis a shape takes the value, and an annotation its logarithm.
    figure.add_annotation(
        x=math.log10(at),
        y=1.0,
        yref="paper",
        yanchor="bottom",
        text=f"{theme.plain(crossing.faster)} {perhaps}faster {where}",
        showarrow=False,
    )
