"""Like with like: which runs may be compared, by what, and which field is in the way when they may not."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

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


FIELDS = (
    "workload",
    "dataset",
    "dataset_options",
    "device",
    "strategy",
    "replicas",
    "workers",
    "global_batch_size",
    "per_replica_batch_size",
    "precision",
    "jit_compile",
    "steps_per_execution",
    "deterministic",
    "cpu_threads",
    "simulated",
    "tensorflow",
    "keras",
    "machine",
)
"""Fields that must agree unless the thing compared lets them differ. `jit_compile` is what Keras resolved it to, as
`auto` means another thing on another device (keras-team/keras#18145); `machine` is the CPU and GPU model. Not among
them: seed and learning rate (no effect on time), number of epochs (only on whole runs, see `speedup`)."""

_MAY_DIFFER: dict[Thing, frozenset[str]] = {
    Thing.DEVICE: frozenset({"device", "machine", "cpu_threads"}),
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
    Thing.MACHINE: frozenset({"machine"}),
}
_SCALING = (Thing.REPLICAS, Thing.WORKERS)
NOT_RECORDED = "not recorded"


def may_differ(thing: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL) -> frozenset[str]:
    """Fields that a comparison of this thing lets differ.

    For replicas and workers the rule says which batch must agree; the other one follows from the number of replicas.
    """
    if thing not in _SCALING:
        return _MAY_DIFFER[thing]
    follows = "per_replica_batch_size" if rule is BatchRule.FIXED_GLOBAL else "global_batch_size"
    return _MAY_DIFFER[thing] | {follows}


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
    options = json.loads(value) if isinstance(value, str) and value.strip() else value
    options = dict(options) if isinstance(options, dict) else {}
    if dataset in catalog.DATASETS:
        options = catalog.option_values(dataset, options)
    return json.dumps(options, sort_keys=True)


def _threads(threads: str, device: str, workers: str) -> str:
    """Cores a worker has. Unset on a CPU is a share of the machine: another number of workers, another share."""
    if threads:
        return threads
    return f"1/{workers or '1'} of the machine" if device == "cpu" else "its GPU's share of the machine"


def fields(runs: pd.DataFrame) -> pd.DataFrame:
    """The fields of `FIELDS` as texts that are equal exactly when they mean the same.

    Args:
        runs: rows of RUN_COLUMNS, with run_id.

    Returns:
        [runs, FIELDS] indexed by run_id; `not recorded` where a value is missing.
    """
    columns = {}
    for name in FIELDS:
        if name in runs and name not in ("jit_compile", "dataset_options", "cpu_threads"):
            columns[name] = [_text(value) for value in runs[name]]
    asked = [_text(value) for value in runs["jit_compile"]]
    resolved = [_text(value) for value in runs["jit_compile_resolved"]]
    columns["jit_compile"] = [seen or wanted for seen, wanted in zip(resolved, asked, strict=True)]
    columns["dataset_options"] = [
        _options(dataset, value) for dataset, value in zip(columns["dataset"], runs["dataset_options"], strict=True)
    ]
    columns["cpu_threads"] = [
        _threads(_text(threads), device, workers)
        for threads, device, workers in zip(runs["cpu_threads"], columns["device"], columns["workers"], strict=True)
    ]
    # Without a CPU model the host's name is the only thing that tells machines apart.
    models = [
        _text(model) or (f"host {_text(host)}" if _text(host) else "")
        for model, host in zip(runs["cpu_model"], runs["host"], strict=True)
    ]
    gpus = [_text(gpu) if kind == "gpu" else "" for gpu, kind in zip(runs["gpu_model"], columns["device"], strict=True)]
    columns["machine"] = [", ".join(filter(None, pair)) for pair in zip(models, gpus, strict=True)]
    table = pd.DataFrame(columns, index=pd.Index(runs["run_id"], name="run_id"), columns=list(FIELDS))
    return table.mask(table == "", NOT_RECORDED)


@dataclass(frozen=True)
class Check:
    """Whether two runs may be compared.

    Attributes:
        possible: whether they may.
        in_the_way: fields that differ and must not, each as "field: baseline / candidate".
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


def _row(table: pd.DataFrame, run_id: str) -> pd.Series:
    if run_id not in table.index:
        raise KeyError(f"no run {run_id}")
    return table.xs(run_id)  # type: ignore[return-value]


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
    table = fields(runs[runs["run_id"].isin([baseline, candidate])])
    first, second = _row(table, baseline), _row(table, candidate)
    allowed = may_differ(thing, rule)
    unequal = [name for name in FIELDS if first[name] != second[name]]

    def shown(name: str) -> str:
        return f"{name}: {first[name]} / {second[name]}"

    in_the_way = [shown(name) for name in unequal if name not in allowed]
    differs = [shown(name) for name in unequal if name in allowed]
    notes = [
        f"{name} was not recorded for either run" for name in FIELDS if first[name] == second[name] == NOT_RECORDED
    ]
    hosts = runs.set_index("run_id")["host"]
    if _text(hosts[baseline]) != _text(hosts[candidate]):
        notes.append(f"other hosts of one model: {_text(hosts[baseline])} / {_text(hosts[candidate])}")
    if not in_the_way and not set(unequal) & _MAY_DIFFER[thing]:
        in_the_way = [f"{thing.value}: is the same in both runs, so there is nothing to compare"]
    return Check(not in_the_way, tuple(in_the_way), tuple(differs), tuple(notes))


def cells(runs: pd.DataFrame, ignoring: Iterable[str] = ()) -> pd.Series:
    """A number for every run, the same for runs that agree in all FIELDS but those ignored: repeats of one another.

    Returns:
        int64 series indexed by run_id, numbered in order of first appearance.
    """
    table = fields(runs)
    keys = [name for name in FIELDS if name not in set(ignoring)]
    if table.empty:
        return pd.Series(dtype="int64", index=table.index)
    numbers: pd.Series = table.groupby(keys, sort=False).ngroup()
    return numbers


def baselines(runs: pd.DataFrame, run_id: str, thing: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL) -> pd.DataFrame:
    """The runs that a chosen run may be compared with by one thing, the natural baseline first.

    Natural is the CPU for a device, one replica for replicas and workers; then more repeats before fewer, then the
    order of `runs` (newest first).

    Args:
        runs: rows of RUN_COLUMNS.
        run_id: the chosen run.
        thing: what the comparison is about.
        rule: for replicas and workers, which batch must agree.

    Returns:
        [run_id, cell, repeats, differs]: `cell` numbers equal runs together, `differs` lists the fields that differ.
        Empty when there is none.

    Raises:
        KeyError: an unknown run.
    """
    table = fields(runs)
    chosen = _row(table, run_id)
    allowed = may_differ(thing, rule)
    same = (table[[name for name in FIELDS if name not in allowed]] == chosen.drop(list(allowed))).all(axis=1)
    other = (table[sorted(_MAY_DIFFER[thing])] != chosen[sorted(_MAY_DIFFER[thing])]).any(axis=1)
    if thing in _SCALING:
        other &= table[thing.value] != chosen[thing.value]
    if thing is Thing.DEVICE:
        other &= table["device"] != chosen["device"]
    found = table[same & other]
    cell = cells(runs)[found.index]
    differs = [
        "; ".join(f"{name}: {row[name]} / {chosen[name]}" for name in FIELDS if row[name] != chosen[name])
        for row in found.to_dict("records")
    ]
    answer = pd.DataFrame({"run_id": found.index, "cell": cell.to_numpy(), "differs": differs})
    answer["repeats"] = answer.groupby("cell")["run_id"].transform("size").astype("int64")
    answer["natural"] = 0.0
    if thing is Thing.DEVICE:
        answer["natural"] = (found["device"] != "cpu").to_numpy(float)
    elif thing in _SCALING:
        answer["natural"] = pd.to_numeric(found[thing.value], errors="coerce").to_numpy(float)
    answer = answer.sort_values(["natural", "repeats"], ascending=[True, False], kind="stable")
    return answer[["run_id", "cell", "repeats", "differs"]].reset_index(drop=True)
