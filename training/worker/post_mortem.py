"""What a training process left on standard error, and what can be found out about one that died without a word."""

import re
from pathlib import Path

from training.names import FROM_PTX

_FATAL = re.compile(
    rb"^F\d{4} |^[\w.]*(Error|Exception|Exit|Interrupt)(: |$)|"
    rb"Check failed|terminate called|what\(\): |Fatal Python error"
)
_TELLING = re.compile(
    r"Cannot dlopen|Could not load dynamic library|Could not find cuda|Could not find TensorRT|cuInit"
    r"|Skipping registering GPU|no CUDA-capable device|version mismatch|libcuda|NVML|Ignoring visible gpu"
    rf"|TensorFlow was not built with CUDA kernel binaries|{FROM_PTX}"
)
_PREFIX = re.compile(r"^(?:[IWEF]\d{4} [\d:.]+\s+\d+|\d{4}-\d\d-\d\d [\d:.]+: [IWEF]) [^\]]*\] ")
_TAIL = 256 * 1024


def end_of(path: Path) -> bytes:
    """The end of a file that may be of any size (placement lines run into gigabytes); empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read()
    except FileNotFoundError:
        return b""


def last_words(stderr: Path) -> str:
    """The last line of a process's standard error that tells of a fatal error; empty where there is none."""
    for line in reversed(end_of(stderr).splitlines()):
        if _FATAL.search(line):
            return line[:500].decode("utf-8", "replace").strip()
    return ""


def gpu_reasons(stderr: str) -> list[str]:
    """TensorFlow's lines about GPUs it cannot use or must compile for, without their prefix, each once, in order."""
    lines = (line for line in stderr.splitlines() if _TELLING.search(line))
    return list(dict.fromkeys(_PREFIX.sub("", line).strip() for line in lines))


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
