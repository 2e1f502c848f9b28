"""RunSpec: the one object that crosses the house, from the form to the training process.

Imports no TensorFlow, so a browser-facing process may check a spec. What a spec may say is decided here and only
here (`problems`); what the machines can carry out is decided in `experiments.admission`.
"""

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from training.spec_rules import Problem, Severity, combination_problems, field_problems


class SpecError(ValueError):
    """A spec that cannot run. Carries every problem found, not only the first."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


class Part(StrEnum):
    """The four questions a spec answers, and who asks."""

    WHAT = "what"
    WHERE = "where"
    HOW_LONG = "how long"
    HOW = "how"
    WHO = "who"


def _field(default: typing.Any, part: Part, label: str, help: str, **limits: typing.Any) -> typing.Any:
    """A dataclass field with what a form needs to draw it: part, label, help, limits (choices, minimum, maximum)."""
    metadata = {"part": part, "label": label, "help": help, **limits}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


DEVICES = ("cpu", "gpu")
STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored")
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclass(frozen=True)
class RunSpec:
    """One training run. Every value is plain JSON; an unset optional field is None.

    Terms are TensorFlow's: `replicas` is the number of devices per worker that take part, `global_batch_size` the
    number of examples in one step over all replicas of all workers.
    """

    workload: str = _field("mnist_cnn", Part.WHAT, "Workload", "The model and how it is trained.")
    dataset: str = _field("fashion_mnist", Part.WHAT, "Data set", "What it is trained on.")
    dataset_options: Mapping[str, int | float | str] = _field(
        {}, Part.WHAT, "Data set options", "Options of the chosen data set, such as examples=6000."
    )
    seed: int = _field(0, Part.WHAT, "Seed", "Seeds weights, shuffling and dropout.", minimum=0, maximum=2**32 - 1)
    deterministic: bool = _field(
        False, Part.WHAT, "Deterministic ops", "TensorFlow's op determinism: repeatable to the bit, slower on a GPU."
    )

    device: str = _field("cpu", Part.WHERE, "Device", "A CPU run sees no GPU.", choices=DEVICES)
    strategy: str = _field("one_device", Part.WHERE, "Strategy", "The tf.distribute strategy.", choices=STRATEGIES)
    replicas: int = _field(
        1, Part.WHERE, "Replicas per worker", "Devices that take part on each worker.", minimum=1, maximum=1024
    )
    workers: int = _field(1, Part.WHERE, "Workers", "Processes of a multi-worker run.", minimum=1, maximum=1024)
    gpus: tuple[int, ...] | None = _field(
        None, Part.WHERE, "GPU indices", "Which physical GPUs (nvidia-smi order); empty: any that are free."
    )
    logical_devices: int = _field(
        0,
        Part.WHERE,
        "Simulated devices",
        "Cuts the CPU, or one GPU, into this many logical devices. They share the hardware: for testing, not speed.",
        minimum=0,
        maximum=64,
    )
    cpu_threads: int | None = _field(
        None,
        Part.WHERE,
        "CPU threads",
        "Processor cores each worker may use; empty: an equal share of the machine.",
        minimum=1,
        maximum=4096,
    )

    epochs: int = _field(5, Part.HOW_LONG, "Epochs", "Passes over the training data.", minimum=1, maximum=100_000)
    global_batch_size: int = _field(
        64, Part.HOW_LONG, "Global batch size", "Examples in one step, over all replicas.", minimum=1, maximum=2**24
    )
    max_steps_per_epoch: int | None = _field(
        None, Part.HOW_LONG, "Most steps per epoch", "Ends each epoch early; empty: the whole set.", minimum=1
    )

    learning_rate: float = _field(0.001, Part.HOW, "Learning rate", "Of the Adam optimizer.")
    precision: str = _field("float32", Part.HOW, "Precision", "Keras's dtype policy.", choices=PRECISIONS)
    jit_compile: bool = _field(False, Part.HOW, "XLA (jit_compile)", "Compiles the step with XLA; one device only.")
    steps_per_execution: int = _field(
        32,
        Part.HOW,
        "Steps per execution",
        "Training steps in one call of the compiled function; also the length of a timing window.",
        minimum=1,
        maximum=100_000,
    )
    memory_growth: bool = _field(
        False, Part.HOW, "GPU memory growth", "Takes GPU memory as needed, on every visible GPU."
    )
    memory_limit_mib: int | None = _field(
        None, Part.HOW, "GPU memory limit (MiB)", "Most memory per GPU; excludes growth.", minimum=64
    )
    manual_placement: Mapping[str, str] = _field(
        {}, Part.HOW, "Manual placement", "Layer name -> device, such as conv2d -> /CPU:0."
    )
    log_device_placement: bool = _field(True, Part.HOW, "Log device placement", "Records on which device each op ran.")
    save_model: bool = _field(False, Part.HOW, "Save the model", "Keeps the trained model as an MLflow model.")

    name: str = _field("", Part.WHO, "Run name", "Empty: made from workload, device and strategy.")
    group: str = _field("", Part.WHO, "Group", "Runs of one plan share a group.")
    user: str = _field("", Part.WHO, "User", "Who started it.")
    tags: Mapping[str, str] = _field({}, Part.WHO, "Tags", "Your own key -> value pairs.")
    notes: str = _field("", Part.WHO, "Notes", "Free text.")
    priority: int = _field(
        0, Part.WHO, "Priority", "A waiting run with a higher number starts first.", minimum=-100, maximum=100
    )

    @property
    def total_replicas(self) -> int:
        """Replicas in sync over all workers."""
        return self.replicas * self.workers

    @property
    def per_replica_batch_size(self) -> int:
        """Examples each replica gets in one step. Exact: a batch that does not divide is refused."""
        return self.global_batch_size // self.total_replicas

    @property
    def simulated(self) -> bool:
        """Whether the devices are logical ones that share hardware."""
        return self.logical_devices > 0

    @property
    def gpus_per_worker(self) -> int:
        """Physical GPUs that each worker asks for."""
        if self.device == "cpu":
            return 0
        return 1 if self.logical_devices else self.replicas

    @property
    def devices_asked(self) -> str:
        """The devices it asks for, in TensorFlow's short names: `GPU:0, GPU:1`, `2 workers x CPU:0`, ...

        GPUs chosen by hand, and logical devices, are named behind.
        """
        kind = self.device.upper()
        devices = ", ".join(f"{kind}:{index}" for index in range(self.replicas))
        if self.replicas > 16:
            devices = f"{kind}:0 to {kind}:{self.replicas - 1}"
        if self.workers > 1:
            devices = f"{self.workers} workers x {devices}"
        if self.logical_devices:
            devices += f" (simulated: {self.logical_devices} logical devices on one {kind})"
        if self.gpus is not None:
            devices += f" (physical {', '.join(map(str, self.gpus))})"
        return devices

    @property
    def display_name(self) -> str:
        """The typed name, or one that says what runs where."""
        if self.name:
            return self.name
        size = f"{self.workers}x{self.replicas}" if self.strategy == "multi_worker_mirrored" else f"{self.replicas}"
        return f"{self.workload} {self.device} {self.strategy} {size}"

    def to_dict(self) -> dict[str, typing.Any]:
        """Plain JSON values; the inverse of `from_dict`."""
        values: dict[str, typing.Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Mapping):
                value = dict(value)
            elif isinstance(value, tuple):
                value = list(value)
            values[field.name] = value
        return values

    def to_json(self) -> str:
        """The spec as one JSON object, every field present."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True)

    @classmethod
    def from_dict(cls, values: typing.Any) -> "RunSpec":
        """Builds and checks a spec.

        Args:
            values: field name -> plain JSON value; a missing field takes its default.

        Raises:
            SpecError: an unknown field, a value of the wrong type, or anything `problems` refuses.
        """
        if not isinstance(values, Mapping):
            raise SpecError([Problem("spec", values, "is not an object", "write a JSON object of fields")])
        known = {field.name: field for field in dataclasses.fields(cls)}
        found = [
            Problem(str(name), value, "is not a field of a run", _nearest(str(name), known))
            for name, value in values.items()
            if name not in known
        ]
        cleaned: dict[str, typing.Any] = {}
        for name, value in values.items():
            if name in known:
                if name == "gpus" and isinstance(value, list):
                    value = tuple(value)
                if name == "learning_rate" and type(value) is int:
                    with contextlib.suppress(OverflowError):  # stays what it is, and is refused below
                        value = float(value)
                cleaned[name] = value
        spec = cls(**cleaned)
        found += [problem for problem in problems(spec) if problem.severity is Severity.ERROR]
        if found:
            raise SpecError(found)
        return spec

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """The inverse of `to_json`. Raises SpecError, also for text that is not JSON."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError([Problem("spec", text[:80], f"is not JSON ({error})", "write a JSON object")]) from None
        return cls.from_dict(values)

    @classmethod
    def from_assignments(
        cls, assignments: typing.Iterable[str], base: Mapping[str, typing.Any] | None = None
    ) -> "RunSpec":
        """Builds a spec from `field=value` texts, as on the command line; see `assigned`. Raises SpecError."""
        return cls.from_dict(assigned(assignments, base))


_TYPES: dict[str, typing.Any] = typing.get_type_hints(RunSpec)


def assigned(assignments: typing.Iterable[str], base: Mapping[str, typing.Any] | None = None) -> dict[str, typing.Any]:
    """Reads `field=value` texts as plain JSON values, not yet checked against each other.

    A mapping's entry is `field.key=value` (`dataset_options.examples=600`, `manual_placement.conv2d=/CPU:0`), a list is
    separated by commas (`gpus=0,1`), an empty value unsets an optional field.

    Args:
        assignments: the texts, later ones win.
        base: plain JSON values to start from.

    Raises:
        SpecError: a text without `=`, an unknown field, or a text that is no value of its field's type.
    """
    values: dict[str, typing.Any] = dict(base or {})
    found: list[Problem] = []
    for text in assignments:
        target, equals, value = text.partition("=")
        name, _, key = target.strip().partition(".")
        if not equals or not name:
            what = "names no field" if equals else "has no '='"
            found.append(Problem("--set", text, what, "write field=value"))
        elif name not in _TYPES:
            found.append(Problem(name, value, "is not a field of a run", _nearest(name, _TYPES)))
        elif _is_mapping(name):
            if not key:
                found.append(Problem(name, value, "needs a key", f"write {name}.KEY=VALUE"))
            elif not isinstance(values.get(name, {}), Mapping):
                found.append(Problem(name, values[name], "is no object, so nothing can be set in it", "write {} there"))
            else:
                entry = _number_or_text(value) if name == "dataset_options" else value
                values[name] = {**values.get(name, {}), key: entry}
        else:
            try:
                values[name] = _parse(name, value)
            except ValueError as error:
                found.append(Problem(name, value, str(error), _accepted(name)))
    if found:
        raise SpecError(found)
    return values


def spec_fields() -> tuple[dataclasses.Field, ...]:
    """The fields of a run in order, with part, label, help and limits in their metadata."""
    return dataclasses.fields(RunSpec)


def problems(spec: RunSpec) -> list[Problem]:
    """Everything that is wrong or doubtful about a spec by itself, without looking at any machine.

    Returns:
        Errors (the run would be refused) and warnings (it may run, and the person should know). Empty: all is well.
    """
    found = [
        problem
        for field in spec_fields()
        for problem in field_problems(field, _TYPES[field.name], getattr(spec, field.name))
    ]
    # Combinations speak of values that make sense on their own; with a wrong type they would only add noise.
    if any(problem.severity is Severity.ERROR for problem in found):
        return found
    return found + combination_problems(spec)


def _is_mapping(name: str) -> bool:
    return typing.get_origin(_TYPES[name]) is Mapping


def _plain_type(name: str) -> typing.Any:
    """The field's type without `| None`."""
    hint = _TYPES[name]
    if isinstance(hint, types.UnionType):
        return next(choice for choice in typing.get_args(hint) if choice is not type(None))
    return hint


