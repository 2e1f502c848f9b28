"""Typed texts stay as typed; numbers have sensible precision and units."""

import math
import re

import pytest
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


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (0.0, "0"),
        (0.2851, "0.285"),
        (7449.2, "7,449"),
        (1234567.0, "1,234,567"),
        (-0.5, "-0.500"),
        (1e-12, "0.00000000"),
    ],
)
def test_number(value: float | None, shown: str) -> None:
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 s"),
        (0.11, "0.11 s"),
        (8.046, "8.05 s"),
        (59.96, "1 min 00 s"),
        (200.0, "3 min 20 s"),
        (7500.0, "2 h 05 min"),
        (273_600.0, "3 d 4 h"),
    ],
)
def test_duration(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


@given(st.floats(min_value=0, max_value=1e9))
def test_a_duration_never_shows_sixty_of_anything(seconds: float) -> None:
    assert not re.search(r"\b60 (s|min)\b", text.duration(seconds))


def test_percent() -> None:
    assert text.percent(0.899, 2) == "89.90%"
    assert text.percent(math.nan) == "–"
