"""How the training processes of one run are started and ended: the Gang protocol, and SubprocessGang for one host.

`training.worker.supervisor.supervise` knows a run's processes only through the protocol, so that they may as well be
started by a cluster.
"""

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.run_folder import Launch, RunFolder
from training.spec import RunSpec

RUN_MARK = "SPEEDUP_LAB_RUN"
"""Environment variable that every process of a run inherits: its value is the run's folder."""
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
"""Environment variable by which TensorFlow computes with oneDNN's kernels (1), or does not (0)."""

_CHECKOUT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1


class Gang(typing.Protocol):
    """The training processes of one run, worker 0 (the chief) first. No method may block for long but `end`."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def start(self) -> None:
        """Starts them all. Called once, from the main thread."""

    def poll(self) -> Sequence[int | None]:
        """One exit code per worker: None while it runs, -N when signal N killed it."""

    def pids(self) -> Mapping[int, int]:
        """Processes on this host whose use of the machine is the run's, and the worker each is; with descendants."""

    def peak_memory_mb(self) -> float:
        """The most memory any process of the run is known to have held, in MB (10^6 bytes); 0 when not known."""

    def end(self, grace_s: float) -> None:
        """Asks the living to end (SIGTERM), kills what is left after `grace_s` seconds, and waits for all.

        Nothing that a worker started may be left either. Does nothing when all have ended and left nothing.
        """


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    exit_code: int | None = None


