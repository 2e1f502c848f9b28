"""Where the ops of one run ran: the map, what was asked beside what happened, surprises, and every op."""

import typing
from collections.abc import Mapping

import pandas as pd
import streamlit as st

from dashboard import data
from dashboard.analyses import Placed
from dashboard.components import address, chart, run_details
from dashboard.figures import placement_map
from experiments.analysis import placement
from experiments.wording import count
from training.names import PLACEMENT_COLUMNS

MOST_ROWS = 500
"""Rows that are sent to a browser; the download holds all."""
ROLES = ("compute", "input")
_LIKE = "Compute ops of the same layer; for an op without a layer, of the same type."
_LEFT_OUT = (
    "Not judged: what TensorFlow keeps on the host, such as shapes and control flow, eager ops, and, where a layer was "
    "placed on the CPU by hand, ops without a layer."
)
_SEARCHED = ("name", "op_type", "layer", "device")


def show_map(placed: Placed, run_id: str) -> None:
    """The heat map of one role, beside the counts by device."""
    role = address.select(
        "Ops", ROLES, "role", "placement_role", {"compute": "compute ops", "input": "input ops"}, width=200
    )
    left, right = st.columns([2, 1])
    with left:
        figure = placement_map.map_figure(placement_map.map_table(placed.summary, role), role)
        chart.show(figure, f"placement-{run_id[:8]}-{role}", "placement_map")
    with right:
        table = device_shares(placed.table)
        st.dataframe(
            table,
            hide_index=True,
            height="content",
            alt="Ops by device",
            column_config={"Ops": st.column_config.NumberColumn(format="localized")},
        )
        st.caption("An input op on the CPU is where it belongs, so input and compute are counted apart.")
        chart.download(lambda: placed.summary, f"ops-{run_id[:8]}", "placement_summary_csv", "Counts (CSV)")


def device_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Ops by role and device as people read them."""
    counted = placement.per_device(table)
    return pd.DataFrame(
        {
            "Role": counted["role"],
            "Device": counted["device"],
            "Ops": counted["ops"],
            "Share": counted["share"].map(lambda share: f"{share:.1%}"),
        }
    )


def show_asked(run: Mapping[str, typing.Any], placed: Placed) -> None:
    """What was asked beside what happened: devices, and layers that were placed by hand."""
    record = data.record(run["run_id"])
    st.subheader("Asked and happened", anchor=False)
    st.dataframe(
        run_details.asked_and_seen(run, record["tags"]),
        hide_index=True,
        height="content",
        placeholder="–",
        alt="What was asked and what TensorFlow reports",
    )
    asked = placement.asked_of(record)
    if not asked:
        st.caption("No layer was placed by hand.")
        return
    st.dataframe(
        run_details.layers_as_text(asked, placed.table),
        hide_index=True,
        height="content",
        alt="Layers placed by hand",
    )


def show_surprises(run: Mapping[str, typing.Any], placed: Placed) -> None:
    """Ops on the CPU, unasked, whose like run on a GPU."""
    found = placed.surprises
    if run["device"] != "gpu":
        st.subheader("Surprises", anchor=False)
        st.caption("None is possible: a CPU run sees no GPU that an op could have missed.")
        return
    if found.empty:
        st.subheader("No surprise", anchor=False)
        st.caption(
            f"No compute op is on the CPU, unasked, while its layer, other layers or its like are on a GPU. {_LEFT_OUT}"
        )
        return
    st.subheader(f"{count(len(found), 'surprise')}: on the CPU, unasked, in a run on a GPU", anchor=False)
    st.caption(_LEFT_OUT)
    if len(found) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS:,} of {len(found):,}; the download holds all.")
    st.dataframe(
        found.head(MOST_ROWS),
        hide_index=True,
        height="content" if len(found) <= 12 else 440,
        alt="Surprises",
        column_config={
            "name": "Op",
            "op_type": "Type",
            "layer": "Layer",
            "device": "Device",
            "why": "What is on the CPU",
            "on_gpu": st.column_config.NumberColumn("On a GPU", help=_LIKE, format="localized"),
            "of": st.column_config.NumberColumn("Of", help=_LIKE, format="localized"),
        },
    )
    chart.download(lambda: found, f"surprises-{run['run_id'][:8]}", "placement_surprises_csv", "Surprises (CSV)")


def matching(table: pd.DataFrame, text: str) -> pd.DataFrame:
    """The rows in which a plain text is found, in any case, in a name, type, layer or device."""
    wanted = text.strip().casefold()
    if not wanted:
        return table
    found = pd.Series(False, index=table.index)
    for column in _SEARCHED:
        # There are far fewer different texts than rows in all columns but the first.
        values = table[column].astype("category")
        hits = values.cat.categories.str.casefold().str.contains(wanted, regex=False)
        found |= pd.Series(hits[values.cat.codes.to_numpy()], index=table.index)
    return table[found]


def show_ops(placed: Placed, run_id: str) -> None:
    """Every op that was logged, to be searched; a browser gets only so many of them."""
    st.subheader("Every op", anchor=False)
    text = address.search("Search", "find", "placement_find", "name, type, layer or device …")
    found = matching(placed.table, text)
    total = count(len(placed.table), "op")
    parts = [f"{len(found):,} of {total}" if text.strip() else total]
    if len(found) > MOST_ROWS:
        parts.append(f"the {MOST_ROWS:,} commonest are shown; the download holds all")
    st.caption("; ".join(parts))
    st.dataframe(
        found.nlargest(MOST_ROWS, "count")[list(PLACEMENT_COLUMNS)],
        hide_index=True,
        alt="Ops and their devices",
        column_config=run_details.OPS_CONFIG,
    )
    chart.download(lambda: found, f"placement-{run_id[:8]}", "placement_ops_csv", f"{count(len(found), 'op')} (CSV)")
