"""Digits: 1,797 real handwritten digits of 8x8 pixels (UCI, in scikit-learn), brought to MNIST's 28x28."""

import importlib.util
import zlib
from pathlib import Path

import numpy as np

from training import catalog
from training.datasets import base

NAME = "digits"
DOWNLOAD = None

_SMALL, _LARGE, _WHITE = 8, 28, 16
_VALIDATION = 360
_SEED = 0


def how_to_get() -> str:
    """What a person can do when it is not here."""
    return "pip install scikit-learn"


def find() -> str:
    """scikit-learn's file of the digits; empty if scikit-learn is not installed."""
    # Looked up and read without importing scikit-learn, which takes seconds.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        return ""
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    return str(path) if path.is_file() else ""


def load(options: catalog.Options) -> base.Data:
    """Loads it: 1,437 for training and 360 for validation, each class in proportion, always the same ones.

    Raises:
        DataSetError: bad options, scikit-learn is not installed, or its file is damaged.
    """
    base.checked_options(NAME, options)
    path = find()
    if not path:
        raise base.DataSetError(f"{NAME} is not on this machine: {how_to_get()}")
    table = _read(Path(path))
    images, labels = enlarge(table[:, :-1].reshape(-1, _SMALL, _SMALL)), table[:, -1].astype(np.int32)
    train, validation = split(labels, _VALIDATION)
    return base.first_examples(
        NAME, options, (images[train], labels[train]), (images[validation], labels[validation]), path
    )


def enlarge(images: np.ndarray) -> np.ndarray:
    """Bilinear interpolation from 8x8 to 28x28, pixel centres aligned, white 16 -> 255.

    Whole numbers throughout (the weights are multiples of 1/14), so that every machine gets the same bytes.

    Args:
        images: whole numbers 0..16, [n, 8, 8].

    Returns:
        uint8 [n, 28, 28, 1].
    """
    # Centre of target pixel i in the source: (i + 1/2) * 8/28 - 1/2 = (4i - 5) / 14.
    position = 4 * np.arange(_LARGE) - 5
    low, part = position // 14, position % 14
    weights = np.zeros((_LARGE, _SMALL), np.int64)
    rows = np.arange(_LARGE)
    np.add.at(weights, (rows, np.clip(low, 0, _SMALL - 1)), 14 - part)
    np.add.at(weights, (rows, np.clip(low + 1, 0, _SMALL - 1)), part)
    large = weights @ images.astype(np.int64) @ weights.T
    full = 14 * 14 * _WHITE
    return ((large * 255 + full // 2) // full).astype(np.uint8)[..., None]


def split(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and the validation examples, shuffled with a fixed seed.

    Args:
        labels: [n] class numbers.
        count: validation examples; each class gives its share, by largest remainder.
    """
    generator = np.random.RandomState(_SEED)  # NumPy promises that its streams never change; Generator's may
    sizes = np.bincount(labels)
    shares = sizes * count // len(labels)
    remainders = sizes * count % len(labels)
    shares[np.argsort(-remainders, kind="stable")[: count - shares.sum()]] += 1
    order = generator.permutation(len(labels))
    rank = np.empty(len(labels), np.int64)
    for number in range(len(sizes)):
        members = order[labels[order] == number]
        rank[members] = np.arange(len(members))
    in_validation = rank[order] < shares[labels[order]]
    return order[~in_validation], order[in_validation]


def _read(path: Path) -> np.ndarray:
    """Whole numbers [1797, 65]: 64 pixels and the label."""
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise base.DataFileError(path, f"is damaged ({error})") from error
    known = catalog.DATASETS[NAME]
    expected = (known.examples + known.validation_examples, _SMALL * _SMALL + 1)
    if table.shape != expected or table.min() < 0 or table[:, :-1].max() > _WHITE:
        raise base.DataFileError(path, f"does not hold {expected[0]} digits of 8x8 pixels and a label")
    return table
