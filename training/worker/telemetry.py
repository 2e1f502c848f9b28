"""System metrics of one run: its own processes and its own GPUs, nobody else's."""

import contextlib
import logging
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from training.names import Metric
from training.run_folder import Launch
from training.spec import RunSpec

log = logging.getLogger(__name__)


class Sampler:
    """Samples what a run uses.

    Args:
        pids: gives the run's processes on this host; their descendants count as well.
        gpu_ids: its GPUs, by index as nvidia-smi counts or by UUID; their place in this list is the index in names.
        cpus: the cores it was given: 100% is all of them.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        pids: Callable[[], Sequence[int]],
        gpu_ids: Sequence[int | str] = (),
        cpus: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._pids = pids
        self._cpus = max(cpus, 1)
        self._clock = clock
        self._at = self._clock()
        self._cpu_seconds: dict[tuple[int, float], float] = {}
        self._gpus = _Gpus(gpu_ids) if gpu_ids else None
        self.peak_memory_mb = 0.0

    def sample(self) -> dict[str, float]:
        """Metrics since the last sample (names.Metric.SYSTEM_...): percent, and MB of 10^6 bytes.

        CPU use is left out of a sample without any process, and in the first one covers the time since this object
        was made.
        """
        now = self._clock()
        cpu: dict[tuple[int, float], float] = {}
        resident = 0
        for process in _with_descendants(self._pids()):
            # It may end at any moment; then it is no more part of the run's use.
            with contextlib.suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                cpu[process.pid, process.create_time()] = times.user + times.system
                resident += process.memory_info().rss
                self.peak_memory_mb = max(self.peak_memory_mb, _peak_mb(process.pid))
        values: dict[str, float] = {}
        if cpu:
            used = sum(seconds - self._cpu_seconds.get(key, 0.0) for key, seconds in cpu.items())
            values[Metric.SYSTEM_CPU] = 100.0 * used / (max(now - self._at, 1e-3) * self._cpus)
            values[Metric.SYSTEM_MEMORY] = resident / 1e6
            values[Metric.SYSTEM_PEAK_MEMORY] = self.peak_memory_mb
        self._at, self._cpu_seconds = now, cpu
        if self._gpus is not None:
            values.update(self._gpus.sample())
        return values


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
        return list(range(spec.gpus_per_worker * spec.workers))
    return [int(gpu) if gpu.strip().isdigit() else gpu.strip() for gpu in visible.split(",") if gpu.strip()]


class _Gpus:
    """Reads NVML. A GPU, or a figure, that NVML cannot give is left out and named once in the log."""

    def __init__(self, gpu_ids: Sequence[int | str]):
        import pynvml

        self._nvml: typing.Any = pynvml
        self._handles: dict[int, typing.Any] = {}
        self._silent: set[str] = set()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            log.warning("no GPU telemetry: %s", error)
            return
        for index, gpu in enumerate(gpu_ids):
            try:
                by_index = isinstance(gpu, int)
                find = pynvml.nvmlDeviceGetHandleByIndex if by_index else pynvml.nvmlDeviceGetHandleByUUID
                self._handles[index] = find(gpu)
            except pynvml.NVMLError as error:
                log.warning("no telemetry of GPU %s: %s", gpu, error)

    def sample(self) -> dict[str, float]:
        values: dict[str, float] = {}
        readings: tuple[tuple[str, Callable[[typing.Any], float]], ...] = (
            (Metric.SYSTEM_GPU_UTILIZATION, lambda handle: self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            (Metric.SYSTEM_GPU_MEMORY, lambda handle: self._nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e6),
        )
        for index, handle in self._handles.items():
            for template, read in readings:
                name = template.format(index=index)
                try:
                    values[name] = float(read(handle))
                except self._nvml.NVMLError as error:
                    if name not in self._silent:
                        self._silent.add(name)
                        log.warning("no %s: %s", name, error)
        return values


def _with_descendants(pids: Sequence[int]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found[pid] = process
            found.update({child.pid: child for child in process.children(recursive=True)})
    return list(found.values())


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
