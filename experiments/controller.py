"""The one long-lived loop, `python -m experiments.controller`: starts runs that fit, keeps MLflow true to what runs.

What is in MLflow is the queue, and a run's supervisor records the run. The controller records a run's end only where
the supervisor is gone and has not: killed, or lost with the scheduler or the machine.
"""

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import typing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from experiments import queue
from experiments.capacity import Request
from experiments.dispatch import Dispatcher, end, not_here, save_handle
from experiments.engines.base import FOREGROUND, Engine, EngineError, EngineStatus, EngineUnavailableError
from experiments.live import LiveRun, Said, has_supervisor, is_abandoned, line
from experiments.locks import LockTimeout, file_lock
from experiments.settings import Settings, SettingsError, bound_store_requests
from experiments.store_errors import store_errors
from training.names import RunStatus, Tag
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import end_strays
from training.worker.recorder import RunGoneError, is_concluded
from training.worker.recording import replay

if typing.TYPE_CHECKING:
    from mlflow.entities import Run

log = logging.getLogger("experiments.controller")  # __name__ is "__main__" here when it drives

POLL_S = 1.0  # a pass costs the tracking server some 20 ms of a core that a run may need
WAKE_S = 0.05
SHARE_OF_TIME = 0.2
"""A long queue makes a pass long: passes take at most this part of the time, while that means no longer pause than
LONGEST_PAUSE_S: one that waited for somebody who did not answer must not hold up the next."""
LONGEST_PAUSE_S = 10.0
GONE_FOR_S = 5.0
"""A supervisor that has been gone for so long is not going to record its run's end."""
ENGINE_AWAY_S = 30.0
"""After so long without a word from the engine, a run whose supervisor is not alive either is given up."""
LET_GO_S = 30.0
"""A supervisor has this long to exit after its run has ended in MLflow."""
STOP_AGAIN_S = 30.0
REPLAY_AGAIN_S = 5.0
SUBMITTING_S = 5.0
"""A run this young that is RUNNING and that no engine has is being submitted, and ready in a moment."""
UNFINISHED_S = 60.0
"""A submission, or a run without engine, that shows no life for so long is closed."""

_REASONS = {
    EngineStatus.UNKNOWN: "the scheduler was restarted",
    EngineStatus.STOPPED: "it was stopped from outside",
}