class SubprocessGang:
    """One process a worker on this host, each in a session of its own.

    They die with this process, however it dies. Call `start` from the main thread: the kernel's promise is tied to the
    thread that starts them.

    Args:
        folder: the run's folder, with spec and launch.
        command: what worker i runs, instead of the training process: a function of its index.
        environment: what to add to the workers' environment.
    """

    def __init__(
        self,
        folder: RunFolder,
        command: typing.Callable[[int], list[str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        self._folder = folder
        self._spec = folder.spec()
        self._launch = folder.launch()
        self._command = command or self._training_process
        self._environment = dict(environment or {})
        self._workers: list[_Worker] = []
        self._ports = Ports()
        self._peak_kib = 0

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._spec.workers

    def start(self) -> None:
        """Starts them all. Raises OSError or SubprocessError when one cannot be; the others are ended."""
        ports = self._ports.take(self.size) if self._spec.strategy == "multi_worker_mirrored" else []
        cores = worker_cores(self._spec, self._launch, sorted(os.sched_getaffinity(0)))
        before_exec = _ends_with(os.getpid())
        try:
            for index in range(self.size):
                self._workers.append(_Worker(self._start(index, ports, cores, before_exec)))
        except (OSError, subprocess.SubprocessError):
            self.end(0.0)
            raise

    def poll(self) -> Sequence[int | None]:
        """One exit code per worker; None while it runs."""
        for worker in self._workers:
            if worker.exit_code is None:
                self._reap(worker)
        return [worker.exit_code for worker in self._workers]

    def pids(self) -> Mapping[int, int]:
        """The living workers: process id -> index."""
        return {worker.process.pid: index for index, worker in enumerate(self._workers) if worker.exit_code is None}

    def peak_memory_mb(self) -> float:
        """The largest resident size of any worker that has ended (or of a child it waited for), in MB."""
        return self._peak_kib * 1024 / 1e6

    def end(self, grace_s: float) -> None:
        """SIGTERM, `grace_s` seconds, SIGKILL; then whatever the workers started and left behind."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while None in self.poll() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        while None in self.poll():
            time.sleep(0.01)
        end_strays(self._folder)
        self._ports.release()

    def _training_process(self, index: int) -> list[str]:
        return [sys.executable, "-m", "training.worker.process", str(self._folder.path), str(index)]

    def _start(
        self, index: int, ports: list[int], cores: list[list[int]], before_exec: typing.Callable[[], None]
    ) -> subprocess.Popen[bytes]:
        files = self._folder.worker(index)
        files.path.mkdir(parents=True, exist_ok=True)
        environment = worker_environment(self._folder, self._spec, self._launch, os.environ, index, ports)
        environment.update(self._environment)

        def in_child() -> None:
            before_exec()
            if cores:
                os.sched_setaffinity(0, cores[index])

        with open(files.stdout, "ab") as stdout, open(files.stderr, "ab") as stderr:
            # preexec_fn is safe here: the supervisor starts its workers before any thread of its own.
            return subprocess.Popen(
                self._command(index),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=self._folder.path,
                env=environment,
                start_new_session=True,
                preexec_fn=in_child,
            )

    def _reap(self, worker: _Worker) -> None:
        # wait4 rather than Popen.poll: only it tells how much memory that one process held at most.
        pid, status, usage = os.wait4(worker.process.pid, os.WNOHANG)
        if pid:
            worker.exit_code = worker.process.returncode = os.waitstatus_to_exitcode(status)
            self._peak_kib = max(self._peak_kib, usage.ru_maxrss)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.exit_code is None:
                # Unreaped, so the process id is still ours; the group may have ended since.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.process.pid, number)


def worker_environment(
    folder: RunFolder, spec: RunSpec, launch: Launch, inherited: Mapping[str, str], index: int, ports: Sequence[int]
) -> dict[str, str]:
    """The environment of worker `index`: what must be set before TensorFlow is imported.

    Args:
        folder: the run's folder.
        spec: the run's spec.
        launch: where it may run.
        inherited: the environment to start from.
        index: the worker's index.
        ports: one port on 127.0.0.1 per worker; empty for a run of one process without TF_CONFIG.
    """
    environment = dict(inherited)
    environment.update(
        {
            RUN_MARK: str(folder.path),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so that GPU 1 here is GPU 1 in nvidia-smi
            "TF_CPP_MIN_LOG_LEVEL": "0",  # placement lines are of level 0
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_CHECKOUT), inherited.get("PYTHONPATH", "")])),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "KERAS_BACKEND": "tensorflow",
            # TensorFlow itself turns it on for CPUs with AVX512 VNNI or AMX only; see docs/decisions/0007.
            ONEDNN: inherited.get(ONEDNN, "1"),
        }
    )
    if flags := inherited.get("TF_XLA_FLAGS"):
        # The one that is left out has XLA cluster every graph, also of a run that asks for no XLA.
        environment["TF_XLA_FLAGS"] = " ".join(flag for flag in flags.split() if "tf_xla_auto_jit" not in flag)
    visible = visible_gpus(spec, launch, index, inherited.get("CUDA_VISIBLE_DEVICES"))
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    environment.pop("TF_CONFIG", None)
    if ports:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    return environment


def visible_gpus(spec: RunSpec, launch: Launch, index: int, inherited: str | None) -> list[str] | None:
    """The GPUs that worker `index` sees: its own share of the run's. None: leave CUDA_VISIBLE_DEVICES alone.

    Args:
        spec: the run's spec.
        launch: whose `gpu_ids` are the physical GPUs of all workers, in order.
        index: the worker's index.
        inherited: CUDA_VISIBLE_DEVICES as the engine set it; its entries may be indices or UUIDs.
    """
    if spec.device == "cpu":
        return []
    share = slice(index * spec.gpus_per_worker, (index + 1) * spec.gpus_per_worker)
    if launch.gpu_ids is not None:
        return [str(gpu) for gpu in launch.gpu_ids[share]]
    if spec.workers == 1:
        return None
    if inherited is None:  # every GPU of the host: still one share each
        return [str(gpu) for gpu in range(share.start, share.stop)]
    return inherited.split(",")[share]


def worker_cores(spec: RunSpec, launch: Launch, available: list[int]) -> list[list[int]]:
    """The cores each worker is pinned to; empty when none is.

    Only workers that together fill the host are pinned: any other run would take cores that another run is given too.
    """
    threads = spec.cpu_threads or 0
    if spec.workers < 2 or launch.cpus < len(available) or threads * spec.workers != len(available):
        return []
    return [available[index * threads : (index + 1) * threads] for index in range(spec.workers)]


class Ports:
    """TCP ports that no other run on this host will be given while this object holds them.

    TensorFlow binds its port itself, so a port cannot be reserved by binding it. Instead a name that only one process
    can have (an abstract Unix socket, which leaves no file and dies with its owner) stands for each port, and ports are
    taken from outside the range that the kernel gives to outgoing connections.
    """

    _FIRST, _LAST = 20_000, 32_000

    def __init__(self) -> None:
        self._names: list[socket.socket] = []

    def take(self, count: int) -> list[int]:
        """Distinct free ports on 127.0.0.1. Raises OSError when there are not that many."""
        candidates = list(range(self._FIRST, self._LAST))
        random.SystemRandom().shuffle(candidates)
        ports: list[int] = []
        for port in candidates:
            if len(ports) == count:
                return ports
            if _is_free(port) and self._claim(port):
                ports.append(port)
        raise OSError(f"no {count} free ports between {self._FIRST} and {self._LAST}")

    def release(self) -> None:
        """Gives all of them back."""
        while self._names:
            self._names.pop().close()

    def _claim(self, port: int) -> bool:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0speedup-lab-port-{port}")
        except OSError:
            name.close()
            return False
        self._names.append(name)
        return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def end_strays(folder: RunFolder) -> list[int]:
    """Kills every process that carries the run's mark, this one excepted: what its workers started and left behind.

    Also the means to clean up after a supervisor that was killed itself.

    Returns:
        The process ids that were killed.
    """
    mark = f"{RUN_MARK}={folder.path}".encode()
    killed: list[int] = []
    # Bounded, since a process in an uninterruptible wait (a dead network disk, a driver) dies only when that ends.
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and (
        found := [pid for pid in _own_processes() if pid != os.getpid() and mark in _environment_of(pid)]
    ):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in found if pid not in killed]
        time.sleep(0.02)  # until the kernel has taken them down; one of them may just have started another
    return killed


def _own_processes() -> typing.Iterator[int]:
    user = os.geteuid()
    for entry in os.scandir("/proc"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                yield int(entry.name)


def _environment_of(pid: int) -> list[bytes]:
    """`NAME=value` of a process; nothing for one that has ended, is a zombie, or may not be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _ends_with(parent: int) -> typing.Callable[[], None]:
    """A function for the child, before it becomes the worker: SIGKILL it when the thread that started it ends."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start training processes from the main thread: they end with the thread that starts them")
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def in_child() -> None:
        if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != parent:  # it ended in between, and the signal with it
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child
