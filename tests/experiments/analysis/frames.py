"""Frames as the product reads them from MLflow, made by hand: runs with RUN_COLUMNS and their history."""

import typing
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from experiments.results import RUN_COLUMNS
from training.names import PLACEMENT_COLUMNS, Metric

_START = pd.Timestamp("2026-01-01", tz="UTC")
_EMPTY: dict[str, typing.Any] = {
    "datetime64[ms, UTC]": _START,
    "str": "",
    "Int64": pd.NA,
    "boolean": pd.NA,
    "float64": np.nan,
    "bool": False,
    "int64": 0,
}

_DEFAULTS: dict[str, typing.Any] = {
    "status": "FINISHED",
    "workload": "mnist_cnn",
    "dataset": "fashion_mnist",
    "dataset_options": "{}",
    "device": "cpu",
    "strategy": "one_device",
    "replicas": 1,
    "workers": 1,
    "logical_devices": 0,
    "cpu_threads": 1,
    "epochs": 3,
    "global_batch_size": 64,
    "precision": "float32",
    "jit_compile": False,
    "jit_compile_resolved": "false",
    "onednn": "true",
    "steps_per_execution": 32,
    "deterministic": False,
    "seed": 0,
    "learning_rate": 0.001,
    "host": "h1",
    "cpu_model": "A CPU",
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "time_startup": 4.0,
    "time_data": 0.5,
    "time_build": 1.0,
}


def runs(*rows: dict) -> pd.DataFrame:
    """A frame of RUN_COLUMNS; each row gives what differs from one ordinary CPU run, `run_id` at least."""
    filled = []
    for row in rows:
        run: dict[str, typing.Any] = {name: _EMPTY[dtype] for name, dtype in RUN_COLUMNS.items()} | _DEFAULTS | row
        run["total_replicas"] = run["replicas"] * run["workers"]
        run["per_replica_batch_size"] = run["global_batch_size"] // run["total_replicas"]
        run["simulated"] = run["logical_devices"] > 0
        if pd.isna(run["replicas_in_sync"]):
            run["replicas_in_sync"] = run["total_replicas"]
        filled.append(run)
    return pd.DataFrame(filled, columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS)


def history(*series: tuple[str, str, Iterable[float], Iterable[float]]) -> pd.DataFrame:
    """A long history frame of (run_id, metric, steps, values)."""
    parts = [
        pd.DataFrame({"run_id": run_id, "metric": metric, "step": list(steps), "value": [float(v) for v in values]})
        for run_id, metric, steps, values in series
    ]
    empty = pd.DataFrame({"run_id": [], "metric": [], "step": [], "value": []})
    table = pd.concat([empty, *parts], ignore_index=True) if parts else empty
    table["timestamp"] = _START + pd.to_timedelta(np.arange(len(table)), unit="s")
    return table.astype({"run_id": "str", "metric": "str", "step": "int64", "value": "float64"})


def epochs(run_id: str, seconds: Sequence[float], examples: float = 1000.0, **more: Sequence[float]) -> pd.DataFrame:
    """History of a run whose windows were as long as its epochs; `validation` and `waited` are seconds an epoch."""
    steps = range(len(seconds))
    series: list[tuple[str, str, Iterable[float], Iterable[float]]] = [
        (run_id, Metric.TIME_EPOCH_TRAIN, steps, seconds),
        (run_id, Metric.EXAMPLES_PER_SECOND, steps, [examples / value for value in seconds]),
    ]
    names = {"validation": Metric.TIME_EPOCH_VALIDATION, "waited": Metric.TIME_INPUT_WAIT}
    series += [(run_id, names[name], steps, values) for name, values in more.items()]
    return history(*series)


def windows_of(run_id: str, seconds_per_step: Sequence[float], batch: int = 64, steps: int = 32) -> pd.DataFrame:
    """History of a run of two epochs with these windows of `steps` steps; the first is the one step that compiles."""
    ends = np.concatenate([[1], 1 + steps * np.arange(1, len(seconds_per_step))])
    rates = batch / np.asarray(seconds_per_step, float)
    train = [float(np.sum(seconds_per_step)) * steps / 2] * 2
    examples = len(seconds_per_step) * steps * batch / 2
    parts = [history((run_id, Metric.WINDOW, ends, rates)), epochs(run_id, train, examples)]
    return pd.concat(parts, ignore_index=True)


def steady(**throughputs: float) -> pd.DataFrame:
    """A frame as `timing.steady_states` gives it: run id -> throughput, nothing else of note."""
    from experiments.analysis.timing import STEADY_COLUMNS

    rows = [
        {
            "run_id": run_id,
            "steady": value > 0,
            "reason": "" if value > 0 else "no steady state: too short",
            "basis": "windows",
            "throughput": value if value > 0 else np.nan,
            "relative_se": 0.01,
            "df": 10.0,
            "windows": 100,
            "warmup_windows": 1,
            "epochs": 3,
            "excess_seconds": 2.0,
            "examples_per_epoch": 60_000.0,
            "seconds_per_epoch": 60_000.0 / value if value > 0 else np.nan,
            "steady_seconds": 30.0,
        }
        for run_id, value in throughputs.items()
    ]
    return pd.DataFrame(rows, columns=list(STEADY_COLUMNS)).astype(STEADY_COLUMNS)


def placement(*rows: tuple[str, str, str, str, str]) -> pd.DataFrame:
    """A placement table of (name, op_type, device, role, layer)."""
    table = pd.DataFrame(rows, columns=["name", "op_type", "device", "role", "layer"])
    return table.assign(source="graph", count=1)[list(PLACEMENT_COLUMNS)]
