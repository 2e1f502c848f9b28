"""Batch size against throughput, beside a comparison by batch or by device."""

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from dashboard import analyses
from dashboard.components import chart
from dashboard.figures import batch
from experiments.analysis import batch_curve
from experiments.analysis.comparable import Thing


def show(runs: pd.DataFrame, baseline: str, thing: Thing, put_back: Iterable[str]) -> None:
    """Draws the curves that a comparison's runs belong to, with what else is to be said of them; or nothing.

    A comparison by batch stays on one device: the other devices that were measured in the same way are found here.

    Args:
        runs: rows of RUN_COLUMNS to look among.
        baseline: a run of the comparison.
        thing: what the comparison is about.
        put_back: doubtful runs that a person puts back by hand.
    """
    members = batch_curve.members(runs, baseline) if thing in batch_curve.THINGS else []
    if not members:
        return
    found = batch_curve.read(analyses.evidence(runs[runs["run_id"].isin(members)], put_back), members)
    if found.points.empty:
        return
    chart.show(batch.batch_figure(found), "batch-size", "batch_figure")
    for sentence in found.sentences:
        st.text(sentence)
    chart.download(lambda: found.points, "batch-size", "batch_csv", "Batch sizes (CSV)")
