"""The folder of a run: the one place that knows its file names. Imports neither TensorFlow nor MLflow.

HOME/runs/<run_id>/
    spec.json, launch.json           written when the run is submitted or dispatched
    supervisor.log, supervisor.jsonl what the supervisor did; its own events, among them the end it decided
    recorder.json, recorder.lock     how far the journals have reached MLflow
    environment.json                 written by the chief
    worker-<i>/journal.jsonl, stdout.log, stderr.log
    artifacts-staging/               laid out as the run's artifacts will be
    model/                           the trained model, when it is kept
"""

import dataclasses
import json
import os
import re
import typing
from dataclasses import dataclass
from pathlib import Path

from training.spec import RunSpec

_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True)
class Launch:
    """What the engine decided for one run: where it may run, and how long it may take to get going.

    Attributes:
        run_id: the MLflow run.
        tracking_uri: where the run is recorded.
        folder: the run's folder, absolute.
        gpu_ids: physical GPUs the run may see; None leaves CUDA_VISIBLE_DEVICES as the engine set it. A CPU run sees
            none in either case.
        cpus: cores the run was given, all workers together.
        submitted_at: seconds since the epoch.
        join_deadline_s: a worker that has not joined by then fails the run.
        stall_deadline_s: after the first steps, this long without progress fails the run.
    """

    run_id: str
    tracking_uri: str
    folder: str
    gpu_ids: list[int] | None = None
    cpus: int = 1
    submitted_at: float = 0.0
    join_deadline_s: float = 120.0
    stall_deadline_s: float = 600.0

    def to_json(self) -> str:
        """One JSON object, every field present."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Launch":
        """The inverse of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class WorkerFolder:
    """The files of one training process."""

    path: Path

    @property
    def journal(self) -> Path:
        """What the process reports, one JSON object a line."""
        return self.path / "journal.jsonl"

    @property
    def stdout(self) -> Path:
        """Everything written to file descriptor 1."""
        return self.path / "stdout.log"

    @property
    def stderr(self) -> Path:
        """Everything written to file descriptor 2, placement lines included."""
        return self.path / "stderr.log"

    @property
    def process(self) -> Path:
        """Where an engine's worker on another host tells of the process: host, pid, exit code."""
        return self.path / "process.json"


class RunFolder:
    """One run's folder. Making the object touches nothing on disk.

    Args:
        path: the folder; `path` of the object is absolute, since the processes of a run differ in working directory.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(os.path.abspath(path))

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @classmethod
    def of(cls, runs_folder: str | os.PathLike[str], run_id: str) -> "RunFolder":
        """The folder of a run id. Raises ValueError for a text that could lead anywhere else."""
        if not _RUN_ID.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is not a run id")
        return cls(Path(runs_folder) / run_id)

    @classmethod
    def create(cls, spec: RunSpec, launch: Launch) -> "RunFolder":
        """Makes `launch.folder` with the spec and the launch in it."""
        folder = cls(launch.folder)
        folder.write_spec(spec)
        folder.write_launch(launch)
        return folder

    @property
    def spec_path(self) -> Path:
        """The spec as JSON."""
        return self.path / "spec.json"

    @property
    def launch_path(self) -> Path:
        """The launch as JSON."""
        return self.path / "launch.json"

    @property
    def environment(self) -> Path:
        """The environment in full, written by the chief."""
        return self.path / "environment.json"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor did, for people."""
        return self.path / "supervisor.log"

    @property
    def supervisor_journal(self) -> Path:
        """The supervisor's own events: queue time, telemetry, and the end it decided."""
        return self.path / "supervisor.jsonl"

    @property
    def recorder_state(self) -> Path:
        """How far the journals have reached MLflow."""
        return self.path / "recorder.json"

    @property
    def recorder_lock(self) -> Path:
        """Locked by the process that records this run."""
        return self.path / "recorder.lock"

    @property
    def staging(self) -> Path:
        """Files on their way to the run's artifacts, laid out as they will be there."""
        return self.path / "artifacts-staging"

    @property
    def stop_request(self) -> Path:
        """Appears to have the processes ended on every host, also where none can be signalled from here.

        It holds the seconds of grace between SIGTERM and SIGKILL.
        """
        return self.path / "stop-workers"

    @property
    def model(self) -> Path:
        """The trained model, when it is kept."""
        return self.path / "model"

    def worker(self, index: int) -> WorkerFolder:
        """The files of worker `index`, from 0."""
        return WorkerFolder(self.path / f"worker-{index}")

    def spec(self) -> RunSpec:
        """Reads the spec. Raises SpecError, or OSError when there is none."""
        return RunSpec.from_json(self.spec_path.read_text(encoding="utf-8"))

    def launch(self) -> Launch:
        """Reads the launch. Raises OSError, ValueError or TypeError when there is none that can be read."""
        return Launch.from_json(self.launch_path.read_text(encoding="utf-8"))

    def write_spec(self, spec: RunSpec) -> None:
        """Writes the spec."""
        write_atomically(self.spec_path, spec.to_json())

    def write_launch(self, launch: Launch) -> None:
        """Writes the launch."""
        write_atomically(self.launch_path, launch.to_json())


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a whole file or nothing: a reader, or a crash, never meets half of it. Makes the folder when missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data: typing.Any = content.encode("utf-8") if isinstance(content, str) else content
    temporary.write_bytes(data)
    temporary.replace(path)