class Controller:
    """Drives one queue with one engine.

    Args:
        settings: which queue.
        engine: where runs are started.
    """

    def __init__(self, settings: Settings, engine: Engine):
        self._settings, self._engine = settings, engine
        self._said = Said(log)
        self._dispatcher = Dispatcher(settings, engine, self._said)
        self._live: dict[str, LiveRun] = {}
        self._lifeless_since: dict[str, float] = {}
        self._replays = ThreadPoolExecutor(1, thread_name_prefix="replay")
        self._engine_away_since: float | None = None
        self._submitting = False

    def step(self) -> None:
        """One pass over the runs that have not ended. Raises what MLflow raises when it does not answer."""
        runs = {run.info.run_id: run for run in self._unended()}
        for run in runs.values():
            self._adopt(run)
        for live in list(self._live.values()):
            self._look_after(live, runs.get(live.run_id))
        others = [run for run_id, run in runs.items() if run_id not in self._live]
        waiting = [
            run for run in others if run.info.status == RunStatus.SCHEDULED and not run.data.tags.get(Tag.ENGINE_HANDLE)
        ]
        self._submitting = any(run.info.status == RunStatus.RUNNING and _age(run) < SUBMITTING_S for run in others)
        for run in others:
            if run.info.status == RunStatus.RUNNING or run.data.tags.get(Tag.ENGINE_HANDLE) == FOREGROUND:
                self._close_lifeless(run)
        self._dispatcher.dispatch(waiting, self._live)

    def run_forever(self, stop: threading.Event) -> None:
        """Passes until `stop` is set. Whatever does not answer is said once, and tried again."""
        errors: tuple[type[Exception], ...] = (*store_errors(), SettingsError)
        while not stop.is_set():
            began, submissions = time.monotonic(), self._submissions()
            try:
                self.step()
                self._said.recovered("store")
                self._said.recovered("fault")
            except errors as error:
                self._said.trouble("store", f"the tracking store does not answer ({line(error)})")
            except Exception:
                # A fault of ours with one run must not end the others' controller.
                self._said.trouble("fault", "a pass over the queue failed", exc_info=True)
            pause = WAKE_S if self._submitting else POLL_S
            share = min((time.monotonic() - began) / SHARE_OF_TIME, LONGEST_PAUSE_S)
            self._sleep(max(pause, share), submissions, stop)

    def close(self) -> None:
        """Lets go of the engine, once what is being recorded is recorded."""
        self._replays.shutdown()
        self._engine.close()

    def _unended(self) -> list["Run"]:
        ended = (status for status in RunStatus if status.is_terminal)
        which = " and ".join(f"attributes.status != '{status}'" for status in ended)
        experiment, client = self._settings.experiment_id(), self._settings.client()
        found: list[Run] = []
        token: str | None = None
        while True:
            page = client.search_runs([experiment], which, max_results=1000, page_token=token)
            found += page
            token = page.token
            if not token:
                return found

    def _adopt(self, run: "Run") -> None:
        """Takes on a run that an earlier controller started."""
        run_id, handle = run.info.run_id, run.data.tags.get(Tag.ENGINE_HANDLE, "")
        if run_id in self._live or not handle or handle == FOREGROUND:
            return
        folder = RunFolder.of(self._settings.runs_folder, run_id)
        if not folder.path.exists():
            self._said.once(run_id, not_here(self._settings, run_id))
            return
        try:
            spec, launch = folder.spec(), folder.launch()
        except (OSError, ValueError, TypeError) as error:
            end(self._settings, run_id, RunStatus.FAILED, f"its folder cannot be read: {line(error)}")
            return
        self._take_on(folder, spec, launch, handle)

    def _take_on(self, folder: RunFolder, spec: RunSpec, launch: Launch, handle: str) -> None:
        run_id = launch.run_id
        if is_concluded(folder):  # opened again by somebody who logs into it: it holds nothing
            self._live[run_id] = LiveRun(run_id, handle, folder, Request(0, 0, 0), ())
            return
        request = Request(spec.workers, max(1, launch.cpus // spec.workers), spec.gpus_per_worker)
        self._live[run_id] = LiveRun(run_id, handle, folder, request, tuple(launch.gpu_ids or ()), group=spec.group)
        log.info("run %s had been started before (%s)", run_id, handle)

    def _take_back(self, folder: RunFolder) -> None:
        """Takes on a run whose handle was never saved: the engine started it and its answer got lost, or a controller
        was killed in between. Until then it holds nothing, and nobody could stop it."""
        try:
            spec, launch = folder.spec(), folder.launch()
            if handle := self._engine.find(launch, spec):
                self._take_on(folder, spec, launch, handle)
                live = self._live[launch.run_id]
                live.handle_saved = False
                save_handle(self._settings, live)
        except (OSError, ValueError, TypeError, EngineError) as error:
            self._said.once(folder.path.name, f"run {folder.path.name} has a supervisor, but no engine: {line(error)}")

    def _look_after(self, live: LiveRun, run: "Run | None") -> None:
        try:
            self._reconcile(live, run)
        except EngineUnavailableError as error:
            self._said.trouble("engine", str(error))
            now = time.monotonic()
            if self._engine_away_since is None:
                self._engine_away_since = now
            if run is not None and now - self._engine_away_since > ENGINE_AWAY_S:
                self._conclude(live, run, "the scheduler went away")
        except EngineError as error:
            self._said.trouble("engine", str(error))

    def _reconcile(self, live: LiveRun, run: "Run | None") -> None:
        """Brings together what MLflow and the engine say of one run. `run` is None when it has ended in MLflow."""
        state = self._engine.state(live.handle)
        now, self._engine_away_since = time.monotonic(), None
        self._said.recovered("engine")
        if state.status.is_alive:
            live.gone_since = None
        elif live.gone_since is None:
            live.gone_since = now
        if run is None:
            self._release(live, now)
            return
        if not live.handle_saved:
            save_handle(self._settings, live)
        if state.status.is_alive:
            if Tag.CANCEL_REQUESTED in run.data.tags:
                self._stop(live, now)
        elif live.gone_since is not None and now - live.gone_since >= GONE_FOR_S:
            reason = _REASONS.get(state.status, state.detail or "its supervisor ended without a word")
            self._conclude(live, run, "its process is gone" if live.handle == FOREGROUND else reason)

    def _release(self, live: LiveRun, now: float) -> None:
        """A run that has ended in MLflow: what it holds is free once its supervisor is gone."""
        if live.ended_since is None:
            live.ended_since = now
        if live.gone_since is not None and not has_supervisor(live.folder):
            del self._live[live.run_id]
            log.info("run %s has ended", live.run_id)
        elif now - live.ended_since > LET_GO_S and self._has_ended(live.run_id):
            # Ended or deleted by somebody else; it must not hold the machine.
            self._stop(live, now)

    def _has_ended(self, run_id: str) -> bool:
        """Whether a run that the list of unended ones lacks has ended, or is gone: asked before it is stopped."""
        try:
            return RunStatus(queue.get_run(self._settings, run_id).info.status).is_terminal
        except queue.UnknownRun:
            return True

    def _stop(self, live: LiveRun, now: float) -> None:
        if live.stop_asked is None or now - live.stop_asked > STOP_AGAIN_S:
            live.stop_asked = now
            log.info("stopping run %s", live.run_id)
            self._engine.stop(live.handle)

    def _conclude(self, live: LiveRun, run: "Run", reason: str) -> None:
        """Has the end of a run recorded whose supervisor is gone and has not done so, in a thread: it takes seconds."""
        if live.replay is not None:
            if live.replay.done():
                self._replayed(live)
            return
        if time.monotonic() < live.replay_again_at:
            return
        if has_supervisor(live.folder):
            self._said.once(
                live.run_id, f"run {live.run_id}: {reason}, but its supervisor lives on, and so does the run"
            )
            return
        cancelled = Tag.CANCEL_REQUESTED in run.data.tags
        otherwise = (RunStatus.KILLED, "stopped by request") if cancelled else (RunStatus.FAILED, reason)
        log.info("recording the end of run %s (%s)", live.run_id, otherwise[1])
        live.replay = self._replays.submit(_replay, live.folder, otherwise)

    def _replayed(self, live: LiveRun) -> None:
        """Judges a replay after which the run has still not ended, as the list said that was fetched before."""
        assert live.replay is not None, "called after a replay"
        error = live.replay.exception()
        live.replay, live.replay_again_at = None, time.monotonic() + REPLAY_AGAIN_S
        if isinstance(error, RunGoneError):
            del self._live[live.run_id]
        elif isinstance(error, store_errors()) and not isinstance(error, FileNotFoundError):
            self._said.trouble(live.run_id, f"the end of run {live.run_id} cannot be recorded ({line(error)})")
        elif error is not None:
            # Whatever is wrong with its files, the run must not stay RUNNING for ever.
            reason = f"its supervisor is gone, and its record is broken ({line(error)})"
            end(self._settings, live.run_id, RunStatus.FAILED, reason)

    def _close_lifeless(self, run: "Run") -> None:
        """A run that no engine has: being submitted, or carried out by its submitter. Closed when it is neither."""
        run_id = run.info.run_id
        if queue.is_unfinished(run):
            if _age(run) > UNFINISHED_S:
                end(self._settings, run_id, RunStatus.FAILED, "its submission was cut short: submit it again")
            return
        folder = RunFolder.of(self._settings.runs_folder, run_id)
        if not is_abandoned(run, folder):
            self._lifeless_since.pop(run_id, None)
            if folder.launch_path.exists() and run.data.tags.get(Tag.ENGINE_HANDLE) != FOREGROUND:
                self._take_back(folder)
        elif time.monotonic() - self._lifeless_since.setdefault(run_id, time.monotonic()) > UNFINISHED_S:
            del self._lifeless_since[run_id]
            self._live[run_id] = LiveRun(run_id, FOREGROUND, folder, Request(0, 0, 0), ())

    def _sleep(self, seconds: float, submissions: int, stop: threading.Event) -> None:
        """Sleeps, or less when a run was submitted here since the pass began: that makes a folder."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._submissions() == submissions and not stop.wait(WAKE_S):
            continue

    def _submissions(self) -> int:
        with contextlib.suppress(OSError):
            return self._settings.runs_folder.stat().st_mtime_ns
        return 0


def _age(run: "Run") -> float:
    """Seconds since the run was created in MLflow."""
    return float(time.time() - run.info.start_time / 1000)


def _replay(folder: RunFolder, otherwise: tuple[RunStatus, str]) -> None:
    end_strays(folder)
    replay(folder, otherwise)


class AlreadyDrivenError(RuntimeError):
    """Another controller drives this data folder. The message says which."""


@contextlib.contextmanager
def only_controller(settings: Settings) -> Iterator[None]:
    """Holds the right to drive a data folder's queue: two controllers would start every run twice.

    Raises:
        AlreadyDrivenError: another process holds it.
    """
    path = settings.locks_folder / "controller.lock"
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(path, 0.0))
        except LockTimeout:
            who = path.read_text(encoding="utf-8") or "another process"
            raise AlreadyDrivenError(
                f"the runs of {settings.home} are already driven by {who}: stop that one, or set SPEEDUP_LAB_HOME"
            ) from None
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield


def main(arguments: list[str] | None = None) -> int:
    """Drives the queue until SIGTERM or Ctrl-C. Returns 0 then, and 2 where it cannot begin."""
    parser = argparse.ArgumentParser(prog="python -m experiments.controller", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("ray", "inline"), default="ray", help="inline: this machine, without Ray")
    engine_name = parser.parse_args(arguments).engine
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    logging.getLogger("experiments").setLevel(logging.INFO)
    # A pass that fails is no loss: the next one tries again.
    bound_store_requests(retries=0, timeout_s=15)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = Settings.from_environment().prepare()
        with only_controller(settings):
            controller = Controller(settings, _engine(engine_name, settings))
            log.info("driving the runs of %s (%s)", settings.home, engine_name)
            controller.run_forever(stop)
            controller.close()
    except (SettingsError, AlreadyDrivenError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _engine(name: str, settings: Settings) -> Engine:
    if name == "inline":
        from experiments.engines.inline import InlineEngine

        return InlineEngine(settings)
    from experiments.engines.ray_engine import RayEngine

    return RayEngine(settings)


if __name__ == "__main__":
    sys.exit(main())
