"""Choices in the address: labels that differ, nothing but what is allowed, and round trips."""

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.components.address import unique


def test_equal_labels_get_a_number() -> None:
    assert unique({"a": "x", "b": "x", "c": "y", "d": "x"}) == {"a": "x", "b": "x (2)", "c": "y", "d": "x (3)"}
    assert unique({"a": "x (2)", "b": "x", "c": "x"}) == {"a": "x (2)", "b": "x", "c": "x (3)"}


def _page() -> None:
    import streamlit as st

    from dashboard.components import address

    chosen = address.select("One", ["a", "b"], "one", "k1", {"a": "same", "b": "same"}, drops=("find",))
    maybe = address.select("Maybe", ["a", "b"], "maybe", "k2", optional="none")
    on = address.toggle("On", "on", "k3")
    percent = address.percent_slider("Percent", "percent", "k4", 50, 100, 80)
    text = address.search("Find", "find", "k5", "…")
    st.text(f"{chosen}|{maybe}|{on}|{percent}|{text}")


def _opened(**query: str) -> AppTest:
    app = AppTest.from_function(_page)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def test_an_empty_address_means_the_defaults() -> None:
    assert _opened().text[0].value == "a||False|80|"


def test_what_the_address_says_is_shown() -> None:
    app = _opened(one="b", maybe="a", on="1", percent="65", find="<b>")
    assert app.text[0].value == "b|a|True|65|<b>"


@pytest.mark.parametrize("percent", ["49", "101", "-5", "x", "9" * 500, "0100123", "65.5"])
def test_what_is_not_allowed_is_passed_over(percent: str) -> None:
    assert _opened(one="c", maybe="<b>", on="yes", percent=percent).text[0].value == "a||False|80|"


def test_a_change_is_written_and_takes_out_what_hangs_on_it() -> None:
    app = _opened(find="x")
    app.selectbox(key="k1").set_value("b").run()
    app.selectbox(key="k2").set_value("a").run()
    app.toggle(key="k3").set_value(True).run()
    app.slider(key="k4").set_value(90).run()
    assert app.text[0].value == "b|a|True|90|"
    assert dict(app.query_params) == {"one": "b", "maybe": "a", "on": "1", "percent": "90"}
    app.toggle(key="k3").set_value(False).run()
    app.selectbox(key="k2").set_value(None).run()
    assert dict(app.query_params) == {"one": "b", "percent": "90"}
