"""The words and the table of the Speedup page."""

import typing
from collections.abc import Mapping

import pandas as pd
import streamlit as st

from dashboard.components import chart, note
from experiments.analysis.comparable import BatchRule, Thing, cells
from experiments.analysis.speedup import ONE_RUN_EACH, Basis
from experiments.analysis.tables import Speedups, about, labels_of
from experiments.wording import count, interval, number, times


def set_label(row: Mapping[typing.Any, typing.Any]) -> str:
    """One row of `suggestions` as an option, as typed."""
    named = about(Thing(row["thing"]), BatchRule(row["rule"]))
    counted = f"{count(row['configurations'], 'configuration')}, {count(row['runs'], 'run')}"
    return f"{named[:1].upper()}{named[1:]} – {row['label']} ({counted})"


def baselines(runs: pd.DataFrame, chosen: Mapping[typing.Any, typing.Any], asked: str) -> tuple[dict[str, str], str]:
    """The configurations that may be the baseline.

    Args:
        runs: rows of RUN_COLUMNS.
        chosen: a row of `suggestions`.
        asked: the run that the address names; may be any text.

    Returns:
        Run id -> label, one run for each configuration, that of the natural baseline first; and the one of these that
        stands for the asked run, empty where none does.
    """
    mine = runs[runs["run_id"].isin(chosen["run_ids"])]
    numbers, labels = cells(mine), labels_of(mine)
    first = {int(number): str(run_id) for run_id, number in reversed(list(numbers.items()))}
    natural = first[int(numbers[chosen["baseline"]])]
    order = [natural, *(run_id for run_id in first.values() if run_id != natural)]
    repeats = numbers.value_counts()
    options = {run_id: f"{labels[run_id]} ({count(int(repeats[numbers[run_id]]), 'run')})" for run_id in order}
    return options, first[int(numbers[asked])] if asked in numbers.index else ""


def counted(answer: Speedups) -> str:
    """How much the figure rests on, in a sentence."""
    runs = int(answer.table["runs"].sum())
    if not answer.baseline_run_ids:
        return ""
    base = f"{count(len(answer.baseline_run_ids), 'baseline run')} at {number(answer.baseline_throughput)} examples/s"
    alone = bool((answer.table["basis"] == Basis.WITHIN_RUNS).any())
    mark = f" Where it says so: {ONE_RUN_EACH}; three of each settle it." if alone else ""
    return (
        f"Against {base}; {count(runs, 'run')} of the others. Steady throughput, warm-up and validation left out.{mark}"
    )


def as_text(answer: Speedups, claim: float | None) -> pd.DataFrame:
    """The table as people read it."""
    table = answer.table
    shown = pd.DataFrame(
        {
            "Configuration": table["label"],
            "Runs": table["runs"],
            "Steady speedup": table["ratio"].map(times),
            "95% interval": [interval(low, high, times) for low, high in zip(table["low"], table["high"], strict=True)],
            "Called": table["called"],
            "Whole run": table["end_to_end"].map(times),
            "Examples/s": table["throughput"].map(number),
            "Its start": table["break_even"],
            "Interval from": [ONE_RUN_EACH if basis == Basis.WITHIN_RUNS else basis for basis in table["basis"]],
            "Differs in": table["differs"],
        }
    )
    if claim:
        shown.insert(5, "Claimed", f"{claim:g}x")
    return shown


def show(answer: Speedups, claim: float | None) -> None:
    """Draws the table with its download, and says why a row has no figure."""
    if answer.table.empty:
        return
    column = st.column_config
    st.dataframe(
        as_text(answer, claim),
        hide_index=True,
        height="content" if len(answer.table) <= 18 else 640,
        alt="Speedup of each configuration",
        column_config={
            "Configuration": column.TextColumn(width="medium"),
            "Whole run": column.TextColumn(help="Speedup of whole runs, start-up and compiling included"),
            "Its start": column.TextColumn(help="After how many epochs it has paid for a slower start", width="medium"),
            "Interval from": column.TextColumn(width="medium"),
        },
    )
    without = answer.table[answer.table["ratio"].isna()]
    for row in without.to_dict("records"):
        st.text(f"{row['label']}: {row['sentence']}")
    chart.download(lambda: answer.table, f"speedup-{answer.thing}", "speedup_csv")


def show_what_is_missing(runs: pd.DataFrame) -> None:
    """Where there are no two configurations: says what is lacking, and leads to it."""
    finished = runs[runs["status"] == "FINISHED"]
    if finished.empty:
        note.empty(
            "No finished run here",
            "What failed or was stopped has no speed to compare. Start a run and let it end.",
            ":material/speed:",
            "app_pages/launch.py",
            "Launch a run",
        )
        return
    newest = finished.iloc[0]
    one = len(finished) == 1
    note.empty(
        "One run, and nothing to compare it with" if one else "These runs are all alike",
        "Start a run that differs in exactly one thing: the device, the number of replicas, the batch size, the "
        "precision, or steps per execution. Three of each show how much equal runs differ.",
        ":material/speed:",
        "app_pages/launch.py",
        "Launch it with one thing changed",
        typed=str(newest["name"] or newest["run_id"]),
        query={"spec": str(newest["run_id"])},
    )
