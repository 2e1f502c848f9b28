"""Engine: what runs a supervisor for each run. There are two: Ray for real, inline for one machine without Ray."""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from experiments.capacity import Capacity, Request
from training.run_folder import Launch
from training.spec import RunSpec

CHECKOUT = Path(__file__).resolve().parents[2]

STOP_WAIT_S = 15
"""A supervisor that was asked to stop has this long to end its run in order; then it is killed."""

FOREGROUND = "foreground"
"""The handle of a run that whoever submitted it carries out too. No engine knows it, and no controller starts it."""


class EngineError(RuntimeError):
    """The engine refused what was asked. The message says what and why."""


class EngineUnavailableError(EngineError):
    """The engine does not answer now; asking again later may help. The message names its address."""


class EngineStatus(StrEnum):
    """What an engine knows of a supervisor. SUCCEEDED and FAILED follow its exit code."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"

    @property
    def is_alive(self) -> bool:
        """Whether the supervisor is running or about to."""
        return self in (EngineStatus.PENDING, EngineStatus.RUNNING)


@dataclass(frozen=True)
class EngineState:
    """The status, and in one line what is known beyond it (an exit code, why it could not be started)."""

    status: EngineStatus
    detail: str = ""


class Engine(typing.Protocol):
    """Starts, watches and stops supervisors. Any call may raise EngineUnavailableError."""

    def start(self, launch: Launch, spec: RunSpec, request: Request) -> str:
        """Starts the supervisor of a run whose folder is written.

        Returns:
            A handle: a short text by which this engine, also in another process, knows it again.

        Raises:
            EngineError: it cannot be started.
        """

    def find(self, launch: Launch, spec: RunSpec) -> str:
        """The handle of a supervisor whose start got lost: its answer did not arrive, or nobody kept it.

        Empty where this engine knows none.
        """

    def state(self, handle: str) -> EngineState:
        """How it stands with a supervisor; UNKNOWN for a handle that is not this engine's, or that it has forgotten."""

    def stop(self, handle: str) -> None:
        """Asks a supervisor to end its run (SIGTERM), and kills it after STOP_WAIT_S. Returns at once.

        Does nothing to one that has ended or is unknown.
        """

    def capacity(self) -> Capacity:
        """What the engine's machines have, busy or not."""

    def close(self) -> None:
        """Lets go of the engine. Inline supervisors are ended, those of a cluster go on."""


SupervisorCommand = Callable[[Launch, RunSpec], list[str]]
"""The command line of a run's supervisor. Tests put theirs in; nothing that a person typed may be part of it."""


def supervisor_environment(spec: RunSpec) -> dict[str, str]:
    """What a supervisor's environment needs on top of what is there."""
    environment = {
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_CPP_MIN_LOG_LEVEL": "0",
    }
    if spec.device == "cpu":
        # A Ray job that asks for 0 GPUs would see all of them.
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment
