"""The processes of one `make run`: started by honcho, and ended so that none is left.

Each component runs in a session of its own, and Ray's daemons, the runs and their training processes leave even that.
So all of them are found by an environment variable, `MARK`, which every process below a component inherits.
"""

import contextlib
import itertools
import os
import signal
import sys
import threading
import typing
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
from honcho.manager import Manager

MARK = "SPEEDUP_LAB_STACK"
"""Set in every process of a stack, to its data folder."""

PART = "SPEEDUP_LAB_PART"
"""Set in every process of a stack, to the name of the component it descends from."""

CONTROLLER, MLFLOW, RAY, PAGE = "controller", "mlflow", "ray", "page"

RUNS_END_S = 15.0  # what a supervisor is given to end its run in order (experiments.engines.base.STOP_WAIT_S)
COMPONENTS_END_S = 6.0
_SUPERVISORS = ("training.worker", "experiments.engines.ray_job")
_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}  # the exit codes by which honcho says that a signal ended it


def say(text: str) -> None:
    """One line of the stack itself, among those of its components."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Marked(typing.NamedTuple):
    """A process of a stack and the component it descends from."""

    process: psutil.Process
    part: str

    @property
    def is_supervisor(self) -> bool:
        """Whether it is what starts and watches the training processes of one run."""
        try:
            arguments = self.process.cmdline()
        except psutil.Error:
            return False
        return any(pair[0] == "-m" and pair[1] in _SUPERVISORS for pair in itertools.pairwise(arguments))


def marked(home: Path) -> list[Marked]:
    """Every live process of the stack with this data folder, this process and those above it left out."""
    own = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    found: dict[psutil.Process, str] = {}
    for process in psutil.process_iter():
        if process.pid not in own:
            environment = _environment(process)
            if environment.get(MARK) == str(home):
                found[process] = environment.get(PART, "")
    # Ray's processes rename themselves, which overwrites the memory that shows their environment, so it may be gone.
    for parent, part in list(found.items()):
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in parent.children(recursive=True):
                found.setdefault(child, part)
    return [Marked(process, part) for process, part in found.items()]


_ADDRESSES = ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")


def addresses(home: Path) -> dict[str, str]:
    """Variables by which the stack with this data folder reaches its MLflow and its Ray; none where no stack is."""
    for found in marked(home):
        if found.part == CONTROLLER:
            environment = _environment(found.process)
            return {name: environment[name] for name in _ADDRESSES if name in environment}
    return {}


def _environment(process: psutil.Process) -> dict[str, str]:
    """A process's environment when it was started; empty when it is gone, or somebody else's."""
    try:
        if not psutil.LINUX:
            return process.environ()
        # psutil stops at the first empty entry, and a process that renamed itself has them in front.
        entries = Path("/proc", str(process.pid), "environ").read_bytes().split(b"\0")
    except (psutil.Error, OSError):
        return {}
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in (entry.partition(b"=") for entry in entries)}


def end_all(processes: Iterable[Marked], patience_s: float) -> None:
    """Asks processes to end (SIGTERM), waits, and kills what is left then.

    Args:
        processes: those to end; one that has ended already is fine.
        patience_s: seconds to wait; 0 kills at once.
    """
    remaining = [found.process for found in processes]
    if patience_s:
        _signal(remaining, signal.SIGTERM)
        _, remaining = psutil.wait_procs(remaining, timeout=patience_s)
    _signal(remaining, signal.SIGKILL)
    psutil.wait_procs(remaining, timeout=5)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


class Stack(Manager):
    """honcho's manager, with an end in order (runs, then page and Ray, then MLflow) that leaves nothing behind.

    Args:
        home: the data folder, which marks this stack's processes.
        when_started: called once all components have been started, in a thread of its own.
    """

    def __init__(self, home: Path, when_started: Callable[["Stack"], None]):
        super().__init__()
        self._home = home
        self._when_started = when_started
        self._end: threading.Thread | None = None
        self._all_gone = threading.Event()
        self.failure = ""

    @property
    def is_ending(self) -> bool:
        """Whether a signal came, or a component ended by itself (then `failure` says which)."""
        return self._end is not None

    def loop(self) -> None:
        """Starts the components, relays what they print, and returns when everything has ended."""
        try:
            super().loop()
        finally:
            self._all_gone.set()
            if self._end is not None:
                self._end.join()
            end_all(marked(self._home), 0)

    def _start(self) -> None:
        # honcho calls this once its signal handlers are set. A closed terminal means the end like Ctrl-C; and a thread
        # must not run before honcho has forked.
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        super()._start()
        threading.Thread(target=self._when_started, args=(self,), daemon=True).start()

    def terminate(self) -> None:
        """Begins the end, once. honcho calls it on a signal and when a component ends."""
        if self._end is not None:
            return
        if self.returncode not in _SIGNALS.values():
            ended = [
                f"{name} (exit code {state['returncode']})"
                for name, state in self._processes.items()
                if "returncode" in state
            ]
            self.failure = ", ".join(ended)
        self._end = threading.Thread(target=self._end_in_order, daemon=True)
        self._end.start()

    def kill(self) -> None:
        """honcho's last resort after five seconds. `terminate` has its own, which lets a run save what it has."""

    def _end_in_order(self) -> None:
        everything = marked(self._home)
        runs = [found for found in everything if found.is_supervisor]
        if runs:
            say(f"Ending {len(runs)} run{'s' if len(runs) > 1 else ''} ...")
        # The controller goes with the runs, so that it starts no other; MLflow goes last: it must hear how they ended.
        controller = [found for found in everything if found.part == CONTROLLER]
        end_all({*controller, *runs}, RUNS_END_S)
        # What was seen at first is asked again: its parent may be gone by now, and its environment unreadable.
        everything = list({*everything, *marked(self._home)})
        end_all([found for found in everything if found.part != MLFLOW], COMPONENTS_END_S)
        end_all(everything, COMPONENTS_END_S)
        # One that was just being started when the others were asked to end.
        while not self._all_gone.wait(0.2):
            end_all(marked(self._home), 0)
