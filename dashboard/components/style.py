"""The little CSS that Streamlit's theme cannot say. Colours stay with the theme, so both themes keep working."""

import streamlit as st

_CSS = """
<style>
/* Dense: a dashboard is read, not scrolled. */
.stMainBlockContainer { padding-top: 4.2rem; padding-bottom: 3rem; max-width: 1500px; }
h1.typed-title { font-size: 1.6rem; font-weight: 650; line-height: 1.25; margin: 0; padding: 0;
                 overflow-wrap: anywhere; }
/* The launch page's summary stays in sight while the form scrolls. */
@media (min-width: 1000px) {
  .stColumn:has(.st-key-launch_summary) { position: sticky; top: 4.2rem; align-self: flex-start;
                                          max-height: calc(100vh - 5rem); overflow-y: auto; }
}
/* Numbers in a row line up. */
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
/* Plain texts are as large as the labels around them, and no typed text may widen the page. */
[data-testid="stText"] { font-size: 0.9rem; line-height: 1.45; overflow-wrap: anywhere; }
/* A link under a title starts where the title starts. */
a[data-testid="stPageLink-NavLink"] { padding-left: 0; }
</style>
"""


def apply() -> None:
    """Puts the style on the page."""
    st.html(_CSS)
