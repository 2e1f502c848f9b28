"""Colours and layout that every figure shares. Works on the light and on the dark page.

The colours are Okabe and Ito's colour-blind-safe set (https://jfly.uni-koeln.de/color/), its light members darkened
until each has a contrast of at least 3:1 (WCAG 2.1, 1.4.11) with both backgrounds of `.streamlit/config.toml`.
"""

import html

import pandas as pd
import plotly.graph_objects as go

BLUE = "#1F83BF"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#BE6A99"
AMBER = "#B97F00"
GREY = "#7C8894"
TEAL = "#2A93A8"
CATEGORICAL = (BLUE, VERMILION, GREEN, PURPLE, AMBER, TEAL, GREY)

TRAINING = BLUE
VALIDATION = VERMILION

HATCHES = ("", "/", "x", ".", "\\", "-", "|")

GRID = "rgba(128, 144, 160, 0.25)"
LINE = "rgba(128, 144, 160, 0.6)"
WHISKER = "rgba(104, 116, 128, 0.95)"

# What the modebar offers: zoom, reset and an image to keep. Plotly's logo and its link outside stay away.
CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "pan2d"],
}


def legend_below(figure: go.Figure, room: int = 96) -> None:
    """Puts the legend under the axes, where it may wrap, and the title at a fixed distance from the top, however tall
    the figure is. `room` in pixels."""
    figure.update_layout(
        title={"y": 1.0, "pad": {"t": 12}},
        legend={"yref": "container", "y": 0.0, "yanchor": "bottom"},
        margin={"b": room},
        showlegend=True,
    )


def config(name: str) -> dict[str, object]:
    """CONFIG for a chart that is worth keeping: its picture is an SVG file of this name, made in the browser."""
    return {**CONFIG, "toImageButtonOptions": {"format": "svg", "filename": name}}


def device_style(device: str) -> tuple[str, str]:
    """Colour and hatching of a device such as `GPU:1`, the same in every figure; CPUs and GPUs start apart."""
    name, _, index = device.rpartition(":")
    place = (int(index) if index.isdecimal() else 0) + (3 if name.endswith("GPU") else 0)
    return CATEGORICAL[place % len(CATEGORICAL)], HATCHES[place % len(HATCHES)]


def pattern(shape: str) -> dict[str, object]:
    """Hatching over a bar's own colour; an empty shape is none. Without `overlay` Plotly drops the colour."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(255, 255, 255, 0.75)", "solidity": 0.25, "size": 6}


def plain(text: object) -> str:
    """A typed text as Plotly must get it, so that it is shown as typed.

    Plotly reads a small HTML (`<b>`, `<br>`, `<a href>`) in every title, legend entry, tick and hover, decodes only a
    few named entities (so quotes stay as they are), and hands `$...$` to MathJax where the page has it.
    """
    escaped = html.escape(str(text), quote=False).replace("$", "&#36;")
    return " ".join(escaped.split())


def style(figure: go.Figure, title: str, height: int) -> go.Figure:
    """Gives a figure the common look. `title` is a sentence that says what is seen; typed text in it goes through
    `plain` first. Height in pixels."""
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "y": 0.97, "yanchor": "top", "font": {"size": 15}},
        height=height,
        margin={"l": 8, "r": 8, "t": 64, "b": 8},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        hovermode="x unified",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=list(CATEGORICAL),
        # The reader's zoom and hidden legend entries survive the redraw of a live chart.
        uirevision="keep",
        # Plotly's own block is dark grey on the light page.
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": BLUE},
    )
    figure.update_xaxes(gridcolor=GRID, zeroline=False, linecolor=LINE, automargin=True)
    figure.update_yaxes(gridcolor=GRID, zeroline=False, automargin=True)
    return figure


def whiskers(value: pd.Series, low: pd.Series, high: pd.Series) -> dict:
    """Error bars from a value to the ends of its interval; none where an end is not known."""
    return {
        "type": "data",
        "symmetric": False,
        "array": (high - value).fillna(0.0).tolist(),
        "arrayminus": (value - low).fillna(0.0).tolist(),
        "thickness": 1.6,
        "width": 6,
    }
