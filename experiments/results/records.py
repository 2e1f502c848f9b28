"""One run read from MLflow: its record, curves, placement, environment and spec."""

import json
import typing
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
from pandas.api.types import is_string_dtype

from experiments import queue
from experiments.queue import UnknownRun, get_run
from experiments.results.artifacts import artifact, read_text
from experiments.results.columns import number
from experiments.settings import Settings
from training.names import PLACEMENT_COLUMNS, Artifact, Metric, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec

MOST_POINTS = 2_500  # points a metric that `history` gives; MLflow's own charts draw as many
MOST_WINDOWS = 50_000  # points of a run's windows: its timing is made of them, so they are sampled only beyond this
_PAGE = 10_000
HISTORY_COLUMNS = {"metric": "str", "step": "int64", "value": "float64", "timestamp": "datetime64[ms, UTC]"}
_AT_ONCE = 4  # requests to the tracking server side by side
_SHORTEST_PREFIX = 6
_BULK_HISTORY = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"


class DamagedArtifactError(RuntimeError):
    """An artifact of a run cannot be read. The message names both and says what is left."""

    def __init__(self, run_id: str, artifact: str, error: Exception):
        found = next(iter(str(error).splitlines()), "") or type(error).__name__
        super().__init__(
            f"{artifact} of run {run_id} cannot be read ({found[:200]}): "
            "the rest of the run stands; run it again for this part"
        )


def find(settings: Settings, run: str) -> str:
    """The id of the run that a person named by its id or the beginning of it (six characters or more).

    Raises:
        UnknownRun: no run, or more than one, begins like this.
    """
    text = run.strip().lower()
    if queue.RUN_ID.fullmatch(text):
        return get_run(settings, text).info.run_id
    if not text or not set(text) <= set("0123456789abcdef"):
        raise UnknownRun(run)
    if len(text) < _SHORTEST_PREFIX:
        raise UnknownRun(run, f"is too short: give an id, or its first {_SHORTEST_PREFIX} characters or more")
    if not (experiment := settings.experiment_id(create=False)):
        raise UnknownRun(run)
    found = settings.client().search_runs([experiment], f"attributes.run_id LIKE '{text}%'", max_results=2)
    if len(found) > 1:
        raise UnknownRun(run, "is the beginning of several ids, so give more of it")
    if not found:
        raise UnknownRun(run)
    return found[0].info.run_id


def record(settings: Settings, run_id: str) -> dict[str, typing.Any]:
    """A run's record: `run_id`, `name`, `status`, `reason`, `spec`, `params`, `metrics` (last values), `tags`.

    Metrics may be NaN or infinite. `spec` is None for a run that was not submitted here.

    Raises:
        UnknownRun: there is no such run.
    """
    run = get_run(settings, run_id)
    tags = run.data.tags
    text = read_text(settings, run, Artifact.SPEC)
    return {
        "run_id": run.info.run_id,
        "name": run.info.run_name or "",
        "status": run.info.status,
        "reason": tags.get(Tag.REASON, ""),
        "spec": _json(text),
        "params": dict(run.data.params),
        "metrics": {name: number(value) for name, value in sorted(run.data.metrics.items())},
        "tags": dict(sorted(tags.items())),
    }


def spec(settings: Settings, run_id: str) -> RunSpec:
    """The spec a run was submitted with.

    Raises:
        UnknownRun: there is no such run, or it was not submitted here.
        SpecError: its spec says what this version does not know.
    """
    text = read_text(settings, get_run(settings, run_id), Artifact.SPEC)
    if text is None:
        raise UnknownRun(run_id, "has no spec, because it was not submitted here")
    return RunSpec.from_json(text)


def environment(settings: Settings, run_id: str) -> dict[str, typing.Any]:
    """Everything recorded about where a run ran; empty while it is not known yet.

    Raises:
        UnknownRun: there is no such run.
    """
    text = read_text(settings, get_run(settings, run_id), Artifact.ENVIRONMENT)
    live = RunFolder.of(settings.runs_folder, run_id).environment
    if text is None and live.is_file() and not live.is_symlink():
        text = live.read_text(encoding="utf-8", errors="replace")
    found = _json(text)
    return found if isinstance(found, dict) else {}


def placement(settings: Settings, run_id: str) -> pd.DataFrame:
    """The table of ops and the devices they ran on, `names.PLACEMENT_COLUMNS`; no rows while it is not there yet.

    Raises:
        UnknownRun: there is no such run.
        DamagedArtifactError: the artifact is no such table.
    """
    with artifact(settings, get_run(settings, run_id), Artifact.PLACEMENT_TABLE) as file:
        if file is not None:
            try:
                return _checked_placement(pd.read_parquet(file))
            except (ValueError, KeyError, TypeError) as error:  # pyarrow's errors are ValueErrors
                raise DamagedArtifactError(run_id, Artifact.PLACEMENT_TABLE, error) from error
    empty = pd.DataFrame({name: pd.Series(dtype="str") for name in PLACEMENT_COLUMNS})
    return empty.astype({"count": "int64"})


