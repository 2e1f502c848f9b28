"""Files of data sets, full size with made-up content, so that the tests need none to be installed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.dataset_files import Server, images, labels, write_idx
from training.datasets import fashion_mnist


@pytest.fixture(scope="session")
def idx_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the four files of Fashion-MNIST, full size, made-up content."""
    folder = tmp_path_factory.mktemp("idx")
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images(count))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels(count))
    return folder


@pytest.fixture(scope="session")
def npz_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the arrays of Keras's mnist.npz, full size, made-up content."""
    path = tmp_path_factory.mktemp("npz") / "mnist.npz"
    np.savez_compressed(
        path, x_train=images(60_000), y_train=labels(60_000), x_test=images(10_000), y_test=labels(10_000)
    )
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Keras cache of this test's own, and no Debian package beside it; returns its `datasets` folder."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "no-such-package")
    folder = tmp_path / "keras" / "datasets"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A running server and the folder it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = Server(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server, folder
    server.shutdown()
    thread.join()
    server.server_close()
