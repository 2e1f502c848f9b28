"""What a run leaves for its record: logs, placement table, environment, laid out as its artifacts will be.

Made after the training processes have ended, so that it costs the training nothing.
"""

import logging
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path

from training import catalog
from training.names import FROM_PTX, Artifact
from training.run_folder import RunFolder, WorkerFolder
from training.worker.post_mortem import gpu_reasons

log = logging.getLogger(__name__)

LARGEST_LOG = 10_000_000
"""Bytes of one output stream kept in the record: the first half and the last. The run's folder has all of it."""


def stage(folder: RunFolder) -> list[str]:
    """Fills the staging folder. May be called again: it makes the same files.

    A part that cannot be made is left out and named, since a run must reach its end whatever it printed.

    Returns:
        Notices for the reader of the run.
    """
    spec = folder.spec()
    workers = [folder.worker(index) for index in range(spec.workers)]
    notices: list[str] = []
    parts: list[tuple[str, typing.Callable[[], str]]] = [
        ("environment", lambda: _stage_environment(folder)),
        *((f"log of worker {i}", _log_stager(folder, i, files)) for i, files in enumerate(workers)),
    ]
    if spec.log_device_placement:
        layers = catalog.WORKLOADS[spec.workload].layers
        parts.append(("placement table", lambda: _stage_placement(folder, workers, layers)))
    for what, make in parts:
        try:
            notice = make()
        except Exception as error:
            log.exception("the %s could not be made", what)
            notice = f"the {what} could not be made: {type(error).__name__}: {error}"
        if notice:
            notices.append(notice)
    return notices


def _stage_environment(folder: RunFolder) -> str:
    if folder.environment.exists():  # a run that ended early has not described it
        folder.staging.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder.environment, folder.staging / Artifact.ENVIRONMENT)
    return ""


def _stage_placement(folder: RunFolder, workers: list[WorkerFolder], layers: tuple[str, ...]) -> str:
    from training.worker import placement

    logs = [files.stderr for files in workers if files.stderr.exists()]
    if not logs:
        return ""
    return placement.write(logs, folder.staging / Artifact.PLACEMENT_DIR, layers).notice


def _log_stager(folder: RunFolder, index: int, files: WorkerFolder) -> typing.Callable[[], str]:
    def make() -> str:
        target = folder.staging / Artifact.LOG_DIR / f"worker-{index}.log"
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}")
        left_out = 0
        notices: list[str] = []
        with open(unfinished, "wb") as output:
            # The epochs are on stdout: last, so that the end of the log is the end of the training.
            for stream in (files.stderr, files.stdout):
                if stream.exists():
                    kept = _Kept(output.write)
                    for line in without_placement(stream):
                        kept.add(line)
                        if not notices and FROM_PTX.encode() in line:
                            notices = gpu_reasons(line.decode("utf-8", "replace"))
                    left_out += kept.finish()
        unfinished.replace(target)
        if left_out:
            notices.append(f"{left_out:,} bytes of the log of worker {index} are only in the run's folder")
        return "\n".join(notices)

    return make


def without_placement(path: Path) -> Iterator[bytes]:
    """The lines of a process's output that are not placement lines, each with its line feed."""
    from training.worker.placement import is_placement_line

    with open(path, "rb") as file:
        # A line without an end (a progress bar that only returns the carriage) must not fill the memory.
        while line := file.readline(1_000_000):
            if not is_placement_line(line):
                yield line


class _Kept:
    """Passes on the first half of `LARGEST_LOG` bytes at once and the last half at the end."""

    def __init__(self, write: typing.Callable[[bytes], object]):
        self._write = write
        self._written = 0
        self._tail: list[bytes] = []
        self._tail_size = 0
        self._left_out = 0

    def add(self, line: bytes) -> None:
        if self._written + len(line) <= LARGEST_LOG // 2 and not self._tail:
            self._write(line)
            self._written += len(line)
            return
        self._tail.append(line)
        self._tail_size += len(line)
        if self._tail_size > LARGEST_LOG:
            self._drop()

    def finish(self) -> int:
        """Writes the rest. Returns how many bytes were left out."""
        if self._tail_size > LARGEST_LOG // 2:
            self._drop()
        if self._left_out:
            self._write(f"[... {self._left_out:,} bytes left out ...]\n".encode())
        for line in self._tail:
            self._write(line)
        return self._left_out

    def _drop(self) -> None:
        """Forgets the oldest lines beyond half of the limit; called rarely, so it may copy the list."""
        first = 0
        while self._tail_size > LARGEST_LOG // 2:
            self._tail_size -= len(self._tail[first])
            self._left_out += len(self._tail[first])
            first += 1
        self._tail = self._tail[first:]
