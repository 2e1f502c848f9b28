"""The dashboard's entry: page config, login, navigation. Nothing else.

`streamlit run dashboard/app.py` puts this file's folder on the path, not the checkout, so the rooms beside this one
could not be imported; the first lines mend that, wherever the command was typed.
"""

import sys
from pathlib import Path

import streamlit as st

_CHECKOUT = str(Path(__file__).resolve().parent.parent)
if _CHECKOUT not in sys.path:
    sys.path.insert(0, _CHECKOUT)

from dashboard.components import login, style  # noqa: E402  (the path above comes first)

_ASSETS = Path(__file__).resolve().parent / "assets"

# An icon of our own: Streamlit would fetch a Material one from Google at every visit.
st.set_page_config(page_title="Speedup Lab", page_icon=str(_ASSETS / "icon.svg"), layout="wide")
st.logo(str(_ASSETS / "logo.svg"), size="medium", link=None)


def _home() -> None:
    """The bare address leads to the runs, or with `?run=ID` to that run. A page of its own, so that each other page
    has an address that can be kept: Streamlit gives its default page none."""
    run_id = st.query_params.get("run")
    if run_id:
        st.switch_page("app_pages/run.py", query_params={"run": run_id})
    st.switch_page("app_pages/runs.py")


PAGES = [
    st.Page(_home, title="Speedup Lab", default=True, visibility="hidden"),
    st.Page("app_pages/launch.py", title="Launch", icon=":material/rocket_launch:"),
    st.Page("app_pages/runs.py", title="Runs", icon=":material/list:"),
    # Reached by choosing a run; without one it has nothing to show.
    st.Page("app_pages/run.py", title="Run", icon=":material/monitoring:", visibility="hidden"),
    st.Page("app_pages/speedup.py", title="Speedup", icon=":material/speed:"),
    st.Page("app_pages/scaling.py", title="Scaling", icon=":material/trending_up:"),
    st.Page("app_pages/placement.py", title="Placement", icon=":material/account_tree:"),
    st.Page("app_pages/environment.py", title="Environment", icon=":material/memory:"),
]

page = st.navigation(PAGES, position="top")
style.apply()
login.require()
page.run()
