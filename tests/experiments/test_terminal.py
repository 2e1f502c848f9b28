"""What people typed is shown on a terminal, never obeyed."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.terminal import fit, safe, table, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("two\nlines\r\tand\x07bell", r"two\nlines\r\tand\x07bell"),
        ("\u202eright to left", r"\u202eright to left"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\x9b31m", r"\x9b31m"),
        ("lone \ud800", r"lone \ud800"),
        ("模型 é 🚀", "模型 é 🚀"),
        ("<b>$a$</b>", "<b>$a$</b>"),
    ],
)
def test_what_a_terminal_would_act_on_is_written_out(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(st.text())
def test_nothing_that_moves_a_cursor_is_left(text: str) -> None:
    shown = safe(text)
    assert not any(unicodedata.category(character).startswith("C") for character in shown)
    assert len(shown.splitlines()) <= 1


@given(st.text(), st.integers(1, 30))
def test_a_cell_never_takes_more_than_its_columns(text: str, columns: int) -> None:
    assert width(fit(text, columns)) <= columns


def test_columns_stay_aligned_with_wide_and_combining_characters() -> None:
    text = table(("NAME", "X"), [("模型", "1"), ("e\u0301", "2"), ("x" * 99, "3"), ("\x1b[2J", "4")], widest=10)
    lines = text.splitlines()
    assert len(lines) == 5
    positions = {width(line[: line.rindex(end)]) for line, end in zip(lines, "X1234", strict=True)}
    assert positions == {12}
    assert lines[3].startswith("xxxxxxxxx…")