def _is_optional(name: str) -> bool:
    return isinstance(_TYPES[name], types.UnionType) and type(None) in typing.get_args(_TYPES[name])


def _parse(name: str, text: str) -> typing.Any:
    """Reads one typed text as a value of the field's type. Raises ValueError with what is wrong."""
    text = text if _plain_type(name) is str else text.strip()
    if not text and _is_optional(name):
        return None
    kind = _plain_type(name)
    if kind is bool:
        lowered = text.lower()
        if lowered in ("true", "yes", "on", "1"):
            return True
        if lowered in ("false", "no", "off", "0"):
            return False
        raise ValueError("is neither true nor false")
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ValueError("is not a whole number") from None
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ValueError("is not a number") from None
    if typing.get_origin(kind) is tuple:
        try:
            return tuple(int(item) for item in text.split(","))
        except ValueError:
            raise ValueError("is not a list of whole numbers") from None
    return text


def _accepted(name: str) -> str:
    kind = _plain_type(name)
    if kind is bool:
        return "write true or false"
    if typing.get_origin(kind) is tuple:
        return "write numbers separated by commas, such as 0,1"
    return "write a whole number" if kind is int else "write a number such as 0.001"


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if isinstance(number, int) or math.isfinite(number):
            return number
    return text


def _nearest(name: str, known: typing.Iterable[str]) -> str:
    import difflib

    names = list(known)
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean {close[0]}?" if close else f"the fields are {', '.join(names)}"