def _checked_placement(table: pd.DataFrame) -> pd.DataFrame:
    """A placement table as it should be. Raises ValueError where a text is none, or a count no number."""
    table = table[list(PLACEMENT_COLUMNS)]
    for name in PLACEMENT_COLUMNS:
        if name != "count" and (table[name].hasnans or not is_string_dtype(table[name])):
            raise ValueError(f"column {name} holds what is no text")
    return table.astype({"count": "int64"})


def history(settings: Settings, run_id: str, metrics: typing.Iterable[str] | None = None) -> pd.DataFrame:
    """Every point of a run's metrics, evenly sampled where there are more than `MOST_POINTS` of one; of its windows,
    more than `MOST_WINDOWS`.

    Args:
        settings: where runs are recorded.
        run_id: the run.
        metrics: metric names; all of the run's if None.

    Returns:
        `HISTORY_COLUMNS`, by metric, step and time. NaN and infinities as they were logged. `attrs["notice"]` says
        which metrics were sampled; empty when none was.

    Raises:
        UnknownRun: there is no such run.
    """
    run = get_run(settings, run_id)
    wanted = sorted(run.data.metrics if metrics is None else set(metrics) & run.data.metrics.keys())
    rows, sampled = [], []
    for name in wanted:
        points = _points(settings, run_id, name)
        if len(points) >= MOST_POINTS:
            whole = _windows(settings, run_id) if name == Metric.WINDOW else None
            if whole is None:
                sampled.append(name)
            points = whole or points
        rows += [(name, step, value, timestamp) for step, value, timestamp in points]
    table = pd.DataFrame(rows, columns=list(HISTORY_COLUMNS))
    table["timestamp"] = pd.to_datetime(table["timestamp"].astype("int64"), unit="ms", utc=True)
    table = table.astype(HISTORY_COLUMNS).sort_values(["metric", "step", "timestamp"], ignore_index=True)
    table.attrs["notice"] = (
        f"{', '.join(sampled)}: {MOST_POINTS:,} points each, evenly spaced, of what was logged" if sampled else ""
    )
    return table


def histories(
    settings: Settings, run_ids: typing.Sequence[str], metrics: typing.Collection[str] | None = None
) -> pd.DataFrame:
    """What `history` gives of several runs, one below the other: `run_id` and `HISTORY_COLUMNS`.

    Raises:
        UnknownRun: there is no such run.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        parts = list(pool.map(lambda run_id: history(settings, run_id, metrics).assign(run_id=run_id), run_ids))
    dtypes = {"run_id": "str", **HISTORY_COLUMNS}
    if not parts:
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()})
    return pd.concat(parts, ignore_index=True)[list(dtypes)].astype(dtypes)


def _points(settings: Settings, run_id: str, name: str) -> list[tuple[int, float, int]]:
    """(step, value, milliseconds since the epoch) of one metric, at most MOST_POINTS, first and last among them."""
    store = settings.client()._tracking_client.store
    if hasattr(store, "get_host_creds"):
        # Against a server only MLflow's own page samples; the public call would send a million points.
        return _points_from_server(store, run_id, name)
    found = store.get_metric_history_bulk_interval([run_id], name, MOST_POINTS, None, None)
    return [(metric.step, number(metric.value), metric.timestamp) for metric in found]


def _windows(settings: Settings, run_id: str) -> list[tuple[int, float, int]] | None:
    """Every window of a run as `_points` gives them; None when there are more than MOST_WINDOWS."""
    store = settings.client()._tracking_client.store
    found: list[tuple[int, float, int]] = []
    token = None
    while True:
        page = store.get_metric_history(run_id, Metric.WINDOW, _PAGE, token)
        found += [(metric.step, number(metric.value), metric.timestamp) for metric in page]
        token = page.token
        if len(found) > MOST_WINDOWS:
            return None
        if not token:
            return found


def _points_from_server(store: typing.Any, run_id: str, name: str) -> list[tuple[int, float, int]]:
    from mlflow.utils.rest_utils import http_request

    response = http_request(
        store.get_host_creds(),
        _BULK_HISTORY,
        "GET",
        params={"run_ids": [run_id], "metric_key": name, "max_results": MOST_POINTS},
    )
    response.raise_for_status()
    metrics = response.json().get("metrics", [])
    return [(int(each.get("step", 0)), number(float(each["value"])), int(each["timestamp"])) for each in metrics]


def _json(text: str | None) -> typing.Any:
    """The value of a JSON artifact; None when there is none or someone else wrote something else there."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
