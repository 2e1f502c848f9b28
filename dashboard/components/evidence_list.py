"""What a figure rests on: the runs behind it, those left out of it with their reasons, and what they agree in."""

import json

import pandas as pd
import streamlit as st

from dashboard.components import address, status
from experiments.analysis.comparable import FIELDS, fields
from experiments.analysis.evidence import Evidence
from experiments.analysis.field_words import in_words
from experiments.wording import count, number, percent

BACK = "back"
"""The part of the address that lists the runs that were put back by hand."""
_IN_SIGHT = 6


def put_back() -> list[str]:
    """The runs that a person put back, as the address says."""
    return address.read_list(BACK)


def _set_back(run_ids: list[str]) -> None:
    address.write({BACK: ",".join(dict.fromkeys(run_ids))})


def doubtful(evidence: Evidence) -> pd.DataFrame:
    """The runs whose timing is doubtful, one row each: run_id, name, reason, can_be_put_back, back.

    Those that were put back stay listed, so that they can be taken out again.
    """
    flags = evidence.flags[evidence.flags["excludes"]]
    rows = []
    names = dict(zip(evidence.runs["run_id"], evidence.runs["name"], strict=True))
    for run_id, mine in flags.groupby("run_id", sort=False):
        numberless = "no_steady_state" in set(mine["flag"])
        reason = "; ".join(dict.fromkeys(mine["detail"]))
        rows.append((str(run_id), names[run_id], reason, not numberless, bool(evidence.used[run_id])))
    columns = {"run_id": "str", "name": "str", "reason": "str", "can_be_put_back": "bool", "back": "bool"}
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


def show_doubtful(evidence: Evidence, key: str) -> None:
    """Lists the doubtful runs, each with its reason and a box that puts it back into the figure."""
    table = doubtful(evidence)
    if table.empty:
        st.caption("No run was left out: none has a flag that makes its timing doubtful.")
        return
    out, back = int((~table["back"]).sum()), int(table["back"].sum())
    parts = [f"{count(out, 'run')} left out"] if out else []
    parts += [f"{count(back, 'run')} put back by hand"] if back else []
    st.subheader(f"Unfinished or doubtful: {', '.join(parts)}", anchor=False)
    can = table.loc[table["can_be_put_back"], "run_id"].tolist()
    with st.container(horizontal=True, gap="small"):
        if len(can) > 1 and not table.loc[table["can_be_put_back"], "back"].all():
            st.button(f"Put all {len(can)} back", key=f"{key}_all", on_click=_set_back, args=([*put_back(), *can],))
        if back > 1:
            left = [run_id for run_id in put_back() if run_id not in can]
            st.button("Leave all out", key=f"{key}_none", on_click=_set_back, args=(left,))
    with st.container(height=330 if len(table) > _IN_SIGHT else "content", border=False, gap="xsmall"):
        for row in table.to_dict("records"):
            _show_one(row, key)


def _show_one(row: dict, key: str) -> None:
    box, words, link = st.columns([1.1, 7, 1], vertical_alignment="center")
    run_id = row["run_id"]

    def change(ticked: bool) -> None:
        others = [each for each in put_back() if each != run_id]
        _set_back([*others, run_id] if ticked else others)

    with box:
        if row["can_be_put_back"]:
            address.checkbox("Put back", f"{key}_back_{run_id}", row["back"], change)
        else:
            st.caption("no number")
    with words, st.container(gap=None):
        st.text(row["name"] or run_id)
        with st.container(key=f"finding_detail_{key}_{run_id}"):
            st.text(row["reason"])
    with link:
        st.page_link("app_pages/run.py", label="Open", query_params={"run": run_id})


def alike(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """The fields of like with like in which some runs agree: (field, value)."""
    table = fields(runs)
    return [(name, str(table[name].iloc[0])) for name in FIELDS if len(table) and table[name].nunique() == 1]


def show_alike(runs: pd.DataFrame, about: str) -> None:
    """Says what the runs agree in, and what the comparison is about."""
    st.caption(f"Like with like: these runs differ in {about}, with what follows from it, and agree in")
    st.text(" · ".join(_said(name, value) for name, value in alike(runs)))


def _said(name: str, value: str) -> str:
    if name == "dataset_options":
        return _options_said(value)
    if name == "simulated":
        return "simulated devices" if value == "true" else "real devices"
    if name == "cpu_threads" and not value.isdecimal():
        return f"CPU threads: {value}"
    return in_words(name, value)


def _options_said(value: str) -> str:
    try:
        options = json.loads(value)
    except (ValueError, RecursionError):  # someone else's run: what it says is shown as it is
        return f"data set options {value}"
    return ", ".join(f"{option}={chosen}" for option, chosen in options.items()) or "no option of the set"


def in_its_unit(steady: pd.DataFrame, column: str) -> list[str]:
    """A column of windows as text, with what the run's steady state was found among: `28 windows` or `3 epochs`.

    Args:
        steady: frame of `timing.steady_states`.
        column: `windows` or `warmup_windows`.
    """
    units = steady["basis"].map({"windows": "window", "epochs": "epoch"})
    return [
        count(int(value), unit) if known else "–"
        for value, unit, known in zip(steady[column], units, steady["steady"], strict=True)
    ]


def show_runs(evidence: Evidence, labels: pd.Series, key: str) -> None:
    """The runs behind a figure; a row that is chosen opens its run.

    Args:
        evidence: what the figure rests on.
        labels: run id -> what tells it apart, as typed.
        key: of the table.
    """
    runs = evidence.used_runs
    steady = evidence.steady.set_index("run_id").loc[runs["run_id"]].reset_index()
    table = pd.DataFrame(
        {
            "run": runs["name"],
            "what": runs["run_id"].map(labels),
            "status": runs["status"].map(status.word),
            "throughput": steady["throughput"].map(number),
            "within": steady["relative_se"].map(percent),
            "steady": in_its_unit(steady, "windows"),
            "warmup": in_its_unit(steady, "warmup_windows"),
            "submitted": runs["submitted"],
        }
    )
    column = st.column_config
    with st.expander(f"The {count(len(runs), 'run')} behind it", key=f"{key}_runs"):
        st.caption("Choose a row to open the run.")
        state = st.dataframe(
            table,
            key=key,
            on_select="rerun",
            selection_mode=["single-row", "single-cell"],
            hide_index=True,
            height="content" if len(table) <= 18 else 640,
            placeholder="–",
            alt="Runs behind the figure",
            column_config={
                "run": column.TextColumn("Run", width=210),
                "what": column.TextColumn("Configuration", width="medium"),
                "status": column.TextColumn("Status", width=95),
                "throughput": column.TextColumn("Steady examples/s", width=120),
                "within": column.TextColumn("Known to", help="Standard error inside the run", width=80),
                "steady": column.TextColumn("Steady for", width=110),
                "warmup": column.TextColumn("Warm-up", width=110),
                "submitted": column.DatetimeColumn("Submitted", format="D MMM, HH:mm", timezone=st.context.timezone),
            },
        )
    chosen = state["selection"]["rows"] or [cell[0] for cell in state["selection"]["cells"]]
    if chosen:
        st.switch_page("app_pages/run.py", query_params={"run": runs["run_id"].iloc[int(chosen[0])]})
