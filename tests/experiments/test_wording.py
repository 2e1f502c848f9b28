"""Numbers in words have sensible precision and units."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import wording
from experiments.wording import count


def test_one_and_many() -> None:
    assert [count(number, "run") for number in (0, 1, 1_500)] == ["0 runs", "1 run", "1,500 runs"]
    assert count(2, "entry", "entries") == "2 entries"


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
    assert wording.number(value) == shown


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
    assert wording.duration(seconds) == shown


@given(st.floats(min_value=0, max_value=1e9))
def test_a_duration_never_shows_sixty_of_anything(seconds: float) -> None:
    assert not re.search(r"\b60 (s|min)\b", wording.duration(seconds))


def test_percent() -> None:
    assert wording.percent(0.899, 2) == "89.90%"
    assert wording.percent(math.nan) == "–"
