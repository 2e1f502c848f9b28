"""Like with like: which runs may be compared, by what, and which field is in the way when they may not."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from experiments.analysis.field_words import difference, term
from training import catalog


class BatchRule(StrEnum):
    """Which batch size stays the same when the number of replicas changes."""

    FIXED_GLOBAL = "fixed global batch"
    FIXED_PER_REPLICA = "fixed per-replica batch"


class Thing(StrEnum):
    """What a comparison is about: the one thing that may differ, with what it brings along."""

    DEVICE = "device"
    REPLICAS = "replicas"
    WORKERS = "workers"
    STRATEGY = "strategy"
    PRECISION = "precision"
    XLA = "jit_compile"
    STEPS_PER_EXECUTION = "steps_per_execution"
    BATCH = "batch size"
    DETERMINISM = "determinism"
    VERSIONS = "versions"
    CPU_THREADS = "cpu_threads"
    DATA_OPTIONS = "dataset options"
    MACHINE = "machine"
    PLACEMENT = "manual placement"


class NotThereError(KeyError):
    """What was named is not among the runs. The message says what; a KeyError would print it in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])


FIELDS = (
    "workload",
    "dataset",
    "dataset_options",
    "device",
    "replicas",
    "workers",
    "strategy",
    "global_batch_size",
    "per_replica_batch_size",
    "precision",
    "jit_compile",
    "onednn",
    "steps_per_execution",
    "deterministic",
    "cpu_threads",
    "simulated",
    "manual_placement",
    "tensorflow",
    "keras",
    "machine",
    "gpu",
)
"""Fields that must agree unless the thing compared lets them differ. `jit_compile` is what Keras resolved it to, as
`auto` means another thing on another device (keras-team/keras#18145); `machine` is the host's CPU model, `gpu` the
GPU model of a GPU run: what a GPU bought is told beside the CPU of the same kind of host; `onednn` is which kernels
computed on the CPU. Not among them: seed and learning rate (no effect on time), number of epochs (only on whole runs,
see `speedup`)."""

_WORDS = {
    "onednn": "whether oneDNN computed on the CPU",
    "simulated": "whether devices were simulated",
    "tensorflow": "TensorFlow's version",
    "keras": "Keras's version",
    "machine": "the CPU's model",
    "gpu": "the GPU's model",
}
"""Fields that a person cannot know from RunSpec, in words."""

_MAY_DIFFER: dict[Thing, frozenset[str]] = {
    Thing.DEVICE: frozenset({"device", "gpu", "cpu_threads"}),
    Thing.REPLICAS: frozenset({"replicas", "strategy"}),
    Thing.WORKERS: frozenset({"workers", "strategy"}),
    Thing.STRATEGY: frozenset({"strategy"}),
    Thing.PRECISION: frozenset({"precision"}),
    Thing.XLA: frozenset({"jit_compile"}),
    Thing.STEPS_PER_EXECUTION: frozenset({"steps_per_execution"}),
    Thing.BATCH: frozenset({"global_batch_size", "per_replica_batch_size"}),
    Thing.DETERMINISM: frozenset({"deterministic"}),
    Thing.VERSIONS: frozenset({"tensorflow", "keras"}),
    Thing.CPU_THREADS: frozenset({"cpu_threads"}),
    Thing.DATA_OPTIONS: frozenset({"dataset_options"}),
    Thing.MACHINE: frozenset({"machine", "gpu", "onednn"}),
    Thing.PLACEMENT: frozenset({"manual_placement"}),
}
_OWN = {
    Thing.DEVICE: ("device",),
    Thing.REPLICAS: ("replicas",),
    Thing.WORKERS: ("workers",),
    Thing.BATCH: ("global_batch_size",),
    Thing.MACHINE: ("gpu", "machine"),
}
"""Where not all that may differ is the thing itself: of these one must differ, the others only follow from it."""
_SCALING = (Thing.REPLICAS, Thing.WORKERS)
QUESTIONS = [
    (thing, rule) for thing in Thing for rule in (BatchRule if thing in _SCALING else (BatchRule.FIXED_GLOBAL,))
]
"""Everything that runs can be compared by."""
Questions = Sequence[tuple[Thing, BatchRule]]
NOT_RECORDED = "not recorded"
_COMMIT_SHOWN = 9


