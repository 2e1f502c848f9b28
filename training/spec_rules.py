"""What a RunSpec may say: one rule a function, each refusal with the field, the value and the remedy."""

import math
import re
import types
import typing
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass
from enum import StrEnum

from training import catalog

if typing.TYPE_CHECKING:
    from training.spec import RunSpec

LONGEST_NAME = 250
LONGEST_TEXT = 100_000
_TAG_KEY = re.compile(r"[\w.\- /:]{1,200}")
_DEVICE = re.compile(r"/(CPU|GPU):(0|[1-9][0-9]{0,3})")


class Severity(StrEnum):
    """Whether a problem refuses the run or only warns."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One thing wrong or doubtful: which field, its value, what is wrong with it and how to mend it."""

    field: str
    value: object
    message: str
    remedy: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return f"{self.field}={shown} {self.message}: {self.remedy}"


def _warning(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field, value, message, remedy, Severity.WARNING)


# --- one field ---------------------------------------------------------------------------------------------------


def field_problems(field: Field, hint: typing.Any, value: object) -> Iterator[Problem]:
    """Type, choices and limits of one field, then what is particular to it."""
    name = field.name
    kind: typing.Any = hint
    if isinstance(hint, types.UnionType):
        if value is None:
            return
        kind = next(choice for choice in typing.get_args(hint) if choice is not type(None))
    origin = typing.get_origin(kind) or kind
    fits = isinstance(value, origin) and not (origin in (int, float) and isinstance(value, bool))
    if not fits:
        yield Problem(name, value, "has the wrong type", f"give {_type_in_words(origin)}")
        return
    choices = field.metadata.get("choices")
    if choices and value not in choices:
        yield Problem(name, value, "is unknown", f"choose one of {', '.join(choices)}")
    if isinstance(value, int) and not isinstance(value, bool):
        low, high = field.metadata.get("minimum"), field.metadata.get("maximum")
        if low is not None and value < low:
            yield Problem(name, value, "is too small", f"give at least {low}")
        if high is not None and value > high:
            yield Problem(name, value, "is too large", f"give at most {high}")
    particular = _PARTICULAR.get(name)
    if particular:
        yield from particular(value)
    elif isinstance(value, str):
        yield from _text(name, value, LONGEST_NAME)


def _type_in_words(origin: typing.Any) -> str:
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        tuple: "a list of whole numbers",
    }
    return words.get(origin, "an object of keys and values")


def _text(name: str, value: str, longest: int, newlines: bool = False) -> Iterator[Problem]:
    if len(value) > longest:
        yield Problem(name, value, f"has {len(value)} characters", f"give at most {longest}")
    allowed = "\n\t\r" if newlines else ""
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") and char not in allowed for char in value):
        yield Problem(name, value, "contains control characters", "remove them")
    if any(char in _BIDIRECTIONAL for char in value):
        yield Problem(name, value, "contains characters that turn the direction of text around", "remove them")
    if value and not newlines and all(unicodedata.category(char) in ("Zs", "Cf") for char in value):
        yield Problem(name, value, "is blank", "write something, or nothing at all")


