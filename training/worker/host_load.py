"""What else goes on at this host while a run is timed, as the kernel counts it."""

import os
from collections.abc import Callable
from pathlib import Path

from training import hardware
from training.names import Metric

_TICKS = os.sysconf("SC_CLK_TCK")


class HostLoad:
    """Reads what may disturb a run on this host, since the last reading.

    Args:
        clock: seconds that never go back.
        stat: the kernel's counters.
        groups: folders of the control groups that this process is in.
    """

    def __init__(self, clock: Callable[[], float], stat: Path = Path("/proc/stat"), groups: list[Path] | None = None):
        self._clock, self._stat = clock, stat
        groups = list(hardware.own_groups()) if groups is None else groups
        self._quotas = [path for group in dict.fromkeys(groups) if _throttled(path := group / "cpu.stat") is not None]
        self._last = self._read()

    def since_last(self, own_cpu_seconds: float) -> dict[str, float]:
        """Metrics (names.Metric), in percent but for the number of runnable threads.

        Args:
            own_cpu_seconds: what the run itself, this process included, used of the CPUs in that time.
        """
        last, now = self._last, self._read()
        self._last = now
        values: dict[str, float] = {}
        passed = now.total - last.total
        if passed > 0:
            values[Metric.OTHERS_CPU] = 100 * max(now.busy - last.busy - own_cpu_seconds, 0.0) / passed
            values[Metric.CPU_STEAL] = 100 * (now.steal - last.steal) / passed
        if now.cpus:
            # The kernel's count is of the whole host, so it is divided by the host's CPUs, not by those of a container.
            # One of those that run is the sampler.
            values[Metric.RUNNABLE_THREADS] = max(now.running - 1, 0) / now.cpus
        if self._quotas and now.at > last.at:
            # A quota at any level above holds all below it back.
            held = max(after - before for after, before in zip(now.throttled, last.throttled, strict=True))
            values[Metric.CPU_THROTTLED] = 100 * held / (now.at - last.at)
        return values

    def _read(self) -> "_Counters":
        return _Counters(self._clock(), self._stat.read_text(), [_throttled(path) or 0.0 for path in self._quotas])


class _Counters:
    """One reading: CPU seconds of all CPUs together since the machine started, and what runs at this moment."""

    def __init__(self, at: float, stat: str, throttled: list[float]):
        self.at, self.throttled = at, throttled
        self.cpus = self.running = 0
        self.busy = self.steal = self.total = 0.0
        for line in stat.splitlines():
            name, *fields = line.split()
            if name == "cpu":
                # Guests' time, the last two, is in user and nice already.
                user, nice, system, idle, waiting, irq, softirq, steal = (int(field) / _TICKS for field in fields[:8])
                self.busy = user + nice + system + irq + softirq
                self.steal = steal
                self.total = self.busy + idle + waiting + steal
            elif name.startswith("cpu"):
                self.cpus += 1
            elif name == "procs_running":
                self.running = int(fields[0])


def _throttled(path: Path) -> float | None:
    """Seconds that a control group's quota held CPUs back so far; None where it is not counted."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    counted = dict(line.split(maxsplit=1) for line in lines if " " in line)
    if "throttled_usec" in counted:  # version 2
        return int(counted["throttled_usec"]) / 1e6
    if "throttled_time" in counted:  # version 1
        return int(counted["throttled_time"]) / 1e9
    return None
