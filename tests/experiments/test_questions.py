"""Which part of the record a question reads."""

import time
from string import Formatter

import pandas as pd
from mlflow.entities import Metric as Point

from experiments import questions, results
from experiments.settings import Settings
from tests.support.timed_runs import GPU, timed_run
from training.names import Metric
from training.spec import RunSpec


def every_metric() -> list[str]:
    """Every name of `training.names.Metric`; of those for each GPU or worker, that of the first."""
    names = [value for name, value in vars(Metric).items() if name.isupper() and not value.endswith(("/", "_"))]
    return [name.format(index=0) if any(field for _, field, *_ in Formatter().parse(name)) else name for name in names]


def test_timing_and_flags_are_the_same_from_the_few_metrics_that_are_read(settings: Settings) -> None:
    run_id = timed_run(settings, RunSpec(device="gpu", epochs=4), 1000, tags=GPU)
    now = round(time.time() * 1000)
    recorded = settings.client().get_run(run_id).data.metrics
    others = [name for name in every_metric() if name not in recorded and name != Metric.WINDOW]
    # Half of the time on, half off: whatever of this makes a timing doubtful does so here.
    points = [Point(name, float(99 * (step % 2 or step > 5)), now, step) for name in others for step in range(12)]
    for start in range(0, len(points), 1_000):
        settings.client().log_batch(run_id, points[start : start + 1_000])
    runs = questions.runs_of(settings)

    read = questions.of(settings, runs, [run_id])
    everything = questions.of(settings, runs, [run_id], metrics=None)

    assert set(everything.history["metric"]) >= set(others)
    assert len(set(read.history["metric"])) < len(set(everything.history["metric"])) / 2
    pd.testing.assert_frame_equal(read.steady, everything.steady)
    pd.testing.assert_frame_equal(read.flags, everything.flags)
    pd.testing.assert_frame_equal(read.cost, everything.cost)
    assert {"contention", "steal", "gpu_clock"} <= set(read.flags["flag"])
    assert read.history.equals(results.histories(settings, [run_id], set(read.history["metric"])))
