"""Captures and reads TensorFlow's device placement log. Imports no TensorFlow.

TensorFlow writes it from C++ to file descriptor 2, so `redirect_stderr` must come before TensorFlow is imported.
The log is read after the run has ended, as a stream: what is kept are counts, never lines.
"""

import contextlib
import functools
import gzip
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.names import PLACEMENT_COLUMNS, Artifact
from training.worker import placement_names

if typing.TYPE_CHECKING:
    import pandas as pd

GRAPH = "graph"
EAGER = "eager"
OTHER = "(other)"
"""Op type and device of lines counted when even the kinds of op had become too many."""

CHUNK = 1 << 20
LONGEST_LINE = 4096
"""Bytes. TensorFlow's lines have 100 to 400; a longer one is counted as unparsed and not kept."""
MOST_KEPT = 64 << 20
"""Bytes, about, that the distinct lines may take; further names are folded together by op type and device."""
MOST_FOLDED = 10_000

_LINE = re.compile(
    rb"(?:(?P<name>[^\s:]+): \((?P<type>[A-Za-z_][\w.>\-]*)\): |Executing op (?P<eager>[^\s:]+) in device )"
    rb"(?P<device>/job:[^/\s]{1,64}/replica:\d{1,9}/task:\d{1,9}/device:[A-Za-z0-9_]{1,64}:\d{1,9})\s*"
)
# The two places in TensorFlow that print placements: such a line belongs here even when it is damaged.
_PRINTED_BY = re.compile(rb"(?:placer\.cc:\d+\] |execute\.cc:\d+\] Executing op )")


_Op = tuple[str, str, str, str, str]
"""One distinct line: name, op type, task (the process, such as `localhost:0` or `worker:1`), device, source. A plain
tuple, because there may be many thousands."""


def is_placement_line(line: str | bytes) -> bool:
    """Whether a line of a training process's output is from the placement log, with or without its prefix."""
    raw = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
    # Cheap refusal first: most lines of an ordinary log have neither mark.
    if b": (" not in raw and b"Executing op " not in raw and b"placer.cc:" not in raw:
        return False
    return _LINE.fullmatch(_payload(raw)) is not None or _PRINTED_BY.search(raw) is not None


def _payload(line: bytes) -> bytes:
    """What follows the logger's prefix, `I0000 00:00:1796001267.298453 9889 execute.cc:1775] `."""
    return line.rpartition(b"] ")[2]


def _parse(payload: bytes) -> _Op:
    """Reads what `_LINE` has matched."""
    text = payload.decode("utf-8", "replace").rstrip()
    if text.startswith("Executing op "):
        op_type, _, device = text[len("Executing op ") :].partition(" in device ")
        return ("", op_type, *_short(device), EAGER)
    name, _, rest = text.partition(": (")
    op_type, _, device = rest.partition("): ")
    return (name, op_type, *_short(device), GRAPH)


@functools.lru_cache(maxsize=4096)
def _short(device: str) -> tuple[str, str]:
    """`/job:worker/replica:0/task:1/device:CPU:0` -> `("worker:1", "CPU:0")`."""
    _, job, _, task, kind = device.split("/")
    return f"{job.partition(':')[2]}:{task.partition(':')[2]}", kind.partition(":")[2]


