"""Placement (`?run=&other=&role=&find=`): where the ops of a run ran, and what moved between two runs."""

import pandas as pd
import streamlit as st

from dashboard import analyses, data
from dashboard.components import address, note, placement_diff, placement_view

MOST_OFFERED = 300


def _labels(runs: pd.DataFrame, named: list[str]) -> dict[str, str]:
    """The newest runs to choose from, and those that the address names; what was typed is shown as typed."""
    kept = runs[(runs.index < MOST_OFFERED) | runs["run_id"].isin(named)]
    return {row["run_id"]: f"{row['name'] or row['run_id']} · {row['run_id'][:8]}" for row in kept.to_dict("records")}


def _page() -> None:
    runs = analyses.ended_runs()
    if runs.empty:
        note.empty(
            "No run has ended yet",
            "TensorFlow's placement log is read when a run ends. Start one.",
            ":material/account_tree:",
            "app_pages/launch.py",
            "Launch a run",
        )
        return
    labels = _labels(runs, [address.read("run"), address.read("other")])
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = address.select("Run", list(labels), "run", "placement_run", labels, drops=("find",))
        others = [run_id for run_id in labels if run_id != chosen]
        other = ""
        if others:
            other = address.select("Compare with", others, "other", "placement_other", labels, optional="no other run")
    if address.read("run") not in ("", chosen):
        st.caption("The run of the address is not there, or has not ended; this is the newest one instead.")
    address.write({"run": chosen})
    if len(runs) > len(labels):
        st.caption(f"The newest {MOST_OFFERED:,} of {len(runs):,} runs are offered; the page of a run leads here too.")
    row = data.run(chosen)
    placed = analyses.placed(chosen, str(row["device"]))
    if placed.table.empty:
        note.empty(
            "This run has no placement",
            "It logged none (its spec says `log_device_placement`), or it ended before its first step.",
            ":material/account_tree:",
        )
        return
    if other:
        if analyses.ops(other).empty:
            note.callout("info", "other", "The other run has no placement", "Nothing can be said of what moved.")
        else:
            placement_diff.show(analyses.moved(chosen, other), f"{chosen[:8]}-{other[:8]}")
    placement_view.show_map(placed, chosen)
    placement_view.show_asked(row, placed)
    placement_view.show_surprises(row, placed)
    placement_view.show_ops(placed, chosen)


st.title("Placement", anchor=False)
with note.guarded("placement"):
    _page()
