"""The fields of `comparable.FIELDS` and their values as a reader says them."""

import json
import typing

_TERMS = {
    "dataset": "data set",
    "dataset_options": "data set options",
    "global_batch_size": "batch",
    "per_replica_batch_size": "batch per replica",
    "jit_compile": "XLA",
    "onednn": "oneDNN",
    "steps_per_execution": "steps per execution",
    "cpu_threads": "CPU threads",
    "manual_placement": "layers placed by hand",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "gpu": "GPU model",
    "simulated": "devices",
}
_COUNTED = {"replicas": "replica", "workers": "worker", "cpu_threads": "CPU thread"}
_NONE = {("gpu", "none"): "no GPU", ("manual_placement", "none"): "no layer placed by hand"}
_SWITCHES = ("jit_compile", "onednn", "deterministic")
_SAY_IT_ALONE = ("strategy", "precision", "machine", "gpu")
_OBJECTS = ("dataset_options", "manual_placement")
_ON_OFF = {"true": "on", "false": "off"}


def term(name: str) -> str:
    """What a field is called, such as "XLA" for `jit_compile`."""
    return _TERMS.get(name, name)


def in_words(name: str, value: str) -> str:
    """One field with its value, such as "2 replicas" or "XLA off"."""
    if name in _COUNTED and value.isdigit():
        return f"{value} {_COUNTED[name]}{'' if value == '1' else 's'}"
    if (name, value) in _NONE:
        return _NONE[name, value]
    if name == "device" or name in _SAY_IT_ALONE:
        return _value(name, value)
    return f"{term(name)} {_value(name, value)}"


def difference(name: str, one: str, other: str) -> str:
    """A field in which two runs differ, such as "XLA: off / on"; of options, only those that differ."""
    parts = (_options(one), _options(other)) if name in _OBJECTS else ({}, {})
    differing = [key for key in {**parts[0], **parts[1]} if parts[0].get(key) != parts[1].get(key)]
    if differing:
        told = (f"{key} {parts[0].get(key, 'not set')} / {parts[1].get(key, 'not set')}" for key in differing)
        return f"{term(name)}: {', '.join(told)}"
    return f"{term(name)}: {_value(name, one)} / {_value(name, other)}"


def _options(text: str) -> dict[str, typing.Any]:
    """The entries of a JSON object; none where somebody wrote something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _value(name: str, value: str) -> str:
    if name == "device":
        return value.upper() if value in ("cpu", "gpu") else value
    if name == "simulated":
        return {"true": "simulated", "false": "real"}.get(value, value)
    if name == "cpu_threads" and not value.isdecimal():
        return f"({value})"  # such as 1/2 of the machine, beside another number
    return _ON_OFF.get(value, value) if name in _SWITCHES else value
