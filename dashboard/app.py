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

st.set_page_config(page_title="Speedup Lab", page_icon=":material/speed:", layout="wide")

PAGES = [
    st.Page("app_pages/launch.py", title="Launch", icon=":material/rocket_launch:"),
    st.Page("app_pages/runs.py", title="Runs", icon=":material/list:", default=True),
    st.Page("app_pages/run.py", title="Run", icon=":material/monitoring:", url_path="run"),
    st.Page("app_pages/environment.py", title="Environment", icon=":material/memory:"),
]

page = st.navigation(PAGES, position="top")
style.apply()
login.require()
page.run()
