"""Real training processes for tests, without a tracking server.

A run of one process on the CPU is forked from one that has imported TensorFlow already, unless it is `train_fresh`;
others are started as the supervisor starts them.
"""

import atexit
import json
import os
import shutil
import tempfile
import time
import typing
from dataclasses import dataclass
from pathlib import Path

from tests.support.forked import run_forked
from training.names import Metric
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker import process
from training.worker.gang import SubprocessGang, worker_environment
from training.worker.journal import JournalReader

TINY: dict[str, typing.Any] = {
    "dataset": "synthetic",
    "dataset_options": {"examples": 200, "validation_examples": 50},
    "epochs": 1,
    "global_batch_size": 32,
}
"""A run of six steps: what a test starts from."""


@dataclass(frozen=True)
class Outcome:
    """What a run of training processes left behind."""

    folder: RunFolder
    exit_codes: tuple[int, ...]

    def events(self, worker: int = 0) -> list[dict[str, typing.Any]]:
        """All events of a worker's journal, in order."""
        return JournalReader(self.folder.worker(worker).journal).new_events()

    def metric(self, name: str, worker: int = 0) -> list[float]:
        """Values of a metric, in order."""
        return [e["values"][name] for e in self.events(worker) if e["type"] == "metrics" and name in e["values"]]

    def points(self, name: str, worker: int = 0) -> list[list[float]]:
        """[step, value, unix seconds] of a series."""
        return [
            point for e in self.events(worker) if e["type"] == "series" and e["name"] == name for point in e["points"]
        ]

    def tags(self, worker: int = 0) -> dict[str, str]:
        """All tags, later ones winning."""
        return {name: text for e in self.events(worker) if e["type"] == "tags" for name, text in e["values"].items()}

    def end(self, worker: int = 0) -> tuple[str, str]:
        """Status and reason by the worker's own words."""
        event = self.events(worker)[-1]
        assert event["type"] == "end", f"the journal ends with {event}; stderr: {self.stderr(worker)[-2000:]}"
        return event["status"], event["reason"]

    def stdout(self, worker: int = 0) -> str:
        """What the worker wrote to file descriptor 1."""
        return self.folder.worker(worker).stdout.read_text(errors="replace")

    def stderr(self, worker: int = 0) -> str:
        """What the worker wrote to file descriptor 2."""
        return self.folder.worker(worker).stderr.read_text(errors="replace")


def phases(run: Outcome, worker: int = 0) -> list[str]:
    """What a worker did, in order."""
    return [event["phase"] for event in run.events(worker) if event["type"] == "phase"]


def slowest_step(run: Outcome, batch: int = 32) -> float:
    """Seconds of a step in the first epoch, which traced and warmed up: no steady step of the run takes as long."""
    return batch / run.metric(Metric.EXAMPLES_PER_SECOND)[0]


_done: dict[str, Outcome] = {}


def train(**fields: typing.Any) -> Outcome:
    """Trains TINY with other fields; the same fields again give the same outcome without another run."""
    return _outcome(RunSpec.from_dict(TINY | fields), fresh=False)


def train_fresh(**fields: typing.Any) -> Outcome:
    """`train` in processes that import TensorFlow themselves: where their start matters."""
    return _outcome(RunSpec.from_dict(TINY | fields), fresh=True)


def _outcome(spec: RunSpec, fresh: bool) -> Outcome:
    fresh = fresh or spec.workers > 1 or spec.device == "gpu"
    key = json.dumps([fresh, spec.to_dict()], sort_keys=True)
    if key not in _done:
        path = Path(tempfile.mkdtemp(prefix="speedup-lab-run-"))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
        folder = RunFolder.create(spec, Launch("test", "unused", str(path), cpus=2, submitted_at=time.time()))
        codes = _in_a_gang(folder) if fresh else (_forked(folder, spec),)
        assert None not in codes, (
            f"still running after {_DEADLINE_S:.0f} s: {folder.worker(0).stderr.read_text(errors='replace')[-2000:]}"
        )
        _done[key] = Outcome(folder, typing.cast(tuple[int, ...], codes))
    return _done[key]


_DEADLINE_S = 240.0


def _forked(folder: RunFolder, spec: RunSpec) -> int | None:
    files = folder.worker(0)
    files.path.mkdir(parents=True)
    environment = worker_environment(folder, spec, folder.launch(), os.environ, 0, [])
    return run_forked(
        process.main,
        [str(folder.path), "0"],
        environment=environment,
        folder=folder.path,
        stdout=files.stdout,
        stderr=files.stderr,
        timeout=_DEADLINE_S,
    )


def _in_a_gang(folder: RunFolder) -> tuple[int | None, ...]:
    gang = SubprocessGang(folder)
    gang.start()
    deadline = time.monotonic() + _DEADLINE_S
    while None in gang.poll() and time.monotonic() < deadline:
        time.sleep(0.1)
    codes = tuple(gang.poll())
    gang.end(1.0)
    return codes
