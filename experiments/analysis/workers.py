"""What each worker of a run did: its throughput, processors and memory, and which one the others wait for."""

import math
import re

import pandas as pd

from training.names import Metric

WORKER_COLUMNS = {
    "worker": "int64",
    "throughput": "float64",
    "cpu": "float64",
    "memory_mb": "float64",
    "slowest": "bool",
}
STANDS_OUT = 0.02
"""A worker is called the slowest only when it is this share below the next one: less is noise."""
BUSIER = 5.0
"""Or, where all are as fast, when it is this many points of CPU use above the next one."""


def workers(history: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """Throughput, CPU use and memory of each worker of a run.

    In synchronous training all do the same steps in the same time, waiting included, so their throughput hardly
    differs. The slowest is then the one that is busy while the others wait for it: the highest CPU use, on a run
    without GPUs (a process that waits for its GPU may spin), and where that is known of all.

    Args:
        history: long frame [run_id, metric, step, value, timestamp].
        run_id: the run.

    Returns:
        WORKER_COLUMNS: median examples per second over its own time in steps, median percent of the CPUs it was given,
        peak megabytes; NaN where not recorded. Empty when nothing was, as for a run of a single process.
    """
    mine = history[history["run_id"] == run_id]
    found: dict[int, dict[str, float]] = {}
    sources = (
        ("throughput", Metric.WORKER_THROUGHPUT, "median"),
        ("cpu", Metric.WORKER_CPU, "median"),
        ("memory_mb", Metric.WORKER_MEMORY, "max"),
    )
    for name, template, statistic in sources:
        pattern = re.compile(re.escape(template).replace(re.escape("{index}"), r"(\d+)"))
        for metric, values in mine.groupby("metric", sort=False)["value"]:
            match = pattern.fullmatch(str(metric))
            if match:
                found.setdefault(int(match[1]), {})[name] = float(values.agg(statistic))
    rows = [{"worker": index, **found[index]} for index in sorted(found)]
    table = pd.DataFrame(rows, columns=list(WORKER_COLUMNS))
    table["slowest"] = False
    table = table.astype(WORKER_COLUMNS)
    on_gpus = (mine["metric"] == Metric.SYSTEM_GPU_UTILIZATION.format(index=0)).any()
    slowest, next_slowest = _two_least(table["throughput"])
    least_idle, next_idle = _two_least(-table["cpu"])
    if slowest < next_slowest * (1 - STANDS_OUT):
        table["slowest"] = table["throughput"] == slowest
    elif not on_gpus and table["cpu"].notna().all() and next_idle - least_idle >= BUSIER:
        table["slowest"] = -table["cpu"] == least_idle
    return table


def _two_least(values: pd.Series) -> tuple[float, float]:
    """The smallest two that are known; NaN where there are none."""
    least = values.nsmallest(2).to_list()
    return (least[0], least[1]) if len(least) == 2 else (math.nan, math.nan)
