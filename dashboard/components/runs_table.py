"""The table of runs: what it shows of each, and what the filters leave."""

import typing
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard.components import status
from dashboard.components.spec_values import CHOICE_LABELS
from experiments.analysis import pairs

SEARCHED = ("name", "workload", "dataset", "user", "group", "run_id", "reason")
SHOWN = (
    "status",
    "name",
    "workload",
    "device",
    "strategy",
    "total_replicas",
    "global_batch_size",
    "progress",
    "examples_per_second",
    "val_accuracy",
    "submitted",
    "reason",
    "user",
    "group",
    "dataset",
)

_ROWS_IN_SIGHT = 18  # more scroll inside the table


def filtered(runs: pd.DataFrame, statuses: Sequence[str], text: str, group: str | None) -> pd.DataFrame:
    """The runs that pass every filter; an empty filter lets all pass.

    Args:
        runs: with the columns of `experiments.results.RUN_COLUMNS`.
        statuses: as `status.name` calls them.
        text: a plain text, found in any case in any of SEARCHED.
        group: the group's name.
    """
    keep = pd.Series(True, index=runs.index)
    if statuses:
        keep &= runs["status"].map(status.name).isin(list(statuses))
    if group:
        keep &= runs["group"] == group
    if text.strip():
        wanted = text.strip().casefold()
        found = pd.Series(False, index=runs.index)
        for column in SEARCHED:
            found |= runs[column].str.casefold().str.contains(wanted, regex=False)
        keep &= found
    return runs[keep].reset_index(drop=True)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """The columns of SHOWN as people read them; same rows, same order."""
    shown = runs[list(SHOWN)].copy()
    shown["status"] = runs["status"].map(status.word)
    shown["device"] = [
        f"{CHOICE_LABELS.get(device, device)}{f' ({logical} simulated)' if simulated and logical else ''}"
        for device, simulated, logical in zip(
            runs["device"], runs["simulated"], runs["logical_devices"].fillna(0), strict=True
        )
    ]
    shown["strategy"] = runs["strategy"].map(lambda name: CHOICE_LABELS.get(name, name))
    return shown


def column_config(timezone: str | None) -> dict[str, typing.Any]:
    """Titles, units and precision of the columns."""
    column = st.column_config
    return {
        "status": column.TextColumn("Status", width=95),
        "name": column.TextColumn("Run", width=195),
        "workload": column.TextColumn("Workload", width=88),
        "dataset": column.TextColumn("Data set", width=110),
        "device": column.TextColumn("Device", width=128),
        "strategy": column.TextColumn("Strategy", width=140),
        "total_replicas": column.NumberColumn("Replicas", width=70, format="localized"),
        "global_batch_size": column.NumberColumn("Batch", width=60, format="localized", help="Global batch size"),
        "progress": column.ProgressColumn("Progress", width=110, format="percent", min_value=0.0, max_value=1.0),
        "examples_per_second": column.NumberColumn(
            "Examples/s", width=86, format="%,.0f", help="Training throughput of the last epoch"
        ),
        "val_accuracy": column.NumberColumn(
            "Val. accuracy", width=96, format="percent", help="Validation accuracy after the last epoch"
        ),
        "submitted": column.DatetimeColumn("Submitted", width=108, format="D MMM, HH:mm", timezone=timezone),
        "reason": column.TextColumn("Why", width=170, help="What it waits for, or why it ended"),
        "user": column.TextColumn("User", width=80),
        "group": column.TextColumn("Group", width=110),
    }


def show(runs: pd.DataFrame, key: str) -> tuple[str | None, list[str]]:
    """Draws the table. Returns the run whose cell was clicked, None as long as none was, and the runs that are ticked.

    A live table gains rows between drawing and click: the choice is read against the rows that were drawn, and a tick
    stays with its run.
    """
    drawn, now = st.session_state.get(f"{key}_drawn", []), runs["run_id"].tolist()
    clicked, ticked = _chosen(st.session_state.get(key), drawn)
    ticked = [run_id for run_id in ticked if run_id in now]
    if drawn != now and key in st.session_state:
        st.session_state[key] = {"selection": {"rows": [now.index(run_id) for run_id in ticked]}}
    st.dataframe(
        table(runs),
        key=key,
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        hide_index=True,
        height="content" if len(runs) <= _ROWS_IN_SIGHT else 640,
        placeholder="–",
        column_config=column_config(st.context.timezone),
        alt="Runs, newest first",
        lazy=False,
    )
    st.session_state[f"{key}_drawn"] = now
    return clicked, ticked


def _chosen(state: typing.Any, drawn: Sequence[str]) -> tuple[str | None, list[str]]:
    """The run whose cell was clicked, and those that are ticked, of the rows that were drawn."""
    if not state:
        return None, []
    rows = [int(row) for row in state["selection"].get("rows", [])]
    cells = [int(cell[0]) for cell in state["selection"].get("cells", [])]
    clicked = next((drawn[row] for row in cells if row < len(drawn)), None)
    return clicked, [drawn[row] for row in rows if row < len(drawn)]


def show_compare(runs: pd.DataFrame, ticked: Sequence[str]) -> None:
    """The link to the comparison of two ticked runs; it is there before, so that the table keeps its place."""
    two = runs[runs["run_id"].isin(ticked)]
    ready = len(two) == 2 and not two["status"].map(status.is_live).any()
    query = dict(zip(("baseline", "other"), pairs.ordered(two), strict=True)) if ready else None
    st.page_link(
        "app_pages/speedup.py",
        label="Compare the two ticked",
        icon=":material/speed:",
        disabled=not ready,
        query_params=query,
        help="Tick two runs that have ended, in the first column",
    )
