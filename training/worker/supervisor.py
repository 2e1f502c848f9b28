"""One supervisor per run: starts the training processes, has their journals recorded, watches them, decides the end.

It imports no TensorFlow, and MLflow only in the thread that records, while the training process is still importing
TensorFlow itself. It does next to nothing while training runs, since it shares the machine that is being timed.
"""

import contextlib
import logging
import os
import shutil
import signal
import time
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

from training.names import Metric, RunStatus
from training.run_folder import RunFolder
from training.worker.gang import Gang
from training.worker.journal import Journal, JournalReader
from training.worker.post_mortem import MemoryKills, last_words
from training.worker.recording import Recording
from training.worker.staging import stage
from training.worker.watch import Verdict, Watch, watch_of, with_memory_cause

log = logging.getLogger(__name__)

POLL_S = 0.25
_FULL = 2**18
"""Bytes of free space below which a disk counts as full."""
TERMINATE_GRACE_S = 5.0
"""From asking the training processes to end to killing them."""
SETTLE_S = 1.0
"""A process that ended as if asked to: this long, the request is waited for that came to it before it came to us."""
EXIT_GRACE_S = 60.0
"""From a worker's last word to the end of its process."""
STOP_S = 12.0
"""From a request to stop to the end of this process: whoever asked kills it before long (Ray is set to 15 s)."""

EXIT_FINISHED, EXIT_FAILED, EXIT_KILLED = 0, 1, 128 + signal.SIGTERM

# One call must not hang for MLflow's default of minutes (7 retries of up to 120 s): the recording retries itself, and
# sees in between whether it is still wanted.
_MLFLOW_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

TELEMETRY_VARIABLE = "SPEEDUP_LAB_TELEMETRY_S"
RECORD_VARIABLE = "SPEEDUP_LAB_RECORD_DEADLINE_S"


class AlreadyStartedError(RuntimeError):
    """The run has been started before: its journals are those of the first start, and a retry is a new run."""


def supervise(folder: RunFolder, gang: Gang, environment: Mapping[str, str] = os.environ) -> int:
    """Runs one training run to its end. Call it from the main thread.

    Args:
        folder: the run's folder, with spec and launch.
        gang: its training processes, not started yet.
        environment: `SPEEDUP_LAB_TELEMETRY_S` is the time between samples of system metrics (5 s),
            `SPEEDUP_LAB_RECORD_DEADLINE_S` how long, after the training, MLflow is waited for (600 s); what could not
            be recorded by then `training.worker.recording.replay` records later.

    Returns:
        The exit code for the process: 0 for FINISHED, 143 for KILLED, else 1.

    Raises:
        AlreadyStartedError: the run was started before.
    """
    if folder.supervisor_journal.exists():
        raise AlreadyStartedError(f"{folder.path} was started before; submit the spec again as a new run")
    for name, value in _MLFLOW_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with _log_to(folder.supervisor_log), _StopRequests() as stop:
        return _Supervision(folder, gang, environment, stop).run()


