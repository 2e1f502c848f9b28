"""Frames in, Plotly figures out. No Streamlit: each can be tested, or exported, without a page."""
