"""`.ci/run` with stand-ins for the commands it calls: what it installs, what it runs, and what its exit code says."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


class Clone:
    """A clean clone with stand-ins for make, dpkg-query and apt-get first on the path."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.calls = folder / "calls"
        (folder / ".ci").mkdir()
        (folder / "bin").mkdir()
        shutil.copy(CHECKOUT / ".ci" / "run", folder / ".ci" / "run")
        self.command("make")
        self.command("apt-get")
        self.command("dpkg-query", "echo installed")

    def command(self, name: str, then: str = "") -> None:
        """A command that notes how it was called, then does something."""
        path = self.folder / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{then}\n')
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        """Runs it as CI does: from elsewhere, with CI=true and no standard input."""
        environ = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "CI": "true"}
        return subprocess.run(
            ["bash", str(self.folder / ".ci" / "run")],
            cwd="/",
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[str]:
        """The calls so far, less the look-ups."""
        return [line for line in self.calls.read_text().splitlines() if not line.startswith("dpkg-query")]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_it_checks_then_tests_and_installs_nothing_that_is_there(clone: Clone) -> None:
    assert clone.run().returncode == 0
    assert clone.called() == ["make setup", "make check", "make test"]


def test_missing_packages_are_installed_without_a_question(clone: Clone) -> None:
    clone.command("dpkg-query", 'case "$*" in *chromium*|*fashion*) exit 1;; esac; echo installed')
    assert clone.run().returncode == 0
    assert clone.called()[:2] == [
        "apt-get update --quiet",
        "apt-get install --yes --quiet --no-install-recommends chromium-headless-shell dataset-fashion-mnist",
    ]


@pytest.mark.parametrize("failing", ["check", "test"])
def test_a_failure_of_either_is_told_and_the_tests_run_last(clone: Clone, failing: str) -> None:
    clone.command("make", f'[ "$1" != {failing} ]')
    assert clone.run().returncode == 1
    assert clone.called() == ["make setup", "make check", "make test"]


@pytest.mark.parametrize("failing", ["update", "install"])
def test_packages_that_cannot_be_installed_end_it(clone: Clone, failing: str) -> None:
    clone.command("dpkg-query", "exit 1")
    clone.command("apt-get", f'[ "$1" != {failing} ]')
    assert clone.run().returncode == 1
    assert "make test" not in clone.called()


def test_a_set_up_that_fails_ends_it(clone: Clone) -> None:
    clone.command("make", "exit 2")
    assert clone.run().returncode == 1
    assert clone.called() == ["make setup"]
