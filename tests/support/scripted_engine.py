"""An engine in memory, for what the controller decides: a test says how it stands with each supervisor."""

from experiments.capacity import Capacity, Request
from experiments.engines.base import EngineError, EngineState, EngineStatus, EngineUnavailableError
from training.run_folder import Launch
from training.spec import RunSpec


class ScriptedEngine:
    """Starts nothing, and remembers what it was asked.

    Attributes:
        started: launches in order.
        states: run id -> how it stands; a test changes them.
        stopped: run ids in order.
        away: whether it does not answer.
        loses_answers: whether it starts what it is asked to, and its answer does not arrive.
        refuses: what it says when it cannot start a run; empty when it can.
    """

    def __init__(self, *nodes: tuple[int, int]):
        self.nodes = nodes or ((2, 0),)
        self.started: list[Launch] = []
        self.states: dict[str, EngineState] = {}
        self.stopped: list[str] = []
        self.away = False
        self.loses_answers = False
        self.refuses = ""

    @property
    def running(self) -> list[str]:
        """Run ids of living supervisors, in the order of their start."""
        return [launch.run_id for launch in self.started if self.states[launch.run_id].status.is_alive]

    def set(self, run_id: str, status: EngineStatus, detail: str = "") -> None:
        """Says how it stands with a run's supervisor."""
        self.states[run_id] = EngineState(status, detail)

    def start(self, launch: Launch, spec: RunSpec, request: Request) -> str:
        self._answer()
        if self.refuses:
            raise EngineError(self.refuses)
        self.started.append(launch)
        self.set(launch.run_id, EngineStatus.RUNNING)
        if self.loses_answers:
            raise EngineUnavailableError("the engine at nowhere does not answer")
        return f"scripted:{launch.run_id}"

    def find(self, launch: Launch, spec: RunSpec) -> str:
        self._answer()
        return f"scripted:{launch.run_id}" if launch.run_id in self.states else ""

    def state(self, handle: str) -> EngineState:
        self._answer()
        return self.states.get(handle.removeprefix("scripted:"), EngineState(EngineStatus.UNKNOWN))

    def stop(self, handle: str) -> None:
        self._answer()
        self.stopped.append(handle.removeprefix("scripted:"))

    def capacity(self) -> Capacity:
        self._answer()
        gpus = sum(count for _, count in self.nodes)
        ids = tuple(range(gpus)) if len(self.nodes) == 1 else ()
        return Capacity(sum(cpus for cpus, _ in self.nodes), gpus, tuple(self.nodes), "ray", ids)

    def close(self) -> None:
        """Nothing to let go of."""

    def _answer(self) -> None:
        if self.away:
            raise EngineUnavailableError("the engine at nowhere does not answer")
