"""What stands in the place of a Start button once it has been pressed."""

from collections.abc import Callable, Mapping

import streamlit as st


def panel(
    title: str, typed: str, link: tuple[str, str, str], query: Mapping[str, str], again: str, forget: Callable[[], None]
) -> None:
    """Says what was started, leads there, and offers the button once more.

    Args:
        title: our own words.
        typed: its name, shown as typed.
        link: file of the page to go to, what to call it, and a Material icon.
        query: what that page's address says.
        again: key of the button, another one after each start.
        forget: brings the Start button back.
    """
    with st.container(border=True, gap="xsmall"):
        st.markdown(f":green[:material/check_circle:] **{title}**")
        st.text(typed)
        page, label, icon = link
        st.page_link(page, label=label, icon=icon, query_params=query)
        st.button(
            "Start the same again",
            key=again,
            icon=":material/replay:",
            on_click=forget,
            help="Brings the Start button back, for the same once more.",
        )
