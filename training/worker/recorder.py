"""From the journals of a run to MLflow, so that nothing is lost and nothing is there twice.

The recorder remembers on disk how far it has come, and only after MLflow has taken what came before. When it is
interrupted in between it sends the last events again: MLflow keeps one of two points that are equal in name, step,
time and value, and a point's time is the journal's. So a recorder may be stopped anywhere and started again.
"""

import fcntl
import functools
import json
import math
import os
import tempfile
import typing
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from training import mlflow_limits
from training.mlflow_limits import Item, MetricPoint, ParamItem, TagItem
from training.names import Artifact, Metric, Phase, RunStatus, Tag
from training.run_folder import RunFolder, write_atomically
from training.worker.journal import Event, JournalReader

SUPERVISOR = "supervisor"
CHIEF = "worker-0"

_REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST", "RESOURCE_ALREADY_EXISTS")


class RunGoneError(Exception):
    """The run is not in MLflow any more. `certain` when MLflow says that it was deleted."""

    def __init__(self, run_id: str, certain: bool):
        self.certain = certain
        super().__init__(f"run {run_id} {'was deleted in MLflow' if certain else 'is not known to MLflow'}")


class RecorderBusyError(Exception):
    """Another process records this run just now."""


@dataclass
class State:
    """How far the recorder has come, as kept in the run's folder."""

    offsets: dict[str, int] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    not_finite: bool = False
    end: dict[str, typing.Any] | None = None
    uploaded: list[str] = field(default_factory=list)
    concluded: bool = False


@dataclass
class _Batch:
    """What a stretch of the journals says, in MLflow's terms."""

    metrics: list[MetricPoint] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    datasets: list[dict[str, typing.Any]] = field(default_factory=list)

    def items(self) -> list[Item]:
        return [
            *(ParamItem(key, value) for key, value in self.params.items()),
            *(TagItem(key, mlflow_limits.shorten_tag(value)) for key, value in self.tags.items()),
            *self.metrics,
        ]


