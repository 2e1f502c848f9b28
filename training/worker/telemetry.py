"""System metrics of one run: of its own processes and its own GPUs, and of what may disturb it there."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from training.names import Metric
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.gpu_telemetry import GpuTelemetry
from training.worker.host_load import HostLoad


class Sampler:
    """Samples what a run uses, and what else goes on where it runs.

    Args:
        pids: gives the run's processes on this host and the worker that each is; their descendants count as well.
        gpu_ids: its GPUs, by index as nvidia-smi counts or by UUID; their place in this list is the index in names.
        cpus: the cores it was given, all workers together: 100% is all of them.
        workers: how many it has.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        pids: Callable[[], Mapping[int, int]],
        gpu_ids: Sequence[int | str] = (),
        cpus: int = 1,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._pids = pids
        self._cpus = max(cpus, 1)
        self._workers = workers
        self._clock = clock
        self._at = self._clock()
        self._sampler_cpu = time.process_time()
        self._cpu_seconds: dict[tuple[int, float], float] = {}
        self._host = HostLoad(clock)
        self._gpus = GpuTelemetry(gpu_ids) if gpu_ids else None
        self.peak_memory_mb = 0.0

    def sample(self) -> dict[str, float]:
        """Metrics since the last sample (names.Metric.SYSTEM_... and those after): percent, and MB of 10^6 bytes.

        Of the CPU there is nothing in a sample without any process of the run on this host; in the first sample it
        covers the time since this object was made.
        """
        now = self._clock()
        trees = {worker: self._tree(pid) for pid, worker in self._pids().items()}
        trees = {worker: tree for worker, tree in trees.items() if tree.pids}
        seconds = max(now - self._at, 1e-3)
        before, self._cpu_seconds = self._cpu_seconds, {tree.root: tree.cpu_seconds for tree in trees.values()}
        used = {worker: max(tree.cpu_seconds - before.get(tree.root, 0.0), 0.0) for worker, tree in trees.items()}
        own = time.process_time()
        values: dict[str, float] = {}
        # Also without a process: the next sample's is not to cover this time.
        host = self._host.since_last(sum(used.values()) + own - self._sampler_cpu)
        if trees:
            values[Metric.SYSTEM_CPU] = 100.0 * sum(used.values()) / (seconds * self._cpus)
            values[Metric.SYSTEM_MEMORY] = sum(tree.resident for tree in trees.values()) / 1e6
            values[Metric.SYSTEM_PEAK_MEMORY] = self.peak_memory_mb
            values.update(host)
        if self._workers > 1:
            for worker, tree in trees.items():
                cores = self._cpus / self._workers
                values[Metric.WORKER_CPU.format(index=worker)] = 100.0 * used[worker] / (seconds * cores)
                values[Metric.WORKER_MEMORY.format(index=worker)] = tree.resident / 1e6
        self._at, self._sampler_cpu = now, own
        if self._gpus is not None:
            values.update(self._gpus.sample({pid for tree in trees.values() for pid in tree.pids}))
        return values

    def _tree(self, pid: int) -> "_Tree":
        """A process with its descendants."""
        tree = _Tree()
        for process in _with_descendants(pid):
            # It may end at any moment; then it is no more part of the run's use.
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                # What a child has used moves to its parent when it ends, and is not lost.
                tree.cpu_seconds += times.user + times.system + times.children_user + times.children_system
                tree.resident += process.memory_info().rss
                tree.pids.append(process.pid)
                if process.pid == pid:
                    tree.root = pid, process.create_time()
                self.peak_memory_mb = max(self.peak_memory_mb, _peak_mb(process.pid))
        return tree


@dataclass
class _Tree:
    """A worker's process and its descendants. `root` tells it from another of the same number."""

    root: tuple[int, float] = (0, 0.0)
    pids: list[int] = field(default_factory=list)
    cpu_seconds: float = 0.0
    resident: int = 0


def run_gpus(spec: RunSpec, launch: Launch, environment: Mapping[str, str]) -> list[int | str]:
    """The GPUs of a run on this host, by index or UUID.

    Args:
        spec: the run's spec.
        launch: where it may run.
        environment: of this process: where the engine chose, CUDA_VISIBLE_DEVICES says which.
    """
    if spec.device == "cpu":
        return []
    if launch.gpu_ids is not None:
        return list(launch.gpu_ids)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        # Workers that an engine put elsewhere use none of this host's GPUs, which may be another run's.
        return list(range(spec.gpus_per_worker)) if spec.workers == 1 else []
    return [int(gpu) if gpu.strip().isdigit() else gpu.strip() for gpu in visible.split(",") if gpu.strip()]


def _with_descendants(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _peak_mb(pid: int) -> float:
    """The most a process has had resident so far (VmHWM), in MB; 0 for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
