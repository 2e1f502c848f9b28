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
    line(found.severity, sentence(found, named))


def sentence(found: Problem, named: str = "") -> str:
    """The problem as one sentence. A warning beside its field needs no number: the field shows it."""
    value = found.value if isinstance(found.value, str) else repr(found.value)
    shown = value if len(value) <= 60 else value[:57] + "..."
    if found.severity is Severity.WARNING and not isinstance(found.value, str):
        shown = ""
    words = [f"{_WORDS[found.severity]}:", named, shown, found.message, "–", f"{found.remedy}."]
    return " ".join(word for word in words if word)


def empty(title: str, text: str, icon: str, page: str = "", link: str = "") -> None:
    """What stands where nothing is yet: a calm panel that says what to do, and leads there.

    Args:
        title: our own words.
        text: our own words, as Markdown.
        icon: a Material icon.
        page: the file of the page to go to; none if empty.
        link: what to call it.
    """
    with st.container(border=True, horizontal_alignment="center", gap="xsmall"):
        st.markdown(f"### {icon}", width="content")
        st.markdown(f"**{title}**", width="content")
        st.markdown(text, width="content")
        if page:
            st.page_link(page, label=link, icon=":material/arrow_forward:")


@contextmanager
def guarded() -> Iterator[None]:
    """Shows what cannot be read instead of a traceback, and goes on with the page."""
    try:
        yield
    except data.Unavailable as error:
        body = error.remedy + (f"\n\n{code_span(error.detail)}" if error.detail else "")
        st.error(body, title=f"{code_span(error)}", icon=":material/cloud_off:")
