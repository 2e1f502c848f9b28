"""On which device the ops ran: distinct ops by device and op type, input apart from compute."""

import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme
from experiments.wording import count

OPS_COLUMNS = ("op_type", "device", "ops")
MOST_OP_TYPES = 15
OTHERS = "other op types"


def device_table(counted: pd.DataFrame) -> pd.DataFrame:
    """Distinct ops on each device: columns device, compute, input, total; the busiest device first.

    Args:
        counted: frame of `experiments.analysis.placement.per_device`.
    """
    table = counted.pivot_table(index="device", columns="role", values="ops", aggfunc="sum", fill_value=0)
    table = table.reindex(columns=["compute", "input"], fill_value=0).astype("int64")
    table["total"] = table["compute"] + table["input"]
    table = table.sort_values("total", ascending=False, kind="stable").reset_index()
    table.columns.name = None
    return table


def ops_table(summary: pd.DataFrame, role: str) -> pd.DataFrame:
    """Distinct ops by type and device of one role (`compute` or `input`).

    Args:
        summary: frame of `experiments.analysis.placement.summary`.
        role: which of its rows.

    Returns:
        OPS_COLUMNS; the MOST_OP_TYPES commonest types, the rest summed as OTHERS, in falling order of their totals.
    """
    rows = summary[summary["role"] == role]
    totals = rows.groupby("op_type")["ops"].sum().sort_values(ascending=False, kind="stable")
    kept = list(totals.index[:MOST_OP_TYPES])
    names = rows["op_type"].where(rows["op_type"].isin(kept), OTHERS)
    table = rows.assign(op_type=names).groupby(["op_type", "device"], as_index=False)["ops"].sum()
    order = {name: rank for rank, name in enumerate([*kept, OTHERS])}
    table = table.assign(rank=table["op_type"].map(order)).sort_values(["rank", "device"], ignore_index=True)
    return table[list(OPS_COLUMNS)]


def ops_title(table: pd.DataFrame, role: str) -> str:
    """The finding in a sentence."""
    total = int(table["ops"].sum())
    if not total:
        return f"No {role} op was logged"
    by_device = table.groupby("device")["ops"].sum().sort_values(ascending=False, kind="stable")
    first, share = theme.plain(by_device.index[0]), by_device.iloc[0] / total
    if len(by_device) == 1:
        return f"All {total:,} {role} ops ran on {first}"
    rest = count(len(by_device) - 1, "other device")
    return f"{share:.0%} of {total:,} {role} ops ran on {first}, the rest on {rest}"


def ops_figure(table: pd.DataFrame, role: str) -> go.Figure:
    """Draws an `ops_table`: one bar an op type, one colour and hatching a device."""
    figure = go.Figure()
    order = list(dict.fromkeys(table["op_type"]))
    for device, rows in table.groupby("device", sort=True):
        color, hatch = theme.device_style(str(device))
        figure.add_bar(
            y=[theme.plain(name) for name in rows["op_type"]],
            x=rows["ops"].tolist(),
            orientation="h",
            name=theme.plain(device),
            marker={
                "color": color,
                "pattern": theme.pattern(hatch),
                "line": {"width": 0},
            },
            hovertemplate="%{x:,} ops",
        )
    theme.style(figure, ops_title(table, role), height=110 + 22 * max(3, len(order)))
    figure.update_layout(barmode="stack", hovermode="y unified", bargap=0.25, showlegend=True)
    few = int(table.groupby("op_type")["ops"].sum().max()) <= 8
    figure.update_xaxes(title="distinct ops", tickformat=",", rangemode="tozero", dtick=1 if few else None)
    figure.update_yaxes(
        categoryorder="array", categoryarray=[theme.plain(name) for name in reversed(order)], showgrid=False
    )
    return figure
