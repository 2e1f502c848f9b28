"""InlineEngine: each supervisor is a child of this process. For tests, and for one machine without Ray."""

import os
import subprocess
import time
from dataclasses import dataclass, field

import psutil

from experiments import capacity
from experiments.capacity import Capacity, Request
from experiments.engines.base import (
    STOP_WAIT_S,
    EngineError,
    EngineState,
    EngineStatus,
    SupervisorCommand,
    supervisor_environment,
)
from experiments.settings import Settings
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec

_PREFIX = "inline"


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    kill_at: float = field(default=float("inf"))
    stopped: bool = False


class InlineEngine:
    """Runs supervisors as subprocesses, each in a session of its own, logging to the run's supervisor.log.

    A supervisor outlives a killed controller: the next engine knows it again by process id and start time.

    Args:
        settings: where things are.
        command: the supervisor's command, instead of the real one.
    """

    def __init__(self, settings: Settings, command: SupervisorCommand | None = None):
        self._python = settings.python
        self._command = command or self._supervisor
        self._children: dict[str, _Child] = {}
        self._adopted_kills: dict[str, float] = {}

    def start(self, launch: Launch, spec: RunSpec, request: Request) -> str:
        """Starts the supervisor. Raises EngineError when the operating system cannot."""
        folder = RunFolder(launch.folder)
        environment = {**os.environ, **supervisor_environment(spec)}
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            with open(folder.supervisor_log, "ab") as log:
                process = subprocess.Popen(
                    self._command(launch, spec),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder.path,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineError(f"the supervisor cannot be started: {error}") from None
        handle = _handle(psutil.Process(process.pid))
        self._children[handle] = _Child(process)
        return handle

    def find(self, launch: Launch, spec: RunSpec) -> str:
        """A process of this machine with the supervisor's command line."""
        command = self._command(launch, spec)
        for process in psutil.process_iter(["cmdline"]):
            if process.info["cmdline"] == command:
                return _handle(process)
        return ""

    def state(self, handle: str) -> EngineState:
        """How it stands with a supervisor; of one that another engine started, only whether it is alive."""
        child = self._children.get(handle)
        if child is None:
            if (process := _process(handle)) is None:
                return EngineState(EngineStatus.UNKNOWN)
            if time.monotonic() > self._adopted_kills.get(handle, float("inf")):
                process.kill()
            return EngineState(EngineStatus.RUNNING)
        code = child.process.poll()
        if code is None:
            if time.monotonic() > child.kill_at:
                child.process.kill()
            return EngineState(EngineStatus.RUNNING)
        if child.stopped:
            return EngineState(EngineStatus.STOPPED)
        if code == 0:
            return EngineState(EngineStatus.SUCCEEDED)
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return EngineState(EngineStatus.FAILED, f"the supervisor {how}")

    def stop(self, handle: str) -> None:
        """SIGTERM now; SIGKILL when it is still there STOP_WAIT_S later and `state` is asked for."""
        child = self._children.get(handle)
        if child is None:
            if (process := _process(handle)) is not None and handle not in self._adopted_kills:
                self._adopted_kills[handle] = time.monotonic() + STOP_WAIT_S
                process.terminate()
        elif child.process.poll() is None and not child.stopped:
            child.stopped = True
            child.kill_at = time.monotonic() + STOP_WAIT_S
            child.process.terminate()

    def capacity(self) -> Capacity:
        """This machine's."""
        return capacity.this_machine()

    def close(self) -> None:
        """Ends every supervisor that this engine started, and waits for it."""
        for handle in self._children:
            self.stop(handle)
        for child in self._children.values():
            try:
                child.process.wait(max(0.0, min(child.kill_at - time.monotonic(), STOP_WAIT_S)))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def _supervisor(self, launch: Launch, spec: RunSpec) -> list[str]:
        return [self._python, "-m", "training.worker", launch.folder]


def _handle(process: psutil.Process) -> str:
    """With the kernel's start time, a process id that is used again is told apart."""
    return f"{_PREFIX}:{process.pid}:{process.create_time():.2f}"


def _process(handle: str) -> psutil.Process | None:
    """The living process behind a handle of this engine, if there is one."""
    prefix, _, rest = handle.partition(":")
    pid, _, started = rest.partition(":")
    if prefix != _PREFIX or not pid.isdecimal():
        return None
    try:
        process = psutil.Process(int(pid))
        alive = process.status() != psutil.STATUS_ZOMBIE and f"{process.create_time():.2f}" == started
    except psutil.NoSuchProcess:
        return None
    return process if alive else None
