"""What the controller keeps of a run under way, and of what it has said."""

import fcntl
import logging
import os
import socket
import time
import typing
from concurrent.futures import Future
from dataclasses import dataclass

from experiments.capacity import Request
from training.names import Tag
from training.run_folder import RunFolder

if typing.TYPE_CHECKING:
    from mlflow.entities import Run


@dataclass
class LiveRun:
    """A run that was started. Times are of the monotonic clock, None while it has not come to that.

    Attributes:
        run_id: the MLflow run.
        handle: by which the engine knows its supervisor.
        folder: the run's folder.
        request: what it holds of the machines.
        gpu_ids: physical GPUs it holds; empty where the engine chooses.
        handle_saved: whether the handle is in MLflow.
        group: the experiment it is part of; empty for a run of its own.
        gone_since: when the engine was first seen not to have the supervisor any more.
        ended_since: when the run was first seen to have ended in MLflow.
        stop_asked: when the engine was asked to stop it.
        replay: its end being recorded here, because its supervisor could not.
        replay_again_at: not before then.
    """

    run_id: str
    handle: str
    folder: RunFolder
    request: Request
    gpu_ids: tuple[int, ...]
    handle_saved: bool = True
    group: str = ""
    gone_since: float | None = None
    ended_since: float | None = None
    stop_asked: float | None = None
    replay: "Future[None] | None" = None
    replay_again_at: float = 0.0


def has_supervisor(folder: RunFolder) -> bool:
    """Whether a living process records the run: a supervisor does from its start to its end, on any engine."""
    try:
        descriptor = os.open(folder.recorder_lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


SILENT_S = 600.0
"""A run of another host whose files nobody has written to for so long is given up: a supervisor does every few
seconds, and a container has another host's name each time it starts."""


def is_abandoned(run: "Run", folder: RunFolder) -> bool:
    """Whether nobody carries out a run that has not ended and that no engine has, as far as its folder, if it is here,
    tells."""
    if not folder.path.exists() or has_supervisor(folder):
        return False
    if run.data.tags.get(Tag.HOST, socket.gethostname()) == socket.gethostname():
        return True
    # A lock of another host may not be seen here.
    written = (file.stat().st_mtime for file in folder.path.rglob("*") if file.is_file() and not file.is_symlink())
    return time.time() - max(written, default=0.0) > SILENT_S


class Said:
    """Says each trouble once, and once more when it is over, instead of at every pass."""

    def __init__(self, log: logging.Logger):
        self._log = log
        self._troubles: dict[str, str] = {}
        self._once: set[tuple[str, str]] = set()

    def trouble(self, key: str, text: str, exc_info: bool = False) -> None:
        """A warning, unless the trouble with `key` is known already, in whatever words."""
        if key not in self._troubles:
            self._log.warning("%s; trying again", text, exc_info=exc_info)
        self._troubles[key] = text

    def recovered(self, key: str) -> None:
        """The trouble with `key` is over, if there was one."""
        if key in self._troubles:
            self._log.info("works again, after: %s", self._troubles.pop(key))

    def once(self, key: str, text: str) -> None:
        """Says this text about `key` one time only."""
        if (key, text) not in self._once:
            self._once.add((key, text))
            self._log.info("%s", text)


def line(error: BaseException) -> str:
    """An error as one line of bounded length."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
