"""What each worker did, and which one the others wait for."""

import math

import pandas as pd

from experiments.analysis.workers import WORKER_COLUMNS, workers
from tests.experiments.analysis import frames
from training.names import Metric


def _history(*speeds):
    series = [
        ("r", Metric.WORKER_THROUGHPUT.format(index=index), range(3), [0.5 * speed, speed, speed])
        for index, speed in enumerate(speeds)
    ]
    more = [
        ("r", Metric.WORKER_CPU.format(index=0), [0, 1], [80.0, 90.0]),
        ("r", Metric.WORKER_MEMORY.format(index=0), [0, 1], [700.0, 650.0]),
        ("other", Metric.WORKER_THROUGHPUT.format(index=0), [0], [1.0]),
    ]
    return frames.history(*series, *more)


def test_each_worker_and_the_slowest():
    found = workers(_history(1000, 900, 1010), "r")
    assert list(found.columns) == list(WORKER_COLUMNS)
    assert found["worker"].tolist() == [0, 1, 2]
    assert found["throughput"].tolist() == [1000, 900, 1010]
    assert (found["cpu"][0], found["memory_mb"][0]) == (85.0, 700.0)
    assert math.isnan(found["cpu"][1])
    assert found["slowest"].tolist() == [False, True, False]


def test_none_is_called_slowest_where_they_hardly_differ():
    assert not workers(_history(1000, 990), "r")["slowest"].any()


def _cpu(*use):
    return frames.history(
        *(("r", Metric.WORKER_CPU.format(index=index), [0, 1], [value, value]) for index, value in enumerate(use)),
        *(("r", Metric.WORKER_THROUGHPUT.format(index=index), [0], [1000.0 + index]) for index in range(len(use))),
    )


def test_of_workers_as_fast_the_busy_one_is_the_slowest():
    assert workers(_cpu(60, 62, 97), "r")["slowest"].tolist() == [False, False, True]
    assert not workers(_cpu(60, 93, 97), "r")["slowest"].any()
    assert not workers(_cpu(60, 97, math.nan), "r")["slowest"].any()
    gpu = frames.history(("r", Metric.SYSTEM_GPU_UTILIZATION.format(index=0), [0], [50.0]))
    assert not workers(pd.concat([_cpu(60, 97), gpu]), "r")["slowest"].any()


def test_ten_workers_stand_in_the_order_of_their_numbers():
    assert workers(_history(*[1000] * 11), "r")["worker"].tolist() == list(range(11))


def test_a_run_of_one_process_has_no_workers():
    empty = workers(frames.epochs("r", [1, 1]), "r")
    assert empty.empty
    assert empty.dtypes.astype(str).to_dict() == WORKER_COLUMNS
    assert isinstance(empty, pd.DataFrame)
