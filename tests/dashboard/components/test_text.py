"""Typed texts stay as typed."""

import re

from hypothesis import given
from hypothesis import strategies as st

from dashboard.components import text


@given(st.text())
def test_a_file_name_is_safe_whatever_was_typed(typed: str) -> None:
    name = text.safe_file_name(typed)

    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,79}", name)


def test_a_file_name_keeps_what_can_be_read() -> None:
    assert text.safe_file_name("mnist_cnn cpu one_device 1") == "mnist-cnn-cpu-one-device-1"
    assert text.safe_file_name("../../etc/passwd") == "etc-passwd"