class _StopRequests:
    """Takes note of the signals that ask this process to stop, instead of dying of them.

    Attributes:
        at: when the first came, on the monotonic clock; None while none has.
    """

    _NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.at: float | None = None
        self._earlier: dict[signal.Signals, typing.Any] = {}

    def __enter__(self) -> "_StopRequests":
        for number in self._NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's wish is kept
                self._earlier[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        if self.at is None:  # no lock, no logging: the main thread may hold theirs just now
            self.at = time.monotonic()


class _Supervision:
    def __init__(self, folder: RunFolder, gang: Gang, environment: Mapping[str, str], stop: _StopRequests):
        self._folder, self._gang, self._stop = folder, gang, stop
        self._spec, self._launch = folder.spec(), folder.launch()
        self._telemetry_s = float(environment.get(TELEMETRY_VARIABLE, "5"))
        self._record_s = float(environment.get(RECORD_VARIABLE, "600"))
        self._journal = Journal(folder.supervisor_journal)
        self._readers = [JournalReader(folder.worker(index).journal) for index in range(gang.size)]
        self._memory_kills = MemoryKills()
        self._recording = Recording(folder)
        self._samples = 0
        self._peak_mb = 0.0

    def run(self) -> int:
        if self._launch.submitted_at:
            self._journal.metrics({Metric.TIME_QUEUE: max(time.time() - self._launch.submitted_at, 0.0)})
        verdict = self._train()
        if self._recording.gone:
            log.error("%s: the training was stopped", self._recording.gone)
            return EXIT_FAILED
        if self._recording.ended_before is not None:
            log.error("the run was %s before it began: the training was stopped", self._recording.ended_before)
            return EXIT_KILLED
        self._record_end(verdict)
        log.info("%s%s", verdict.status, f": {verdict.reason}" if verdict.reason else "")
        return {RunStatus.FINISHED: EXIT_FINISHED, RunStatus.KILLED: EXIT_KILLED}.get(verdict.status, EXIT_FAILED)

    def _train(self) -> Verdict:
        """Starts the training, waits for its end, and leaves no process behind, whatever happens."""
        try:
            try:
                self._gang.start()
            except Exception as error:
                log.exception("the training could not be started")
                self._recording.start()
                return Verdict(RunStatus.FAILED, f"could not be started: {type(error).__name__}: {error}")
            self._recording.start()
            log.info("started %d training process(es): %s", self._gang.size, list(self._gang.pids()))
            try:
                return self._watch()
            except Exception as error:
                log.exception("the supervisor failed")
                return Verdict(RunStatus.FAILED, f"the supervisor failed: {type(error).__name__}: {error}")
        finally:
            self._gang.end(TERMINATE_GRACE_S)

    def _watch(self) -> Verdict:
        from training.worker.telemetry import Sampler, run_gpus

        launch = self._launch
        watch = watch_of(self._spec, launch, time.monotonic())
        gpus = run_gpus(self._spec, launch, os.environ)
        sampler = Sampler(self._gang.pids, gpus, launch.cpus, self._spec.workers)
        next_sample = time.monotonic() + self._telemetry_s
        failed_at: float | None = None
        while True:
            codes = self._gang.poll()  # before the journals: what a process wrote before it ended is then read below
            self._read(watch)
            watch.exited(codes)
            now = time.monotonic()
            if self._stop.at is not None or self._recording.cancelled:
                return Verdict(RunStatus.KILLED, "stopped by request")
            if self._recording.gone or self._recording.ended_before is not None:
                return Verdict(RunStatus.KILLED, "the run is not wanted any more")
            if watch.any_failed:
                failed_at = failed_at or now
                if not watch.asked_to_stop or now - failed_at >= SETTLE_S:
                    return self._judge(watch)
            elif watch.all_exited:
                return self._judge(watch)
            elif late := watch.deadline_passed(now):
                return Verdict(RunStatus.FAILED, late)
            elif watch.finished_for(now) > EXIT_GRACE_S:
                log.warning("a training process that had finished did not exit; it is killed")
                return self._judge(watch)
            if now >= next_sample:
                next_sample = now + self._telemetry_s
                self._sample(sampler.sample())
            time.sleep(POLL_S)

    def _read(self, watch: Watch) -> None:
        for index, reader in enumerate(self._readers):
            while events := reader.new_events():
                for event in events:
                    watch.heard(index, event, time.monotonic())

    def _judge(self, watch: Watch) -> Verdict:
        for index, view in enumerate(watch.views):
            if view.failed and not view.end_reason and view.exit_code != -signal.SIGKILL:
                view.last_words = last_words(self._folder.worker(index).stderr)
        killed = any(view.exit_code == -signal.SIGKILL for view in watch.views)
        verdict = with_memory_cause(watch.verdict(), self._memory_kills.happened(), killed)
        # Its own words are not there: there was no room for them.
        full = verdict.status is RunStatus.FAILED and shutil.disk_usage(self._folder.path).free < _FULL
        return Verdict(verdict.status, f"{verdict.reason}: no space left in {self._folder.path}") if full else verdict

    def _sample(self, values: dict[str, float]) -> None:
        if values:
            self._peak_mb = max(self._peak_mb, values.get(Metric.SYSTEM_PEAK_MEMORY, 0.0))
            self._journal.metrics(values, self._samples)
            self._samples += 1

    def _record_end(self, verdict: Verdict) -> None:
        # A run shorter than the time between two samples has its peak all the same: the kernel kept it.
        peak = max(self._peak_mb, self._gang.peak_memory_mb())
        if peak:
            self._journal.metrics({Metric.SYSTEM_PEAK_MEMORY: peak}, self._samples)
        # From here on the run's end is decided on disk: were this process killed now, `replay` would record it.
        self._journal.end(verdict.status, verdict.reason)
        self._recording.finish(stage(self._folder))
        deadline = time.monotonic() + self._record_s
        while self._recording.is_alive() and time.monotonic() < deadline:
            if self._stop.at is not None:
                deadline = min(deadline, self._stop.at + STOP_S)
            self._recording.join(POLL_S)
        if self._recording.gone:
            log.error("%s: its end could not be recorded", self._recording.gone)
        elif not self._recording.recorded:
            log.error("MLflow could not be reached; everything is kept in %s to be recorded later", self._folder.path)


@contextlib.contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Writes this package's log to a file, unless the engine sends standard error there already."""
    path.touch()
    handler = logging.StreamHandler() if _is_standard_error(path) else logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("training.worker")
    earlier = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(earlier)
        handler.close()


def _is_standard_error(path: Path) -> bool:
    return os.path.samestat(os.fstat(2), path.stat())
