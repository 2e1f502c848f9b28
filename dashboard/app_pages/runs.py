"""Runs: all of them, newest first, with their status as it changes. The filters are part of the address."""

import streamlit as st

from dashboard import data
from dashboard.components import note, runs_table, status
from experiments.wording import count
from training.names import RunStatus

REFRESH_S = 2.0
LOOK_S = 15.0
"""While nothing lives: a colleague, or a command, may start something."""


def _filters(groups: list[str]) -> tuple[list[str], str, str | None]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        text = st.text_input(
            "Search",
            key="runs_text",
            placeholder="name, workload, user, reason …",
            icon=":material/search:",
            width=320,
            bind="query-params",
        )
        statuses = st.pills(
            "Status",
            [status.name(each) for each in RunStatus],  # as shown, for so they stand in the address
            selection_mode="multi",
            key="runs_status",
            bind="query-params",
        )
        group = None
        if groups:
            group = st.selectbox(
                "Group", groups, index=None, placeholder="any", key="runs_group", width=220, bind="query-params"
            )
    return statuses, text, group


def _empty() -> None:
    note.empty(
        "No run yet",
        "Describe one on the Launch page and press Start, or type `python -m experiments run` in a terminal.",
        ":material/rocket_launch:",
        "app_pages/launch.py",
        "Launch a run",
    )


def _live_table(was_live: bool) -> None:
    """The part that redraws by itself: often while a run lives, now and then while none does."""
    with note.guarded("table"):
        runs = data.runs()
        is_live = runs["status"].map(status.is_live)
        if was_live != bool(is_live.any()):
            st.rerun()
        if runs.empty:
            _empty()
            return
        statuses, text, group = _filters(sorted({name for name in runs["group"] if name}))
        shown = runs_table.filtered(runs, statuses, text, group)
        total = count(len(runs), "run")
        how_many = f"{total} in all" if len(shown) == len(runs) else f"{len(shown):,} of {total}"
        # On the left: the table's own buttons lie over what ends above its right corner.
        head = st.container(horizontal=True, vertical_alignment="center", gap="medium")
        head.caption(
            f"{how_many} · {int(is_live.sum()):,} waiting or running · choose a row to open it", width="content"
        )
        if shown.empty:
            note.empty("No run matches", "Clear the search or a status above.", ":material/filter_alt_off:")
            return
        chosen, ticked = runs_table.show(shown, key="runs_table")
        if chosen:
            st.switch_page("app_pages/run.py", query_params={"run": chosen})
        with head:
            runs_table.show_compare(shown, ticked)


st.title("Runs", anchor=False)
with note.guarded("runs"):
    live = bool(data.runs()["status"].map(status.is_live).any())
    st.fragment(_live_table, run_every=REFRESH_S if live else LOOK_S)(live)
