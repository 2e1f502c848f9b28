"""What moved between two runs: in short, then op by op."""

import pandas as pd
import streamlit as st

from dashboard.components import chart
from dashboard.figures import placement_map
from experiments.wording import count

MOST_ROWS = 500
_WORDS = {
    "moved": "moved",
    "same kind": "on other devices of the same kind",
    "only in first": "only in the first run",
    "only in second": "only in the second run",
    "same": "where it was",
}


def show(found: tuple[pd.DataFrame, pd.DataFrame], name: str) -> None:
    """Draws what `analyses.moved` gives.

    Args:
        found: op by op, and in short.
        name: of the files to take away.
    """
    differences, moves = found
    chart.show(placement_map.moves_figure(moves), f"moves-{name}", "placement_moves")
    if len(moves) > placement_map.MOST_MOVES:
        st.caption(f"The {placement_map.MOST_MOVES} commonest of {len(moves):,} ways are drawn.")
    changed = differences[differences["change"] != "same"]
    with st.expander(f"Op by op: {count(len(changed), 'op')} differ", key="placement_diff_rows"):
        st.caption(
            "Names without what differs from run to run: replica prefixes, numbers of traced functions."
            + (f" The first {MOST_ROWS:,} are shown; the download holds all." if len(changed) > MOST_ROWS else "")
        )
        shown = changed.head(MOST_ROWS)
        st.dataframe(
            shown.assign(change=shown["change"].map(_WORDS)),
            hide_index=True,
            alt="What moved, op by op",
            column_config={
                "change": "Change",
                "name": st.column_config.TextColumn("Op", width="large"),
                "op_type": "Type",
                "layer": "Layer",
                "role": "Role",
                "from": "First run",
                "to": "Second run",
                "replicas_from": st.column_config.NumberColumn("Devices, first", format="localized"),
                "replicas_to": st.column_config.NumberColumn("Devices, second", format="localized"),
            },
        )
    with st.container(horizontal=True, gap="small"):
        chart.download(lambda: moves, f"moves-{name}", "placement_moves_csv", "In short (CSV)")
        chart.download(lambda: differences, f"diff-{name}", "placement_diff_csv", "Op by op (CSV)")
