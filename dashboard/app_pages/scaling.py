"""Scaling (`?curve=&efficiency=&group=&back=&halve=`): what more replicas or workers bring, and what they would."""

import pandas as pd
import streamlit as st

from dashboard import analyses
from dashboard.components import address, chart, curve_details, curve_missing, evidence_list, group_filter, note
from dashboard.figures import scaling
from experiments.analysis.curve import ScalingCurve
from experiments.analysis.evidence import Evidence
from experiments.analysis.tables import labels_of

_ICON = ":material/trending_up:"


def _empty(runs: pd.DataFrame) -> None:
    if runs.empty:
        title, text = "No curve yet", "A curve needs runs on two numbers of replicas or workers."
        note.empty(title, text, _ICON, "app_pages/launch.py", note.READY_MADE_LINK, query=note.READY_MADE)
        return
    else:
        title = "No two runs differ in the number of replicas or workers only"
        text = (
            "Start a run on two replicas, or two workers, that is otherwise like one there is: with the same global "
            "batch (strong scaling) or the same batch per replica (weak scaling)."
        )
    finished = runs[runs["status"] == "FINISHED"]
    query = {"spec": str(finished["run_id"].iloc[0])} if len(finished) else None
    link = "Launch it on more replicas" if query else "Launch a run"
    note.empty(title, text, _ICON, "app_pages/launch.py", link, query=query)


def _choose_curve(runs: pd.DataFrame, found: pd.DataFrame) -> str:
    labels = curve_details.labels(runs, found)
    asked = address.read("curve")
    key = address.select("Curve", list(labels), "curve", "scaling_curve", labels, drops=("back",))
    if asked and asked not in labels:
        st.caption("The address names a curve that these runs do not make; this is the newest one instead.")
    address.write({"curve": key})
    return key


def _draw(curve: ScalingCurve, evidence: Evidence, chosen: float) -> None:
    if curve.points.empty:
        note.callout("info", "finding", curve.title, "Every run of it is listed below with its reason.")
        return
    left, right = st.columns(2)
    with left:
        figure = scaling.throughput_figure(curve, scaling.run_table(curve.drawn, evidence.steady))
        chart.show(figure, f"throughput-{curve.key}", "scaling_throughput")
    with right:
        chart.show(scaling.efficiency_figure(curve, chosen), f"efficiency-{curve.key}", "scaling_efficiency")
    curve_details.show_points(curve)
    fit, devices = st.columns(2)
    with fit:
        curve_details.show_fit(curve, chosen)
    with devices:
        curve_details.show_devices(curve, evidence)


def _page() -> None:
    everything = analyses.ended_runs()
    controls = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    with controls:
        runs = group_filter.choose(everything, "scaling_group", ("curve", "back"))
    found = analyses.curves(runs)
    if found.empty:
        _empty(runs)
        return
    with controls:
        key = _choose_curve(runs, found)
        with st.container(width=260):
            percent = address.percent_slider("Worth using from", "efficiency", "scaling_efficiency_at", 50, 100, 80)
    curve, evidence = analyses.scaling_curve(runs, key, percent / 100, evidence_list.put_back())
    _draw(curve, evidence, percent / 100)
    # While the machines do not answer, what was measured still stands.
    with note.guarded("missing"):
        curve_missing.show(curve, evidence)
    evidence_list.show_alike(evidence.runs, f"the number of {curve.axis}, at a {curve_details.held(curve)}")
    evidence_list.show_doubtful(evidence, "scaling")
    evidence_list.show_runs(evidence, labels_of(evidence.runs), "scaling_behind")


st.title("Scaling", anchor=False)
with note.guarded("scaling"):
    _page()
