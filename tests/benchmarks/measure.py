"""Runs what is compared, and turns epochs into throughputs. Everything is a process of its own, one at a time."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import typing
from dataclasses import dataclass
from pathlib import Path

from training.names import Metric
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import SubprocessGang
from training.worker.journal import JournalReader

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        name: what is compared with what.
        ratio: the median over rounds.
        rounds: each round's ratio, measured side by side.
        target: what it should reach; `at_most` says in which direction.
        note: the absolute figures behind it.
    """

    name: str
    rounds: tuple[float, ...]
    target: float
    at_most: bool = False
    note: str = ""

    @property
    def ratio(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds)

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target

    def row(self) -> str:
        """A row of a Markdown table."""
        sign = "≤" if self.at_most else "≥"
        rounds = ", ".join(f"{value:.3f}" for value in self.rounds)
        verdict = "met" if self.met else "missed"
        return f"| {self.name} | {self.ratio:.3f} | {rounds} | {sign} {self.target:g} | {verdict} | {self.note} |"


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def module(name: str, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, typing.Any]:
    """Runs a module whose last line on stdout is a JSON document."""
    done = subprocess.run(
        [sys.executable, "-m", name, *arguments],
        cwd=ROOT,
        env={**os.environ, **QUIET, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} exited with {done.returncode}: {done.stderr[-2000:]}")
    return typing.cast(dict[str, typing.Any], json.loads(done.stdout[done.stdout.index("{") :]))


def steady(epochs: list[float], examples: int) -> float:
    """Examples per second of the epochs after the first, which traces and compiles."""
    return examples * len(epochs[1:]) / sum(epochs[1:])


class TrainingProcesses:
    """The training processes of one run, without supervisor and MLflow.

    Args:
        spec: the run.
        core: pins a run of one worker to this core; None leaves pinning to the gang.
    """

    def __init__(self, spec: RunSpec, core: int | None = None):
        path = tempfile.mkdtemp(prefix="speedup-lab-bench-")
        launch = Launch("bench", "unused", path, cpus=(spec.cpu_threads or 2) * spec.workers, submitted_at=time.time())
        self.spec, self.folder = spec, RunFolder.create(spec, launch)
        pinned = ["taskset", "--cpu-list", str(core)] if core is not None else []
        worker = [*pinned, sys.executable, "-m", "training.worker.process", path]
        self._gang = SubprocessGang(self.folder, lambda index: [*worker, str(index)])
        self._gang.start()

    def wait(self) -> None:
        """Returns when all have ended. Raises RuntimeError when one failed."""
        while None in self._gang.poll():
            time.sleep(0.2)
        codes = self._gang.poll()
        self._gang.end(1.0)
        if any(codes):
            raise RuntimeError(
                f"exit codes {codes}: {self.folder.worker(0).stderr.read_text(errors='replace')[-2000:]}"
            )

    def windows(self) -> list[tuple[float, float, float]]:
        """(began, ended, examples per second) of each window after the first epoch, unix seconds."""
        found, before = [], 0
        steps = 0
        for event in JournalReader(self.folder.worker(0).journal).new_events():
            if event["type"] == "tags":
                steps = int(event["values"].get("steps_per_epoch", steps))
            if event["type"] == "series" and event["name"] == Metric.WINDOW:
                for step, rate, at in event["points"]:
                    examples = (step - before) * self.spec.global_batch_size
                    if before >= steps:
                        found.append((at - examples / rate, at, rate))
                    before = step
        return found


def rate_between(windows: list[tuple[float, float, float]], began: float, ended: float) -> float:
    """Examples per second of the windows that lie within a span of time: total examples over total time."""
    inside = [(end - begin, rate) for begin, end, rate in windows if begin >= began and end <= ended]
    return sum(seconds * rate for seconds, rate in inside) / sum(seconds for seconds, _ in inside)
