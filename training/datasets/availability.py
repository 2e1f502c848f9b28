"""Which data sets are on this machine, and how to get the others. No TensorFlow, so that a page may ask."""

from dataclasses import dataclass
from pathlib import Path

from training import catalog
from training.datasets import download
from training.datasets.base import DataSetError


@dataclass(frozen=True)
class Availability:
    """Whether a data set can be had.

    Attributes:
        name: its name in the catalogue.
        here: it is on this machine.
        source: the file, folder or package it comes from; empty if it is not here.
        how_to_get: one line for a person; empty if it is here.
        downloadable: it is not here, but its server answers, so `load` will fetch it.
    """

    name: str
    here: bool
    source: str
    how_to_get: str
    downloadable: bool


def availability(name: str) -> Availability:
    """Looks for a data set, and asks its server (at most 1.5 s, remembered for minutes) when it is not here.

    Raises:
        KeyError: the catalogue does not name it.
    """
    module = catalog.load(catalog.DATASETS[name].path)
    source = module.find()
    if source:
        return Availability(name, True, source, "", False)
    wanted = module.DOWNLOAD
    downloadable = wanted is not None and download.reachable(wanted.origin + next(iter(wanted.files)))
    return Availability(name, False, "", module.how_to_get(), downloadable)


def default_dataset() -> str:
    """The first real data set that is on this machine, in the catalogue's order; nothing is asked of the network."""
    return next(name for name in catalog.DEFAULT_ORDER if catalog.load(catalog.DATASETS[name].path).find())


def fetch(name: str) -> Path:
    """Downloads a data set into Keras's cache, once however many ask; returns the folder.

    Raises:
        DataSetError: it cannot be downloaded; the message says how else to get it.
    """
    module = catalog.load(catalog.DATASETS[name].path)
    if module.DOWNLOAD is None:
        raise DataSetError(f"{name} has no download: {module.how_to_get()}")
    return download.fetch(name, module.DOWNLOAD, module.how_to_get())
