"""Ctrl-C, SIGTERM and a terminal that is closed: all mean the same, and none may tear apart what belongs together."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ends_by_signal() -> Iterator[None]:
    """Raises KeyboardInterrupt at SIGTERM too, which is what a batch system sends, and at the end of the terminal.

    For the main thread. Where SIGHUP is ignored (nohup) it stays so.
    """

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
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_the_terminal()
        handler(number, frame)

    heard = [each for each in _NUMBERS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    try:
        before = {number: signal.signal(number, handle) for number in heard}
    except ValueError:  # not the main thread: signals are somebody else's business
        yield
        return
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _leave_the_terminal() -> None:
    """Writing to a terminal that is gone fails, in the middle of what is still to be done."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)
