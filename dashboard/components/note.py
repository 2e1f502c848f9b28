"""Notes, refusals and empty pages. Every one says what to do next; none depends on colour alone."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import streamlit as st

from dashboard import data
from training.spec_rules import Problem, Severity

_ICONS = {Severity.ERROR: ":red[:material/error:]", Severity.WARNING: ":orange[:material/warning:]"}
_CALLOUTS = {
    "error": ":red[:material/error:]",
    "warning": ":orange[:material/warning:]",
    "info": ":blue[:material/info:]",
}
_WORDS = {Severity.ERROR: "Refused", Severity.WARNING: "Note"}


def callout(kind: str, place: str, title: str, text: str = "") -> None:
    """A panel that must be seen.

    Args:
        kind: `error`, `warning` or `info`.
        place: where on the page it is, once a page.
        title: our own words.
        text: shown as typed.
    """
    # A key of its own gives the panel its colour (assets/style.css); alerts of Streamlit's would read Markdown.
    with st.container(border=True, gap=None, key=f"callout_{kind}_{place}"):
        st.markdown(f"{_CALLOUTS[kind]} **{title}**")
        if text:
            st.text(text)


def line(severity: Severity, text: str) -> None:
    """One line with an icon; the text is shown as typed."""
    with st.container(horizontal=True, gap="xxsmall", wrap=False):
        st.markdown(_ICONS[severity], width="content")
        st.text(text, width="stretch")


def problem(found: Problem, named: str = "", words: Callable[[str], str] = str) -> None:
    """What is wrong with a field and how to mend it.

    Args:
        found: the problem.
        named: the field's label, where the line does not stand beside the field.
        words: says in the form's words what speaks of fields as the command line does.
    """
    line(found.severity, sentence(found, named, words))


def sentence(found: Problem, named: str = "", words: Callable[[str], str] = str) -> str:
    """The problem as one sentence. A warning beside its field needs no number: the field shows it."""
    value = found.value if isinstance(found.value, str) else repr(found.value)
    shown = value if len(value) <= 60 else value[:57] + "..."
    if found.severity is Severity.WARNING and not isinstance(found.value, str):
        shown = ""
    said = [f"{_WORDS[found.severity]}:", named, shown, words(found.message), "–", f"{words(found.remedy)}."]
    return " ".join(word for word in said if word)


READY_MADE = {"launch_what": "Ready-made experiment"}
"""What the Launch page's address says where it is to offer experiments."""
READY_MADE_LINK = "Start a ready-made experiment"


def empty(
    title: str,
    text: str,
    icon: str,
    page: str = "",
    link: str = "",
    typed: str = "",
    query: Mapping[str, str] | None = None,
) -> None:
    """What stands where nothing is yet: a calm panel that says what to do, and leads there.

    Args:
        title: our own words.
        text: our own words, as Markdown.
        icon: a Material icon.
        page: the file of the page to go to; none if empty.
        link: what to call it.
        typed: what it is about, shown as typed.
        query: what that page's address says.
    """
    with st.container(border=True, horizontal_alignment="center", gap="xsmall"):
        st.markdown(f"### {icon}", width="content")
        st.markdown(f"**{title}**", width="content")
        if typed:
            st.text(typed)
        st.markdown(text, width="content")
        if page:
            st.page_link(page, label=link, icon=":material/arrow_forward:", query_params=query)


@contextmanager
def guarded(place: str) -> Iterator[None]:
    """Shows what cannot be read instead of a traceback, and goes on with the page. `place` is told once a page."""
    try:
        yield
    except data.Unavailable as error:
        callout("error", place, str(error), "\n".join(part for part in (error.remedy, error.detail) if part))
    except data.UnknownRun as error:
        # Runs may be deleted in MLflow's own page while this one still lists them.
        data.look_again()
        callout("error", place, "A run was deleted meanwhile", f"Reload: the page then does without it.\n{error}")
