"""Which waiting runs start now, and what the others are told.

Order: higher priority first, then the older run. A run that does not fit now keeps what is free of what it needs, so
that no later run takes it; later runs may use the rest. So a large run is never starved by small ones, and a run that
waits for a GPU holds up no run that needs other things. There is no other backfilling.

Runs of one group are runs of one experiment, whose times are compared: they run one at a time, since two that share a
machine slow one another down.
"""

import logging
import re
import time
import typing
from collections.abc import Iterable, Sequence

from experiments import capacity
from experiments.capacity import Capacity, Pool, Request
from experiments.engines.base import Engine, EngineError, EngineUnavailableError
from experiments.live import LiveRun, Said, line
from experiments.settings import Settings
from training.names import RunStatus, Tag
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec, SpecError

if typing.TYPE_CHECKING:
    from mlflow.entities import Run

log = logging.getLogger(__name__)

REASONS_A_PASS = 20
"""Tags of waiting runs written in one pass, nearest to their turn first: a thousand would hold up the queue."""


class Dispatcher:
    """Starts runs that fit.

    Args:
        settings: which queue.
        engine: where runs are started.
        said: says what is wrong.
    """

    def __init__(self, settings: Settings, engine: Engine, said: Said):
        self._settings, self._engine, self._said = settings, engine, said
        self._specs: dict[str, RunSpec] = {}
        self._capacity: tuple[float, Capacity] | None = None

    def dispatch(self, waiting: Sequence["Run"], live: dict[str, LiveRun]) -> None:
        """One pass over the waiting runs.

        Args:
            waiting: SCHEDULED runs that no engine has, in any order.
            live: run id -> what was started and may still hold something; those started now are added.

        Raises:
            Exception: what MLflow raises when it does not answer.
        """
        self._specs = {run.info.run_id: spec for run in waiting if (spec := self._specs.get(run.info.run_id))}
        if not waiting:
            return
        waiting = sorted(waiting, key=turn)
        reasons: dict[str, str] = {}
        try:
            self._start_what_fits(waiting, live, reasons)
            self._said.recovered("engine")
        except EngineError as error:
            self._said.trouble("engine", str(error))
            reasons = {run.info.run_id: f"waiting: {error}" for run in waiting if run.info.run_id not in live}
        self._write_reasons(waiting, reasons)

    def _start_what_fits(self, waiting: Iterable["Run"], live: dict[str, LiveRun], reasons: dict[str, str]) -> None:
        machines = self._machines()
        pool = Pool(machines)
        for started in live.values():
            pool.take_running(started.request, started.gpu_ids)
        ahead = 0
        under_way = {started.group for started in live.values()}
        for run in waiting:
            spec = self._spec(run)
            if spec is None:
                continue
            if spec.group and spec.group in under_way:
                reasons[run.info.run_id] = "waiting for another run of its group: they are timed one at a time"
                continue
            gpus = spec.gpus if len(machines.nodes) == 1 else None
            wanted = capacity.request(spec, machines)
            lack = capacity.shortage(wanted, machines) or _unknown_gpus(gpus, machines)
            if lack:
                # It was admitted, so a node may be away; until that is back nobody waits for this run.
                reasons[run.info.run_id] = f"waiting: {lack}"
            elif taken := pool.take(wanted, gpus):
                self._start(run, spec, wanted, taken.launch_gpu_ids, live)
                under_way.add(spec.group)
            else:
                before = f"{ahead} run{'s' if ahead > 1 else ''} before it" if ahead else "next in line"
                reasons[run.info.run_id] = f"waiting for {pool.missing(wanted, gpus)}: {before}"
                pool.hold(wanted, gpus)
                ahead += 1

    def _machines(self) -> Capacity:
        if self._capacity is None or time.monotonic() - self._capacity[0] > capacity.FRESH_S:
            self._capacity = (time.monotonic(), self._engine.capacity())
        return self._capacity[1]

    def _spec(self, run: "Run") -> RunSpec | None:
        """The run's spec; None, and the run is closed or left to others, when there is none that can be read."""
        run_id = run.info.run_id
        if run_id not in self._specs:
            folder = RunFolder.of(self._settings.runs_folder, run_id)
            if not folder.path.exists():
                self._said.once(run_id, not_here(self._settings, run_id))
                return None
            try:
                self._specs[run_id] = folder.spec()
            except (OSError, ValueError) as error:  # a SpecError, or bytes that are no text
                cause = str(error) if isinstance(error, SpecError) else line(error)
                end(self._settings, run_id, RunStatus.FAILED, f"its spec cannot be read ({cause}){_RESTART}")
                return None
        return self._specs[run_id]

    def _start(
        self,
        run: "Run",
        spec: RunSpec,
        request: Request,
        gpu_ids: list[int] | None,
        live: dict[str, LiveRun],
    ) -> None:
        run_id = run.info.run_id
        # The list is some milliseconds old, and somebody may have cancelled the run since.
        now = self._settings.client().get_run(run_id)
        if now.info.status != RunStatus.SCHEDULED:
            return
        if Tag.CANCEL_REQUESTED in now.data.tags:
            end(self._settings, run_id, RunStatus.KILLED, "cancelled before it started")
            return
        folder = RunFolder.of(self._settings.runs_folder, run_id)
        launch = Launch(
            run_id=run_id,
            tracking_uri=self._settings.tracking_uri,
            folder=str(folder.path),
            gpu_ids=gpu_ids,
            cpus=request.cpus_total,
            submitted_at=run.info.start_time / 1000,
        )
        folder.write_launch(launch)
        try:
            handle = self._engine.start(launch, spec, request)
        except EngineUnavailableError:
            raise
        except EngineError as error:
            end(self._settings, run_id, RunStatus.FAILED, f"could not be started: {error}")
            return
        log.info("run %s started (%s)", run_id, handle)
        live[run_id] = LiveRun(
            run_id, handle, folder, request, tuple(gpu_ids or ()), handle_saved=False, group=spec.group
        )
        save_handle(self._settings, live[run_id])

    def _write_reasons(self, waiting: Iterable["Run"], reasons: dict[str, str]) -> None:
        written = 0
        for run in waiting:
            reason = reasons.get(run.info.run_id, "")
            if reason and reason != run.data.tags.get(Tag.REASON) and written < REASONS_A_PASS:
                self._settings.client().set_tag(run.info.run_id, Tag.REASON, reason)
                written += 1


