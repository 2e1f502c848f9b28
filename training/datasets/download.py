"""Downloads a data set into Keras's cache: one process at a time, verified, and visible only when complete."""

import functools
import hashlib
import http.client
import os
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from training.datasets.base import DataSetError, keras_cache

PROBE_SECONDS = 1.5
PROBE_REMEMBERED_SECONDS = 180
_STALLED_SECONDS = 30  # without one byte for so long, a download has failed

KERAS_ORIGIN = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
"""Where Keras's own data sets come from (keras/src/datasets)."""


@dataclass(frozen=True)
class Download:
    """What to fetch: file name -> SHA-256 (empty where Keras names none), from `origin` into `folder` of the cache.

    `verify(path)` raises DataSetError if a file is not what its name says.
    """

    folder: str
    files: Mapping[str, str]
    verify: Callable[[Path], object]
    origin: str = KERAS_ORIGIN

    def paths(self) -> list[Path]:
        """Where the files are, or will be."""
        return [keras_cache() / self.folder / name for name in self.files]


def fetch(name: str, download: Download, how_to_get: str) -> Path:
    """Makes sure that every file of a data set is in Keras's cache, downloading what is missing.

    Any number of processes and threads may ask at once: one downloads, the others wait and find the files there.

    Args:
        name: the data set's name, for messages.
        download: its files.
        how_to_get: what a person can do instead, for messages.

    Returns:
        The folder they are in.

    Raises:
        DataSetError: a file cannot be downloaded or is not what it should be. Nothing half-done is left behind.
    """
    folder = keras_cache() / download.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{name}.lock"):
            for file, sha256 in download.files.items():
                if not (folder / file).exists():
                    _fetch_file(download, file, sha256, folder)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataSetError(
            f"{name} is not on this machine and could not be downloaded from {download.origin} into {folder} "
            f"({reason}): {how_to_get}"
        ) from error
    return folder


def _fetch_file(download: Download, file: str, sha256: str, folder: Path) -> None:
    temporary = folder / f".{file}.partial"  # one writer at a time has the lock; what a killed one left is overwritten
    try:
        with urllib.request.urlopen(download.origin + file, timeout=_STALLED_SECONDS) as answer:
            with temporary.open("wb") as out:
                shutil.copyfileobj(answer, out)
            length = answer.headers.get("Content-Length")
        size = temporary.stat().st_size
        if length is not None and size != int(length):
            raise DataSetError(f"{download.origin}{file} ended after {size} of {length} bytes: start again")
        found = hashlib.sha256(temporary.read_bytes()).hexdigest()
        if sha256 and found != sha256:
            raise DataSetError(f"{download.origin}{file} is not the file it should be (its SHA-256 is {found})")
        try:
            download.verify(temporary)
        except DataSetError as error:
            raise DataSetError(f"{download.origin}{file} is not the file it should be ({error})") from error
        os.replace(temporary, folder / file)
    finally:
        temporary.unlink(missing_ok=True)


def reachable(url: str) -> bool:
    """Whether a server answers, asked for at most `PROBE_SECONDS` and remembered for `PROBE_REMEMBERED_SECONDS`."""
    return _reachable(url, int(time.monotonic() // PROBE_REMEMBERED_SECONDS))


@functools.lru_cache(maxsize=16)
def _reachable(url: str, _period: int) -> bool:
    answered = threading.Event()

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=PROBE_SECONDS):
                answered.set()
        except urllib.error.HTTPError as error:
            # A server that refuses this one address is there all the same; a proxy that cannot reach it is not.
            if error.code < 500 and error.code not in (403, 407):
                answered.set()
        except (OSError, http.client.HTTPException):
            return  # no answer is the answer

    # A thread, because looking up a host name ignores the time-out.
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(PROBE_SECONDS)
