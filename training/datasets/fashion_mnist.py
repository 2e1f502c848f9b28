"""Fashion-MNIST: 60,000 + 10,000 grey 28x28 images of ten kinds of clothing (Zalando, MIT licence)."""

from pathlib import Path

from training import catalog
from training.datasets import base, idx
from training.datasets.download import Download, fetch

NAME = "fashion_mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")

_SHAPES = {
    "train-images-idx3-ubyte.gz": (60_000, 28, 28),
    "train-labels-idx1-ubyte.gz": (60_000,),
    "t10k-images-idx3-ubyte.gz": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte.gz": (10_000,),
}


def _verify(path: Path) -> None:
    shape = next(shape for file, shape in _SHAPES.items() if file in path.name)
    idx.read(path, shape)


# Keras names no hash for these; gzip's own checksum and the shape say whether a file is whole.
DOWNLOAD = Download("fashion-mnist", dict.fromkeys(_SHAPES, ""), _verify)


def how_to_get() -> str:
    """What a person can do when it is neither here nor downloadable."""
    folder = base.keras_cache() / DOWNLOAD.folder
    return f"apt-get install dataset-fashion-mnist, or put {', '.join(_SHAPES)} from {DOWNLOAD.origin} into {folder}"


def find() -> str:
    """Folder of the files: Debian's package, else Keras's cache; empty if neither has all of them."""
    for folder in (DEBIAN_FOLDER, base.keras_cache() / DOWNLOAD.folder):
        if all((folder / file).is_file() for file in _SHAPES):
            return str(folder)
    return ""


def load(options: catalog.Options) -> base.Data:
    """Loads it, downloading it first if it is not on this machine.

    Raises:
        DataSetError: bad options, no way to get the files, or damaged ones.
    """
    base.checked_options(NAME, options)
    folder = Path(find() or fetch(NAME, DOWNLOAD, how_to_get()))
    arrays = {file: idx.read(folder / file, shape) for file, shape in _SHAPES.items()}
    splits = [
        (arrays[f"{part}-images-idx3-ubyte.gz"][..., None], arrays[f"{part}-labels-idx1-ubyte.gz"])
        for part in ("train", "t10k")
    ]
    return base.first_examples(NAME, options, splits[0], splits[1], str(folder))
