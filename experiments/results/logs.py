"""A run's log: from its folder while it is on this machine, otherwise from its artifacts. Always capped."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.queue import get_run
from experiments.results.artifacts import artifact
from experiments.settings import Settings
from training.names import Artifact, RunStatus
from training.run_folder import RunFolder
from training.worker.placement import is_placement_line

MOST_BYTES = 4 * 2**20  # read from the end of a file: placement lines can fill most of a live stderr
LONGEST_LINE = 2_000  # characters
_LEFT_OUT = "... earlier lines are left out"


def log_lines(settings: Settings, run_id: str, worker: int = 0, last: int = 300) -> list[str]:
    """The end of what a training process printed, placement lines left out.

    Args:
        settings: where runs are.
        run_id: the run.
        worker: which training process, from 0.
        last: the most lines to give, without the one that says that some are left out.

    Returns:
        Lines without line ends, long ones cut. Empty while there is nothing.

    Raises:
        UnknownRun: there is no such run.
    """
    run = get_run(settings, run_id)
    if worker < 0:
        return []
    if RunStatus(run.info.status).is_terminal:
        with artifact(settings, run, f"{Artifact.LOG_DIR}/worker-{worker}.log") as file:
            if file is not None:
                return _tail([file], last)
    return _tail(_live_files(settings, run_id, worker), last)


def follow(
    settings: Settings, run_id: str, worker: int = 0, last: int = 300, sleep: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """The log's end, then every further line until the run has ended.

    Args:
        settings: where runs are.
        run_id: the run.
        worker: which training process, from 0.
        last: lines to begin with.
        sleep: waits between two looks, in seconds.

    Yields:
        Lines without line ends. A run on another machine yields its log once it has ended.

    Raises:
        UnknownRun: there is no such run, or it was deleted meanwhile.
    """
    if RunStatus(get_run(settings, run_id).info.status).is_terminal:
        yield from log_lines(settings, run_id, worker, last)
        return
    readers = [_Follower(file) for file in _candidates(settings, run_id, worker)]
    earlier = [line for reader in readers for line in reader.new_lines()]
    yield from earlier[max(0, len(earlier) - last) :]
    ended = False
    while not ended:
        # Asked before reading, so that what is written before the end is read before leaving.
        ended = RunStatus(get_run(settings, run_id).info.status).is_terminal
        for reader in readers:
            yield from reader.remaining_lines() if ended else reader.new_lines()
        if not ended:
            sleep(0.5)
    if not any(reader.path.exists() for reader in readers):
        yield from log_lines(settings, run_id, worker, last)


class _Follower:
    """Complete new lines of a file that grows."""

    def __init__(self, path: Path):
        self.path = path
        self._offset: int | None = None
        self._rest = b""

    def new_lines(self) -> list[str]:
        content = _read(self.path, self._offset)
        if content is None:
            return []
        begins_inside = self._offset is None and content[0] > len(content[1])
        self._offset, data = content
        *complete, self._rest = (self._rest + data).split(b"\n")
        return _shown(complete[1:] if begins_inside else complete)

    def remaining_lines(self) -> Iterator[str]:
        """All that is left, the last line also without its end, as of a process that aborts. One reading is limited."""
        before: int | None = -1
        while self._offset != before:
            before = self._offset
            yield from self.new_lines()
        rest, self._rest = self._rest, b""
        yield from _shown([rest] if rest else [])


def _candidates(settings: Settings, run_id: str, worker: int) -> list[Path]:
    files = RunFolder.of(settings.runs_folder, run_id).worker(worker)
    return [files.stderr, files.stdout]


def _live_files(settings: Settings, run_id: str, worker: int) -> list[Path]:
    return [file for file in _candidates(settings, run_id, worker) if file.exists()]


def _tail(files: list[Path], last: int) -> list[str]:
    lines: list[str] = []
    left_out = False
    for file in files:
        content = _read(file, None)
        if content is None:
            continue
        end, data = content
        pieces = data.split(b"\n")
        if len(data) < end:
            left_out = True
            pieces = pieces[1:]  # its beginning is not there
        if pieces and not pieces[-1]:
            pieces.pop()
        lines += _shown(pieces)
    if len(lines) > last:
        left_out = True
        lines = lines[len(lines) - last :] if last > 0 else []
    return [_LEFT_OUT, *lines] if left_out else lines


def _read(path: Path, offset: int | None) -> tuple[int, bytes] | None:
    """What a file holds from an offset (its last MOST_BYTES if None), and where it ends; None when it is no file.

    A link is not followed: a training process writes plain files, and a link could lead anywhere.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        start = max(0, end - MOST_BYTES) if offset is None else min(offset, end)
        file.seek(start)
        # Not beyond the end that was seen: the file may have grown since.
        data = file.read(min(MOST_BYTES, end - start))
    return start + len(data), data


def _shown(pieces: list[bytes]) -> list[str]:
    return [_cut(piece) for piece in pieces if not is_placement_line(piece)]


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r")


def _cut(line: bytes) -> str:
    text = _text(line)
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + "..."
