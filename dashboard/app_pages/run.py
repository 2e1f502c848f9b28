"""Run (`?run=ID`): one run, live while it trains."""

import streamlit as st

from dashboard import data
from dashboard.components import note, run_details, run_live, status

REFRESH_S = 2.0
TABS = ("Times", "Devices", "Spec", "Environment", "Log")


def _missing(run_id: str) -> None:
    st.title("Run", anchor=False)
    to = ("app_pages/runs.py", "All runs")
    if run_id:
        note.empty("There is no such run", "It may have been deleted.", ":material/search_off:", *to, typed=run_id[:80])
    else:
        note.empty("No run chosen", "Choose one of those there are, or start one.", ":material/list:", *to)


def _live_page(run_id: str, was_live: bool) -> None:
    """The whole page. It redraws by itself until the run has ended, then once more and no more."""
    with note.guarded("live"):
        try:
            run = data.run(run_id)
        except data.UnknownRun:
            _missing(run_id)
            return
        is_live = status.is_live(run["status"])
        if was_live and not is_live:
            st.rerun()
        tags = data.record(run_id)["tags"]
        st.page_link("app_pages/runs.py", label="All runs", icon=":material/arrow_back:")
        head, actions = st.columns([2, 1], vertical_alignment="top")
        with head:
            run_live.show_header(run)
        with actions:
            run_live.show_actions(run, tags)
        # Each part has its place, filled or not: what comes and goes would push the parts below it to new places, and
        # Streamlit would show them twice until the redraw is done.
        with st.container():
            run_live.show_state(run)
        with st.container():
            run_live.show_phase(run)
        run_live.show_progress(run)
        with st.container():
            run_live.show_verdict(run)
        history = data.history(run_id)
        with st.container():
            run_live.show_curves(str(run["name"] or run_id), history, is_live)
        times, devices, spec, environment, log = st.tabs(TABS, key="run_tab", on_change="rerun", bind="query-params")
        # Only the open tab reads and draws: the others would cost every redraw their share.
        if times.open:
            with times:
                run_details.show_times(run, history)
        if devices.open:
            with devices:
                run_details.show_devices(run, tags)
        if spec.open:
            with spec:
                run_details.show_spec(run, tags)
        if environment.open:
            with environment:
                run_details.show_environment(run)
        if log.open:
            with log:
                run_details.show_log(run)


def _page() -> None:
    run_id = st.query_params.get("run", "")
    if not run_id:
        _missing("")
        return
    try:
        live = status.is_live(data.run(run_id)["status"])
    except data.UnknownRun:
        _missing(run_id)
        return
    st.fragment(_live_page, run_every=REFRESH_S if live else None)(run_id, live)


with note.guarded("run"):
    _page()
