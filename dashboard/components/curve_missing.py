"""Complete this curve: the runs it lacks, and the button that queues exactly those, once."""

import uuid

import pandas as pd
import streamlit as st

from dashboard import analyses
from dashboard.components import address, login, note
from dashboard.components.spec_values import CHOICE_LABELS
from experiments.analysis.curve import ScalingCurve
from experiments.analysis.evidence import Evidence
from experiments.wording import count

_TOKEN = "scaling_token"
_QUEUED = "scaling_queued"


def as_text(missing: pd.DataFrame, axis: str) -> pd.DataFrame:
    """A `missing` table as people read it."""
    repeats = missing["repeats"].astype("str").where(missing["refusal"] == "", "none")
    return pd.DataFrame(
        {
            axis.capitalize(): missing["count"],
            "Runs to queue": repeats,
            "Why": missing["reason"],
            "Strategy": missing["strategy"].map(lambda name: CHOICE_LABELS.get(name, name)),
            "Replicas per worker": missing["replicas"],
            "Workers": missing["workers"],
            "Global batch": missing["global_batch_size"],
            "Cannot be queued": missing["refusal"],
        }
    )


def show(curve: ScalingCurve, evidence: Evidence) -> None:
    """Draws the table and the button."""
    st.subheader("Complete this curve", anchor=False)
    halve = address.toggle(
        "Halve the intervals instead", "halve", "scaling_halve", help="Repeats of the measured points only"
    )
    missing = analyses.missing(evidence, curve, halve)
    queued = st.session_state.get(_QUEUED)
    if queued and queued["key"] == curve.key:
        _show_queued(queued)
    if missing.empty:
        st.caption(
            "Nothing is missing: every number of devices that there is has its repeats, or they are under way."
            if not halve
            else "Nothing to repeat: what would halve the intervals is under way, or no point is measured."
        )
        return
    st.dataframe(as_text(missing, curve.axis), hide_index=True, height="content", alt="Missing runs")
    total = int(missing.loc[missing["refusal"] == "", "repeats"].sum())
    if not total:
        st.caption("None of them can be queued; each row says why.")
        return
    token = st.session_state.setdefault(_TOKEN, uuid.uuid4().hex)
    # The token is part of the button's identity: a second click of a double click queues nothing more.
    label = f"Queue {'these' if total > 1 else 'this'} {count(total, 'run')}"
    if st.button(label, key=f"scaling_queue_{token}", type="primary"):
        run_ids, refused = analyses.queue_missing(missing, curve.key, login.user(), token)
        st.session_state[_QUEUED] = {"key": curve.key, "run_ids": run_ids, "refused": refused}
        st.session_state[_TOKEN] = uuid.uuid4().hex
        st.rerun()


def _show_queued(queued: dict) -> None:
    with st.container(border=True, gap="xsmall"):
        st.markdown(f":green[:material/check_circle:] **{count(len(queued['run_ids']), 'run')} queued**")
        if queued["refused"]:
            note.callout("warning", "refused", "Refused at the last moment", "\n".join(queued["refused"]))
        st.page_link(
            "app_pages/runs.py",
            label="Watch them on the Runs page",
            icon=":material/list:",
            query_params={"runs_status": "Scheduled"},
        )