def may_differ(thing: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL) -> frozenset[str]:
    """Fields that a comparison of this thing lets differ.

    For replicas and workers the rule says which batch must agree; the other one follows from the number of replicas.
    """
    if thing not in _SCALING:
        return _MAY_DIFFER[thing]
    follows = "per_replica_batch_size" if rule is BatchRule.FIXED_GLOBAL else "global_batch_size"
    return _MAY_DIFFER[thing] | {follows}


def own(thing: Thing) -> tuple[str, ...]:
    """Fields of which one must differ, for a comparison to be about this thing."""
    return _OWN.get(thing, tuple(sorted(_MAY_DIFFER[thing])))


def _text(value: object) -> str:
    """One value as text that is equal for equal meanings; empty when missing."""
    if value is None or (not isinstance(value, dict | list | tuple) and pd.isna(value)):  # type: ignore[call-overload]
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    return text.lower() if text in ("True", "False") else text


def _options(dataset: str, value: object) -> str:
    """Data set options with the defaults filled in, so that a default given by hand is no difference."""
    try:
        options = json.loads(value) if isinstance(value, str) and value.strip() else value
    except (ValueError, RecursionError):
        return str(value)  # cut at the store's limit, or written by someone else: it equals itself only
    options = dict(options) if isinstance(options, dict) else {}
    if dataset in catalog.DATASETS:
        options = catalog.option_values(dataset, options)
    return json.dumps(options, sort_keys=True)


def _threads(threads: str, device: str, workers: str, cpus: str) -> str:
    """Cores a worker has. Unset on a CPU is a share of the machine: another number of workers, another share.

    A model's name does not tell a machine's size: of one CPU model there are virtual machines of 4 cores and of 16.
    """
    if threads:
        return threads
    machine = f"{cpus} CPUs" if cpus else "the machine"
    return f"1/{workers or '1'} of {machine}" if device == "cpu" else "its GPU's share of the machine"


def _precision(precision: str, device: str) -> str:
    """A CPU only emulates float16, tens of times slower than float32: against a GPU that is no effect of the device."""
    return f"{precision}, emulated" if precision == "mixed_float16" and device == "cpu" else precision


def _placement(value: object) -> str:
    text = _text(value)
    return "" if text in ("", "{}") else text


def fields(runs: pd.DataFrame) -> pd.DataFrame:
    """The fields of `FIELDS` as texts that are equal exactly when they mean the same.

    Args:
        runs: rows of RUN_COLUMNS, with run_id.

    Returns:
        [runs, FIELDS] of Python's str, indexed by run_id; `not recorded` where a value is missing.
    """
    # As objects: a table of 21 columns of Arrow's strings takes tens of milliseconds to make, also for two runs.
    return pd.DataFrame(
        _columns(runs), index=pd.Index(runs["run_id"], name="run_id"), columns=list(FIELDS), dtype="object"
    )


