"""What a form shows of a RunSpec, and what follows from it. No Streamlit: plain values in, plain values out."""

import dataclasses
import re
import shlex
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.plan_runs import PLAN_TAG
from training import catalog
from training.spec import RunSpec, spec_fields

CHOICE_LABELS = {
    "cpu": "CPU",
    "gpu": "GPU",
    "one_device": "OneDevice",
    "mirrored": "Mirrored",
    "multi_worker_mirrored": "MultiWorkerMirrored",
    "memory": "whole set in memory",
    "tf_data": "tf.data pipeline",
}

# Asked by nearly everybody; the rest of a part waits behind "More".
COMMON = frozenset(
    {
        "workload",
        "dataset",
        "device",
        "strategy",
        "replicas",
        "workers",
        "gpus",
        "cpu_threads",
        "epochs",
        "global_batch_size",
        "max_steps_per_epoch",
        "learning_rate",
        "precision",
        "name",
        "user",
    }
)


def is_shown(name: str, values: Mapping[str, typing.Any], gpus: int, gpu_ids: Sequence[int]) -> bool:
    """Whether a field makes sense together with the rest; one that does not keeps its default.

    Args:
        name: the field.
        values: the form's values so far; needs `device`, `strategy` and `gpus`.
        gpus: GPUs that runs can have.
        gpu_ids: their physical indices, where there is one machine and they can be chosen.
    """
    on_gpu, strategy = values["device"] == "gpu", values["strategy"]
    if name == "device":
        return gpus > 0 or on_gpu
    if name == "replicas":
        return strategy != "one_device"
    if name == "workers":
        return strategy == "multi_worker_mirrored"
    if name == "gpus":
        return on_gpu and bool(values["gpus"] or len(gpu_ids) > 1) and strategy != "multi_worker_mirrored"
    if name in ("memory_growth", "memory_limit_mib"):
        return on_gpu
    if name in ("jit_compile", "manual_placement"):
        return strategy == "one_device"
    return True


def is_common(name: str, values: Mapping[str, typing.Any]) -> bool:
    """Whether a field is asked at once, or waits behind "More"."""
    return name in COMMON or (name == "logical_devices" and values["strategy"] != "one_device")


def settled_logical_devices(device: str, strategy: str, replicas: int) -> int:
    """How many simulated devices a choice needs: a CPU is one device, so replicas on it are simulated ones."""
    return replicas if device == "cpu" and strategy != "one_device" and replicas > 1 else 0


def placement_devices(device: str, replicas: int, logical_devices: int) -> list[str]:
    """The devices that manual placement may name, as `training.spec_rules` counts them."""
    cpus = logical_devices if device == "cpu" and logical_devices else 1
    gpus = (logical_devices or replicas) if device == "gpu" else 0
    return [f"/CPU:{index}" for index in range(cpus)] + [f"/GPU:{index}" for index in range(gpus)]


def kind(field: dataclasses.Field) -> tuple[typing.Any, bool]:
    """A field's type without None, and whether None is allowed."""
    hint = typing.get_type_hints(RunSpec)[field.name]
    if isinstance(hint, types.UnionType):
        return next(one for one in typing.get_args(hint) if one is not type(None)), True
    return hint, False


def assignments(spec: RunSpec) -> list[str]:
    """The spec as `field=value` texts, only where it differs from a new RunSpec: what `--set` takes."""
    texts = []
    default = RunSpec()
    for field in spec_fields():
        value = getattr(spec, field.name)
        if value == getattr(default, field.name):
            continue
        if isinstance(value, Mapping):
            texts += [f"{field.name}.{key}={entry}" for key, entry in value.items()]
        elif isinstance(value, tuple):
            texts.append(f"{field.name}={','.join(map(str, value))}")
        elif isinstance(value, bool):
            texts.append(f"{field.name}={str(value).lower()}")
        else:
            texts.append(f"{field.name}={'' if value is None else value}")
    return texts


_NAMES = {field.name: str(field.metadata["label"]) for field in spec_fields()}
_SPOKEN = re.compile(
    r"\b(?P<field>" + "|".join(_NAMES) + r")=(?P<value>[\w/:.-]+)"
    r"|\b(?P<name>" + "|".join(name for name in _NAMES if "_" in name) + r")\b"
    r"|\b(?P<choice>one_device|multi_worker_mirrored|mirrored)\b"
)


def in_form_words(text: str) -> str:
    """A refusal of `training.spec_rules`, which speaks of fields as the command line does, in the form's words."""

    def word(found: re.Match[str]) -> str:
        if found["field"]:
            return f"{_NAMES[found['field']]} {CHOICE_LABELS.get(found['value'], found['value'])}"
        return _NAMES[found["name"]] if found["name"] else CHOICE_LABELS[found["choice"]]

    return _SPOKEN.sub(word, text)


def to_start_again(spec: RunSpec) -> dict[str, typing.Any]:
    """What a form begins with to start a run like this one: all but whose it was, and what an experiment made of it.

    The name that a ready-made experiment gave a run tells its case and repeat, its group is that experiment's.
    """
    values = {**spec.to_dict(), "name": spec.name}
    del values["user"]
    if PLAN_TAG in spec.tags:
        tags = {key: value for key, value in spec.tags.items() if key != PLAN_TAG}
        values |= {"name": "", "group": "", "tags": tags}
    return values


def command(spec: RunSpec) -> str:
    """The shell command that starts the same run; every typed text is quoted."""
    parts = [f"--set {shlex.quote(text)}" for text in assignments(spec)]
    return " ".join(["python -m experiments run", *parts])


def parse_tags(text: str) -> tuple[dict[str, str], str]:
    """Reads tags typed one `key=value` a line.

    Returns:
        The tags, and what is wrong with the first line that is none (empty when all are).
    """
    tags: dict[str, str] = {}
    for typed in text.splitlines():
        if not typed.strip():
            continue
        key, equals, value = typed.partition("=")
        if not equals or not key.strip():
            return tags, f"{typed.strip()!r} has no '=': write key=value, one a line"
        tags[key.strip()] = value.strip()
    return tags, ""


def format_tags(tags: Mapping[str, str]) -> str:
    """The inverse of `parse_tags`."""
    return "\n".join(f"{key}={value}" for key, value in tags.items())


@dataclass(frozen=True)
class Derived:
    """What follows from a spec. Counts of examples and steps; an epoch leaves out what fills no batch."""

    total_replicas: int
    per_replica_batch_size: int
    steps_per_epoch: int
    total_steps: int
    examples_left_out: int
    training_examples: int
    validation_examples: int


def derived(spec: RunSpec) -> Derived | None:
    """What follows from a spec that has no refusals; None where a value makes it meaningless."""
    if spec.dataset not in catalog.DATASETS or min(spec.global_batch_size, spec.replicas, spec.workers) < 1:
        return None
    options = spec.dataset_options
    examples = catalog.training_examples(spec.dataset, options)
    steps = catalog.steps_per_epoch(spec.dataset, options, spec.global_batch_size, spec.max_steps_per_epoch)
    return Derived(
        total_replicas=spec.total_replicas,
        per_replica_batch_size=spec.per_replica_batch_size,
        steps_per_epoch=steps,
        total_steps=steps * spec.epochs,
        examples_left_out=examples - steps * spec.global_batch_size,
        training_examples=examples,
        validation_examples=catalog.validation_examples(spec.dataset, options),
    )
