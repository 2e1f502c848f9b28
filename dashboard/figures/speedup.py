"""Every configuration against a baseline: bars of steady speedup with their intervals, whole runs beside them."""

import math

import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme
from experiments.analysis.speedup import Called

MOST_BARS = 30
WIDE = 12.0
"""From this ratio between the largest and the smallest figure on, the axis is logarithmic."""

_LOOKS = {
    Called.FASTER: ("faster", theme.BLUE),
    Called.SLOWER: ("slower", theme.VERMILION),
    Called.NO_DIFFERENCE: ("no difference found", theme.GREY),
    Called.UNKNOWN: ("too few runs to call it", theme.GREY),
}
END_TO_END = "whole run, start-up and compiling included"


def drawn(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that are drawn: those with a speedup, the MOST_BARS fastest."""
    return table[table["ratio"].notna()].head(MOST_BARS)


def notice(table: pd.DataFrame) -> str:
    """What the drawing leaves out; empty when nothing."""
    without = int(table["ratio"].isna().sum())
    beyond = len(table) - without - len(drawn(table))
    parts = []
    if beyond:
        parts.append(f"The {MOST_BARS} fastest of {MOST_BARS + beyond:,} are drawn; the table holds all.")
    if without:
        parts.append(f"{without:,} without a speedup: the table says why.")
    return " ".join(parts)


def is_wide(table: pd.DataFrame, claim: float | None = None) -> bool:
    """Whether the figures of a speedup table span so much that only a logarithmic axis shows them all."""
    names = ["ratio", "low", "high", "end_to_end"]
    finite = [value for value in table[names].to_numpy(float).ravel() if math.isfinite(value) and value > 0]
    finite += [1.0, *([claim] if claim else [])]
    return max(finite) / min(finite) > WIDE


def speedup_figure(table: pd.DataFrame, title: str, baseline: str, claim: float | None = None) -> go.Figure:
    """Draws a speedup table: one bar a configuration, the fastest on top, with its 95% interval.

    A bar starts at 1, the baseline's speed: to the right is faster, to the left slower, and neither is clamped. A bar
    that rests on one run each is hollow and hatched. The diamond is the speedup of whole runs.

    Args:
        table: `experiments.analysis.tables.SPEEDUP_COLUMNS`.
        title: the finding in a sentence, as typed.
        baseline: the baseline's label, as typed.
        claim: a speedup that somebody claims, drawn as a neutral line.
    """
    rows = drawn(table)
    log_axis = is_wide(rows, claim)
    figure = go.Figure()
    places = {label: len(rows) - 1 - place for place, label in enumerate(rows.index)}
    for called, (name, color) in _LOOKS.items():
        mine = rows[rows["called"] == str(called)]
        if len(mine):
            figure.add_bar(**_bars(mine, [places[index] for index in mine.index], name, color, called))
    whole = rows[rows["end_to_end"].notna()]
    if len(whole):
        figure.add_scatter(**_whole_runs(whole, [places[index] for index in whole.index]))
    theme.style(figure, theme.plain(title), height=180 + 46 * max(2, len(rows)))
    theme.legend_below(figure)
    figure.update_layout(barmode="overlay", hovermode="closest", margin={"r": 150, "t": 70})
    figure.update_yaxes(
        tickmode="array",
        tickvals=[places[index] for index in rows.index],
        ticktext=[_wrapped(label) for label in rows["label"]],
        range=[-0.6, len(rows) - 0.4],
        showgrid=False,
    )
    figure.update_xaxes(title=f"speedup over {theme.plain(baseline)}", ticksuffix="x")
    if log_axis:
        figure.update_xaxes(type="log", tickvals=_log_ticks(rows, claim), tickformat="~g")
    else:
        figure.update_xaxes(range=[0, 1.08 * _largest(rows, claim)])
    _add_line(figure, 1.0, "baseline", "solid", log_axis)
    if claim:
        _add_line(figure, claim, f"claimed: {claim:g}x", "dot", log_axis)
    for index, row in rows.iterrows():
        figure.add_annotation(
            x=1.0,
            xref="paper",
            xanchor="left",
            xshift=10,
            y=places[index],
            text=_figures(row),
            showarrow=False,
            align="left",
            font={"size": 13},
        )
    return figure


def _bars(rows: pd.DataFrame, places: list[int], name: str, color: str, called: Called) -> dict:
    surely = called is not Called.UNKNOWN
    return {
        "y": places,
        "base": [1.0] * len(rows),
        "x": (rows["ratio"] - 1).tolist(),
        "orientation": "h",
        "width": 0.56,
        "name": name,
        "marker": {
            "color": color if surely else "rgba(124, 136, 148, 0.18)",
            "line": {"color": color, "width": 0 if surely else 1.5},
            "pattern": {"shape": "" if surely else "/", "fgcolor": color, "size": 7, "solidity": 0.18},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": (rows["high"] - rows["ratio"]).fillna(0.0).tolist(),
            "arrayminus": (rows["ratio"] - rows["low"]).fillna(0.0).tolist(),
            "thickness": 1.6,
            "width": 7,
            "color": theme.WHISKER,
        },
        "customdata": _plain(rows["label"], rows["sentence"]),
        "hovertemplate": "<b>%{customdata[0]}</b><br>steady: %{customdata[1]}<extra></extra>",
    }


def _whole_runs(rows: pd.DataFrame, places: list[int]) -> dict:
    return {
        "x": rows["end_to_end"].tolist(),
        "y": places,
        "mode": "markers",
        "name": END_TO_END,
        "marker": {"symbol": "diamond", "size": 10, "color": "#ffffff", "line": {"color": theme.AMBER, "width": 2.5}},
        "customdata": _plain(rows["label"], rows["end_to_end_sentence"]),
        "hovertemplate": "<b>%{customdata[0]}</b><br>whole run: %{customdata[1]}<extra></extra>",
    }


def _plain(*texts: pd.Series) -> list[list[str]]:
    return [[theme.plain(text) for text in row] for row in zip(*texts, strict=True)]


def _add_line(figure: go.Figure, at: float, text: str, dash: str, log_axis: bool) -> None:
    figure.add_vline(x=at, line={"color": theme.LINE, "dash": dash, "width": 1.5})
    # On a logarithmic axis a shape takes the value, and an annotation its logarithm.
    figure.add_annotation(
        x=math.log10(at) if log_axis else at, y=1.0, yref="paper", yanchor="bottom", text=text, showarrow=False
    )


def _figures(row: pd.Series) -> str:
    interval = f" ({row['low']:.2f} to {row['high']:.2f})" if math.isfinite(row["low"]) else ""
    mark = "<br>one run each" if row["called"] == Called.UNKNOWN and row["runs"] == 1 else ""
    return f"<b>{row['ratio']:.2f}x</b>{interval}{mark}"


def _largest(rows: pd.DataFrame, claim: float | None) -> float:
    found = [value for value in rows[["ratio", "high", "end_to_end"]].to_numpy(float).ravel() if math.isfinite(value)]
    return max([1.0, *found, *([claim] if claim else [])])


def _log_ticks(rows: pd.DataFrame, claim: float | None) -> list[float]:
    """1, 2 and 5 of each decade between the figures, 1 always among them."""
    values = rows[["ratio", "low", "high", "end_to_end"]].to_numpy(float).ravel()
    finite = [value for value in values if math.isfinite(value) and value > 0] + [1.0, *([claim] if claim else [])]
    decades = range(math.floor(math.log10(min(finite))), math.ceil(math.log10(max(finite))) + 1)
    return [step * 10.0**decade for decade in decades for step in (1, 2, 5)]


def _wrapped(label: str, width: int = 34) -> str:
    """A label on at most three lines, broken after its commas."""
    lines: list[str] = []
    for part in str(label).split(", "):
        if lines and len(lines[-1]) + len(part) < width:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    shown = lines if len(lines) <= 3 else [*lines[:2], f"{lines[2]} …"]
    return "<br>".join(theme.plain(line if len(line) <= 2 * width else line[: 2 * width] + "…") for line in shown)
