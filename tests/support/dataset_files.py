"""Made-up files of data sets, right in shape and format, and a server that hands them out."""

import gzip
import http.server
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np


def write_idx(path: Path, array: np.ndarray) -> None:
    """Writes a gzip-compressed IDX file of unsigned bytes."""
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), compresslevel=1))


def images(count: int) -> np.ndarray:
    """Black images [count, 28, 28] whose first pixel is their number modulo 251."""
    made = np.zeros((count, 28, 28), np.uint8)
    made[:, 0, 0] = np.arange(count) % 251
    return made


def labels(count: int) -> np.ndarray:
    """Class numbers 0..9 in turn."""
    return (np.arange(count) % 10).astype(np.uint8)


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder on a free port, counts the downloads of each file, and can be slow or end answers early."""

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        self.downloads: Counter[str] = Counter()
        self.seconds = 0.0
        self.drop = 0

    @property
    def origin(self) -> str:
        """Its address, with a slash at the end."""
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.downloads[self.path.lstrip("/")] += 1
        time.sleep(self.server.seconds)
        super().do_GET()

    def copyfile(self, source, outputfile) -> None:
        data = source.read()
        outputfile.write(data[: len(data) - self.server.drop])

    def log_message(self, *args: object) -> None:
        """Says nothing on stderr."""
