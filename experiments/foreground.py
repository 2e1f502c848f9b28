"""`run --inline`: one run, carried out by who submits it. No server, no Ray, no controller.

Such a run has the handle FOREGROUND from its submission on, so that a controller with the same store leaves it alone.
Several of them at once know nothing of each other: GPUs are to be named (`gpus=1`) where two runs want one each.
"""

import dataclasses
import logging
import time
import typing
from collections.abc import Callable

from experiments import capacity, queue
from experiments.capacity import Pool
from experiments.engines.base import FOREGROUND, Engine, EngineError
from experiments.engines.inline import InlineEngine
from experiments.live import is_abandoned, line
from experiments.locks import file_lock
from experiments.settings import Settings
from experiments.store_errors import store_errors
from training.names import RunStatus, Tag
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import end_strays
from training.worker.recording import replay

if typing.TYPE_CHECKING:
    from mlflow.entities import Run

log = logging.getLogger(__name__)

POLL_S = 0.25
RECORD_EVERY_S = 1.0


def here(settings: Settings) -> Settings:
    """The settings for runs on this machine, whatever cluster is set."""
    return dataclasses.replace(settings, ray_address="")


def close_abandoned(settings: Settings) -> None:
    """Ends runs that were carried out in the foreground and whose processes are gone: killed with their whole job, or
    with the machine. Where a controller drives the queue, it does so itself."""
    which = f"attributes.status = 'RUNNING' and tags.`{Tag.ENGINE_HANDLE}` = '{FOREGROUND}'"
    for run in settings.client().search_runs([settings.experiment_id()], which, max_results=1000):
        _close_if_abandoned(settings, run, (RunStatus.FAILED, "its process is gone"))


def _close_if_abandoned(settings: Settings, run: "Run", end: tuple[RunStatus, str]) -> None:
    folder = RunFolder.of(settings.runs_folder, run.info.run_id)
    if folder.launch_path.exists() and is_abandoned(run, folder):
        end_strays(folder)
        replay(folder, end)


def cancel(settings: Settings, run_id: str) -> RunStatus:
    """As `queue.cancel`; a run that nobody is left to hear it for ends here, unless a controller is there to do it."""
    status = queue.cancel(settings, run_id)
    if status.is_terminal or queue.is_driven(settings):
        return status
    run = queue.get_run(settings, run_id)
    if run.data.tags.get(Tag.ENGINE_HANDLE) != FOREGROUND:
        return status
    if status is RunStatus.RUNNING:
        _close_if_abandoned(settings, run, (RunStatus.KILLED, "stopped by request"))
        return RunStatus(queue.get_run(settings, run_id).info.status)
    # A command that is still about to start it finds it ended.
    if is_abandoned(run, RunFolder.of(settings.runs_folder, run_id)):
        settings.client().set_tag(run_id, Tag.REASON, "cancelled before it started")
        settings.client().set_terminated(run_id, RunStatus.KILLED)
        return RunStatus.KILLED
    return status


def submit(settings: Settings, spec: RunSpec, submission: str = "") -> str:
    """As `queue.submit`, checked against this machine, and left alone by every controller."""
    close_abandoned(settings)
    tags = {Tag.ENGINE_HANDLE: FOREGROUND, Tag.REASON: "about to start"}
    return queue.submit(here(settings), spec, submission, tags=tags)


class Foreground:
    """A submitted run under way on this machine.

    Args:
        settings: where it is recorded.
        run_id: what `submit` gave.
        engine: an engine for the supervisor, instead of a new inline one.
    """

    def __init__(self, settings: Settings, run_id: str, engine: Engine | None = None):
        self._settings, self._run_id = settings, run_id
        self._folder = RunFolder.of(settings.runs_folder, run_id)
        self._engine = engine or InlineEngine(settings)
        self._handle = ""
        self._cancelled = False

    def start(self) -> bool:
        """Starts the supervisor, unless the run has been started before. When that fails, the run is FAILED.

        Returns:
            Whether this object carries the run out.
        """
        # Two commands with one submission token have one run between them.
        with file_lock(self._settings.locks_folder / "foreground.lock"):
            run = queue.get_run(self._settings, self._run_id)
            if run.info.status != RunStatus.SCHEDULED or self._folder.launch_path.exists():
                return False
            spec, machine = self._folder.spec(), self._engine.capacity()
            wanted = capacity.request(spec, machine)
            taken = Pool(machine).take(wanted, spec.gpus)
            launch = Launch(
                run_id=self._run_id,
                tracking_uri=self._settings.tracking_uri,
                folder=str(self._folder.path),
                gpu_ids=taken.launch_gpu_ids if taken else [],
                cpus=wanted.cpus_total,
                submitted_at=run.info.start_time / 1000,
            )
            self._folder.write_launch(launch)
            try:
                self._handle = self._engine.start(launch, spec, wanted)
            except EngineError as error:
                client = self._settings.client()
                client.set_tag(self._run_id, Tag.REASON, f"could not be started: {error}")
                client.set_terminated(self._run_id, RunStatus.FAILED)
        return True

    def cancel(self) -> None:
        """Asks the run to end. Further calls do nothing."""
        if not self._cancelled:
            self._cancelled = True
            if self._handle:
                self._engine.stop(self._handle)

    def wait(self, look: Callable[[], bool]) -> None:
        """Waits until the supervisor has gone, and has the run's end recorded if it could not do so itself.

        Args:
            look: called about once a second; true when somebody asked to cancel the run.
        """
        looked = 0.0
        while self._handle and self._engine.state(self._handle).status.is_alive:
            if time.monotonic() - looked >= 1.0:
                looked = time.monotonic()
                if look():
                    self.cancel()
            time.sleep(POLL_S)
        if self._handle:
            self._record_end()

    def _record_end(self) -> None:
        """Only what a supervisor that was killed itself, or lost its tracking server for long, has left undone."""
        detail = self._engine.state(self._handle).detail or "its supervisor ended without a word"
        otherwise = (RunStatus.KILLED, "stopped by request") if self._cancelled else (RunStatus.FAILED, detail)
        end_strays(self._folder)
        told = False
        while True:
            try:
                if RunStatus(queue.get_run(self._settings, self._run_id).info.status).is_terminal:
                    return
                replay(self._folder, otherwise)
            except store_errors() as error:
                if isinstance(error, FileNotFoundError):
                    raise
                if not told:  # a full disk, say: whoever waits wants to know for what
                    log.warning("the run's end cannot be recorded, trying again: %s", line(error))
                told = True
            # The journals keep everything; it is tried until the store answers, or the person gives up.
            time.sleep(RECORD_EVERY_S)

    def close(self) -> None:
        """Ends what is still running."""
        self._engine.close()
