"""What MLflow holds, as tables with fixed columns and as single records."""

from experiments.queue import UnknownRun
from experiments.results.columns import RUN_COLUMNS, Row
from experiments.results.frames import Results
from experiments.results.logs import follow, log_lines
from experiments.results.records import (
    HISTORY_COLUMNS,
    MOST_POINTS,
    DamagedArtifactError,
    environment,
    find,
    histories,
    history,
    placement,
    record,
    spec,
)

__all__ = [
    "HISTORY_COLUMNS",
    "MOST_POINTS",
    "RUN_COLUMNS",
    "DamagedArtifactError",
    "Results",
    "Row",
    "UnknownRun",
    "environment",
    "find",
    "follow",
    "histories",
    "history",
    "log_lines",
    "placement",
    "record",
    "spec",
]
