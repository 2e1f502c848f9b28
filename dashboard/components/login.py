"""Who is looking. With `[auth]` in `.streamlit/secrets.toml` Streamlit's own login decides; otherwise a typed name.

No request header is ever believed: anybody can send one.
"""

import streamlit as st


def configured() -> bool:
    """Whether this server asks people to log in."""
    try:
        return "auth" in st.secrets
    except FileNotFoundError:  # no secrets file: the usual case on one's own machine
        return False


def require() -> None:
    """Ends the page with a login button while a login is asked for and nobody has."""
    if not configured() or st.user.is_logged_in:
        return
    st.title("Speedup Lab", anchor=False)
    st.text("This server asks who you are before it shows or starts runs.")
    st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
    st.stop()


def user() -> str:
    """Who is logged in; empty when the server asks nobody, so that the name typed into a form counts."""
    if not configured():
        return ""
    return str(st.user.get("email") or st.user.get("name") or "")
