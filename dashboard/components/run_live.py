"""What a run does now: its state, how far it is, and its learning curves."""

import math
import typing
from collections.abc import Mapping

import pandas as pd
import streamlit as st

from dashboard import analyses, data
from dashboard.components import address, chart, note, status
from dashboard.components.text import heading
from dashboard.figures import curves
from experiments.wording import count, duration, number, percent
from training.names import Metric, Phase, RunStatus, Tag
from training.spec_rules import Severity

Row = Mapping[str, typing.Any]


def show_header(run: Row) -> None:
    """The name, and beside it what kind of run it is."""
    heading(run["name"] or run["run_id"])
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        status.badge(run["status"])
        if run["simulated"]:
            status.simulated_badge(run["logical_devices"])
        link = data.mlflow_link(run["run_id"])
        if link:
            st.link_button("MLflow", link, icon=":material/open_in_new:", type="tertiary")
        st.caption(f"`{run['run_id']}`", width="content")


_NOT_STOPPED = "run_not_stopped"


def _stop(run_id: str) -> None:
    """Runs before the page is drawn, so what goes wrong is shown by the drawing."""
    try:
        data.cancel(run_id)
    except (data.Unavailable, data.UnknownRun) as error:
        st.session_state[_NOT_STOPPED] = error


def show_actions(run: Row, tags: Mapping[str, str]) -> None:
    """Stop, which asks first, while it lives; its spec again at any time."""
    run_id = run["run_id"]
    if error := st.session_state.pop(_NOT_STOPPED, None):
        with note.guarded("stop"):
            raise error
    with st.container(horizontal=True, horizontal_alignment="right", gap="small", vertical_alignment="center"):
        if status.is_live(run["status"]):
            if tags.get(Tag.CANCEL_REQUESTED):
                st.markdown(":orange[:material/hourglass_top:] Stopping; finished epochs are kept.", width="content")
            else:
                # Opening it is the browser's alone: no redraw of the live page can come between two clicks.
                with st.popover("Stop run", icon=":material/stop:", key="run_stop"):
                    st.markdown("**Stop this run?** Finished epochs are kept.")
                    st.button("Yes, stop it", type="primary", on_click=_stop, args=(run_id,), key="run_stop_yes")
        if run["status"] == RunStatus.FINISHED:
            # The run alone: the Speedup page finds its natural baseline.
            st.page_link(
                "app_pages/speedup.py", label="Compare", icon=":material/speed:", query_params={"other": run_id}
            )
        if st.button("Use this spec again", icon=":material/content_copy:", key="run_again"):
            st.switch_page("app_pages/launch.py", query_params={"spec": run_id})


def show_state(run: Row) -> None:
    """Why it failed, was stopped or waits, and what a reader should know. Nothing when all is usual."""
    reason = run["reason"]
    if run["status"] == RunStatus.FAILED:
        note.callout("error", "state", "This run failed", reason or "No reason was recorded; the log may tell.")
    elif run["status"] == RunStatus.KILLED:
        note.callout("warning", "state", "This run was stopped", reason)
    elif run["status"] == RunStatus.SCHEDULED:
        note.callout("info", "state", "Waiting to start", reason or "It starts as soon as there is room.")
    if run["notice"]:
        note.callout("info", "notice", "To know about this run", run["notice"])


def show_verdict(run: Row) -> None:
    """Where the time of an ended run went, with the share behind it, and what makes its timing doubtful."""
    if status.is_live(run["status"]):
        return
    found = analyses.judged(run["run_id"])
    if found.verdict is None:
        return
    excluding = found.flags[found.flags["excludes"]]
    with st.container(border=True, gap="xsmall", key="run_verdict"):
        sentence = found.sentence()
        st.markdown(":blue[:material/timer:] **Where the time went**")
        st.text(sentence[:1].upper() + sentence[1:])
        measured = [(cause, share.value) for cause, share in found.verdict.shares.items() if share.known]
        shares = " · ".join(f"{cause} {percent(value)}" for cause, value in measured)
        st.caption(f"{shares} (of a step, of the epochs or of the whole run, so they do not add up)")
        for detail in dict.fromkeys(excluding["detail"]):
            note.line(Severity.WARNING, f"Timing doubtful: {detail}")
        for detail in dict.fromkeys(found.flags.loc[~found.flags["excludes"], "detail"]):
            if detail != run["notice"]:
                st.text(f"To know: {detail}")
        if found.unchecked:
            with st.expander(f"{count(len(found.unchecked), 'disturbance')} not checked for", key="run_unchecked"):
                st.text("Not recorded in this run: " + "; ".join(found.unchecked))


