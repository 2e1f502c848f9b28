"""What each worker of a run did: its throughput, processors and memory, and which one the others wait for."""

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


def workers(history: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """Throughput, CPU use and memory of each worker of a run.

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
    ordered = table["throughput"].dropna().astype("float64").sort_values().to_numpy()
    stands_out = len(ordered) > 1 and ordered[0] < ordered[1] * (1 - STANDS_OUT)
    table["slowest"] = (table["throughput"] == ordered[0]) if stands_out else False
    return table.astype(WORKER_COLUMNS)
