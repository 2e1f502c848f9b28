"""Speedup (`?thing=&rule=&baseline=&group=&back=`): every configuration against a baseline, like with like."""

import pandas as pd
import streamlit as st

from dashboard import analyses, data
from dashboard.components import address, batch_curve, chart, evidence_list, group_filter, note, speedup_table
from dashboard.components.text import count
from dashboard.figures import speedup
from experiments import plan_runs
from experiments.analysis.comparable import BatchRule, Thing
from experiments.analysis.tables import labels_of, pair

PARTS = ("thing", "rule", "baseline", "other", "back")


def _settle_pair(runs: pd.DataFrame) -> None:
    """`?baseline=A&other=B` without a thing: finds by what the two may be compared, or says what is in the way."""
    baseline, other = address.read("baseline"), address.read("other")
    if not other or address.read("thing"):
        return
    try:
        thing, rule, check = pair(runs, baseline, other)
    except KeyError:
        note.callout("warning", "pair", "One of the two runs has not ended, or is not there any more")
        return
    if check.possible:
        address.write({"thing": str(thing), "rule": str(rule), "other": ""})
    else:
        note.callout("warning", "pair", "These two runs do not compare", check.sentence())


def _choose_set(found: pd.DataFrame) -> dict:
    """The set of runs that is compared: the one that the address names, else the one with the newest run."""
    rows = {f"{row['thing']}|{row['rule']}|{row['run_ids'][0]}": row for row in found.to_dict("records")}
    thing, rule, baseline = (address.read(name) for name in ("thing", "rule", "baseline"))
    fitting = [
        key
        for key, row in rows.items()
        if thing in ("", row["thing"]) and rule in ("", row["rule"]) and baseline in ("", *row["run_ids"])
    ]
    keys = list(rows)
    st.session_state["speedup_set"] = fitting[0] if fitting else keys[0]
    labels = address.unique({key: speedup_table.set_label(row) for key, row in rows.items()})

    def take() -> None:
        row = rows[st.session_state["speedup_set"]]
        address.write(
            {"thing": row["thing"], "rule": row["rule"], "baseline": row["baseline"], "back": "", "other": ""}
        )

    chosen = st.selectbox("Compare", keys, format_func=labels.__getitem__, key="speedup_set", on_change=take)
    if baseline and not fitting:
        st.caption("The address names a comparison that these runs do not allow; this is the newest one instead.")
    return rows[chosen]


def _choose_baseline(runs: pd.DataFrame, chosen: dict) -> str:
    """One run of the configuration that is the baseline."""
    options, named = speedup_table.baselines(runs, chosen, address.read("baseline"))
    if named and named != address.read("baseline"):
        address.write({"baseline": named})
    found = address.select("Baseline", list(options), "baseline", "speedup_baseline", options, width=300)
    address.write({"thing": chosen["thing"], "rule": chosen["rule"], "baseline": found})
    return found


def _page() -> None:
    everything = analyses.ended_runs()
    if everything.empty:
        note.empty(
            "Nothing to compare yet",
            "A speedup needs two runs that differ in one thing, such as the device. Start the first one.",
            ":material/speed:",
            "app_pages/launch.py",
            "Launch a run",
        )
        return
    _settle_pair(everything)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        runs = group_filter.choose(everything, "speedup_group", PARTS)
        found = analyses.suggestions(runs)
        if len(found):
            chosen = _choose_set(found)
            baseline = _choose_baseline(runs, chosen)
    if found.empty:
        speedup_table.show_what_is_missing(runs)
        return
    thing, rule = Thing(chosen["thing"]), BatchRule(chosen["rule"])
    answer, evidence = analyses.speedups(runs, baseline, thing, rule, evidence_list.put_back())
    claim = plan_runs.claimed(answer, evidence.runs)
    if len(speedup.drawn(answer.table)):
        figure = speedup.speedup_figure(answer.table, answer.title, answer.baseline, claim)
        chart.show(figure, f"speedup-{thing}", "speedup_figure")
    else:
        note.callout("info", "finding", "No speedup to draw", answer.title)
    for text in (speedup.notice(answer.table), speedup_table.counted(answer)):
        if text:
            st.caption(text)
    speedup_table.show(answer, claim)
    batch_curve.show(runs, baseline, thing, evidence_list.put_back())
    evidence_list.show_alike(evidence.runs, speedup_table.about(thing, rule))
    evidence_list.show_doubtful(evidence, "speedup")
    evidence_list.show_runs(evidence, labels_of(evidence.runs), "speedup_behind")
    live = int((data.runs()["status"].isin(["SCHEDULED", "RUNNING"])).sum())
    if live:
        st.caption(f"{count(live, 'run')} still waiting or running; they join when they have ended.")


st.title("Speedup", anchor=False)
with note.guarded("speedup"):
    _page()
