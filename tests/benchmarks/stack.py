"""The product as `make run` starts it, on free ports and a data folder of its own, for the time of a measurement."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.benchmarks.measure import ROOT, say

READY_S = 240


@contextlib.contextmanager
def running_stack() -> Iterator[dict[str, str]]:
    """Starts everything and waits until it is ready. Yields the environment with which commands reach it."""
    with tempfile.TemporaryDirectory(prefix="speedup-lab-bench-") as home:
        environment = {"SPEEDUP_LAB_HOME": home, "MLFLOW_TRACKING_URI": "", "RAY_ADDRESS": ""}
        for name in ("", "_MLFLOW", "_RAY", "_RAY_DASHBOARD"):
            environment[f"SPEEDUP_LAB{name}_PORT"] = str(_free_port())
        with open(f"{home}/stack.log", "w+") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "experiments.serve"],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                deadline = time.monotonic() + READY_S
                while "is ready" not in _read(log.name):
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"the stack did not start: {_read(log.name)[-3000:]}")
                    time.sleep(0.5)
                say("the stack is ready")
                yield environment
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(120)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