def _columns(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Field -> its text for each run, in order."""

    def texts(name: str) -> list[str]:
        return [_text(value) for value in runs[name].tolist()]

    derived = ("jit_compile", "dataset_options", "cpu_threads", "manual_placement", "machine", "gpu")
    columns = {name: texts(name) for name in FIELDS if name not in derived}
    devices = columns["device"]
    asked, resolved = texts("jit_compile"), texts("jit_compile_resolved")
    columns["jit_compile"] = [seen or wanted for seen, wanted in zip(resolved, asked, strict=True)]
    columns["dataset_options"] = [
        _options(dataset, value)
        for dataset, value in zip(columns["dataset"], runs["dataset_options"].tolist(), strict=True)
    ]
    columns["cpu_threads"] = [
        _threads(*each)
        for each in zip(texts("cpu_threads"), devices, columns["workers"], texts("cpu_count"), strict=True)
    ]
    columns["precision"] = [_precision(*each) for each in zip(columns["precision"], devices, strict=True)]
    columns["manual_placement"] = [_placement(value) or "none" for value in runs["manual_placement"].tolist()]
    # Without a CPU model the host's name is the only thing that tells machines apart.
    columns["machine"] = [
        model or (f"host {host}" if host else "") for model, host in zip(texts("cpu_model"), texts("host"), strict=True)
    ]
    columns["gpu"] = [gpu if kind == "gpu" else "none" for gpu, kind in zip(texts("gpu_model"), devices, strict=True)]
    return {name: [text or NOT_RECORDED for text in columns[name]] for name in FIELDS}


@dataclass(frozen=True)
class Check:
    """Whether two runs may be compared.

    Attributes:
        possible: whether they may.
        in_the_way: fields that differ and must not, each as "field: baseline / candidate", in a reader's words.
        differs: fields that differ and may, in the same form.
        notes: what does not forbid the comparison and should be known.
    """

    possible: bool
    in_the_way: tuple[str, ...]
    differs: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The outcome in one line."""
        if not self.possible:
            return f"cannot be compared: {'; '.join(self.in_the_way)}"
        return f"compared by {'; '.join(self.differs)}"


def notes_of(runs: pd.DataFrame) -> tuple[str, ...]:
    """What does not forbid a comparison of some runs and should be known.

    Another version of the product is among it, as its training loop is part of what is timed. It forbids nothing: most
    commits change no loop, and a team's runs would soon compare with none.

    Args:
        runs: rows of RUN_COLUMNS, the baseline's first.
    """
    return _notes(runs, _columns(runs))


def _notes(runs: pd.DataFrame, columns: dict[str, list[str]]) -> tuple[str, ...]:
    which = "either" if len(runs) == 2 else "any"
    unknown = [name for name in FIELDS if set(columns[name]) == {NOT_RECORDED}]
    notes = [f"{_WORDS.get(name, term(name))} was not recorded for {which} run" for name in unknown]
    hosts = list(dict.fromkeys(map(_text, runs["host"].tolist())))
    commits = list(dict.fromkeys(_text(each)[:_COMMIT_SHOWN] or NOT_RECORDED for each in runs["git_commit"].tolist()))
    notes += [f"on other hosts: {' / '.join(hosts)}"] if len(hosts) > 1 else []
    notes += [f"different versions of Speedup Lab: {' / '.join(commits)}"] if len(commits) > 1 else []
    return tuple(notes)


def check(
    runs: pd.DataFrame, baseline: str, candidate: str, thing: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL
) -> Check:
    """Whether a candidate may be compared with a baseline by one thing.

    Args:
        runs: rows of RUN_COLUMNS.
        baseline, candidate: run ids.
        thing: what the comparison is about.
        rule: for replicas and workers, which batch must agree.

    Raises:
        KeyError: an unknown run.
    """
    (answer,) = checks(runs, baseline, candidate, [(thing, rule)])
    return answer


def checks(runs: pd.DataFrame, baseline: str, candidate: str, questions: Questions) -> list[Check]:
    """`check` for several questions about the same two runs.

    Raises:
        KeyError: an unknown run.
    """
    positions = {run_id: position for position, run_id in enumerate(runs["run_id"].tolist())}
    for run_id in (baseline, candidate):
        if run_id not in positions:
            raise NotThereError(f"no run {run_id}")
    two = runs.iloc[list(dict.fromkeys([positions[baseline], positions[candidate]]))]
    columns = _columns(two)
    notes = _notes(two, columns)
    ends = {name: (texts[0], texts[-1]) for name, texts in columns.items()}
    unequal = {name: difference(name, one, other) for name, (one, other) in ends.items() if one != other}
    return [_checked(unequal, thing, rule, notes) for thing, rule in questions]


def _checked(unequal: dict[str, str], thing: Thing, rule: BatchRule, notes: tuple[str, ...]) -> Check:
    """What a question makes of the fields that differ: name -> "what it is called: baseline / candidate"."""
    allowed = may_differ(thing, rule)
    in_the_way = [shown for name, shown in unequal.items() if name not in allowed]
    differs = [shown for name, shown in unequal.items() if name in allowed]
    if not in_the_way and not set(unequal) & set(own(thing)):
        in_the_way = [f"{term(thing.value)}: is the same in both runs, so there is nothing to compare"]
    return Check(not in_the_way, tuple(in_the_way), tuple(differs), notes)


def cells(runs: pd.DataFrame, ignoring: Iterable[str] = ()) -> pd.Series:
    """A number for every run, the same for runs that agree in all FIELDS but those ignored: repeats of one another.

    Returns:
        int64 series indexed by run_id, numbered in order of first appearance.
    """
    return numbered(fields(runs), ignoring)


def numbered(table: pd.DataFrame, ignoring: Iterable[str] = ()) -> pd.Series:
    """`cells` of runs whose frame of `fields` is known."""
    keys = [name for name in FIELDS if name not in set(ignoring)]
    numbers: dict[tuple[str, ...], int] = {}
    rows = zip(*(table[name].tolist() for name in keys), strict=True)
    found = [numbers.setdefault(row, len(numbers)) for row in rows]
    return pd.Series(found, index=table.index, dtype="int64")
