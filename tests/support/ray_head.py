"""A real Ray head of its own for tests: free ports, a token, a short folder, and no process left afterwards."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from ray._private.authentication_test_utils import reset_auth_token_state

from experiments.engines.base import EngineError
from experiments.engines.ray_engine import RayEngine
from experiments.settings import Settings

_MARK = "SPEEDUP_LAB_TEST_RAY"
_TOKEN = secrets.token_hex(32)  # one for all heads of a process: Ray's client reads it only once
_READY_S = 120.0
START_ATTEMPTS = 3


class RayHead:
    """A head that can be started, killed and started again on the same ports. Its client needs `environment`."""

    def __init__(self, cpus: int = 2) -> None:
        self._cpus = cpus
        self.port, self.dashboard_port, self._agent_port, self._client_port = _free_ports(4)
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """RAY_ADDRESS for its Jobs API."""
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs that talks to it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN, "RAY_USAGE_STATS_ENABLED": "0"}

    def settings(self, home: Path) -> Settings:
        """Settings with this head."""
        return Settings.from_environment({"SPEEDUP_LAB_HOME": str(home), "RAY_ADDRESS": self.address})

    def start(self) -> None:
        """Starts it, and waits until it takes jobs. Ray gives its own start 30 s, too few on a busy machine."""
        for attempt in range(START_ATTEMPTS):
            try:
                self._start()
                return
            except RuntimeError:
                self.kill()
                if attempt == START_ATTEMPTS - 1:
                    raise

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # its sockets' paths may have 107 bytes
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
            *("--node-ip-address", "127.0.0.1", "--port", str(self.port), "--num-cpus", str(self._cpus)),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(self.dashboard_port)),
            *("--dashboard-agent-listen-port", str(self._agent_port)),
            *("--ray-client-server-port", str(self._client_port)),
            *("--temp-dir", str(self._folder), "--object-store-memory", str(100 * 2**20)),
        ]
        environment = {**os.environ, **self.environment, _MARK: str(self._folder)}
        environment.pop("RAY_ADDRESS", None)
        with open(self._folder / "start.log", "wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + _READY_S
        while not self._takes_jobs():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Ray did not start:\n{(self._folder / 'start.log').read_text()}")
            time.sleep(0.2)

    def kill(self) -> None:
        """Ends everything it started, at once, as a crash of its machine would."""
        if self._process is None:
            return
        if self._process.poll() is not None:
            print(f"Ray had ended by itself:\n{(self._folder / 'start.log').read_text()}", file=sys.stderr)
        # More than once: one of them may just have started another.
        while processes := self.processes():
            for process in processes:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(processes, timeout=5)
        self._process.wait()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """Every living process that descends from it, jobs among them."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(_MARK) == str(self._folder) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def _takes_jobs(self) -> bool:
        try:
            # Its dashboard answers some seconds before the agent that starts jobs does.
            with urllib.request.urlopen(f"http://127.0.0.1:{self._agent_port}/api/local_raylet_healthz", timeout=5):
                pass
            return RayEngine(self.settings(self._folder)).capacity().cpus == self._cpus
        except (OSError, EngineError):
            return False


@contextmanager
def running_ray_head(cpus: int = 2) -> Iterator[RayHead]:
    """A head for as long as the block lasts; this process's environment lets Ray's clients in meanwhile."""
    head = RayHead(cpus)
    before = {name: os.environ.get(name) for name in head.environment}
    os.environ.update(head.environment)
    reset_auth_token_state()  # Ray reads the variables when it is imported
    try:
        head.start()
        yield head
    finally:
        head.kill()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
