"""The journal: what a training process reports, as JSON lines in a file of its own.

A file cannot be away, so training never waits for a tracking server. One process writes a file; any number read it.
Every line is `{"type": ..., "t": unix seconds, ...}`; NaN and infinities are written as Python's json writes them.
"""

import json
import os
import time
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path

from training.names import Phase, RunStatus

Event = dict[str, typing.Any]

_READ_AT_MOST = 8 * 2**20
_LAST_TIME = 2.0**40  # seconds: what follows has no place in a database's milliseconds

_CONTENT: dict[str, dict[str, type]] = {
    "phase": {"phase": str},
    "metrics": {"values": dict, "step": int},
    "series": {"name": str, "points": list},
    "tags": {"values": dict},
    "params": {"values": dict},
    "dataset": {"facts": dict},
    "joined": {},
    "end": {"status": str, "reason": str},
}


class Journal:
    """Appends events to one file; each is there for a reader when the call returns.

    Args:
        path: the file; its folder is made when missing.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if (size := os.fstat(self._descriptor).st_size) and not _ends_a_line(path, size):
            os.write(self._descriptor, b"\n")  # an earlier writer died inside a line: keep ours apart from it

    def phase(self, phase: Phase) -> None:
        """What the run is doing from now on."""
        self._write("phase", phase=str(phase))

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Values of metrics (names.Metric) at one step."""
        self._write("metrics", values={name: float(value) for name, value in values.items()}, step=int(step))

    def series(self, name: str, points: Iterable[tuple[int, float, float]]) -> None:
        """Many points of one metric: (step, value, unix seconds) each."""
        self._write("series", name=name, points=[[int(step), float(value), float(at)] for step, value, at in points])

    def tags(self, values: Mapping[str, str]) -> None:
        """Tags (names.Tag). A notice is added to the earlier ones, any other tag replaces its earlier value."""
        self._write("tags", values={name: str(value) for name, value in values.items()})

    def params(self, values: Mapping[str, object]) -> None:
        """Params; each can be given once."""
        self._write("params", values={name: str(value) for name, value in values.items()})

    def dataset(self, facts: Mapping[str, typing.Any]) -> None:
        """The data set in use: name, digest, source, examples, validation_examples, shape, classes."""
        self._write("dataset", facts={**facts, "shape": list(facts.get("shape", ()))})

    def joined(self) -> None:
        """This worker is part of the run: its strategy is set up."""
        self._write("joined")

    def end(self, status: RunStatus, reason: str = "") -> None:
        """How this process ended, in its own words."""
        self._write("end", status=str(status), reason=reason)

    def close(self) -> None:
        """Closes the file; the journal cannot be used afterwards."""
        os.close(self._descriptor)

    def _write(self, kind: str, **content: typing.Any) -> None:
        line = (json.dumps({"type": kind, "t": time.time(), **content}, separators=(",", ":")) + "\n").encode("ascii")
        # One write: a kill between two would leave half an event.
        while line:
            line = line[os.write(self._descriptor, line) :]


class JournalReader:
    """Follows a journal that may not exist yet and whose last line may be half-written.

    Args:
        path: the journal.
        offset: where to start, in bytes: an earlier reader's `offset`.
    """

    def __init__(self, path: Path, offset: int = 0):
        self.path = path
        self.offset = offset

    def new_events(self) -> list[Event]:
        """Whole events since the last call, oldest first; at most about 8 MiB of them, so call until there are none.

        A line that is no event (a full disk cut it, say) comes back as `{"type": "unreadable", "t": 0.0, "line": ...}`.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read(_READ_AT_MOST)
                while data and b"\n" not in data and (more := file.read(_READ_AT_MOST)):
                    data += more
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [_event(line) for line in whole.splitlines() if line]


def _event(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if _is_event(event):
        return typing.cast(Event, event)
    return {"type": "unreadable", "t": 0.0, "line": line[:200].decode("utf-8", "replace")}


def _is_event(event: object) -> bool:
    if not isinstance(event, dict) or not _is_time(event.get("t")) or event.get("type") not in _CONTENT:
        return False
    kind = event["type"]
    if not all(isinstance(event.get(name), wanted) for name, wanted in _CONTENT[kind].items()):
        return False
    if kind == "end":
        return event["status"] in [str(status) for status in RunStatus]
    if kind == "metrics":
        return _is_step(event["step"]) and all(map(_is_number, event["values"].values()))
    if kind == "series":
        return all(map(_is_point, event["points"]))
    if kind in ("tags", "params"):
        return all(isinstance(value, str) for value in event["values"].values())
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, float) and 0.0 <= value < _LAST_TIME


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_point(point: object) -> bool:
    if not isinstance(point, list) or len(point) != 3:
        return False
    step, value, at = point
    return _is_step(step) and _is_number(value) and _is_time(at)


def _ends_a_line(path: Path, size: int) -> bool:
    with open(path, "rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"
