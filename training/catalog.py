"""Workload and data-set names -> dotted paths: an explicit dict each, read without TensorFlow.

A team adds its own with one file and one line here. A test compares what is said here with the real thing.
"""

import importlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

Options = Mapping[str, int | float | str]


@dataclass(frozen=True)
class Option:
    """One option of a data set: its default, what it means, and its limits."""

    default: int | float | str
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""

    def refusal(self, value: object) -> str:
        """What is wrong with a value; empty when nothing is."""
        if isinstance(self.default, str):
            if not isinstance(value, str):
                return "is not a text"
            if self.choices and value not in self.choices:
                return f"is none of {', '.join(self.choices)}"
            if self.pattern and not re.fullmatch(self.pattern, value):
                return "is malformed"
            return ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "is not a number"
        if isinstance(self.default, int) and not isinstance(value, int):
            return "is not a whole number"
        if isinstance(value, float) and not math.isfinite(value):
            return "is not a finite number"
        if self.minimum is not None and value < self.minimum:
            return f"is less than {self.minimum:g}"
        if self.maximum is not None and value > self.maximum:
            return f"is more than {self.maximum:g}"
        return ""


@dataclass(frozen=True)
class Workload:
    """What can be trained. `layers` are the names `manual_placement` may use, in the model's order."""

    path: str
    title: str
    input_kind: str
    layers: tuple[str, ...]
    smallest_side: int = 1
    side_multiple: int = 1

    def shape_refusal(self, shape: tuple[int, ...]) -> str:
        """What is wrong with an example's shape; empty when nothing is."""
        if self.input_kind != "image":
            return ""
        height, width, _ = shape
        if min(height, width) < self.smallest_side:
            return f"is smaller than the {self.smallest_side}x{self.smallest_side} this workload needs"
        if height % self.side_multiple or width % self.side_multiple:
            return f"has a side that does not divide by {self.side_multiple}, as this workload needs"
        return ""


@dataclass(frozen=True)
class DataSet:
    """What can be trained on. `examples` and `validation_examples` are those of the whole set."""

    path: str
    title: str
    input_kind: str
    shape: tuple[int, ...]
    classes: int
    examples: int
    validation_examples: int
    options: Mapping[str, Option] = field(default_factory=dict)


def _options(examples: int, validation_examples: int, **more: Option) -> dict[str, Option]:
    """The options every data set has, and its own."""
    return {
        "examples": Option(examples, "how many training examples to use", 1, examples),
        "validation_examples": Option(
            validation_examples, "how many validation examples to use", 1, validation_examples
        ),
        "pipeline": Option(
            "memory",
            "memory holds the whole set on the device; tf_data streams it through tf.data (shuffle, batch, prefetch)",
            choices=("memory", "tf_data"),
        ),
        **more,
    }


WORKLOADS: dict[str, Workload] = {
    "mnist_cnn": Workload(
        "training.workloads.mnist_cnn",
        "Image classifier (the guide's CNN)",
        "image",
        ("conv2d", "max_pooling2d", "conv2d_1", "max_pooling2d_1", "conv2d_2", "flatten", "dense", "dense_1"),
        smallest_side=18,
    ),
    "vae": Workload(
        "training.workloads.vae",
        "Variational autoencoder (own train_step)",
        "image",
        ("encoder", "decoder"),
        smallest_side=8,
        side_multiple=4,
    ),
}

DATASETS: dict[str, DataSet] = {
    "mnist": DataSet(
        "training.datasets.mnist", "MNIST", "image", (28, 28, 1), 10, 60_000, 10_000, _options(60_000, 10_000)
    ),
    "fashion_mnist": DataSet(
        "training.datasets.fashion_mnist",
        "Fashion-MNIST",
        "image",
        (28, 28, 1),
        10,
        60_000,
        10_000,
        _options(60_000, 10_000),
    ),
    "digits": DataSet(
        "training.datasets.digits",
        "Handwritten digits (small)",
        "image",
        (28, 28, 1),
        10,
        1_437,
        360,
        _options(1_437, 360),
    ),
    "synthetic": DataSet(
        "training.datasets.synthetic",
        "Synthetic (seeded)",
        "image",
        (28, 28, 1),
        10,
        6_000,
        1_000,
        {
            **_options(10_000_000, 1_000_000),
            "examples": Option(6_000, "how many training examples to make", 1, 10_000_000),
            "validation_examples": Option(1_000, "how many validation examples to make", 1, 1_000_000),
            "shape": Option(
                "28x28x1",
                "height x width x channels, such as 28x28x1",
                pattern=r"[1-9]\d{0,3}x[1-9]\d{0,3}x[1-9]\d{0,2}",
            ),
            "classes": Option(10, "how many classes", 2, 10_000),
            "delay_ms": Option(
                0.0, "sleep this long for every batch, to imitate slow storage (needs pipeline=tf_data)", 0, 60_000
            ),
        },
    ),
}

DEFAULT_ORDER = ("mnist", "fashion_mnist", "digits", "synthetic")
"""The form's default is the first of these that is on this machine."""


def load(path: str) -> ModuleType:
    """Imports a workload or data-set module by its dotted path. Only a training process should."""
    return importlib.import_module(path)


def option_values(dataset: str, options: Options) -> dict[str, int | float | str]:
    """Every option of the data set, given or default."""
    return {name: options.get(name, option.default) for name, option in DATASETS[dataset].options.items()}


def input_shape(dataset: str, options: Options) -> tuple[int, ...]:
    """Shape of one example, [height, width, channels] for images."""
    shape = option_values(dataset, options).get("shape")
    return tuple(int(side) for side in str(shape).split("x")) if shape else DATASETS[dataset].shape


def training_examples(dataset: str, options: Options) -> int:
    """Training examples the run will use."""
    return int(option_values(dataset, options)["examples"])


def validation_examples(dataset: str, options: Options) -> int:
    """Validation examples the run will use."""
    return int(option_values(dataset, options)["validation_examples"])


def steps_per_epoch(dataset: str, options: Options, global_batch_size: int, most: int | None = None) -> int:
    """Training steps an epoch takes. The remainder that fills no batch is left out (another one each epoch)."""
    steps = training_examples(dataset, options) // global_batch_size
    return min(steps, most) if most else steps
