"""The end of a stack: in order, and of everything. Its components are small scripts, the manager is real."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from experiments import stack

CHECKOUT = Path(__file__).resolve().parents[2]

# Says when it was told to end, and does after a moment.
OBEYS = """
import signal, sys, time
name, folder, delay = sys.argv[1], sys.argv[2], float(sys.argv[3])
def end(*_):
    time.sleep(delay)
    with open(folder + "/ended", "a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(f"{folder}/{name}.up", "w").close()
time.sleep(120)
"""

# Leaves its session and its parent, ignores SIGTERM, and overwrites what shows its environment, as Ray's agents do.
HIDES = """
import os, signal, sys, time
if os.fork():
    time.sleep(120)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[2] + "/hidden.pid", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[2] + "/hidden.pid", sys.argv[2] + "/hidden")
time.sleep(120)
"""

LAUNCHER = """
import json, sys
from pathlib import Path
from experiments import stack
home, components = Path(sys.argv[1]), json.loads(sys.argv[2])
manager = stack.Stack(home, lambda _: stack.say("STARTED"))
import os, shlex
for name, command in components.items():
    environment = {**os.environ, stack.MARK: str(home), stack.PART: name}
    manager.add_process(name, "exec " + shlex.join(command), env=environment)
manager.loop()
print("FAILURE", manager.failure or "none", "CODE", manager.returncode)
"""


def script(code: str, name: str, folder: Path, delay: float = 0, *more: str) -> list[str]:
    return [sys.executable, "-c", code, name, str(folder), str(delay), *more]


def wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, [str(path) for path in paths if not path.exists()]
        time.sleep(0.05)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[object]:
    launched: list[subprocess.Popen[str]] = []

    def start(**components: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(tmp_path), json.dumps(components)],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        launched.append(process)
        return process

    yield start
    for process in launched:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stack.end_all(stack.marked(tmp_path), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_runs_first_and_mlflow_last(launch, tmp_path: Path, number: signal.Signals) -> None:
    process = launch(
        mlflow=script(OBEYS, "mlflow", tmp_path),
        # The run's supervisor is known by its command line, as Ray starts it far below the component.
        ray=script(OBEYS, "run", tmp_path, 1, "-m", "training.worker"),
        controller=script(OBEYS, "controller", tmp_path),
        page=script(OBEYS, "page", tmp_path),
    )
    wait_for(*(tmp_path / f"{name}.up" for name in ("mlflow", "run", "controller", "page")))
    os.killpg(process.pid, number)
    output, _ = process.communicate(timeout=60)
    ended = (tmp_path / "ended").read_text().split()
    assert ended[:2] == ["controller", "run"]
    assert ended[2:] == ["page", "mlflow"]
    assert "Ending 1 run ..." in output
    assert output.splitlines()[-1].startswith("FAILURE none CODE")
    assert stack.marked(tmp_path) == []


@pytest.mark.slow
def test_what_hides_and_ignores_is_ended_too(launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = launch(ray=script(HIDES, "ray", tmp_path), page=script(OBEYS, "page", tmp_path))
    wait_for(tmp_path / "hidden", tmp_path / "page.up")
    hidden = psutil.Process(int((tmp_path / "hidden").read_text()))
    assert os.getsid(hidden.pid) != process.pid
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert not hidden.is_running() or hidden.status() == psutil.STATUS_ZOMBIE
    assert time.monotonic() - begun < stack.COMPONENTS_END_S + 10


def test_a_component_that_ends_by_itself_ends_all_and_is_named(launch, tmp_path: Path) -> None:
    process = launch(controller=[sys.executable, "-c", "import sys; sys.exit(7)"], page=script(OBEYS, "page", tmp_path))
    output, _ = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "FAILURE controller (exit code 7) CODE 7"
    assert stack.marked(tmp_path) == []


def test_marked_finds_a_process_whose_environment_begins_with_nothing(tmp_path: Path) -> None:
    # A process that renames itself leaves empty entries in front; psutil's own reader stops at the first.
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={"": "", stack.MARK: str(tmp_path), stack.PART: "ray"},
    )
    try:
        assert [(found.process.pid, found.part) for found in stack.marked(tmp_path)] == [(process.pid, "ray")]
        assert stack.marked(tmp_path / "other") == []
    finally:
        process.kill()
        process.wait()


def test_marked_leaves_out_this_process_and_those_above_it(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys; from pathlib import Path; from experiments import stack\n"
        "print([found.process.pid for found in stack.marked(Path(sys.argv[1]))])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=CHECKOUT,
        env={**os.environ, stack.MARK: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_the_addresses_of_a_stack_are_those_of_its_controller(tmp_path: Path) -> None:
    assert stack.addresses(tmp_path) == {}
    own = {"RAY_ADDRESS": "http://127.0.0.1:8265", "RAY_AUTH_MODE": "token", "SECRET": "x"}
    environment = {**own, stack.MARK: str(tmp_path), stack.PART: stack.CONTROLLER}
    process = subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **environment})
    try:
        assert stack.addresses(tmp_path) == {"RAY_ADDRESS": "http://127.0.0.1:8265", "RAY_AUTH_MODE": "token"}
        assert stack.addresses(tmp_path / "other") == {}
    finally:
        process.kill()
        process.wait()
