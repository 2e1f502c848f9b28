"""One MLflow run -> one row with fixed, typed columns. A run that someone else logged gives a row with gaps."""

import json
import math
import typing
from collections.abc import Iterable

import pandas as pd

from training import catalog
from training.names import Metric, RunStatus, Tag

if typing.TYPE_CHECKING:
    from mlflow.entities import Run

Row = dict[str, typing.Any]

_TEXT, _WHOLE, _NUMBER, _FLAG, _TIME = "str", "Int64", "float64", "boolean", "datetime64[ms, UTC]"

RUN_COLUMNS: dict[str, str] = {
    "run_id": _TEXT,
    "name": _TEXT,
    "status": _TEXT,
    "reason": _TEXT,
    "notice": _TEXT,
    "phase": _TEXT,
    "user": _TEXT,
    "group": _TEXT,
    "plan": _TEXT,  # the ready-made experiment that made it
    # What was asked for.
    "workload": _TEXT,
    "dataset": _TEXT,
    "dataset_options": _TEXT,
    "device": _TEXT,
    "strategy": _TEXT,
    "replicas": _WHOLE,
    "workers": _WHOLE,
    "logical_devices": _WHOLE,
    "cpu_threads": _WHOLE,
    "epochs": _WHOLE,
    "global_batch_size": _WHOLE,
    "max_steps_per_epoch": _WHOLE,
    "precision": _TEXT,
    "jit_compile": _FLAG,
    "manual_placement": _TEXT,
    "steps_per_execution": _WHOLE,
    "deterministic": _FLAG,
    "seed": _WHOLE,
    "learning_rate": _NUMBER,
    "priority": _WHOLE,
    "total_replicas": _WHOLE,
    "per_replica_batch_size": _WHOLE,
    "simulated": "bool",
    # Its life.
    "submitted": _TIME,
    "started": _TIME,
    "ended": _TIME,
    "progress": _NUMBER,  # 0 to 1
    "epoch": "int64",  # epochs done
    "seconds_left": _NUMBER,
    # What came out: last values.
    "loss": _NUMBER,
    "accuracy": _NUMBER,
    "val_loss": _NUMBER,
    "val_accuracy": _NUMBER,
    "examples_per_second": _NUMBER,
    "time_queue": _NUMBER,
    "time_startup": _NUMBER,
    "time_data": _NUMBER,
    "time_build": _NUMBER,
    "time_first_step": _NUMBER,
    "time_epoch_train": _NUMBER,
    "time_epoch_validation": _NUMBER,
    "time_input_wait": _NUMBER,
    "time_total": _NUMBER,
    # Where it ran.
    "host": _TEXT,
    "cpu_model": _TEXT,
    "cpu_count": _WHOLE,  # CPUs it could use, all workers together
    "gpu_model": _TEXT,
    "tensorflow": _TEXT,
    "keras": _TEXT,
    "git_commit": _TEXT,  # of the product's code, which is what was timed
    "replicas_in_sync": _WHOLE,
    "jit_compile_resolved": _TEXT,
    "onednn": _TEXT,  # "true" when oneDNN's kernels computed on the CPU
    "devices_asked": _TEXT,
    "devices_seen": _TEXT,
    "profiler": _FLAG,  # TensorFlow's profiler was on while it trained
}
"""Column -> dtype of the table of runs. A text is never missing (""), a whole number or a flag may be NA, another
number NaN."""

_PARAM_COLUMNS = tuple(RUN_COLUMNS)[tuple(RUN_COLUMNS).index("workload") : tuple(RUN_COLUMNS).index("priority") + 1]
_METRIC_COLUMNS = {
    "loss": Metric.LOSS,
    "accuracy": Metric.ACCURACY,
    "val_loss": Metric.VAL_LOSS,
    "val_accuracy": Metric.VAL_ACCURACY,
    "examples_per_second": Metric.EXAMPLES_PER_SECOND,
    "time_queue": Metric.TIME_QUEUE,
    "time_startup": Metric.TIME_STARTUP,
    "time_data": Metric.TIME_DATA,
    "time_build": Metric.TIME_BUILD,
    "time_first_step": Metric.TIME_FIRST_STEP,
    "time_epoch_train": Metric.TIME_EPOCH_TRAIN,
    "time_epoch_validation": Metric.TIME_EPOCH_VALIDATION,
    "time_input_wait": Metric.TIME_INPUT_WAIT,
    "time_total": Metric.TIME_TOTAL,
}
_TAG_COLUMNS = {
    "notice": Tag.NOTICE,
    "user": Tag.USER,
    "group": Tag.GROUP,
    "plan": Tag.PLAN,
    "host": Tag.HOST,
    "cpu_model": Tag.CPU_MODEL,
    "gpu_model": Tag.GPU_MODEL,
    "tensorflow": Tag.TENSORFLOW,
    "keras": Tag.KERAS,
    "git_commit": Tag.GIT_COMMIT,
    "jit_compile_resolved": Tag.JIT_COMPILE,
    "onednn": Tag.ONEDNN,
    "devices_asked": Tag.DEVICES_ASKED,
    "devices_seen": Tag.DEVICES_SEEN,
}
_LATEST_MS = 4_102_444_800_000  # 2100
_INFINITE = 1.7976931348623157e308  # what MLflow's SQL store writes for an infinity


def number(value: float) -> float:
    """A metric's value as it was logged: MLflow stores an infinity as the largest float."""
    if abs(value) >= _INFINITE:
        return math.copysign(math.inf, value)
    return value


