"""MNIST: 60,000 + 10,000 grey 28x28 images of handwritten digits (LeCun and Cortes, CC BY-SA 3.0)."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from training import catalog
from training.datasets import base
from training.datasets.download import Download, fetch

NAME = "mnist"

_FILE = "mnist.npz"
_SHAPES = {"x_train": (60_000, 28, 28), "y_train": (60_000,), "x_test": (10_000, 28, 28), "y_test": (10_000,)}


def _read(path: Path) -> dict[str, np.ndarray]:
    """The four uint8 arrays of Keras's file, by its names. Raises DataFileError; the zip's checksums are verified."""
    try:
        # Pickles are never read: a file in a cache could carry code.
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in _SHAPES}
    except KeyError as error:
        raise base.DataFileError(path, f"is no mnist.npz ({error.args[0]})") from error
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise base.DataFileError(path, f"is damaged or no .npz file ({error})") from error
    for key, shape in _SHAPES.items():
        if arrays[key].shape != shape or arrays[key].dtype != np.uint8:
            found = f"{arrays[key].dtype}{list(arrays[key].shape)}"
            raise base.DataFileError(path, f"holds {key} as {found}, not uint8{list(shape)}")
    return arrays


DOWNLOAD = Download(
    "",
    # The hash that Keras's own source names (keras/src/datasets/mnist.py).
    {_FILE: "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"},
    _read,
)


def how_to_get() -> str:
    """What a person can do when it is neither here nor downloadable."""
    return f"download {DOWNLOAD.origin}{_FILE} to {base.keras_cache() / _FILE}"


def find() -> str:
    """Keras's file in its cache; empty if it is not there."""
    path = base.keras_cache() / _FILE
    return str(path) if path.is_file() else ""


def load(options: catalog.Options) -> base.Data:
    """Loads it, downloading it first if it is not on this machine.

    Raises:
        DataSetError: bad options, no way to get the file, or a damaged one.
    """
    base.checked_options(NAME, options)
    path = Path(find() or fetch(NAME, DOWNLOAD, how_to_get()) / _FILE)
    arrays = _read(path)
    train, validation = ((arrays[f"x_{part}"][..., None], arrays[f"y_{part}"]) for part in ("train", "test"))
    return base.first_examples(NAME, options, train, validation, str(path))
