"""What the supervisor knows of a run while it lasts, and how it judges the end. No clock, no process, no file here.

The watch is fed the workers' events, exit codes and the time; it says when a deadline has passed and, at the end, which
status the run has and why, in one line that a person understands.
"""

import math
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from training import catalog
from training.names import Metric, Phase, RunStatus
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.journal import Event

# What a healthy worker reports when another one went away: a consequence, not the cause.
_PEER_LOST = re.compile(
    r"\b(Unavailable|Aborted|Cancelled|DeadlineExceeded)Error\b|Connection reset by peer|Socket closed|"
    r"\bcoordination (service|agent)\b|heartbeat|peer .* (is )?(lost|unreachable)",
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(
    r"Resource_?Exhausted|\bOOM\b|MemoryError|bad_alloc|CUDA_ERROR_OUT_OF_MEMORY|out of memory|"
    r"Dst tensor is not initialized",  # how TensorFlow puts it when a copy to the GPU finds no room
    re.I,
)
_SHAPE = re.compile(r"shape\s*[\[(]([\d,x\s]+)[\])]", re.IGNORECASE)
_LONGEST_REASON = 2_000
_OF_AN_EPOCH = {Metric.LOSS, Metric.TIME_EPOCH_TRAIN}

PATIENCE = 5
"""A call may take so many times as long as its steps have taken so far."""

_STOP_SIGNALS = (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)


@dataclass(frozen=True)
class Verdict:
    """How a run ended, and why: one line, empty for a run that finished."""

    status: RunStatus
    reason: str = ""


@dataclass
class WorkerView:
    """What is known of one worker."""

    heard: bool = False
    joined: bool = False
    exit_code: int | None = None
    exit_order: int = 0
    end_status: RunStatus | None = None
    end_reason: str = ""
    end_at: float = math.inf
    last_words: str = ""

    @property
    def ended(self) -> bool:
        """Whether the process has ended or said that it has."""
        return self.exit_code is not None or self.end_status is not None

    @property
    def failed(self) -> bool:
        """Whether something went wrong here."""
        if self.end_status is not None and self.end_status is not RunStatus.FINISHED:
            return True
        return self.exit_code is not None and (self.exit_code != 0 or self.end_status is None)


@dataclass
class Watch:
    """One run under way.

    Args:
        workers: how many processes it has.
        epochs: how many epochs it was asked for.
        join_deadline_s: seconds from the start within which every worker must have joined.
        stall_deadline_s: seconds without progress, once training is under way, after which the run has failed; more
            where one call takes long by itself.
        started: the time of the start, on the clock that later calls use (seconds).
        global_batch: examples in one step.
        longest_call: steps of the longest call that says nothing while it lasts: of a window, or a whole validation.
        delay_s: seconds that the input pipeline sleeps in each step.
    """

    workers: int
    epochs: int
    join_deadline_s: float
    stall_deadline_s: float
    started: float
    global_batch: int = 1
    longest_call: int = 1
    delay_s: float = 0.0
    views: list[WorkerView] = field(init=False)
    phase: str = str(Phase.STARTING)
    epochs_done: int = 0
    step: int = 0
    under_way: bool = False  # the first window of steps is done: whatever had to be compiled has been
    _first_window_s: float = 0.0
    _steady_s: float = 0.0  # of all windows after the first one
    _steady_steps: int = 0
    _timed_to: int = 0  # the step up to which windows are counted in these
    _progress_at: float = 0.0
    _ended_at: float = 0.0
    _exits: int = 0

    def __post_init__(self) -> None:
        self.views = [WorkerView() for _ in range(self.workers)]
        self._progress_at = self.started

    def heard(self, worker: int, event: Event, now: float) -> None:
        """Takes note of one event of a worker's journal, read at `now`."""
        view = self.views[worker]
        view.heard = True
        kind = event["type"]
        if kind == "joined":
            view.joined = True
        elif kind == "end":
            view.end_status = RunStatus(event["status"])
            view.end_reason = event["reason"]
            view.end_at = event["t"]
            self._ended_at = now
        if kind == "phase":
            # A process that loads data is past its strategy, whether or not it said so.
            view.joined = view.joined or event["phase"] != Phase.STARTING
            if worker == 0:
                self.phase = event["phase"]
        if kind == "series" and event["name"] == Metric.WINDOW and event["points"]:
            if worker == 0:
                self._time_steps(event["points"])
            self.step = max(self.step, event["points"][-1][0])
            self.under_way = True
        if kind == "metrics" and worker == 0 and not _OF_AN_EPOCH.isdisjoint(event["values"]):
            self.epochs_done = max(self.epochs_done, event["step"] + 1)
            self.under_way = True
        if kind in ("series", "metrics", "phase"):
            self._progress_at = now

    def exited(self, codes: Sequence[int | None]) -> None:
        """Takes note of the workers' exit codes; those first seen in one call count as simultaneous."""
        self._exits += 1
        for view, code in zip(self.views, codes, strict=True):
            if code is not None and view.exit_code is None:
                view.exit_code, view.exit_order = code, self._exits

    @property
    def all_exited(self) -> bool:
        """Whether no process is left."""
        return all(view.exit_code is not None for view in self.views)

    def finished_for(self, now: float) -> float:
        """Seconds since the last worker said that it finished; 0 while one has not."""
        if any(view.end_status is not RunStatus.FINISHED for view in self.views):
            return 0.0
        return now - self._ended_at

    @property
    def any_failed(self) -> bool:
        """Whether something went wrong at a worker, so that the others have nothing to wait for."""
        return any(view.failed for view in self.views)

    @property
    def asked_to_stop(self) -> bool:
        """Whether a worker ended as one does that was asked to: the request may be on its way to us as well."""
        return any(view.exit_code in _STOP_SIGNALS for view in self.views)

    def deadline_passed(self, now: float) -> str:
        """What the run has waited too long for; empty while all is well."""
        waiting = [index for index, view in enumerate(self.views) if not view.joined and not view.ended]
        if waiting and now - self.started > self.join_deadline_s:
            # Where one never spoke, those that wait for it to join are not to blame.
            silent = [index for index in waiting if not self.views[index].heard] or waiting
            if self.workers == 1:
                return f"the training process was not ready within {self.join_deadline_s:g} s"
            return f"{_workers(silent)} of {self.workers} never joined"
        if self.under_way and not self.all_exited and now - self._progress_at > (limit := self._stall_limit_s()):
            return f"no progress since step {self.step} for {limit:.6g} s, in {self.where}"
        return ""

    def _time_steps(self, points: Sequence[Sequence[float]]) -> None:
        for step, examples_per_second, _ in points:
            steps = int(step) - self._timed_to
            if steps <= 0 or not examples_per_second > 0:
                continue
            seconds = steps * self.global_batch / examples_per_second
            if self._timed_to:
                self._steady_s, self._steady_steps = self._steady_s + seconds, self._steady_steps + steps
            else:
                self._first_window_s = seconds
            self._timed_to = int(step)

    def _stall_limit_s(self) -> float:
        """Seconds without a word after which nothing more is to be expected."""
        if self._steady_steps:
            step = PATIENCE * self._steady_s / self._steady_steps
        else:  # the first one was compiled: what follows takes no longer, but for input that was ready for it
            step = self._first_window_s + self.delay_s
        # Validation and what is measured in the end are traced, too.
        return max(self.stall_deadline_s, self._first_window_s + self.longest_call * step)

    @property
    def where(self) -> str:
        """The part of the run that is under way: an epoch (from 1), or what comes before or after."""
        if not self.under_way and self.phase not in (Phase.TRAINING, Phase.VALIDATING):
            return f"phase '{self.phase}'"
        if self.epochs_done >= self.epochs:
            return f"phase '{self.phase}' after the last epoch"
        return f"epoch {self.epochs_done + 1}"

    def verdict(self) -> Verdict:
        """How the run ended, when all processes have or one has failed. The cause is named, not its consequences."""
        failed = [index for index, view in enumerate(self.views) if view.failed]
        if not failed:
            return Verdict(RunStatus.FINISHED)
        culprit = min(failed, key=self._suspicion)
        view = self.views[culprit]
        if view.end_status is RunStatus.KILLED and view.end_reason:
            return Verdict(RunStatus.KILLED, one_line(view.end_reason))
        return Verdict(RunStatus.FAILED, one_line(self._reason(culprit, view)))

    def _suspicion(self, index: int) -> tuple[bool, int, bool, float, int]:
        view = self.views[index]
        consequence = bool(_PEER_LOST.search(view.end_reason)) if view.end_reason else view.exit_code == -signal.SIGABRT
        killed = view.exit_code is not None and view.exit_code < 0
        # First what is no consequence of a lost peer; then the first to end, where an error that was reported by a
        # process still on its way out counts as earliest; of those that ended together the killed one, then the first
        # that spoke.
        return consequence, view.exit_order, not killed, view.end_at, index

    def _reason(self, index: int, view: WorkerView) -> str:
        who = "the training process" if self.workers == 1 else f"worker {index}"
        if view.end_status is not None and view.end_reason:
            reason = view.end_reason
            return reason if self.workers == 1 else f"{who}: {reason}"
        if view.exit_code == 0:
            return f"{who} ended without a word in {self.where}"
        words = f": {view.last_words}" if view.last_words else ""
        if view.exit_code is None:
            return f"{who} failed in {self.where}{words}"
        if view.end_status is RunStatus.FINISHED:
            return f"{who} exited {view.exit_code} after it had finished{words}"
        if view.exit_code < 0 and self.workers == 1:
            return f"{who} was killed by signal {-view.exit_code} in {self.where}{words}"
        return f"{who} exited {view.exit_code} in {self.where}{words}"


def watch_of(spec: RunSpec, launch: Launch, now: float) -> Watch:
    """The watch of a run that starts now."""
    values = catalog.option_values(spec.dataset, spec.dataset_options)
    window = min(
        spec.steps_per_execution,
        catalog.steps_per_epoch(spec.dataset, spec.dataset_options, spec.global_batch_size, spec.max_steps_per_epoch),
    )
    validation = -(-catalog.validation_examples(spec.dataset, spec.dataset_options) // spec.global_batch_size)
    return Watch(
        spec.workers,
        spec.epochs,
        launch.join_deadline_s,
        launch.stall_deadline_s,
        now,
        global_batch=spec.global_batch_size,
        longest_call=max(window, validation),
        delay_s=float(values.get("delay_ms", 0.0)) / 1000,
    )


def with_memory_cause(verdict: Verdict, kernel_killed: bool, any_sigkill: bool) -> Verdict:
    """The same verdict, its reason beginning with "OOM" where memory ran out.

    Args:
        verdict: as judged from the workers.
        kernel_killed: whether the kernel killed processes for memory since the run began.
        any_sigkill: whether a worker died of SIGKILL.
    """
    if verdict.status is not RunStatus.FAILED or verdict.reason.startswith("OOM"):
        return verdict
    if kernel_killed and any_sigkill:
        return Verdict(verdict.status, f"OOM: the host ran out of memory; {verdict.reason}")
    if _OUT_OF_MEMORY.search(verdict.reason):
        shape = _SHAPE.search(verdict.reason)
        size = f" (tensor of shape [{shape[1].strip()}])" if shape else ""
        return Verdict(verdict.status, f"OOM{size}: {verdict.reason}"[:_LONGEST_REASON])
    return verdict


def one_line(text: str) -> str:
    """A text as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


def _workers(indices: list[int]) -> str:
    if len(indices) == 1:
        return f"worker {indices[0]}"
    return "workers " + ", ".join(str(index) for index in indices)
