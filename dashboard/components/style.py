"""What Streamlit's theme cannot say: `assets/style.css`."""

from pathlib import Path

import streamlit as st

_CSS = Path(__file__).resolve().parents[1] / "assets" / "style.css"


def apply() -> None:
    """Puts the style on the page."""
    st.html(_CSS)
