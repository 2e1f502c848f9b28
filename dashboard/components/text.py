"""Texts that people typed, and numbers as people read them. One helper for each direction.

Streamlit reads most texts as Markdown with emoji codes, colours and formulas; a name is none of these. No escaping
helps there: even in a code span Streamlit rewrites `:material/home:`. So a typed text goes only where Streamlit is
plain (`st.text`, `st.code`, a table's cell, an option of a select box), and as a title through `heading`. Figures use
`figures.theme.plain`.
"""

import html
import math
import re
from collections.abc import Callable

import streamlit as st


def heading(text: object) -> None:
    """A page's title as plain text: `st.title` would read Markdown. The text is escaped, so no HTML comes of it."""
    st.html(f'<h1 class="typed-title">{html.escape(str(text))}</h1>')


def safe_file_name(text: str) -> str:
    """A download's name from a typed text: letters, digits, dots and dashes only, never empty, at most 80 long."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:80] or "run"


def number(value: float | int | None, digits: int = 3) -> str:
    """A number with so many significant digits and thousands separated; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 8)}f}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 as percent; a dash where there is none."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.{digits}f}%"


def times(ratio: float) -> str:
    """A ratio as `1.39x`; a dash where there is none."""
    return f"{ratio:.2f}x" if math.isfinite(ratio) else "–"


def interval(low: float, high: float, shown: Callable[[float], str]) -> str:
    """`1.32x to 1.50x`, each end as `shown` writes it; a dash where an end is not known."""
    return f"{shown(low)} to {shown(high)}" if math.isfinite(low) and math.isfinite(high) else "–"


def duration(seconds: float | None) -> str:
    """A time as people say it: `0.42 s`, `8.3 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`; a dash where there is none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0.9995:
        return f"{seconds:.2g} s" if seconds >= 0.0005 else "0 s"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
