"""Devices against op types: where the ops of a run are, and between two runs what moved."""

import math

import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme

MOST_OP_TYPES = 30
OTHERS = "other op types"
SCALE = ("#e3eff7", "#a9d0e8", "#5aa5d6")
TEXT = "#14202b"
"""On every colour of the scale, in both themes: a darker end would need another colour for its numbers, and those in
the middle could be read with neither."""


def map_table(summary: pd.DataFrame, role: str) -> pd.DataFrame:
    """Distinct ops by type (rows, most ops first) and device (columns, by name).

    Args:
        summary: frame of `experiments.analysis.placement.summary`.
        role: `compute` or `input`.

    Returns:
        int64 frame; the MOST_OP_TYPES types with the most ops, the rest summed as OTHERS.
    """
    rows = summary[summary["role"] == role]
    table = rows.pivot_table(index="op_type", columns="device", values="ops", aggfunc="sum", fill_value=0)
    table = table.astype("int64")
    table.columns.name = None
    order = table.sum(axis=1).sort_values(ascending=False, kind="stable").index
    table = table.loc[order]
    if len(table) > MOST_OP_TYPES:
        rest = table.iloc[MOST_OP_TYPES:].sum().to_frame(OTHERS).T
        table = pd.concat([table.iloc[:MOST_OP_TYPES], rest])
    table.index.name = "op_type"
    return table


def map_title(table: pd.DataFrame, role: str) -> str:
    """The finding in a sentence."""
    total = int(table.to_numpy().sum()) if len(table) else 0
    if not total:
        return f"No {role} op was logged"
    by_device = table.sum().sort_values(ascending=False, kind="stable")
    busiest, most = by_device.index[0], int(by_device.iloc[0])
    if len(by_device) == 1:
        return f"All {total:,} {role} ops are on {busiest}"
    if len(by_device) == 2:
        return f"{most:,} of {total:,} {role} ops are on {busiest}, {total - most:,} on {by_device.index[1]}"
    least = f"{int(by_device.iloc[-1]):,} on {by_device.index[-1]}"
    return f"{total:,} {role} ops on {len(by_device)} devices, from {least} to {most:,} on {busiest}"


def map_figure(table: pd.DataFrame, role: str) -> go.Figure:
    """Draws a `map_table` as a heat map: the number stands in each cell, whose colour goes with its logarithm."""
    figure = go.Figure()
    # The sum of the rare types is no type: it must not make the others pale.
    largest = table.loc[[name for name in table.index if name != OTHERS]].to_numpy()
    devices = [theme.plain(device) for device in table.columns]
    types = [theme.plain(name) for name in table.index]
    figure.add_heatmap(
        x=devices,
        y=types,
        z=[[math.log10(count) if count else None for count in row] for row in table.to_numpy().tolist()],
        text=[[f"{count:,}" if count else "" for count in row] for row in table.to_numpy().tolist()],
        texttemplate="%{text}",
        customdata=table.to_numpy().tolist(),
        hovertemplate="%{y} on %{x}: %{customdata:,} ops<extra></extra>",
        textfont={"color": TEXT},
        colorscale=list(SCALE),
        showscale=False,
        zmin=0,
        zmax=math.log10(max(int(largest.max()), 10)) if largest.size else 1,
        xgap=2,
        ygap=2,
    )
    theme.style(figure, theme.plain(map_title(table, role)), height=110 + 24 * max(3, len(table)))
    figure.update_layout(hovermode="closest", title={"y": 1.0, "pad": {"t": 12}}, margin={"t": 72})
    figure.update_xaxes(side="top", showgrid=False, tickangle=0)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


MOST_MOVES = 20
_CHANGES = {
    "moved": ("moved to another kind of device", theme.VERMILION, ""),
    "same kind": ("on other devices of the same kind", theme.BLUE, ""),
    "only in first": ("only in the first run", theme.AMBER, "/"),
    "only in second": ("only in the second run", theme.PURPLE, "\\"),
    "same": ("where it was", theme.GREY, ""),
}


def moves_title(moves: pd.DataFrame) -> str:
    """The finding in a sentence."""
    total = int(moves["ops"].sum())
    if not total:
        return "Neither run logged an op"
    counted = moves.groupby("change", observed=True)["ops"].sum()
    moved = int(counted.get("moved", 0))
    if moved:
        biggest = moves[moves["change"] == "moved"].sort_values("ops", ascending=False, kind="stable").iloc[0]
        which = "most of them" if 2 * int(biggest["ops"]) > moved else "the commonest way is"
        return f"{moved:,} of {total:,} ops moved, {which} from {biggest['from']} to {biggest['to']}"
    if int(counted.get("same", 0)) == total:
        return f"All {total:,} ops are where they were"
    others = int(counted.get("same kind", 0))
    if others:
        return f"{others:,} of {total:,} ops are on other devices of the same kind; none changed its kind"
    return f"No op that both runs have moved; {total - int(counted.get('same', 0)):,} are in one of them only"


def moves_figure(moves: pd.DataFrame) -> go.Figure:
    """Draws `experiments.analysis.placement.moves`: one bar for each way that ops took, the commonest first."""
    figure = go.Figure()
    rows = moves.sort_values("ops", ascending=False, kind="stable").head(MOST_MOVES).reset_index(drop=True)
    for change, (name, color, hatch) in _CHANGES.items():
        mine = rows[rows["change"] == change]
        if len(mine):
            figure.add_bar(
                x=mine["ops"].tolist(),
                y=mine.index.tolist(),
                orientation="h",
                width=0.62,
                name=name,
                marker={"color": color, "pattern": theme.pattern(hatch), "line": {"width": 0}},
                text=[f"{count:,}" for count in mine["ops"]],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{x:,} ops<extra></extra>",
            )
    theme.style(figure, theme.plain(moves_title(moves)), height=160 + 32 * max(2, len(rows)))
    theme.legend_below(figure)
    figure.update_layout(hovermode="closest", barmode="overlay", margin={"t": 48})
    figure.update_yaxes(
        tickmode="array", tickvals=rows.index.tolist(), ticktext=[_way(row) for row in rows.to_dict("records")]
    )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    few = len(rows) > 0 and int(rows["ops"].max()) <= 10
    figure.update_xaxes(title="ops", tickformat=",", rangemode="tozero", dtick=1 if few else None)
    return figure


def _way(row: dict) -> str:
    before, after = (_short(row[name]) for name in ("from", "to"))
    if not before or not after or before == after:
        return theme.plain(before or after)
    return theme.plain(f"{before} → {after}")


def _short(devices: str) -> str:
    names = devices.split(", ") if devices else []
    return devices if len(names) <= 3 else f"{names[0]} to {names[-1]} ({len(names)})"
