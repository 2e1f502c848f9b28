"""MNIST, Fashion-MNIST and digits: what they hold, where they come from, and what happens when they are damaged."""

import dataclasses
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.support.dataset_files import Server, images, write_idx
from training import catalog
from training.datasets import digits, fashion_mnist, mnist
from training.datasets.base import Data, DataFileError, DataSetError


def in_cache(cache: Path, name: str, idx_files: Path, npz_file: Path) -> ModuleType:
    """Puts a data set into the test's Keras cache, where it needs files there."""
    if name == "mnist":
        shutil.copy(npz_file, cache)
    elif name == "fashion_mnist":
        shutil.copytree(idx_files, cache / "fashion-mnist")
    return catalog.load(catalog.DATASETS[name].path)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "digits"])
def test_it_is_what_the_catalogue_says(name: str, cache: Path, idx_files: Path, npz_file: Path) -> None:
    said = catalog.DATASETS[name]
    data: Data = in_cache(cache, name, idx_files, npz_file).load({})
    assert (data.shape, data.classes) == (said.shape, said.classes)
    assert data.scale == pytest.approx(1 / 255)
    assert data.delay_ms == 0
    for split, count in ((data.train, said.examples), (data.validation, said.validation_examples)):
        assert split.features.shape == (count, *said.shape)
        assert split.features.dtype == np.uint8
        assert split.labels is not None
        assert split.labels.shape == (count,)
        assert split.labels.dtype == np.int32
        assert set(split.labels.tolist()) == set(range(said.classes))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "digits"])
def test_options_take_the_first_of_a_fixed_order(name: str, cache: Path, idx_files: Path, npz_file: Path) -> None:
    module = in_cache(cache, name, idx_files, npz_file)
    whole: Data = module.load({})
    part: Data = module.load({"examples": 30, "validation_examples": 20, "pipeline": "tf_data"})
    for some, all_of_them, count in ((part.train, whole.train, 30), (part.validation, whole.validation, 20)):
        assert np.array_equal(some.features, all_of_them.features[:count])
        assert some.labels is not None
        assert all_of_them.labels is not None
        assert np.array_equal(some.labels, all_of_them.labels[:count])
    assert part.digest != whole.digest
    assert module.load({}).digest == whole.digest
    with pytest.raises(DataSetError, match="examples=0 is less than 1"):
        module.load({"examples": 0})


