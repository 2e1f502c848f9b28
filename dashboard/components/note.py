"""Notes, refusals and empty pages. Every one says what to do next; none depends on colour alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from dashboard import data
from dashboard.components.text import code_span
from training.spec_rules import Problem, Severity

_ICONS = {Severity.ERROR: ":red[:material/error:]", Severity.WARNING: ":orange[:material/warning:]"}
_WORDS = {Severity.ERROR: "Refused", Severity.WARNING: "Note"}


def line(severity: Severity, text: str) -> None:
    """One line with an icon; the text is shown as typed."""
    with st.container(horizontal=True, gap="xxsmall", wrap=False):
        st.markdown(_ICONS[severity], width="content")
        st.text(text, width="stretch")


def problem(found: Problem, named: str = "") -> None:
    """What is wrong with a field and how to mend it.

    Args:
        found: the problem.
        named: the field's label, where the line does not stand beside the field.
    """
    value = repr(found.value)
    shown = value if len(value) <= 60 else value[:57] + "..."
    subject = f"{named} {shown}" if named else shown
    line(found.severity, f"{_WORDS[found.severity]}: {subject} {found.message} – {found.remedy}.")


def empty(title: str, text: str, icon: str) -> None:
    """What stands where nothing is yet: a calm panel that says what to do. `title` and `text` are our own words."""
    with st.container(border=True, horizontal_alignment="center", gap="xsmall"):
        st.markdown(f"### {icon}", width="content")
        st.markdown(f"**{title}**", width="content")
        st.markdown(text, width="content")


@contextmanager
def guarded() -> Iterator[None]:
    """Shows what cannot be read instead of a traceback, and goes on with the page."""
    try:
        yield
    except data.Unavailable as error:
        body = error.remedy + (f"\n\n{code_span(error.detail)}" if error.detail else "")
        st.error(body, title=f"{code_span(error)}", icon=":material/cloud_off:")
