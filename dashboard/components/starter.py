"""The Start button. However often it is pressed, one press starts one run.

The button's identity and the submission share a token. A second click of a double click either reaches the same
button again (the queue answers the same token with the same run) or a button that is gone (Streamlit drops it). The
token is renewed only by a start that went well, and the next start of the same spec is a button of its own.
"""

import uuid

import streamlit as st

from dashboard import data
from dashboard.components import started
from training.spec import RunSpec
from training.spec_rules import Problem

_TOKEN = "launch_token"
_STARTED = "launch_started"


def show(spec: RunSpec | None, refusals: int, restarted_from: str) -> list[Problem]:
    """Draws the button, or what was started.

    Args:
        spec: what to start; None while the form cannot be read.
        refusals: how many problems refuse it.
        restarted_from: session key of the id of the run whose spec the form began with; forgotten by a start, since
            what is started after it began with that one.

    Returns:
        What refused the start at the last moment, to be shown beside the fields.
    """
    token = st.session_state.setdefault(_TOKEN, uuid.uuid4().hex)
    last = st.session_state.get(_STARTED)
    if last and spec is not None and last["spec"] == spec.to_json():
        _show_started(last["run_id"], spec)
        return []
    if spec is None or refusals:
        st.button("Start", key="launch_start_refused", type="primary", disabled=True, width="stretch")
        st.caption("Mend what is refused, then start." if refusals != 1 else "Mend the refused field, then start.")
        return []
    key = f"launch_start_{token}"
    if not st.button("Start", key=key, type="primary", icon=":material/play_arrow:", width="stretch"):
        return []
    run_id, problems = data.submit(spec, token, st.session_state.get(restarted_from, ""))
    if problems:
        return problems
    st.session_state[_STARTED] = {"run_id": run_id, "spec": spec.to_json()}
    st.session_state[_TOKEN] = uuid.uuid4().hex
    st.session_state.pop(restarted_from, None)
    st.rerun()


def _show_started(run_id: str, spec: RunSpec) -> None:
    link = ("app_pages/run.py", "Watch the run", ":material/monitoring:")
    again = f"launch_again_{st.session_state[_TOKEN]}"
    started.panel("Started", spec.display_name, link, {"run": run_id}, again, _forget)


def _forget() -> None:
    st.session_state.pop(_STARTED, None)
