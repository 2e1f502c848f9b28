"""One finding of the doctor: what was looked at, how it is, and how to mend it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a thing stands: fine, worth knowing, or in the way of a run."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """What was found about one thing. A remedy is there whenever the level is not ok.

    Attributes:
        area: what it is about, such as `GPU`; findings of one area belong together.
        level: how it stands.
        title: one line.
        detail: what it rests on; may have several lines, may be empty.
        remedy: what to do about it.
    """

    area: str
    level: Level
    title: str
    detail: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.level is not Level.OK and not self.remedy:
            raise ValueError(f"{self.title!r} has no remedy")


def ok(area: str, title: str, detail: str = "") -> Finding:
    """A thing that is as it should be."""
    return Finding(area, Level.OK, title, detail)


def warning(area: str, title: str, remedy: str, detail: str = "") -> Finding:
    """A thing that stops no run, but that a person should know."""
    return Finding(area, Level.WARNING, title, detail, remedy)


def problem(area: str, title: str, remedy: str, detail: str = "") -> Finding:
    """A thing that stops runs, or some of them."""
    return Finding(area, Level.PROBLEM, title, detail, remedy)
