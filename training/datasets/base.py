"""What a data set is once it is loaded, and what every data-set module is made of. No TensorFlow here or beside.

A data-set module holds, in this order: `DOWNLOAD` (what can be fetched, or None), `how_to_get()` (a line for a person),
`find()` (where it is on this machine, empty if nowhere) and `load(options)`. Loading runs in a thread while TensorFlow
is being imported, so none of it may import TensorFlow or touch shared state.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training import catalog

UINT8_TO_UNIT = 1.0 / 255.0
"""Scale that brings pixels stored as uint8 to 0..1."""


class DataSetError(RuntimeError):
    """A data set that cannot be used. The message is one line that names the data set, the cause and the remedy."""


class DataFileError(DataSetError):
    """A file of a data set that is not what it should be. The message names the file."""

    def __init__(self, path: Path | str, wrong: str):
        self.path = Path(path)
        super().__init__(f"{path} {wrong}: remove or replace this file, then start again")


@dataclass(frozen=True)
class Split:
    """Training or validation part. `features` as stored, [n, *shape]; `labels` int32 [n], or None if there are none."""

    features: np.ndarray
    labels: np.ndarray | None

    def __len__(self) -> int:
        return len(self.features)


@dataclass(frozen=True)
class Data:
    """A loaded data set.

    The model's input is float32(features) * scale, computed inside the step, so that memory holds the stored type.
    `digest` identifies the bytes that are used; `source` is the file, folder or package they came from; `delay_ms` is
    how long the input pipeline shall sleep for every batch.
    """

    train: Split
    validation: Split
    shape: tuple[int, ...]
    classes: int
    scale: float
    digest: str
    source: str
    delay_ms: float = 0.0


def keras_cache() -> Path:
    """Folder where Keras keeps data sets: $KERAS_HOME/datasets, or ~/.keras/datasets."""
    return Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser() / "datasets"


def checked_options(name: str, options: catalog.Options) -> dict[str, int | float | str]:
    """Every option of the data set, given or default.

    Raises:
        DataSetError: an unknown option, or a value outside the catalogue's limits.
    """
    known = catalog.DATASETS[name].options
    for option, value in options.items():
        if option not in known:
            raise DataSetError(f"{option} is no option of {name}: its options are {', '.join(known)}")
        refusal = known[option].refusal(value)
        if refusal:
            raise DataSetError(f"{name}: {option}={value!r} {refusal}: {known[option].help}")
    return catalog.option_values(name, options)


def first_examples(
    name: str,
    options: catalog.Options,
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    source: str,
) -> Data:
    """Data of the first examples that the options ask for.

    Args:
        name: the data set's name in the catalogue.
        options: the run's options of the data set.
        train: uint8 features [n, *shape] and labels [n] of the whole training part, in their fixed order.
        validation: the same of the whole validation part.
        source: where they came from.

    Raises:
        DataSetError: options that the catalogue refuses, or labels that are no classes of this data set.
    """
    values = checked_options(name, options)
    splits = []
    for (features, labels), count in ((train, values["examples"]), (validation, values["validation_examples"])):
        splits.append(Split(features[: int(count)], labels[: int(count)].astype(np.int32)))
    classes = int(values.get("classes", catalog.DATASETS[name].classes))
    for split in splits:
        if split.labels is not None and not (split.labels.min() >= 0 and split.labels.max() < classes):
            raise DataSetError(f"{name} from {source} has labels outside 0..{classes - 1}: replace its files")
    return Data(
        train=splits[0],
        validation=splits[1],
        shape=tuple(splits[0].features.shape[1:]),
        classes=classes,
        scale=UINT8_TO_UNIT,
        digest=digest(*splits),
        source=source,
        delay_ms=float(values.get("delay_ms", 0.0)),
    )


def digest(*splits: Split) -> str:
    """BLAKE2b (128 bits, hexadecimal) over types, shapes and bytes of the splits: equal data, equal digest."""
    hasher = hashlib.blake2b(digest_size=16)
    for split in splits:
        for array in (split.features, split.labels):
            if array is None:
                hasher.update(b"none;")
                continue
            # Little-endian, so that a digest does not depend on the machine's byte order.
            plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            hasher.update(f"{plain.dtype.str}{plain.shape};".encode())
            hasher.update(plain.data)
    return hasher.hexdigest()
