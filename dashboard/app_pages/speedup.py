"""Speedup (`?thing=&rule=&baseline=&other=&group=&back=`): configurations against a baseline, like with like."""

import streamlit as st

from dashboard import analyses, data
from dashboard.components import batch_curve, chart, comparison, evidence_list, group_filter, note, speedup_table
from dashboard.figures import speedup
from experiments import plan_runs
from experiments.analysis.tables import labels_of
from experiments.wording import count

PARTS = ("thing", "rule", "baseline", "other", "back")


def _page() -> None:
    everything = analyses.ended_runs()
    if everything.empty:
        note.empty(
            "Nothing to compare yet",
            "A speedup needs two runs that differ in one thing, such as the device.",
            ":material/speed:",
            "app_pages/launch.py",
            note.READY_MADE_LINK,
            query=note.READY_MADE,
        )
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        runs = group_filter.choose(everything, "speedup_group", PARTS)
        chosen = comparison.choose(runs)
    if chosen is None:
        speedup_table.show_what_is_missing(runs)
        return
    comparison.show(runs, chosen)
    if chosen.thing is None or not chosen.drawn:
        return
    thing, rule, other = chosen.thing, chosen.rule, chosen.pair.candidate if chosen.pair else ""
    answer, evidence = analyses.speedups(runs, chosen.baseline, thing, rule, evidence_list.put_back(), other)
    claim = plan_runs.claimed(answer, evidence.runs)
    if len(speedup.drawn(answer.table)):
        figure = speedup.speedup_figure(answer.table, answer.title, answer.baseline, claim)
        chart.show(figure, f"speedup-{thing}", "speedup_figure")
    else:
        note.callout("info", "finding", "No speedup to draw", answer.title)
    for text in (speedup.notice(answer.table), speedup_table.counted(answer)):
        if text:
            st.caption(text)
    for text in answer.notes:
        st.text(f"To know: {text}")
    speedup_table.show(answer, claim)
    if not other:
        batch_curve.show(runs, chosen.baseline, thing, evidence_list.put_back())
    evidence_list.show_alike(evidence.runs, speedup_table.about(thing, rule))
    evidence_list.show_doubtful(evidence, "speedup")
    evidence_list.show_runs(evidence, labels_of(evidence.runs), "speedup_behind")
    live = int((data.runs()["status"].isin(["SCHEDULED", "RUNNING"])).sum())
    if live:
        st.caption(f"{count(live, 'run')} still waiting or running; they join when they have ended.")


st.title("Speedup", anchor=False)
with note.guarded("speedup"):
    _page()