class Recorder:
    """Records one run. Every method that talks to MLflow raises what MLflow raises, and may simply be called again.

    Args:
        folder: the run's folder, with spec and launch.

    Raises:
        RecorderBusyError: another process has one of these open for the same run.
    """

    def __init__(self, folder: RunFolder):
        self._folder = folder
        self._launch = folder.launch()
        self._lock = os.open(folder.recorder_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise RecorderBusyError(f"another process records run {self._launch.run_id}") from None
        self.state = _state_of(folder)
        journals = {SUPERVISOR: folder.supervisor_journal}
        journals |= {f"worker-{index}": folder.worker(index).journal for index in range(folder.spec().workers)}
        self._readers = {
            source: JournalReader(path, self.state.offsets.get(source, 0)) for source, path in journals.items()
        }
        self._unsent: _Batch | None = None
        self._noted = 0
        self._client: typing.Any = None

    def close(self) -> None:
        """Lets another process record the run."""
        os.close(self._lock)

    def connect(self, start: bool) -> tuple[RunStatus, bool]:
        """Imports MLflow (which takes a second), finds the run and, with `start`, sets it RUNNING.

        Returns:
            The status it had, and whether somebody has asked to cancel it. One that has ended is left as it is.

        Raises:
            RunGoneError: it was deleted, or is not there.
        """
        if self._client is None:
            from mlflow.tracking.client import MlflowClient

            self._client = MlflowClient(self._launch.tracking_uri)
        run = self._run()
        earlier = run.data.tags.get(Tag.NOTICE, "")
        self.state.notices[:0] = [line for line in earlier.splitlines() if line not in self.state.notices]
        self._noted = len(earlier.splitlines())
        status = RunStatus(run.info.status)
        if start and not status.is_terminal:
            self._client.update_run(self._launch.run_id, status=str(RunStatus.RUNNING))
            self._client.set_tag(self._launch.run_id, Tag.REASON, "")
        return status, Tag.CANCEL_REQUESTED in run.data.tags

    def cancel_requested(self) -> bool:
        """Whether somebody has asked to cancel the run. Raises RunGoneError when it was deleted."""
        return Tag.CANCEL_REQUESTED in self._run().data.tags

    def flush(self) -> bool:
        """Sends what is new in the journals. Returns whether there was anything: call until there is not.

        Raises:
            RunGoneError: the run was deleted, or is not there.
        """
        if self._unsent is None:
            self._unsent = self._next_batch()
        if self._unsent is None:
            return False
        for request in mlflow_limits.requests(self._unsent.items()):
            self._send(request)
        for facts in self._unsent.datasets:
            self._client.log_inputs(self._launch.run_id, datasets=[_dataset_input(facts)])
        self.state.offsets = {source: reader.offset for source, reader in self._readers.items()}
        self._save()
        self._unsent = None
        return True

    def notice(self, text: str) -> None:
        """Adds a line, or several, to the run's notices, with the next flush or conclusion."""
        self.state.notices += [line for line in text.splitlines() if line and line not in self.state.notices]

    def upload(self) -> None:
        """Uploads what is staged, and the model, each file once. Raises RunGoneError when the run is."""
        self._merge_full_params()
        spec = [(self._folder.spec_path, Artifact.SPEC)]
        for path, target in (
            spec + files_below(self._folder.staging, "") + files_below(self._folder.model, Artifact.MODEL_DIR)
        ):
            if target in self.state.uploaded:
                continue
            self._guarded(functools.partial(self._upload, path, target))
            self.state.uploaded.append(target)
            self._save()

    def conclude(self, otherwise: tuple[RunStatus, str] | None = None) -> bool:
        """Sets the reason and, as the very last thing, the terminal status that the supervisor decided.

        Args:
            otherwise: status and reason for a run whose supervisor ended without deciding.

        Returns:
            Whether the run has its terminal status now.
        """
        end = self.state.end
        if end is None and otherwise is not None:
            end = {"status": str(otherwise[0]), "reason": otherwise[1], "t": self._last_sign_of_life()}
        if end is None:
            return False
        tags = {Tag.PHASE: str(Phase.ENDED), Tag.REASON: end["reason"], Tag.NOTICE: self._notices()}
        items: list[Item] = [TagItem(key, mlflow_limits.shorten_tag(value)) for key, value in tags.items()]
        self._send(items if self.state.notices else items[:2])
        self._guarded(
            lambda: self._client.set_terminated(
                self._launch.run_id, status=end["status"], end_time=int(end["t"] * 1000)
            )
        )
        self.state.concluded = True
        self._save()
        return True

    def _run(self) -> typing.Any:
        from mlflow.exceptions import MlflowException

        try:
            run = self._client.get_run(self._launch.run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                raise RunGoneError(self._launch.run_id, certain=False) from error
            raise
        if run.info.lifecycle_stage == "deleted":
            raise RunGoneError(self._launch.run_id, certain=True)
        return run

    def _guarded(self, call: typing.Callable[[], object]) -> None:
        """Makes a call; when it fails because the run is gone, says so."""
        from mlflow.exceptions import MlflowException

        try:
            call()
        except MlflowException:
            self._run()
            raise

    def _next_batch(self) -> _Batch | None:
        batch = _Batch()
        read = False
        for source, reader in self._readers.items():
            events = reader.new_events()
            read = read or bool(events)
            for event in events:
                self._translate(source, event, batch)
        if not read:
            return None
        if len(self.state.notices) > self._noted:
            batch.tags[Tag.NOTICE] = self._notices()
            self._noted = len(self.state.notices)
        return batch

    def _translate(self, source: str, event: Event, batch: _Batch) -> None:
        kind, at = event["type"], int(event["t"] * 1000)
        if kind == "unreadable":
            self.notice(f"a line of the journal of {source} could not be read")
        elif kind == "end" and source == SUPERVISOR:
            self.state.end = {name: event[name] for name in ("status", "reason", "t")}
        elif source not in (SUPERVISOR, CHIEF):
            # The chief speaks for all: two workers' points would be everything twice. But for what is a worker's own.
            own = Metric.WORKER_THROUGHPUT.format(index=source.removeprefix("worker-"))
            if kind == "metrics" and own in event["values"]:
                self._point(batch, MetricPoint(own, event["values"][own], at, event["step"]))
        elif kind == "phase":
            batch.tags[Tag.PHASE] = event["phase"]
        elif kind == "metrics":
            for name in sorted(event["values"], key=lambda name: name != Metric.LOSS):
                self._point(batch, MetricPoint(name, event["values"][name], at, event["step"]))
        elif kind == "series":
            for step, value, seconds in event["points"]:
                self._point(batch, MetricPoint(event["name"], value, int(seconds * 1000), step))
        elif kind == "tags":
            for name, value in event["values"].items():
                if name == Tag.NOTICE:
                    self.notice(value)
                else:
                    batch.tags[name] = value
        elif kind == "params":
            short, notices = mlflow_limits.shorten_params(event["values"])
            batch.params.update(short)
            for text in notices:
                self.notice(text)
            if notices:
                self._keep_full(event["values"])
        elif kind == "dataset":
            batch.datasets.append(event["facts"])

    def _point(self, batch: _Batch, point: MetricPoint) -> None:
        batch.metrics.append(point)
        # Model metrics have no slash in their names; their step is the epoch, from 0. People count from 1.
        if not math.isfinite(point.value) and "/" not in point.key and not self.state.not_finite:
            self.state.not_finite = True
            what = "NaN" if math.isnan(point.value) else "inf"
            which = "" if point.key == Metric.LOSS else f" ({point.key})"
            self.notice(f"{what} at epoch {point.step + 1}{which}")

    def _send(self, items: Sequence[Item]) -> None:
        """Sends one request; what MLflow will never take is left out with a notice, however long it takes to find."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(self._launch.run_id, *_entities(items))
        except MlflowException as error:
            self._run()
            if error.error_code not in _REFUSALS:
                raise
            if len(items) > 1:
                self._send(items[: len(items) // 2])
                self._send(items[len(items) // 2 :])
                return
            self.notice(f"MLflow refused {items[0].key[:80]}: {error.message.splitlines()[0][:200]}")

    def _notices(self) -> str:
        return mlflow_limits.shorten_tag("\n".join(self.state.notices))

    def _keep_full(self, params: dict[str, str]) -> None:
        path = self._folder.staging / Artifact.PARAMS
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        write_atomically(path, json.dumps({**known, **params}, indent=2, sort_keys=True))

    def _merge_full_params(self) -> None:
        """Completes params.json: with the run's other params, and with what whoever submitted the run put there."""
        path = self._folder.staging / Artifact.PARAMS
        if not path.exists() or Artifact.PARAMS in self.state.uploaded:
            return
        params = dict(self._run().data.params)
        if any(file.path == Artifact.PARAMS for file in self._client.list_artifacts(self._launch.run_id)):
            with tempfile.TemporaryDirectory() as temporary:
                earlier = self._client.download_artifacts(self._launch.run_id, Artifact.PARAMS, temporary)
                params.update(json.loads(Path(earlier).read_text(encoding="utf-8")))
        params.update(json.loads(path.read_text(encoding="utf-8")))
        write_atomically(path, json.dumps(params, indent=2, sort_keys=True))

    def _upload(self, path: Path, target: str) -> None:
        parent = str(Path(target).parent)
        self._client.log_artifact(self._launch.run_id, str(path), None if parent == "." else parent)

    def _last_sign_of_life(self) -> float:
        written = [reader.path.stat().st_mtime for reader in self._readers.values() if reader.path.exists()]
        return max(written, default=self._launch.submitted_at)

    def _save(self) -> None:
        write_atomically(self._folder.recorder_state, json.dumps(asdict(self.state)))


def is_concluded(folder: RunFolder) -> bool:
    """Whether the run's end was recorded: whatever its status is now, nobody carries it out."""
    return _state_of(folder).concluded


def _state_of(folder: RunFolder) -> State:
    """How far the last recorder came. Where its file is damaged (a machine that crashed), it begins anew: what MLflow
    has already it does not take twice."""
    try:
        found = json.loads(folder.recorder_state.read_text(encoding="utf-8"))
        state = State(**{each.name: found[each.name] for each in fields(State) if each.name in found})
    except (OSError, ValueError, TypeError):
        return State()
    wanted = {each.name: type(getattr(State(), each.name)) for each in fields(State) if each.name != "end"}
    whole = all(type(getattr(state, name)) is kind for name, kind in wanted.items())
    return state if whole and isinstance(state.end, dict | None) else State()


def files_below(folder: Path, prefix: str) -> list[tuple[Path, str]]:
    """Regular files of a folder and the artifact path of each.

    A link is left out, since it could lead anywhere, and so is a hidden file: something that was not finished.
    """
    found = []
    for path in sorted(folder.rglob("[!.]*")):
        inside = path.relative_to(folder)
        if path.is_file() and not any((folder / part).is_symlink() for part in [inside, *inside.parents]):
            found.append((path, str(Path(prefix) / inside)))
    return found


def _entities(items: Iterable[Item]) -> tuple[list[typing.Any], list[typing.Any], list[typing.Any]]:
    """MLflow's metrics, params and tags."""
    from mlflow.entities import Metric as MlflowMetric
    from mlflow.entities import Param, RunTag

    metrics, params, tags = [], [], []
    for item in items:
        if isinstance(item, MetricPoint):
            metrics.append(MlflowMetric(item.key, item.value, item.timestamp, item.step))
        elif isinstance(item, ParamItem):
            params.append(Param(item.key, item.value))
        else:
            tags.append(RunTag(item.key, item.value))
    return metrics, params, tags


def _dataset_input(facts: dict[str, typing.Any]) -> typing.Any:
    """The data set as MLflow's input of a run, from what the training process said of it: no data is read."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    source = str(facts.get("source", ""))
    is_url = source.startswith(("http://", "https://"))
    dataset = Dataset(
        name=str(facts.get("name", ""))[: mlflow_limits.LONGEST_DATASET_NAME],
        digest=str(facts.get("digest", ""))[: mlflow_limits.LONGEST_DIGEST],
        source_type="http" if is_url else "local",
        source=json.dumps({"url" if is_url else "uri": source}),
        profile=json.dumps({name: value for name, value in facts.items() if name not in ("name", "digest", "source")}),
    )
    return DatasetInput(dataset=dataset, tags=[InputTag("mlflow.data.context", "training")])
