"""Text for a terminal. What people typed is shown, never obeyed: no escape sequence of theirs reaches the terminal."""

import unicodedata
from collections.abc import Iterable, Sequence

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Unicode categories that move the cursor, colour, reverse or hide text, or that no terminal agrees upon."""


def safe(text: str) -> str:
    """The text on one line, with what a terminal would act on written out, such as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _HIDDEN else character
        for character in text
    )


def width(text: str) -> int:
    """Columns that a text takes in a terminal: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def fit(text: str, columns: int) -> str:
    """The safe text cut to a number of columns, with `…` where something is left out."""
    text = safe(text)
    if width(text) <= columns:
        return text
    kept, used = [], 0
    for character in text:
        used += width(character)
        if used > columns - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], widest: int = 40) -> str:
    """Rows in aligned columns.

    Args:
        headings: one a column.
        rows: texts, as many as headings in each.
        widest: the most columns a cell takes, except in the last column, which may be as long as it is.

    Returns:
        Lines without a final line end.
    """
    last = len(headings) - 1
    cells = [list(headings)]
    cells += [[safe(cell) if index == last else fit(cell, widest) for index, cell in enumerate(row)] for row in rows]
    sizes = [max(width(row[index]) for row in cells) for index in range(len(headings))]
    lines = (
        "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(row, sizes, strict=True)) for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