class PlacementParser:
    """Counts the distinct placements of a log, in memory that does not grow with its length.

    Attributes:
        lines: placement lines seen, damaged ones included.
        unparsed: damaged ones among them: printed by TensorFlow's placer, but of neither known form.
        folded: lines counted without their names, because the distinct names had become too many.

    Args:
        worker: the process's index in a run of several; its lines about `localhost` are then shown as that worker's.
    """

    def __init__(self, worker: int | None = None):
        self.worker = worker
        self.lines = 0
        self.unparsed = 0
        self.folded = 0
        self._counts: dict[bytes, int] = {}
        self._kept = 0
        self._folded: dict[_Op, int] = {}

    def feed(self, lines: Iterable[str | bytes]) -> None:
        """Counts lines; those that are no placement lines are passed over."""
        for line in lines:
            self._count(line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass"))

    def feed_file(self, file: typing.BinaryIO, keep: Callable[[bytes], object] | None = None) -> None:
        """Counts the lines of a binary file, from where it stands to its end.

        Args:
            file: opened in binary mode.
            keep: called with the placement lines, joined, each with its line feed.
        """
        for lines in _lines(file):
            placements = [line for line in lines if self._count(line)]
            if keep and placements:
                keep(b"\n".join(placements) + b"\n")

    def _count(self, line: bytes) -> bool:
        payload = _payload(line)
        seen = self._counts.get(payload)
        if seen is not None:
            self._counts[payload] = seen + 1
            self.lines += 1
            return True
        if len(line) > LONGEST_LINE or not _LINE.fullmatch(payload):
            if not _PRINTED_BY.search(line[:LONGEST_LINE]):
                return False
            self.unparsed += 1
        elif self._kept < MOST_KEPT:
            self._kept += len(payload) + 200  # the dictionary's entry and the object around the bytes
            self._counts[payload] = 1
        else:
            self._fold(_parse(payload))
        self.lines += 1
        return True

    def _fold(self, op: _Op) -> None:
        self.folded += 1
        _, op_type, task, device, source = op
        key = ("", op_type, task, device, source)
        if key not in self._folded and len(self._folded) >= MOST_FOLDED:
            key = ("", OTHER, "localhost:0", OTHER, source)
        self._folded[key] = self._folded.get(key, 0) + 1

    def ops(self) -> Iterator[tuple[_Op, int]]:
        """Every distinct line, read, and how often it was seen."""
        for payload, count in self._counts.items():
            yield _parse(payload), count
        yield from self._folded.items()

    def table(self, layers: Sequence[str] = ()) -> "pd.DataFrame":
        """The counts as a table: see `table`."""
        return _table([self], layers)


def _lines(file: typing.BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file in lists, never holding more than a chunk and one line; an overlong line comes shortened."""
    tail = b""
    while chunk := file.read(CHUNK):
        lines = (tail + chunk).split(b"\n")
        tail = lines.pop()
        if len(tail) > 2 * LONGEST_LINE:
            # Its head decides whose line it is, and it stays too long to be taken for a whole one.
            tail = tail[: LONGEST_LINE + 1]
        yield lines
    if tail:
        yield [tail]


def table(log: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], layers: Sequence[str] = ()) -> "pd.DataFrame":
    """Reads the placement log of a run.

    Args:
        log: what a training process wrote to file descriptor 2, or a list of these, worker 0 first.
        layers: the model's layer names in the order they are called, for the column `layer`.

    Returns:
        A row per distinct op, device and source, most frequent first, else as in the log; columns
        `names.PLACEMENT_COLUMNS`, also when there is nothing to count. `device` is `CPU:0`; with several processes, or
        one that is not the first, `worker:1/CPU:0`. An eager line names no op. `attrs` holds `lines`, `unparsed` and
        `folded`.

    Raises:
        OSError: a log cannot be read.
    """
    return _table(list(_parsers(_paths(log))), layers)


def _paths(log: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    return [Path(log)] if isinstance(log, str | os.PathLike) else [Path(path) for path in log]


def _parsers(paths: list[Path], keep: Callable[[bytes], object] | None = None) -> Iterator[PlacementParser]:
    for index, path in enumerate(paths):
        parser = PlacementParser(worker=index if len(paths) > 1 else None)
        with path.open("rb", buffering=0) as file:
            parser.feed_file(typing.cast(typing.BinaryIO, file), keep)
        yield parser


def _table(parsers: list[PlacementParser], layers: Sequence[str]) -> "pd.DataFrame":
    # Here and not above: a training process imports this module before it does anything else, and needs no pandas.
    import pandas as pd

    logs = [(parser.worker, list(parser.ops())) for parser in parsers]
    show = _device_names({op[2] for _, ops in logs for op, _ in ops}, len(parsers))
    totals: dict[tuple[str, str, str, str], int] = {}
    for worker, ops in logs:
        for (name, op_type, task, device, source), count in ops:
            key = (name, op_type, show(worker, task, device), source)
            totals[key] = totals.get(key, 0) + count
    keys = sorted(totals, key=totals.__getitem__, reverse=True)
    names, op_types, devices, sources = zip(*keys, strict=True) if keys else ((), (), (), ())
    roles, own_layers = placement_names.roles_and_layers(names, op_types, layers)
    counts = [totals[key] for key in keys]
    columns = dict(zip(PLACEMENT_COLUMNS, (names, op_types, devices, sources, roles, own_layers, counts), strict=True))
    frame = pd.DataFrame(
        {name: pd.Series(values, dtype="int64" if name == "count" else "str") for name, values in columns.items()}
    )
    frame.attrs = {what: sum(getattr(parser, what) for parser in parsers) for what in ("lines", "unparsed", "folded")}
    return frame


def _device_names(tasks: set[str], processes: int) -> Callable[[int | None, str, str], str]:
    """How a device is shown: short in a run of one process, with its worker in a run of several.

    Args:
        tasks: all that the logs name.
        processes: how many logs there are.
    """
    cluster = {task for task in tasks if not task.startswith("localhost:")}
    alone = processes == 1 and len(cluster) <= 1 and all(task.endswith(":0") for task in cluster)
    # Before the cluster is up a worker calls itself localhost: a log that knows one task only is that task's.
    own = next(iter(cluster)) if len(cluster) == 1 else ""

    @functools.cache
    def show(worker: int | None, task: str, device: str) -> str:
        if alone or device == OTHER:
            return device
        if task.startswith("localhost:"):
            task = f"worker:{worker}" if worker is not None else own
        return f"{task}/{device}" if task else device

    return show


@dataclass(frozen=True)
class Written:
    """What `write` made of a log: two files, and how many lines it counted, could not read, or counted unnamed."""

    table: Path
    log: Path
    lines: int
    unparsed: int
    folded: int

    @property
    def notice(self) -> str:
        """What a reader of the table should know; empty when every line is in it as it was."""
        parts = []
        if self.unparsed:
            parts.append(f"{self.unparsed:,} of {self.lines:,} placement lines could not be read")
        if self.folded:
            parts.append(f"{self.folded:,} of {self.lines:,} placement lines are counted without op names")
        return "; ".join(parts)


def write(
    log: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    layers: Sequence[str] = (),
) -> Written:
    """Writes placement.parquet and placement.log.gz (the placement lines only), reading each log once.

    Args:
        log: as for `table`.
        folder: where to; made if it is not there.
        layers: as for `table`.

    Raises:
        OSError: a log cannot be read, or the folder not written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _replacing(folder / Path(Artifact.PLACEMENT_LOG).name) as unfinished, gzip.open(unfinished, "wb", 3) as raw:
        parsers = list(_parsers(_paths(log), raw.write))
    with _replacing(folder / Path(Artifact.PLACEMENT_TABLE).name) as unfinished:
        frame = _table(parsers, layers)
        frame.to_parquet(unfinished, index=False)
    return Written(
        folder / Path(Artifact.PLACEMENT_TABLE).name,
        folder / Path(Artifact.PLACEMENT_LOG).name,
        frame.attrs["lines"],
        frame.attrs["unparsed"],
        frame.attrs["folded"],
    )


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when all went well, so that nobody reads half a file."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def redirect_stderr(path: str | os.PathLike[str]) -> None:
    """Sends file descriptor 2 of this process, and of what it starts, to a file. Call it before TensorFlow is imported.

    `sys.stderr` writes there too. TensorFlow's log level is set to 0: at any higher level the placements, and the
    reason why a GPU is not seen, are not printed (a file and no pipe, which could fill up and block the training).
    """
    sys.stderr.flush()
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(target, 2)
    os.close(target)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
