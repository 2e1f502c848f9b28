"""On which device the ops ran: counts by device and op type, input apart from compute."""

import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme

OPS_COLUMNS = ("op_type", "device", "count")
MOST_OP_TYPES = 15
OTHERS = "other op types"


def device_table(placement: pd.DataFrame) -> pd.DataFrame:
    """Ops on each device: columns device, compute, input, total; the busiest device first."""
    if placement.empty:
        return pd.DataFrame({"device": pd.Series(dtype=str), "compute": [], "input": [], "total": []}).astype(
            {"compute": "int64", "input": "int64", "total": "int64"}
        )
    table = placement.pivot_table(index="device", columns="role", values="count", aggfunc="sum", fill_value=0)
    table = table.reindex(columns=["compute", "input"], fill_value=0).astype("int64")
    table["total"] = table["compute"] + table["input"]
    table = table.sort_values("total", ascending=False, kind="stable").reset_index()
    table.columns.name = None
    return table


def ops_table(placement: pd.DataFrame, role: str) -> pd.DataFrame:
    """Counts by op type and device of one role (`compute` or `input`).

    Returns:
        OPS_COLUMNS; the MOST_OP_TYPES commonest types, the rest summed as OTHERS, in falling order of their totals.
    """
    rows = placement[placement["role"] == role]
    totals = rows.groupby("op_type")["count"].sum().sort_values(ascending=False, kind="stable")
    kept = list(totals.index[:MOST_OP_TYPES])
    names = rows["op_type"].where(rows["op_type"].isin(kept), OTHERS)
    table = rows.assign(op_type=names).groupby(["op_type", "device"], as_index=False)["count"].sum()
    order = {name: rank for rank, name in enumerate([*kept, OTHERS])}
    table = table.assign(rank=table["op_type"].map(order)).sort_values(["rank", "device"], ignore_index=True)
    return table[list(OPS_COLUMNS)]


def ops_title(table: pd.DataFrame, role: str) -> str:
    """The finding in a sentence."""
    total = int(table["count"].sum())
    if not total:
        return f"No {role} op was logged"
    by_device = table.groupby("device")["count"].sum().sort_values(ascending=False, kind="stable")
    first, share = theme.plain(by_device.index[0]), by_device.iloc[0] / total
    if len(by_device) == 1:
        return f"All {total:,} {role} ops ran on {first}"
    return f"{share:.0%} of {total:,} {role} ops ran on {first}, the rest on {len(by_device) - 1} more"


def ops_figure(table: pd.DataFrame, role: str) -> go.Figure:
    """Draws an `ops_table`: one bar an op type, one colour and hatching a device."""
    figure = go.Figure()
    order = list(dict.fromkeys(table["op_type"]))
    for device, rows in table.groupby("device", sort=True):
        color, hatch = theme.device_style(str(device))
        figure.add_bar(
            y=[theme.plain(name) for name in rows["op_type"]],
            x=rows["count"].tolist(),
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
    figure.update_xaxes(title="ops placed (lines of TensorFlow's log)", tickformat=",", rangemode="tozero")
    figure.update_yaxes(
        categoryorder="array", categoryarray=[theme.plain(name) for name in reversed(order)], showgrid=False
    )
    return figure
