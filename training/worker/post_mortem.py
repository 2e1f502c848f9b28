"""What can be found out about a training process that died without saying why."""

import re
from pathlib import Path

_FATAL = re.compile(
    rb"^F\d{4} |^[\w.]*(Error|Exception|Exit|Interrupt)(: |$)|"
    rb"Check failed|terminate called|what\(\): |Fatal Python error"
)
_TAIL = 256 * 1024


def last_words(stderr: Path) -> str:
    """The last line of a process's standard error that tells of a fatal error; empty where there is none."""
    try:
        with open(stderr, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return ""
    for line in reversed(lines):
        if _FATAL.search(line):
            return line[:500].decode("utf-8", "replace").strip()
    return ""


class MemoryKills:
    """Whether the kernel has killed processes for want of memory since this object was made.

    The control group's own count is used where there is one, else the whole host's.
    """

    def __init__(self) -> None:
        self._sources = [path for path in (_cgroup_events(), Path("/proc/vmstat")) if path and _count(path) is not None]
        self._before = [_count(path) for path in self._sources]

    def happened(self) -> bool:
        """Looks again."""
        return any(_count(path) != before for path, before in zip(self._sources[:1], self._before, strict=False))


def _cgroup_events() -> Path | None:
    group = Path("/proc/self/cgroup")
    for line in group.read_text().splitlines() if group.exists() else []:
        hierarchy, _, path = line.partition("::")
        if hierarchy == "0":
            return Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events"
    return None


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:  # no such file in this kernel, or not ours to read: the next source is asked
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
