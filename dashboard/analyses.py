"""The door from the pages to the analyses: speedups, scaling curves, placements and verdicts, each computed once.

What a run measured never changes once it has ended, so it is read once and kept; the newest reads are kept, the rest
forgotten. What is answered here is shared by every session: nobody may change it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from dashboard import data
from experiments import completing, questions, results
from experiments.analysis import curve as curves_read
from experiments.analysis import pairs, placement, placement_surprises, scaling, tables
from experiments.analysis.comparable import BatchRule, Thing
from experiments.analysis.evidence import Evidence, gather
from experiments.questions import Histories, Judgement
from training.names import RunStatus

VERDICT_TTL_S = 300.0


@st.cache_resource(max_entries=1, show_spinner=False)
def _histories() -> Histories:
    return Histories(data.settings())


@data.from_the_store
def ended_runs() -> pd.DataFrame:
    """Every run that has ended, newest first."""
    runs = data.runs()
    return runs[runs["status"].isin([each for each in RunStatus if each.is_terminal])].reset_index(drop=True)


@st.cache_resource(max_entries=8, show_spinner="Timing the runs …")
def _evidence(runs: pd.DataFrame, put_back: tuple[str, ...]) -> Evidence:
    return gather(runs, _histories().of(runs["run_id"]), frozenset(put_back))


@data.from_the_store
def evidence(runs: pd.DataFrame, put_back: Iterable[str] = ()) -> Evidence:
    """Timing, costs and flags of some ended runs.

    Args:
        runs: rows of `ended_runs`.
        put_back: doubtful runs that a person puts back by hand.
    """
    mine = set(runs["run_id"])
    return _evidence(runs.reset_index(drop=True), tuple(sorted(set(put_back) & mine)))


@st.cache_resource(max_entries=8, show_spinner=False)
def suggestions(runs: pd.DataFrame) -> pd.DataFrame:
    """What can be compared among some ended runs: SUGGESTION_COLUMNS."""
    return tables.suggestions(runs)


@st.cache_resource(max_entries=8, show_spinner=False)
def others(runs: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """Every other configuration beside one of these runs; see `experiments.analysis.pairs.others`."""
    return pairs.others(runs, run_id)


@data.from_the_store
def speedups(
    runs: pd.DataFrame, baseline: str, thing: Thing, rule: BatchRule, put_back: Iterable[str], other: str = ""
) -> tuple[tables.Speedups, Evidence]:
    """Every configuration that matches a baseline against it, and what it rests on.

    Args:
        runs: rows of `ended_runs`.
        baseline: a run of the baseline's configuration.
        thing, rule: what the comparison is about.
        put_back: doubtful runs that a person puts back by hand.
        other: a run of the only configuration that is wanted; all that match if empty.

    Raises:
        KeyError: an unknown baseline.
    """
    wanted = pairs.repeats(runs, baseline, other) if other else tables.to_compare(runs, baseline, thing, rule)
    found = evidence(runs[runs["run_id"].isin(wanted)], put_back)
    return tables.speedups(found, baseline, thing, rule), found


# --- scaling -----------------------------------------------------------------------------------------------------


@st.cache_resource(max_entries=8, show_spinner=False)
def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """The scaling curves among some ended runs: CURVE_COLUMNS."""
    return scaling.begun(runs)


@data.from_the_store
def scaling_curve(
    runs: pd.DataFrame, key: str, efficiency: float, put_back: Iterable[str]
) -> tuple[curves_read.ScalingCurve, Evidence]:
    """One curve answered in full, and what it rests on.

    Raises:
        KeyError: no such curve.
    """
    everything = curves(runs)
    members = everything.loc[everything["key"] == key, "run_id"]
    found = evidence(runs[runs["run_id"].isin(members)], put_back)
    return curves_read.read(found, key, efficiency), found


@data.from_the_store
def missing(evidence: Evidence, curve: curves_read.ScalingCurve, halve: bool) -> pd.DataFrame:
    """The runs that a curve lacks and that are not under way: MISSING_COLUMNS, refusals of the machines included."""
    return completing.lacking(
        data.settings(), data.runs(), evidence, curve, halve, machines=data.machines(), specs=data.spec
    )


@data.from_the_store
def queue_missing(table: pd.DataFrame, key: str, user: str, token: str) -> tuple[list[str], list[str]]:
    """Queues the runs of a `missing` table that are not refused; see `experiments.completing.submit`."""
    return completing.submit(data.settings(), table, key, user, token, specs=data.spec)


# --- placement ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """Where a run's ops ran: the table of all, and what `experiments.analysis.placement` says of it."""

    table: pd.DataFrame
    summary: pd.DataFrame
    surprises: pd.DataFrame


@st.cache_resource(max_entries=6, show_spinner="Reading the placement …")
def _ops(run_id: str) -> pd.DataFrame:
    return results.placement(data.settings(), run_id)


@data.from_the_store
def ops(run_id: str) -> pd.DataFrame:
    """The placement table of an ended run, shared by all who look at it; no rows when none was logged.

    Raises:
        UnknownRun: there is no such run.
    """
    return _ops(run_id)


@st.cache_resource(max_entries=6, show_spinner="Counting the ops …")
def placed(run_id: str, device: str) -> Placed:
    """Where the ops of an ended run ran; empty tables when none was logged.

    Raises:
        UnknownRun: there is no such run.
    """
    table, asked = ops(run_id), placement.asked_of(data.record(run_id))
    return Placed(table, placement.summary(table), placement_surprises.surprises(table, device, asked))


@st.cache_resource(max_entries=4, show_spinner="Comparing op by op …")
def moved(first: str, second: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What moved between two ended runs: op by op, and in short."""
    differences = placement.diff(ops(first), ops(second))
    return differences, placement.moves(differences)


# --- verdict -----------------------------------------------------------------------------------------------------


@st.cache_data(ttl=VERDICT_TTL_S, max_entries=64, show_spinner=False)
def _judged(run_id: str) -> Judgement:
    return questions.judgement(data.settings(), run_id, data.runs(), _histories().of)


@data.from_the_store
def judged(run_id: str) -> Judgement:
    """Where the time of an ended run went, against runs that differ in little; looked at anew after five minutes."""
    return _judged(run_id)
