"""Texts that people typed.

Streamlit reads most texts as Markdown with emoji codes, colours and formulas; a name is none of these. No escaping
helps there: even in a code span Streamlit rewrites `:material/home:`. So a typed text goes only where Streamlit is
plain (`st.text`, `st.code`, a table's cell, an option of a select box), and as a title through `heading`. Figures use
`figures.theme.plain`.
"""

import html
import re

import streamlit as st


def heading(text: object) -> None:
    """A page's title as plain text: `st.title` would read Markdown. The text is escaped, so no HTML comes of it."""
    st.html(f'<h1 class="typed-title">{html.escape(str(text))}</h1>')


def safe_file_name(text: str) -> str:
    """A download's name from a typed text: letters, digits, dots and dashes only, never empty, at most 80 long."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:80] or "run"
