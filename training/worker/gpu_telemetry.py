"""What NVML says of a run's GPUs."""

import logging
import typing
from collections.abc import Callable, Collection, Sequence

from training.names import Metric

log = logging.getLogger(__name__)


class GpuTelemetry:
    """Reads NVML. A GPU, or a figure, that NVML cannot give is left out and named once in the log.

    Args:
        gpu_ids: by index as nvidia-smi counts or by UUID; their place in this list is the index in names.
    """

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
        self._holding_down = (
            pynvml.nvmlClocksEventReasonSwPowerCap
            | pynvml.nvmlClocksEventReasonHwSlowdown
            | pynvml.nvmlClocksEventReasonSwThermalSlowdown
            | pynvml.nvmlClocksEventReasonHwThermalSlowdown
            | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
        )

    def sample(self, own: Collection[int]) -> dict[str, float]:
        """Metrics of every GPU at this moment (names.Metric).

        Args:
            own: the run's processes.
        """
        nvml = self._nvml
        values: dict[str, float] = {}
        readings: tuple[tuple[str, Callable[[typing.Any], float]], ...] = (
            (Metric.SYSTEM_GPU_UTILIZATION, lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            (Metric.SYSTEM_GPU_MEMORY, lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e6),
            (Metric.GPU_OTHERS, lambda handle: self._others(handle, own)),
            (Metric.GPU_THROTTLED, self._throttled),
            (Metric.GPU_CLOCK, lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        )
        for index, handle in self._handles.items():
            for template, read in readings:
                name = template.format(index=index)
                if template == Metric.GPU_CLOCK and not values.get(Metric.SYSTEM_GPU_UTILIZATION.format(index=index)):
                    continue  # an idle GPU clocks down, which says nothing about the training
                try:
                    values[name] = float(read(handle))
                except nvml.NVMLError as error:
                    if name not in self._silent:
                        self._silent.add(name)
                        log.warning("no %s: %s", name, error)
        return values

    def _others(self, handle: typing.Any, own: Collection[int]) -> int:
        """Processes with a context on a GPU that are not the run's."""
        pids = {process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        # In a container NVML may count processes as the host does, so that the run does not find its own there. It has
        # one process on each of its GPUs; what is there beyond that is somebody else's.
        return len(pids.difference(own)) if pids.intersection(own) else max(len(pids) - 1, 0)

    def _throttled(self, handle: typing.Any) -> bool:
        return bool(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & self._holding_down)