_RESTART = ": end `make run` and start it again, if the catalogue was changed since; then submit the run again"


def turn(run: "Run") -> tuple[int, int, str]:
    """Sorts waiting runs: higher priority first, then the older one."""
    return -_priority(run.data.params.get("priority", "")), run.info.start_time, run.info.run_id


def _priority(text: str) -> int:
    """0 for what is no priority of ours: other tools may keep their runs in the same experiment."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else 0


def save_handle(settings: Settings, live: LiveRun) -> None:
    """Writes the engine's handle into MLflow, by which the next controller finds the run again."""
    from mlflow.entities import RunTag

    settings.client().log_batch(live.run_id, tags=[RunTag(Tag.ENGINE_HANDLE, live.handle), RunTag(Tag.REASON, "")])
    live.handle_saved = True


def end(settings: Settings, run_id: str, status: RunStatus, reason: str) -> None:
    """Closes a run that has no supervisor to do it."""
    client = settings.client()
    client.set_tag(run_id, Tag.REASON, reason)
    client.set_terminated(run_id, status)
    log.info("run %s is %s: %s", run_id, status, reason)


def not_here(settings: Settings, run_id: str) -> str:
    """What is said of a run whose folder is elsewhere: several data folders may share a tracking server."""
    return f"run {run_id} has no folder in {settings.runs_folder}: it is left to the controller that has it"


def _unknown_gpus(gpus: Sequence[int] | None, machines: Capacity) -> str:
    missing = [str(gpu) for gpu in gpus or () if gpu not in machines.gpu_ids]
    return f"needs GPU {', '.join(missing)}, which {machines.where} does not have" if missing else ""
