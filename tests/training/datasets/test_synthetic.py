import tracemalloc

import numpy as np
import pytest

from training import catalog
from training.datasets import synthetic
from training.datasets.base import DataSetError


def test_it_is_what_the_catalogue_says() -> None:
    said = catalog.DATASETS["synthetic"]
    data = synthetic.load({})
    assert (data.shape, data.classes) == (said.shape, said.classes)
    assert len(data.train) == said.examples
    assert len(data.validation) == said.validation_examples
    assert data.train.features.dtype == np.uint8
    assert data.train.labels is not None
    assert data.train.labels.dtype == np.int32
    assert data.delay_ms == 0


@pytest.mark.parametrize("shape", ["1x1x1", "8x12x3", "5x3x2", "256x256x3"])
def test_any_shape_and_number_of_classes(shape: str) -> None:
    options: dict[str, int | float | str] = {
        "shape": shape,
        "classes": 37,
        "examples": 60,
        "validation_examples": 3,
        "delay_ms": 12.5,
    }
    data = synthetic.load(options)
    assert data.shape == catalog.input_shape("synthetic", options)
    assert data.train.features.shape == (60, *data.shape)
    assert data.validation.features.shape == (3, *data.shape)
    assert data.classes == 37
    assert data.train.labels is not None
    assert data.train.labels.min() >= 0
    assert 20 < data.train.labels.max() < 37
    assert data.delay_ms == 12.5


def test_it_is_the_same_on_every_machine() -> None:
    options: dict[str, int | float | str] = {"examples": 50, "validation_examples": 20, "shape": "9x7x3", "classes": 5}
    assert synthetic.load(options).digest == "aaed7b83daf3d8a4846b61a6dbb32668"


@pytest.mark.parametrize(("shape", "few", "many"), [("28x28x1", 6000, 12_000), ("700x1000x3", 2, 5), ("5x3x1", 7, 100)])
def test_the_first_examples_do_not_depend_on_how_many_are_made(shape: str, few: int, many: int) -> None:
    small = synthetic.load({"shape": shape, "examples": few, "validation_examples": 1}).train
    large = synthetic.load({"shape": shape, "examples": many, "validation_examples": 1}).train
    assert small.labels is not None
    assert large.labels is not None
    assert np.array_equal(small.features, large.features[:few])
    assert np.array_equal(small.labels, large.labels[:few])


def test_classes_can_be_learned_but_not_from_one_pixel() -> None:
    data = synthetic.load({"examples": 2000, "validation_examples": 500})
    train, validation = (
        split.features.reshape(len(split), -1).astype(float) for split in (data.train, data.validation)
    )
    assert data.train.labels is not None
    means = np.stack([train[data.train.labels == number].mean(axis=0) for number in range(10)])

    def accuracy(pixels: slice) -> float:
        distance = np.square(validation[:, None, pixels] - means[None, :, pixels]).sum(axis=2)
        return float(np.mean(distance.argmin(axis=1) == data.validation.labels))

    assert accuracy(slice(None)) > 0.99
    assert accuracy(slice(400, 401)) < 0.4
    assert not np.array_equal(data.train.features[:500], data.validation.features)


def test_making_it_takes_a_few_mebibytes_beside_the_result() -> None:
    tracemalloc.start()
    try:
        data = synthetic.load({"examples": 50_000, "validation_examples": 1000})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    held = data.train.features.nbytes + data.validation.features.nbytes
    assert peak - held < 20 * 2**20


def test_more_than_the_memory_is_refused_before_it_is_tried() -> None:
    with pytest.raises(DataSetError) as caught:
        synthetic.load({"examples": 10_000_000, "shape": "1000x1000x3"})
    assert "10,001,000 examples of 1000x1000x3 take 27,942.5 GiB" in str(caught.value)
    assert "give fewer examples" in str(caught.value)
