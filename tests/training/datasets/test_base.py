import numpy as np
import pytest

from training.datasets.base import DataSetError, Split, checked_options, digest, first_examples


def split(features: object = ((1, 2), (3, 4)), labels: object = (0, 1)) -> Split:
    return Split(np.array(features, np.uint8), None if labels is None else np.array(labels, np.int32))


def test_digest_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert digest(split()) == "37b57c04e56d4ce8b1f19317a0837c13"


@pytest.mark.parametrize(
    "other",
    [
        split(features=((1, 2), (3, 5))),
        split(labels=(1, 0)),
        split(labels=None),
        split(features=((1,), (2,)), labels=(3, 4)),
        Split(np.array(((1, 2), (3, 4)), np.int8), np.array((0, 1), np.int32)),
    ],
    ids=["pixel", "label", "no labels", "shape", "type"],
)
def test_digest_tells_different_data_apart(other: Split) -> None:
    assert digest(other) != digest(split())


def test_digest_does_not_depend_on_how_the_array_lies_in_memory() -> None:
    features = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    turned = np.ascontiguousarray(features.T).T
    assert digest(Split(turned, None)) == digest(Split(features, None))
    big = Split(np.arange(3, dtype=">i4"), None)
    assert digest(big) == digest(Split(np.arange(3, dtype="<i4"), None))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"examples": 0}, "examples=0 is less than 1"),
        ({"examples": 60_001}, "examples=60001 is more than 60000"),
        ({"validation_examples": 10_001}, "validation_examples=10001 is more than 10000"),
        ({"examples": True}, "examples=True is not a number"),
        ({"examples": 10.5}, "examples=10.5 is not a whole number"),
        ({"pipeline": "disk"}, "pipeline='disk' is none of memory, tf_data"),
        ({"exampels": 5}, "exampels is no option of fashion_mnist: its options are examples, validation_examples"),
    ],
)
def test_options_outside_their_limits_are_refused_by_name(options: dict, said: str) -> None:
    with pytest.raises(DataSetError) as caught:
        checked_options("fashion_mnist", options)
    assert said in str(caught.value)


def test_labels_that_are_no_classes_are_refused() -> None:
    good = (np.zeros((2, 28, 28, 1), np.uint8), np.array((0, 9)))
    bad = (good[0], np.array((0, 10)))
    with pytest.raises(DataSetError, match=r"mnist from somewhere has labels outside 0\.\.9"):
        first_examples("mnist", {}, good, bad, "somewhere")
