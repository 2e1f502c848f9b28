"""Engines to test, and small programs in the place of a run's supervisor."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from experiments.engines.base import Engine, EngineState, SupervisorCommand
from experiments.engines.inline import InlineEngine
from experiments.engines.ray_engine import RayEngine
from tests.support.ray_head import RayHead, running_ray_head

_started = contextlib.ExitStack()
_heads: list[RayHead] = []


@pytest.fixture
def ray_head(monkeypatch: pytest.MonkeyPatch) -> RayHead:
    """A head of two CPUs, one for all tests of this folder that do not harm it."""
    if not _heads:
        _heads.append(_started.enter_context(running_ray_head()))
    (head,) = _heads
    # The environment that let this process in is put back after each test.
    for name, value in head.environment.items():
        monkeypatch.setenv(name, value)
    return head


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the head with the last test of this folder: its dozen processes are busy also when nobody asks them."""
    if _heads and (nextitem is None or nextitem.path.parent != item.path.parent):
        _heads.clear()
        _started.close()


MakeEngine = Callable[[SupervisorCommand | None], Engine]


@pytest.fixture(params=["inline", pytest.param("ray", marks=pytest.mark.slow)])
def make_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeEngine]:
    """Makes an engine with a supervisor's command; each call is another engine of the same kind."""
    made: list[Engine] = []
    is_ray = request.param == "ray"
    head = request.getfixturevalue("ray_head") if is_ray else None

    def make(command: SupervisorCommand | None) -> Engine:
        if head is not None:
            made.append(RayEngine(head.settings(tmp_path), command))
        else:
            from tests.support.stores import settings_in

            made.append(InlineEngine(settings_in(tmp_path), command))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def python(source: str) -> SupervisorCommand:
    """A supervisor that is a Python program, with its run's folder in `folder` and some modules imported."""
    preamble = "import os, pathlib, signal, sys, time; folder = pathlib.Path(sys.argv[1])\n"
    return lambda launch, spec: [sys.executable, "-S", "-c", preamble + source, launch.folder]


def wait_for_end(engine: Engine, handle: str, seconds: float = 60.0) -> EngineState:
    """The state of a supervisor once it is not alive any more."""
    deadline = time.monotonic() + seconds
    while (state := engine.state(handle)).status.is_alive:
        assert time.monotonic() < deadline, f"still {state}"
        time.sleep(0.05)
    return state


def wait_for_text(path: Path, seconds: float = 60.0) -> str:
    """What a program writes into a file, as soon as there is something."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and (text := path.read_text())):
        assert time.monotonic() < deadline, f"{path.name} was not written"
        time.sleep(0.02)
    return text


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_gone(pids: Iterable[int], seconds: float = 10.0) -> None:
    """Waits until no process of these is left."""
    deadline = time.monotonic() + seconds
    while living := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still alive: {living}"
        time.sleep(0.02)