def test_fashion_mnist_prefers_debian_then_keras(
    cache: Path, idx_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fashion_mnist.find() == ""
    shutil.copytree(idx_files, cache / "fashion-mnist")
    assert fashion_mnist.find() == str(cache / "fashion-mnist")
    debian = tmp_path / "debian"
    shutil.copytree(idx_files, debian)
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", debian)
    assert fashion_mnist.load({"examples": 1}).source == str(debian)
    (debian / "t10k-labels-idx1-ubyte.gz").unlink()
    assert fashion_mnist.find() == str(cache / "fashion-mnist"), "an incomplete folder does not count"


def test_a_missing_set_is_downloaded_and_verified(
    cache: Path, idx_files: Path, served: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    shutil.copytree(idx_files, folder, dirs_exist_ok=True)
    monkeypatch.setattr(fashion_mnist, "DOWNLOAD", dataclasses.replace(fashion_mnist.DOWNLOAD, origin=server.origin))
    data = fashion_mnist.load({"examples": 300})
    assert data.source == str(cache / "fashion-mnist")
    assert np.array_equal(data.train.features[..., 0], images(300))
    assert len(server.downloads) == 4

    (cache / "fashion-mnist" / "train-images-idx3-ubyte.gz").unlink()
    write_idx(folder / "train-images-idx3-ubyte.gz", images(100))
    with pytest.raises(DataSetError, match="holds 100x28x28, not 60000x28x28"):
        fashion_mnist.load({"examples": 300})
    assert not (cache / "fashion-mnist" / "train-images-idx3-ubyte.gz").exists()


def test_a_download_of_mnist_must_have_keras_hash(
    cache: Path, npz_file: Path, served: tuple[Server, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, folder = served
    shutil.copy(npz_file, folder)
    monkeypatch.setattr(mnist, "DOWNLOAD", dataclasses.replace(mnist.DOWNLOAD, origin=server.origin))
    with pytest.raises(DataSetError, match="SHA-256"):
        mnist.load({})
    assert mnist.find() == ""


def test_a_damaged_cached_file_is_named_and_never_replaced(cache: Path, idx_files: Path, npz_file: Path) -> None:
    folder = Path(shutil.copytree(idx_files, cache / "fashion-mnist"))
    damaged = folder / "train-images-idx3-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    with pytest.raises(DataFileError, match=r"train-images-idx3-ubyte\.gz is damaged .*remove or replace this file"):
        fashion_mnist.load({})
    assert damaged.stat().st_size == 1000


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", b"\x80\x04K\x01."], ids=["empty", "zip", "npy", "pickle"]
)
def test_a_damaged_mnist_is_named(cache: Path, content: bytes) -> None:
    (cache / "mnist.npz").write_bytes(content)
    with pytest.raises(DataFileError, match=r"mnist\.npz is damaged or no \.npz file"):
        mnist.load({})


def test_a_mnist_with_other_arrays_is_named(cache: Path, npz_file: Path) -> None:
    np.savez(cache / "mnist.npz", x_train=np.zeros(3))
    with pytest.raises(DataFileError, match=r"mnist\.npz is no mnist\.npz"):
        mnist.load({})
    other = np.zeros(3)
    np.savez(cache / "mnist.npz", x_train=other, y_train=other, x_test=other, y_test=other)
    with pytest.raises(DataFileError, match=r"holds x_train as float64\[3\], not uint8\[60000, 28, 28\]"):
        mnist.load({})
    broken = bytearray(npz_file.read_bytes())
    broken[len(broken) // 2] ^= 0xFF
    (cache / "mnist.npz").write_bytes(broken)
    with pytest.raises(DataFileError, match=r"mnist\.npz is damaged"):
        mnist.load({})


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    data = digits.load({})
    original = load_digits()
    both = np.concatenate([data.train.features, data.validation.features])
    assert data.train.labels is not None
    assert data.validation.labels is not None
    labels = np.concatenate([data.train.labels, data.validation.labels])
    expected = digits.enlarge(original.images)
    assert sorted(image.tobytes() for image in both) == sorted(image.tobytes() for image in expected)
    assert np.array_equal(np.bincount(labels), np.bincount(original.target))
    order = np.concatenate(digits.split(original.target, 360))
    assert sorted(order.tolist()) == list(range(1797))
    assert np.array_equal(labels, original.target[order])
    assert np.array_equal(both, expected[order])


def test_digits_are_split_by_class_in_proportion_and_always_alike() -> None:
    data = digits.load({})
    assert data.train.labels is not None
    assert data.validation.labels is not None
    validation = np.bincount(data.validation.labels)
    share = (validation + np.bincount(data.train.labels)) * 360 / 1797
    assert np.abs(validation - share).max() < 1
    assert data.digest == "6a6ae8a674e6a3a1f432636a9f02c70b"


def test_enlarging_keeps_the_range_and_interpolates() -> None:
    flat = digits.enlarge(np.full((1, 8, 8), 16))
    assert flat.shape == (1, 28, 28, 1)
    assert flat.dtype == np.uint8
    assert (flat == 255).all()
    slope = digits.enlarge(np.tile(np.arange(8) * 2, (1, 8, 1)))[0, :, :, 0].astype(int)
    assert (slope == slope[0]).all(), "rows of equal pixels stay equal"
    assert (np.diff(slope[0]) >= 0).all()
    # Target pixel 10 has its centre at (4*10 - 5) / 14 = 2.5: half-way between source pixels 2 and 3.
    assert slope[0, 10] == round(5 / 16 * 255)


def test_digits_without_scikit_learn_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert digits.find() == ""
    with pytest.raises(DataSetError, match="pip install scikit-learn"):
        digits.load({})
    broken = tmp_path / "digits.csv.gz"
    broken.write_bytes(b"not gzip")
    monkeypatch.setattr(digits, "find", lambda: str(broken))
    with pytest.raises(DataFileError, match=r"digits\.csv\.gz is damaged"):
        digits.load({})
