"""Environment: what this machine has, what is wrong with it, and how to mend that."""

import streamlit as st

from dashboard import data
from dashboard.components import findings, note

with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
    st.title("Environment", anchor=False, width="content")
    st.button("Look again", icon=":material/refresh:", on_click=data.forget_machine)

with note.guarded("capacity"):
    findings.show_capacity(data.machines())
# The first look asks TensorFlow, in a process that takes seconds to start. What is known without it is drawn before.
found = st.container()
with note.guarded("datasets"):
    findings.show_datasets(data.datasets())
with found, note.guarded("findings"):
    findings.show(data.findings())
