"""Runs Python in a process of its own: TensorFlow fixes its devices at first use, so each test gets a fresh one."""

import json
import os
import subprocess
import sys
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEAN = """
from training.worker.lean_import import lean_import
lean = lean_import()
lean.__enter__()
"""
"""For the head of a script: TensorFlow comes as a training process imports it, which takes two thirds of the time."""


def run_python(
    script: str, environment: dict[str, str] | None = None, timeout: float = 120, lean: bool = True
) -> typing.Any:
    """Runs a script whose last line on stdout is one JSON document, and returns that document."""
    done = subprocess.run(
        [sys.executable, "-c", LEAN + script if lean else script],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    return json.loads(done.stdout.strip().splitlines()[-1])
