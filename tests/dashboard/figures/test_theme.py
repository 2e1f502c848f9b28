"""Colours that work on both pages, and texts that Plotly shows as typed."""

import html
import re
import tomllib
from pathlib import Path

import plotly.graph_objects as go
import pytest

from dashboard.figures import theme

CONFIG = tomllib.loads((Path(__file__).parents[3] / ".streamlit" / "config.toml").read_text(encoding="utf-8"))


def luminance(color: str) -> float:
    """Relative luminance, WCAG 2.1."""
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("page", ["light", "dark"])
@pytest.mark.parametrize("color", theme.CATEGORICAL)
def test_every_colour_can_be_seen_on_both_pages(page: str, color: str) -> None:
    assert contrast(color, CONFIG["theme"][page]["backgroundColor"]) >= 3.0


@pytest.mark.parametrize("page", ["light", "dark"])
@pytest.mark.parametrize("background", ["backgroundColor", "secondaryBackgroundColor"])
@pytest.mark.parametrize("text", ["textColor", "linkColor"])
def test_text_can_be_read_on_both_pages(page: str, background: str, text: str) -> None:
    colors = CONFIG["theme"][page]
    assert contrast(colors[text], colors[background]) >= 4.5


def decoded_by_plotly(text: str) -> str:
    """What plotly.js draws of a text without tags: numeric entities and the few named ones it knows."""
    assert "<" not in text
    return html.unescape(re.sub(r"&(?!(#\d+|lt|gt|amp);)", "&amp;", text))


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "$a$_b_",
        "[x](javascript:1)",
        "<b>bold</b> & 'quoted' \"twice\" &lt;",
        "%{y} {x}",
    ],
)
def test_a_typed_name_is_drawn_as_typed(name: str) -> None:
    escaped = theme.plain(name)

    assert decoded_by_plotly(escaped) == name
    # MathJax looks for a pair of dollar signs.
    assert "$" not in escaped


def test_style_keeps_the_readers_zoom_and_a_see_through_background() -> None:
    figure = theme.style(go.Figure(), "A finding", 200)

    assert figure.layout.uirevision == "keep"
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.title.text == "A finding"
