"""Runs in a real MLflow store whose throughput is known: their windows are as long as their epochs."""

import time
from collections.abc import Mapping

import pandas as pd
from mlflow.entities import Metric as Point

from experiments.settings import Settings
from tests.dashboard.seed import add_run
from training.names import Metric, RunStatus, Tag
from training.spec import RunSpec

EXAMPLES = 60_000
TAGS = {
    Tag.HOST: "bench-1",
    Tag.CPU_MODEL: "A CPU",
    Tag.CPU_COUNT: "64",
    Tag.TENSORFLOW: "2.21.0",
    Tag.KERAS: "3.15.1",
    Tag.ONEDNN: "true",
    Tag.JIT_COMPILE: "false",
}
GPU = {**TAGS, Tag.GPU_MODEL: "A GPU", Tag.DEVICES_SEEN: "GPU:0"}


def timed_run(
    settings: Settings,
    spec: RunSpec,
    throughput: float,
    status: RunStatus = RunStatus.FINISHED,
    tags: Mapping[str, str] = TAGS,
    placement: pd.DataFrame | None = None,
) -> str:
    """Writes a run of four epochs, the first twice as long as the others. `throughput` in examples per second."""
    now = round(time.time() * 1000)
    seconds = EXAMPLES / throughput
    once = {Metric.TIME_STARTUP: 4.0, Metric.TIME_DATA: 0.5, Metric.TIME_BUILD: 1.0, Metric.TIME_FIRST_STEP: 1.0}
    points = [Point(name, value, now, 0) for name, value in once.items()]
    for epoch in range(4):
        train = seconds * (2 if epoch == 0 else 1)
        points += [
            Point(Metric.TIME_EPOCH_TRAIN, train, now + epoch, epoch),
            Point(Metric.EXAMPLES_PER_SECOND, EXAMPLES / train, now + epoch, epoch),
            Point(Metric.TIME_EPOCH_VALIDATION, 0.1 * seconds, now + epoch, epoch),
            Point(Metric.TIME_INPUT_WAIT, 0.3 * train, now + epoch, epoch),
        ]
    seen = {Tag.REPLICAS_IN_SYNC: str(spec.total_replicas), **tags}
    return add_run(settings, spec, status, points=points, tags=seen, placement=placement)


def repeats(
    settings: Settings, spec: RunSpec, throughput: float, tags: Mapping[str, str] = TAGS, count: int = 3
) -> list[str]:
    """Equal runs, 1% apart, around a throughput; oldest first."""
    middle = (count - 1) / 2
    return [timed_run(settings, spec, throughput * (1 + 0.01 * (i - middle)), tags=tags) for i in range(count)]