_BIDIRECTIONAL = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""By them a name may read on screen as another (Unicode Technical Report 36)."""


def _workload(value: str) -> Iterator[Problem]:
    if value not in catalog.WORKLOADS:
        yield Problem("workload", value, "is unknown", f"choose one of {', '.join(catalog.WORKLOADS)}")


def _dataset(value: str) -> Iterator[Problem]:
    if value not in catalog.DATASETS:
        yield Problem("dataset", value, "is unknown", f"choose one of {', '.join(catalog.DATASETS)}")


def _learning_rate(value: float) -> Iterator[Problem]:
    if not math.isfinite(value) or value <= 0:
        yield Problem("learning_rate", value, "is not a positive number", "give a number such as 0.001")


def _gpus(value: tuple) -> Iterator[Problem]:
    if not value:
        yield Problem("gpus", list(value), "names no GPU", "leave it unset, or name GPUs such as 0,1")
    if any(not isinstance(index, int) or isinstance(index, bool) or index < 0 for index in value):
        yield Problem("gpus", list(value), "holds something that is not a GPU index", "give whole numbers from 0")
    elif len(set(value)) != len(value):
        yield Problem("gpus", list(value), "names a GPU twice", "name each GPU once")


def _tags(value: Mapping) -> Iterator[Problem]:
    if len(value) > 50:
        yield Problem("tags", f"{len(value)} tags", "are too many", "give at most 50")
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            yield Problem("tags", {key: text}, "is not text", "give text keys and text values")
            continue
        if not _TAG_KEY.fullmatch(key):
            yield Problem(
                "tags", key, "is no tag name", "use up to 200 letters, digits, spaces and _ - . / : in a tag's name"
            )
        if key != key.strip() or text != text.strip():
            yield Problem("tags", {key: text}, "begins or ends with a blank", "leave it out")
        yield from _text("tags", text, 5000)


def _notes(value: str) -> Iterator[Problem]:
    yield from _text("notes", value, LONGEST_TEXT, newlines=True)


def _manual_placement(value: Mapping) -> Iterator[Problem]:
    for layer, device in value.items():
        if not isinstance(layer, str) or not isinstance(device, str) or not _DEVICE.fullmatch(device):
            yield Problem(
                "manual_placement", {layer: device}, "is no device", "write a device such as /CPU:0 or /GPU:0"
            )


def _dataset_options(value: Mapping) -> Iterator[Problem]:
    for key, option in value.items():
        if not isinstance(key, str) or not isinstance(option, int | float | str) or isinstance(option, bool):
            yield Problem("dataset_options", {key: option}, "is neither number nor text", "give a number or a text")


_PARTICULAR: dict[str, typing.Callable[[typing.Any], Iterator[Problem]]] = {
    "workload": _workload,
    "dataset": _dataset,
    "dataset_options": _dataset_options,
    "learning_rate": _learning_rate,
    "gpus": _gpus,
    "tags": _tags,
    "notes": _notes,
    "manual_placement": _manual_placement,
}


# --- fields together ---------------------------------------------------------------------------------------------


def combination_problems(spec: "RunSpec") -> list[Problem]:
    """What cannot, or should not, go together. Every field has passed `field_problems`."""
    return [problem for rule in _COMBINATIONS for problem in rule(spec)]


def _dataset_fits(spec: "RunSpec") -> Iterator[Problem]:
    dataset, workload = catalog.DATASETS[spec.dataset], catalog.WORKLOADS[spec.workload]
    for key, value in spec.dataset_options.items():
        option = dataset.options.get(key)
        if option is None:
            known = ", ".join(dataset.options) or "none"
            yield Problem("dataset_options", key, f"is no option of {spec.dataset}", f"its options are {known}")
        else:
            message = option.refusal(value)
            if message:
                yield Problem("dataset_options", {key: value}, message, option.help)
                return
    values = catalog.option_values(spec.dataset, spec.dataset_options)
    if values.get("delay_ms") and values["pipeline"] != "tf_data":
        yield _warning(  # no refusal: runs are on record with it, and their specs are read again
            "dataset_options",
            {"delay_ms": values["delay_ms"]},
            f"has no effect with pipeline={values['pipeline']}",
            "add pipeline=tf_data, or leave delay_ms out",
        )
    if workload.input_kind != dataset.input_kind:
        fitting = [name for name, other in catalog.DATASETS.items() if other.input_kind == workload.input_kind]
        yield Problem(
            "dataset",
            spec.dataset,
            f"holds {dataset.input_kind}s, and {spec.workload} takes {workload.input_kind}s",
            f"choose one of {', '.join(fitting)}",
        )
        return
    shape = catalog.input_shape(spec.dataset, spec.dataset_options)
    message = workload.shape_refusal(shape)
    if message:
        shown = "x".join(map(str, shape))
        yield Problem("dataset_options", {"shape": shown}, message, "give a shape such as 28x28x1")
    examples = catalog.training_examples(spec.dataset, spec.dataset_options)
    if spec.global_batch_size > examples:
        yield Problem(
            "global_batch_size",
            spec.global_batch_size,
            f"is more than the {examples} training examples",
            f"give at most {examples}",
        )


def _strategy_shape(spec: "RunSpec") -> Iterator[Problem]:
    if spec.strategy != "multi_worker_mirrored" and spec.workers != 1:
        yield Problem(
            "workers", spec.workers, f"does not go with {spec.strategy}", "choose multi_worker_mirrored, or 1 worker"
        )
    if spec.strategy == "one_device" and spec.replicas != 1:
        yield Problem("replicas", spec.replicas, "does not go with one_device", "choose mirrored, or 1 replica")


def _batch(spec: "RunSpec") -> Iterator[Problem]:
    count = spec.total_replicas
    if spec.global_batch_size < count:
        yield Problem(
            "global_batch_size",
            spec.global_batch_size,
            f"is smaller than the {count} replicas",
            f"give at least {count}",
        )
    elif spec.global_batch_size % count:
        low = spec.global_batch_size // count * count
        yield Problem(
            "global_batch_size",
            spec.global_batch_size,
            f"does not divide by {count} replicas",
            f"give {low} or {low + count}, so that every replica gets the same number of examples",
        )


def _devices(spec: "RunSpec") -> Iterator[Problem]:
    if spec.device == "cpu":
        if spec.gpus is not None:
            yield Problem(
                "gpus", list(spec.gpus), "does not go with device=cpu", "choose device=gpu, or leave it unset"
            )
        if spec.memory_growth:
            yield Problem(
                "memory_growth", True, "is about GPUs, and device is cpu", "switch it off, or choose device=gpu"
            )
        if spec.memory_limit_mib is not None:
            yield Problem(
                "memory_limit_mib", spec.memory_limit_mib, "is about GPUs, and device is cpu", "leave it unset"
            )
        if spec.replicas > 1 and spec.logical_devices == 0:
            yield Problem(
                "replicas",
                spec.replicas,
                "is more than the one CPU device of a worker",
                f"set logical_devices={spec.replicas} to simulate them, or choose device=gpu",
            )
    elif spec.gpus is not None:
        if spec.workers > 1:
            yield Problem("gpus", list(spec.gpus), "cannot be chosen for several workers", "leave it unset")
        elif len(spec.gpus) != spec.gpus_per_worker:
            yield Problem(
                "gpus",
                list(spec.gpus),
                f"names {len(spec.gpus)} GPUs for {spec.gpus_per_worker}",
                f"name {spec.gpus_per_worker}, one for each device the run uses",
            )
    if 0 < spec.logical_devices < spec.replicas:
        yield Problem(
            "logical_devices",
            spec.logical_devices,
            f"is fewer than the {spec.replicas} replicas",
            f"give at least {spec.replicas}",
        )


def _memory(spec: "RunSpec") -> Iterator[Problem]:
    if spec.memory_growth and spec.memory_limit_mib is not None:
        yield Problem("memory_growth", True, "excludes memory_limit_mib", "switch growth off, or leave the limit unset")
    if spec.device == "gpu" and spec.memory_growth and spec.logical_devices:
        yield Problem(
            "memory_growth", True, "excludes simulated devices, whose memory is fixed", "switch one of the two off"
        )


def _xla(spec: "RunSpec") -> Iterator[Problem]:
    if spec.jit_compile and spec.strategy != "one_device":
        yield Problem(
            "jit_compile",
            True,
            f"does not go with {spec.strategy}: TensorFlow cannot all-reduce inside an XLA-compiled step",
            "switch it off, or choose one_device",
        )


def _placement(spec: "RunSpec") -> Iterator[Problem]:
    if not spec.manual_placement:
        return
    placement = dict(spec.manual_placement)
    if spec.strategy != "one_device":
        yield Problem(
            "manual_placement",
            placement,
            f"does not go with {spec.strategy}, which places the layers itself",
            "choose one_device, or remove it",
        )
    if spec.jit_compile:
        yield Problem(
            "manual_placement",
            placement,
            "does not go with XLA, which compiles for one device",
            "switch one of the two off",
        )
    layers = catalog.WORKLOADS[spec.workload].layers
    available = {"CPU": spec.logical_devices if spec.device == "cpu" and spec.logical_devices else 1}
    available["GPU"] = (spec.logical_devices or spec.replicas) if spec.device == "gpu" else 0
    for layer, device in placement.items():
        if layer not in layers:
            yield Problem(
                "manual_placement", layer, f"is no layer of {spec.workload}", f"its layers are {', '.join(layers)}"
            )
        match = _DEVICE.fullmatch(device)
        assert match, "field_problems let a malformed device through"
        kind, index = match[1], int(match[2])
        if index >= available[kind]:
            have = ", ".join(f"/{name}:{i}" for name, count in available.items() for i in range(count))
            yield Problem("manual_placement", {layer: device}, "is not a device of this run", f"it has {have}")


def _precision(spec: "RunSpec") -> Iterator[Problem]:
    if spec.device == "cpu" and spec.precision != "float32":
        yield _warning(
            "precision",
            spec.precision,
            "is usually many times slower on a CPU",
            "choose float32 unless you measure just that",
        )


def _simulated(spec: "RunSpec") -> Iterator[Problem]:
    if spec.logical_devices:
        yield _warning(
            "logical_devices",
            spec.logical_devices,
            "simulates devices that share the same hardware",
            "use them to test, not to measure speed",
        )


_COMBINATIONS: tuple[typing.Callable[["RunSpec"], Iterator[Problem]], ...] = (
    _dataset_fits,
    _strategy_shape,
    _batch,
    _devices,
    _memory,
    _xla,
    _placement,
    _precision,
    _simulated,
)
