"""Ctrl-C and SIGTERM: both mean the same, and neither may tear apart what must happen as a whole."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def ends_by_signal() -> Iterator[None]:
    """Raises KeyboardInterrupt at SIGTERM too, which is what a batch system sends. For the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Puts KeyboardInterrupt off to the end of the block: a run that was submitted must not be lost sight of."""
    came: list[int] = []
    with _handled_by(lambda number, _frame: came.append(number)):
        yield
    if came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _handled_by(handler: "signal._HANDLER") -> Iterator[None]:
    try:
        before = {number: signal.signal(number, handler) for number in _NUMBERS}
    except ValueError:  # not the main thread: signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
