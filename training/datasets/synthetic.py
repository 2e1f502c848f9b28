"""Synthetic images of any shape and number of classes: a pattern that belongs to the class, plus noise.

Seeded and the same on every machine; the first n examples are the same however many are made.
"""

import math
import os

import numpy as np

from training import catalog
from training.datasets import base

NAME = "synthetic"
DOWNLOAD = None

_SEED = 20_240_101
_GRID = 7  # a class's pattern is a grid of so many cells a side, stretched to the image
_NOISE = 0x7F  # noise is 0..127 and the pattern 0..128, so that their sum fits a byte
_CHUNK_BYTES = 4 * 2**20
LESS = "give fewer examples, fewer validation_examples or a smaller shape"
_MEMORY_SHARE = 0.8  # of the machine's memory: more than this is refused before it is tried


def how_to_get() -> str:
    """Nothing to do: it is computed."""
    return "it is computed, nothing is needed"


def find() -> str:
    """Always here: it is computed."""
    return "computed"


def too_large(options: catalog.Options) -> str:
    """What is wrong with options that ask for more data than this machine has memory for; empty when it has."""
    count = catalog.training_examples(NAME, options) + catalog.validation_examples(NAME, options)
    shape = catalog.input_shape(NAME, options)
    needed = count * math.prod(shape)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed <= _MEMORY_SHARE * memory:
        return ""
    return (
        f"{count:,} examples of {'x'.join(map(str, shape))} take {needed / 2**30:,.1f} GiB, and this machine has "
        f"{memory / 2**30:,.1f} GiB"
    )


def load(options: catalog.Options) -> base.Data:
    """Makes it, in chunks of a few MiB beside the arrays that it returns.

    Raises:
        DataSetError: bad options, or more data than this machine has memory for.
    """
    values = base.checked_options(NAME, options)
    shape, classes = catalog.input_shape(NAME, options), int(values["classes"])
    counts = [int(values["examples"]), int(values["validation_examples"])]
    if message := too_large(options):
        raise base.DataSetError(f"{NAME}: {message}: {LESS}")
    grids = _generator(0).randint(0, 129, size=(classes, _GRID, _GRID)).astype(np.uint8)
    train, validation = (_make(part, count, shape, grids) for part, count in enumerate(counts, start=1))
    return base.first_examples(NAME, options, train, validation, f"seed {_SEED}")


def _make(part: int, count: int, shape: tuple[int, ...], grids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features [count, *shape] uint8 and labels [count] int32 of one part, chunk by chunk."""
    height, width, _ = shape
    size = int(np.prod(shape, dtype=np.int64))
    rows, columns = (np.arange(side) * _GRID // side for side in (height, width))
    features = np.empty((count, *shape), np.uint8)
    labels = _generator(part).randint(0, len(grids), size=count).astype(np.int32)
    chunk = max(1, _CHUNK_BYTES // size)
    for number, start in enumerate(range(0, count, chunk)):
        block = features[start : start + chunk]
        noise = np.frombuffer(_generator(part, number).bytes(block.size), np.uint8).reshape(block.shape)
        np.bitwise_and(noise, _NOISE, out=block)
        block += grids[labels[start : start + chunk]][:, rows][:, :, columns, None]
    return features, labels


def _generator(*key: int) -> np.random.RandomState:
    # RandomState, because NumPy promises that its streams never change; Generator's may.
    return np.random.RandomState([_SEED, *key])
