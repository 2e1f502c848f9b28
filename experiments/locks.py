"""A lock between processes on one machine: the operating system frees it when its holder dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class LockTimeout(RuntimeError):  # noqa: N818 - reads as what happened, like TimeoutError
    """Another process kept the lock for longer than the caller would wait."""


@contextmanager
def file_lock(path: Path, timeout_s: float = 60.0) -> Iterator[None]:
    """Holds an exclusive lock on a file, which is made if missing and never removed.

    Works between processes and between threads of one process (each call opens the file anew).

    Args:
        path: the lock file; its folder must exist.
        timeout_s: seconds to wait for another holder.

    Raises:
        LockTimeout: the lock was not free in time.
    """
    deadline = time.monotonic() + timeout_s
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LockTimeout(f"{path} was held by another process for {timeout_s:g} s") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
