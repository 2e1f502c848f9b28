"""`make setup` on machines that are not this one: old Pythons, NVIDIA drivers, broken installs. pip is a stand-in here,
because the real one would fetch a gigabyte; one test runs the real one on an empty list.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def environ() -> dict[str, str]:
    """This environment without what was said to the make that runs the tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHON", "CUDA", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }


class Machine:
    """A checkout with a stand-in for .venv/bin/python, which notes what pip was asked for."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("Makefile", "requirements.txt", "constraints.txt"):
            shutil.copy(CHECKOUT / name, folder)
        self.pip_calls = folder / "pip-calls"
        self.pip_fails = folder / "pip-fails"

    def python(self, path: Path, version: str = "3.11.7") -> Path:
        """A Python of that version as far as `-c` and `--version` can tell."""
        numbers = tuple(int(part) for part in version.split("."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = --version ] && echo "Python {version}" && exit\n'
            f'[ "$1 $2" = "-m pip" ] && {{ echo "$@" >> {self.pip_calls}; [ ! -e {self.pip_fails} ]; exit; }}\n'
            f'exec {sys.executable} -c "import sys; sys.version_info = {numbers}; exec(sys.argv.pop(1))" "$2"\n'
        )
        path.chmod(0o755)
        return path

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs make there."""
        return subprocess.run(
            ["make", *arguments],
            cwd=self.folder,
            env=environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def asked_of_pip(self) -> list[str]:
        """pip's command lines so far."""
        return self.pip_calls.read_text().splitlines() if self.pip_calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.python(tmp_path / ".venv" / "bin" / "python")
    return made


def test_without_a_driver_the_pinned_packages_are_installed_and_no_cuda(machine: Machine) -> None:
    result = machine.make("setup", "CUDA=no")
    assert result.returncode == 0, result.stderr
    (call,) = machine.asked_of_pip()
    assert call.split() == [
        *("-m", "pip", "install", "--disable-pip-version-check"),
        *("-r", "requirements.txt", "-c", "constraints.txt"),
    ]
    assert "without CUDA libraries" in result.stdout


def test_with_a_driver_tensorflow_comes_with_cuda_of_the_same_pin(machine: Machine) -> None:
    (pin,) = [
        line for line in (CHECKOUT / "requirements.txt").read_text().splitlines() if line.startswith("tensorflow==")
    ]
    result = machine.make("setup", "CUDA=yes")
    assert result.returncode == 0, result.stderr
    (call,) = machine.asked_of_pip()
    assert call.endswith(f" constraints.txt {pin.replace('tensorflow==', 'tensorflow[and-cuda]==')}")


def test_the_driver_is_found_by_nvidia_smi(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = machine.folder / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-1)'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    machine.make("setup")
    assert "tensorflow[and-cuda]==" in machine.asked_of_pip()[0]


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver")
def test_an_nvidia_smi_that_finds_no_driver_counts_as_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = machine.folder / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    machine.make("setup")
    assert "and-cuda" not in machine.asked_of_pip()[0]


def test_it_is_done_once_and_again_when_the_packages_change(machine: Machine) -> None:
    machine.make("setup", "CUDA=no")
    machine.make("setup", "CUDA=no")
    assert len(machine.asked_of_pip()) == 1
    later = (machine.folder / ".venv" / ".installed-cuda-no").stat().st_mtime + 10
    os.utime(machine.folder / "constraints.txt", (later, later))
    machine.make("setup", "CUDA=no")
    assert len(machine.asked_of_pip()) == 2


def test_a_driver_that_came_later_installs_again(machine: Machine) -> None:
    machine.make("setup", "CUDA=no")
    machine.make("setup", "CUDA=yes")
    assert ["and-cuda" in call for call in machine.asked_of_pip()] == [False, True]


def test_a_failed_install_is_tried_again(machine: Machine) -> None:
    machine.pip_fails.touch()
    assert machine.make("setup", "CUDA=no").returncode != 0
    machine.pip_fails.unlink()
    assert machine.make("setup", "CUDA=no").returncode == 0
    assert len(machine.asked_of_pip()) == 2


@pytest.mark.parametrize("version", ["3.9.2", "3.10.14", "3.14.0"])
def test_an_unsupported_python_is_named_and_nothing_is_made(tmp_path: Path, version: str) -> None:
    machine = Machine(tmp_path)
    python = machine.python(tmp_path / "old-python", version)
    result = machine.make("setup", f"PYTHON={python}")
    assert result.returncode == 2
    assert f"{python} is Python {version}, which is not supported. Install Python 3.11, 3.12 or 3.13" in result.stderr
    assert "make setup PYTHON=/path/to/python" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    result = Machine(tmp_path).make("run", "PYTHON=python-that-is-not-there")
    assert result.returncode == 2
    assert "There is no python-that-is-not-there." in result.stderr
    assert "make run PYTHON=/path/to/python" in result.stderr


def test_a_suitable_python_is_found_behind_an_old_python3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)
    machine.python(tmp_path / "bin" / "python3", "3.9.2")
    machine.python(tmp_path / "bin" / "python3.13", "3.13.1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    result = machine.make("--dry-run", "setup")
    assert "python3.13 -m venv" in result.stdout


@pytest.mark.slow
def test_a_virtual_environment_is_made_where_there_is_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "requirements.txt").write_text("# tensorflow is not among them here\n")
    result = machine.make("setup", "CUDA=no", f"PYTHON={sys.executable}")
    assert result.returncode == 0, result.stderr
    assert f"Set up: Python {'.'.join(str(part) for part in sys.version_info[:3])} in .venv" in result.stdout
    assert (tmp_path / ".venv" / ".installed-cuda-no").exists()


def test_make_run_passes_a_service_managers_sigterm_on(machine: Machine) -> None:
    """Ctrl-C reaches the whole group by itself, and e2e/test_make_run.py presses it; SIGTERM reaches make alone."""
    program = machine.folder / ".venv" / "bin" / "python"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2" = "-m experiments.serve" ] || exit 0\n'
        "trap 'echo ended in order; exit 0' TERM\n"
        "echo up; while :; do sleep 0.1; done\n"
    )
    process = subprocess.Popen(
        ["make", "run", "CUDA=no"],
        cwd=machine.folder,
        env=environ(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    try:
        assert "up\n" in iter(process.stdout.readline, "")
        process.terminate()
        assert "ended in order" in process.communicate(timeout=60)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
