"""Ready-made experiments as they are written down: one YAML file each in `experiments/plans`, checked when it is read.

`experiments.plan_runs` says what a plan can measure on given machines, and makes its runs.
"""

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from experiments.analysis.comparable import Thing
from training.spec import RunSpec, spec_fields
from training.spec_rules import field_problems

FOLDER = Path(__file__).resolve().parent / "plans"
DEFAULT_REPEATS, MOST_REPEATS = 5, 100
PER_REPLICA_BATCH, LEAST_STEPS = "per_replica_batch_size", "least_steps"
"""What a plan may say beside a run's own fields: the batch of each replica, from which the global one follows; and the
training steps that a run has at least, for which `epochs` is raised where the data set is small."""
COUNTED = {"replicas": ("gpus",), "workers": ("cpus", "gpus")}
"""Fields that may be a range up to what the machines have, such as `2..gpus`."""
OF_A_LAUNCH = ("name", "group", "seed", "user", "gpus")
"""Fields that a plan cannot give: they belong to whoever starts it, or to one machine."""

COMPARABLE = tuple(thing for thing in Thing if thing not in (Thing.VERSIONS, Thing.MACHINE))
"""What a plan may compare: what a run's fields can say."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RANGE = re.compile(r"([1-9]\d{0,3})\.\.(cpus|gpus)")
_TYPES = typing.get_type_hints(RunSpec)
_FIELDS = {field.name: field for field in spec_fields() if field.name not in OF_A_LAUNCH}

Fields = Mapping[str, typing.Any]


class PlanError(ValueError):
    """No such plan, or one that cannot be read. The message names the file, the key and the remedy."""


@dataclass(frozen=True)
class Plan:
    """One ready-made experiment.

    Attributes:
        name: the file's name.
        title: the question that it answers.
        description: what it runs and how to read it; plain text.
        compares: what its cases differ in; for the analyses, and to name the cases.
        base: fields that all cases share, as in RunSpec, with PER_REPLICA_BATCH and LEAST_STEPS.
        cases: fields of each case on top of those. A list of values makes one case for each; a text such as `2..gpus`
            one for each count that shows a curve's shape, up to what the machines have.
        otherwise: cases for machines on which fewer than two of `cases` can be measured.
        repeats: how often each case is run unless somebody says otherwise.
        claim: a speedup that somebody claims for the other cases over the first, to stand beside the measured one.
    """

    name: str
    title: str
    description: str
    compares: tuple[Thing, ...]
    base: Fields
    cases: tuple[Fields, ...]
    otherwise: tuple[Fields, ...] = ()
    repeats: int = DEFAULT_REPEATS
    claim: float | None = None


_KEYS = {field.name for field in dataclasses.fields(Plan)} - {"name"}
_NEEDED = ("title", "description", "compares", "base", "cases")


def plans(folder: Path = FOLDER) -> dict[str, Plan]:
    """Every plan by its name, sorted. Raises PlanError for a file that cannot be read."""
    return {path.stem: load(path) for path in sorted(folder.glob("*.yaml"))}


def find(name: str, folder: Path = FOLDER) -> Plan:
    """The plan with this name. Raises PlanError, which names those there are."""
    known = [path.stem for path in sorted(folder.glob("*.yaml"))]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the plans are {', '.join(known)}"
        raise PlanError(f"plan {name[:80]!r} is unknown: {hint}")
    return load(folder / f"{name}.yaml")


def load(path: Path) -> Plan:
    """Reads and checks one plan. Raises PlanError."""
    if not _NAME.fullmatch(path.stem):
        raise PlanError(f"{path}: a plan's file name is lower-case letters, digits and _, such as batch_size.yaml")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise PlanError(f"{path} cannot be read ({' '.join(str(error).split())}): mend the file") from None
    for key, problem, remedy in _problems(document):
        raise PlanError(f"{path}: {key} {problem}: {remedy}")
    lists = {key: tuple(document[key]) for key in ("cases", "otherwise") if key in document}
    things = tuple(Thing(thing) for thing in document["compares"])
    claim = {"claim": float(document["claim"])} if "claim" in document else {}
    return Plan(path.stem, **{**document, **lists, **claim, "compares": things})


def up_to(value: object) -> tuple[int, str] | None:
    """The first number and the word of a range such as `2..gpus`; None for any other value."""
    match = _RANGE.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), match[2]) if match else None


_Problems = Iterator[tuple[str, str, str]]


def _problems(document: object) -> _Problems:
    """(key, what is wrong, remedy)."""
    if not isinstance(document, dict):
        yield "the file", "is no mapping", f"give the keys {', '.join(_NEEDED)}"
        return
    for key in document:
        if key not in _KEYS:
            yield str(key), "is no key of a plan", f"the keys are {', '.join(sorted(_KEYS))}"
    for key in _NEEDED:
        if key not in document:
            yield key, "is missing", "a plan needs it"
            return
    for key in ("title", "description"):
        if not isinstance(document[key], str) or not document[key].strip():
            yield key, "is no text", "say it in a sentence"
    things = document["compares"]
    if not isinstance(things, list) or not things or any(thing not in COMPARABLE for thing in things):
        yield "compares", f"is {things!r}", f"give a list of {', '.join(COMPARABLE)}"
    repeats = document.get("repeats", DEFAULT_REPEATS)
    if not isinstance(repeats, int) or isinstance(repeats, bool) or not 1 <= repeats <= MOST_REPEATS:
        yield "repeats", f"is {repeats!r}", f"give a whole number from 1 to {MOST_REPEATS}"
    claim = document.get("claim", 1.0)
    if not isinstance(claim, int | float) or isinstance(claim, bool) or not 0 < claim < 1e6:
        yield "claim", f"is {claim!r}", "give a speedup such as 10, or leave it out"
    yield from _field_problems("base", document["base"])
    for key in ("cases", "otherwise"):
        cases = document.get(key, [{}])
        if not isinstance(cases, list) or not cases:
            yield key, f"is {cases!r}", "give a list of cases, each a mapping of fields"
            return
        for index, case in enumerate(cases):
            yield from _field_problems(f"{key}[{index}]", case)


def _field_problems(where: str, fields: object) -> _Problems:
    if not isinstance(fields, dict):
        yield where, f"is {fields!r}", "give a mapping of fields"
        return
    for name, value in fields.items():
        key = f"{where}.{name}"
        if name in (PER_REPLICA_BATCH, LEAST_STEPS):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                yield key, f"is {value!r}", "give a whole number from 1"
        elif name not in _FIELDS:
            known = ", ".join([*_FIELDS, PER_REPLICA_BATCH, LEAST_STEPS])
            yield key, "is no field that a plan may give", f"the fields are {known}"
        elif (counted := up_to(value)) and name in COUNTED:
            if counted[1] not in COUNTED[name]:
                yield key, f"is {value!r}", f"{name} may be counted in {' or '.join(COUNTED[name])}"
        elif value == []:
            yield key, "is an empty list", "give the values, or leave it out"
        else:
            for each in value if isinstance(value, list) else [value]:
                for problem in field_problems(_FIELDS[name], _TYPES[name], each):
                    yield key, f"is {problem.value!r} and {problem.message}", problem.remedy
    if PER_REPLICA_BATCH in fields and "global_batch_size" in fields:
        yield f"{where}.{PER_REPLICA_BATCH}", "stands beside global_batch_size", "give one of the two"
