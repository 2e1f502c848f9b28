"""A figure that is worth keeping: with its picture and its data to take away."""

from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from dashboard.components.text import safe_file_name
from dashboard.figures import theme


def show(figure: go.Figure, name: str, key: str) -> None:
    """Draws a figure. Its title is its accessible name; the camera in its corner keeps it as an SVG file."""
    st.plotly_chart(figure, key=key, config=theme.config(safe_file_name(name)), alt=figure.layout.title.text)


def download(table: Callable[[], pd.DataFrame], name: str, key: str, label: str = "Data (CSV)") -> None:
    """A button that hands out a table, every row and digit of it, made when it is pressed."""
    st.download_button(
        label,
        lambda: table().to_csv(index=False),
        file_name=f"{safe_file_name(name)}.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
        key=key,
    )