def show_phase(run: Row) -> None:
    """What a running run does, and how far it is. Nothing before and after."""
    if run["status"] == RunStatus.RUNNING:
        st.progress(_share(run["progress"]), text=progress_text(run))


def show_progress(run: Row) -> None:
    """Epochs, time left, and the figures that people look for first."""
    live = status.is_live(run["status"])
    epochs = int(run["epochs"] or 0)
    columns = st.columns(5)
    columns[0].metric("Epochs done", f"{int(run['epoch'])} of {epochs}" if epochs else f"{int(run['epoch'])}")
    columns[1].metric("Validation accuracy", percent(_number(run["val_accuracy"]), 2))
    columns[2].metric("Validation loss", number(_number(run["val_loss"]), 4))
    columns[3].metric(
        "Examples/s, last epoch",
        number(_number(run["examples_per_second"])),
        help="Training throughput of the last epoch. Comparisons use the steady throughput (Times, below).",
    )
    if live:
        columns[4].metric("Time left", _left(run) or "–", help="Estimated from the last steps and epochs.")
    else:
        columns[4].metric("Time in all", duration(_seconds_in_all(run)), help="From the process's start to its end.")


def progress_text(run: Row) -> str:
    """Where a running run stands, in a sentence without anything typed by a person."""
    phase = run["phase"] if run["phase"] in list(Phase) else Phase.STARTING
    text = str(phase)[:1].upper() + str(phase)[1:]
    if phase in (Phase.TRAINING, Phase.VALIDATING) and run["epochs"]:
        # An epoch is done once it is trained and validated.
        text += f", epoch {min(int(run['epoch']) + 1, int(run['epochs']))} of {run['epochs']}"
    left = _left(run)
    return f"{text} · about {left} left" if left else text


def _left(run: Row) -> str:
    """The time left, no more exact than an estimate is; empty where it is not known, as after the last epoch."""
    left = _number(run["seconds_left"])
    if left is None or not math.isfinite(left) or left < 0.5 or run["phase"] not in (Phase.TRAINING, Phase.VALIDATING):
        return ""
    return duration(float(round(left)))


def show_curves(name: str, history: pd.DataFrame, is_live: bool) -> None:
    """Loss and accuracy by epoch, training and validation. Files that are kept of it bear the run's name."""
    drawn = [metric for metric in (Metric.LOSS, Metric.ACCURACY) if _has(history, metric)]
    if not drawn:
        st.caption("Curves appear here after the first epoch." if is_live else "It ended before its first epoch did.")
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        log_scale = address.toggle("Logarithmic loss", "run_log_scale", "run_logarithmic")
        chart.download(lambda: history, f"{name}-history", "run_history_csv", "History (CSV)")
    for column, metric in zip(st.columns(2), drawn, strict=False):
        table = curves.curve_table(history, metric)
        with column:
            figure = curves.curve_figure(table, metric, log_scale and metric == Metric.LOSS)
            chart.show(figure, f"{name}-{metric}", f"run_curve_{metric}")
            broken = curves.not_finite(table, metric)
            if broken:
                st.markdown(f":orange[:material/warning:] {broken}: a gap in the curve.")


def _has(history: pd.DataFrame, metric: str) -> bool:
    return bool(history["metric"].isin([metric, Metric.VAL_PREFIX + metric]).any())


def _seconds_in_all(run: Row) -> float | None:
    """As the run timed itself, or, where it was cut short, from MLflow's times."""
    timed = _number(run["time_total"])
    if timed is not None and math.isfinite(timed):
        return timed
    return (run["ended"] - run["started"]).total_seconds() if run["ended"] and run["started"] else None


def _number(value: typing.Any) -> float | None:
    return None if value is None or value is pd.NA else float(value)


def _share(value: typing.Any) -> float:
    found = _number(value)
    return min(1.0, max(0.0, found)) if found is not None and math.isfinite(found) else 0.0