def row(run: "Run") -> Row:
    """The row of one MLflow run, with a value (perhaps None or NaN) for every column."""
    params, tags = run.data.params, run.data.tags
    metrics = {metric.key: (number(metric.value), metric.step) for metric in run.data._metric_objs}
    status = run.info.status
    is_live = status in (RunStatus.SCHEDULED, RunStatus.RUNNING)
    values: Row = {name: _parsed(RUN_COLUMNS[name], params.get(name, "")) for name in _PARAM_COLUMNS}
    values |= {name: metrics.get(metric, (math.nan, 0))[0] for name, metric in _METRIC_COLUMNS.items()}
    values |= {name: tags.get(tag, "") for name, tag in _TAG_COLUMNS.items()}
    submitted, queue = _moment(run.info.start_time), values["time_queue"]
    values |= {
        "run_id": run.info.run_id,
        "name": run.info.run_name or "",
        "status": status,
        "reason": _reason(status, tags),
        "phase": tags.get(Tag.PHASE, "") if status == RunStatus.RUNNING else "",
        "total_replicas": _product(values["replicas"], values["workers"]),
        "simulated": tags.get(Tag.SIMULATED) == "true" or bool(values["logical_devices"]),
        "replicas_in_sync": _parsed(_WHOLE, tags.get(Tag.REPLICAS_IN_SYNC, "")),
        "cpu_count": _parsed(_WHOLE, tags.get(Tag.CPU_COUNT, "")),
        "profiler": _parsed(_FLAG, tags.get(Tag.PROFILER, "")),
        "submitted": submitted,
        # MLflow's start is when the run was created, which is when it was submitted.
        "started": _moment(submitted + queue * 1000) if submitted else None,
        "ended": None if is_live else _moment(run.info.end_time),
    }
    values["per_replica_batch_size"] = (
        values["global_batch_size"] // values["total_replicas"]
        if values["global_batch_size"] and values["total_replicas"]
        else None
    )
    values |= _progress(status, values, tags, metrics)
    return values


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows -> table with exactly `RUN_COLUMNS` and their dtypes, also for no rows."""
    listed = list(rows)
    columns: dict[str, pd.Series] = {}
    for name, dtype in RUN_COLUMNS.items():
        values = [each[name] for each in listed]
        if dtype == _TIME:
            moments = pd.to_datetime(pd.Series(values, dtype="Int64"), unit="ms", utc=True)
            columns[name] = moments.astype("datetime64[ms, UTC]")
        else:
            columns[name] = pd.Series(values, dtype=typing.cast(typing.Any, dtype))
    return pd.DataFrame(columns)


def _parsed(dtype: str, text: str) -> typing.Any:
    """A param's text as a value of the column; None where it says nothing of the kind."""
    if dtype == _TEXT:
        return text
    if dtype == _FLAG:
        return {"true": True, "false": False}.get(text.lower())
    try:
        if dtype == _NUMBER:
            return float(text)
        value = int(text)
        return value if abs(value) < 2**63 else None
    except ValueError:
        return math.nan if dtype == _NUMBER else None


def _moment(milliseconds: float | None) -> int | None:
    """A time of MLflow's in unix milliseconds; None for what is none. Its store takes any number for one."""
    if milliseconds is None or not 0 <= milliseconds < _LATEST_MS:
        return None
    return round(milliseconds)


def _product(left: int | None, right: int | None) -> int | None:
    return left * right if left and right and left * right < 2**63 else None


def _reason(status: str, tags: dict[str, str]) -> str:
    """Why it ended or waits. A running run keeps the reason it waited for, which is of no use any more."""
    if status == RunStatus.RUNNING:
        return "stopping" if tags.get(Tag.CANCEL_REQUESTED) else ""
    return tags.get(Tag.REASON, "")


_MOST_EPOCHS = 10**9


def _progress(
    status: str, values: Row, tags: dict[str, str], metrics: dict[str, tuple[float, int]]
) -> dict[str, typing.Any]:
    """Share done, epochs done and time left, from the last window of steps and the last epoch's times."""
    epochs_done = metrics[Metric.TIME_EPOCH_TRAIN][1] + 1 if Metric.TIME_EPOCH_TRAIN in metrics else 0
    epochs_done = min(max(epochs_done, 0), _MOST_EPOCHS)  # another tool may count otherwise
    found: dict[str, typing.Any] = {"progress": 0.0, "epoch": epochs_done, "seconds_left": math.nan}
    if status == RunStatus.FINISHED:
        return found | {"progress": 1.0}
    steps_per_epoch, epochs = _steps_per_epoch(values, tags), values["epochs"]
    if not steps_per_epoch or not epochs:
        return found
    throughput, steps_done = metrics.get(Metric.WINDOW, (math.nan, 0))
    steps_done = max(steps_done, epochs_done * steps_per_epoch)
    total = steps_per_epoch * epochs
    found["progress"] = min(1.0, steps_done / total)
    if status == RunStatus.RUNNING and throughput > 0 and values["global_batch_size"]:
        validation = values["time_epoch_validation"]
        training_left = max(0, total - steps_done) * values["global_batch_size"] / throughput
        validations_left = max(0, epochs - epochs_done) * (validation if math.isfinite(validation) else 0.0)
        found["seconds_left"] = training_left + validations_left
    return found


def _steps_per_epoch(values: Row, tags: dict[str, str]) -> int | None:
    """As the training process reported, or else as the catalogue says; None for a run of another kind."""
    reported = _parsed(_WHOLE, tags.get(Tag.STEPS_PER_EPOCH, ""))
    if reported:
        return reported
    batch = values["global_batch_size"]
    if values["dataset"] not in catalog.DATASETS or not batch or batch < 1:
        return None
    try:
        options = json.loads(values["dataset_options"] or "{}")
        return catalog.steps_per_epoch(values["dataset"], options, batch, values["max_steps_per_epoch"])
    except (ValueError, TypeError, AttributeError, OverflowError):
        # The param was cut at MLflow's limit, or written by someone else.
        return None
