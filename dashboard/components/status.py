"""A run's status as people see it: a word, a sign and a colour, never the colour alone."""

import streamlit as st

from training.names import RunStatus

_BADGES = {
    RunStatus.SCHEDULED: ("Scheduled", "○", ":material/schedule:", "gray"),
    RunStatus.RUNNING: ("Running", "►", ":material/play_arrow:", "blue"),
    RunStatus.FINISHED: ("Finished", "✓", ":material/check:", "green"),
    RunStatus.FAILED: ("Failed", "✕", ":material/error:", "red"),
    RunStatus.KILLED: ("Killed", "■", ":material/stop:", "orange"),
}


def name(status: str) -> str:
    """The status as a word."""
    return _BADGES[RunStatus(status)][0]


def word(status: str) -> str:
    """The status in a table's cell: a sign and a word."""
    called, sign, _, _ = _BADGES[RunStatus(status)]
    return f"{sign} {called}"


def badge(status: str) -> None:
    """The status beside a title."""
    called, _, icon, color = _BADGES[RunStatus(status)]
    st.badge(called, icon=icon, color=color)  # type: ignore[arg-type]


def simulated_badge(devices: int | None = None) -> None:
    """Marks a run whose devices are logical ones that share the same hardware."""
    label = f"{devices} simulated devices" if devices else "Simulated devices"
    st.badge(
        label,
        icon=":material/science:",
        color="violet",
        help="Logical devices cut from the same hardware: fit to test a strategy, not to measure its speed.",
    )


def is_live(status: str) -> bool:
    """Whether a run with this status may still change."""
    return not RunStatus(status).is_terminal
