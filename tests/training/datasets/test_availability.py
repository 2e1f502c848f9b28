import dataclasses
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.dataset_files import Server
from tests.support.fresh_process import run_python
from training import catalog
from training.datasets import availability, digits, mnist
from training.datasets.base import DataSetError


def test_nothing_here_imports_tensorflow_keras_or_scikit_learn(cache: Path) -> None:
    loaded = run_python(
        """
import json, pkgutil, importlib, sys
import training.datasets
names = [module.name for module in pkgutil.iter_modules(training.datasets.__path__)]
for name in names:
    importlib.import_module(f"training.datasets.{name}")
from training import catalog
from training.datasets import availability, digits, synthetic
for name in catalog.DATASETS:
    availability.availability(name)
digits.load({})
synthetic.load({"examples": 10})
heavy = [name for name in ("tensorflow", "keras", "sklearn", "pandas") if name in sys.modules]
print(json.dumps({"modules": names, "heavy": heavy}))
""",
        lean=False,
    )
    assert set(loaded["modules"]) >= {"base", "availability", *catalog.DATASETS}
    assert loaded["heavy"] == []


def test_what_is_here_names_its_source(cache: Path, npz_file: Path) -> None:
    shutil.copy(npz_file, cache)
    found = availability.availability("mnist")
    assert found == availability.Availability("mnist", True, str(cache / "mnist.npz"), "", False)
    assert availability.availability("synthetic").here
    assert availability.availability("digits").source.endswith("digits.csv.gz")


@pytest.mark.parametrize(
    ("name", "words"), [("mnist", ["datasets/mnist.npz"]), ("fashion_mnist", ["apt-get install dataset-fashion-mnist"])]
)
def test_what_is_not_here_says_exactly_how_to_get_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]
) -> None:
    asked: list[str] = []

    def unreachable(url: str) -> bool:
        asked.append(url)
        return False

    monkeypatch.setattr("training.datasets.download.reachable", unreachable)
    found = availability.availability(name)
    assert not found.here
    assert not found.downloadable
    assert found.source == ""
    assert str(cache) in found.how_to_get, "the folder is named in full"
    assert "\n" not in found.how_to_get
    assert all(word in found.how_to_get for word in words)
    assert all(file in found.how_to_get for file in catalog.load(catalog.DATASETS[name].path).DOWNLOAD.files)
    assert len(asked) == 1


def test_what_its_server_offers_is_downloadable(
    cache: Path, served: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    (folder / "mnist.npz").write_bytes(b"some bytes")
    monkeypatch.setattr(mnist, "DOWNLOAD", dataclasses.replace(mnist.DOWNLOAD, origin=server.origin))
    found = availability.availability("mnist")
    assert found.downloadable
    assert not found.here


def test_the_default_is_the_first_that_is_here(cache: Path, npz_file: Path, idx_files: Path) -> None:
    assert availability.default_dataset() == "digits"
    shutil.copytree(idx_files, cache / "fashion-mnist")
    assert availability.default_dataset() == "fashion_mnist"
    shutil.copy(npz_file, cache)
    assert availability.default_dataset() == "mnist"


def test_without_any_real_set_the_default_is_synthetic(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "find", lambda: "")
    assert availability.default_dataset() == "synthetic"


def test_fetch_says_what_has_no_download(cache: Path) -> None:
    with pytest.raises(DataSetError, match="digits has no download: pip install scikit-learn"):
        availability.fetch("digits")


def test_fetch_downloads_into_the_keras_cache(
    cache: Path, served: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    (folder / "mnist.npz").write_bytes(b"content")
    monkeypatch.setattr(
        mnist,
        "DOWNLOAD",
        dataclasses.replace(
            mnist.DOWNLOAD, origin=server.origin, files={"mnist.npz": ""}, verify=lambda path: path.stat()
        ),
    )
    assert availability.fetch("mnist") == cache
    assert (cache / "mnist.npz").read_bytes() == b"content"


def test_loading_in_several_threads_gives_the_same(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        digests = list(pool.map(lambda _: digits.load({}).digest, range(4)))
    assert len(set(digests)) == 1
