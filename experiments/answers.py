"""How every command answers: one JSON document or a table on stdout, what else is to be said on stderr."""

import contextlib
import getpass
import json
import math
import sys
import typing

import pandas as pd

from experiments.terminal import table


def say(line: str) -> None:
    """One line beside the answer."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def print_json(value: object, answer: typing.TextIO) -> None:
    """The one document of a command with --json."""
    answer.write(json.dumps(plain(value), indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def plain(value: typing.Any) -> typing.Any:
    """The value with what JSON lacks as text: NaN, Infinity, -Infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def frame_text(frame: pd.DataFrame, widest: int = 40) -> str:
    """A frame as a table for a terminal; `widest` columns a cell, the last cell as long as it is."""
    rows = frame.astype(str).itertuples(index=False, name=None)
    return table([str(column).upper().replace("_", " ") for column in frame.columns], rows, widest)


def user() -> str:
    """Who runs this command; empty for a user id without a name, as in containers."""
    with contextlib.suppress(KeyError, OSError):
        return getpass.getuser()
    return ""
