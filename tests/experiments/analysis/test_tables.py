"""The table of every configuration against one baseline."""

import pytest

from experiments.analysis.comparable import Thing
from experiments.analysis.speedup import costs
from experiments.analysis.tables import SPEEDUP_COLUMNS, configurations, speedups
from tests.experiments.analysis import frames

GPU = {"device": "gpu", "gpu_model": "A GPU"}


def _frames():
    runs = frames.runs(
        {"run_id": "half", **GPU, "precision": "mixed_float16"},
        *({"run_id": f"gpu{i}", **GPU} for i in range(3)),
        *({"run_id": f"cpu{i}"} for i in range(3)),
    )
    speeds = {f"cpu{i}": 100.0 + i for i in range(3)} | {f"gpu{i}": 1000.0 + i for i in range(3)} | {"half": 3000.0}
    steady = frames.steady(**speeds)
    return runs, steady, costs(runs, steady)


def test_equal_runs_are_taken_together_and_what_cannot_be_compared_says_why():
    runs, steady, cost = _frames()
    found = speedups(runs, steady, cost, "cpu1", Thing.DEVICE)
    assert list(found.columns) == list(SPEEDUP_COLUMNS)
    assert found["run_ids"][0] == ("gpu0", "gpu1", "gpu2")
    assert found["ratio"][0] == pytest.approx(1001 / 101, rel=1e-3)
    assert found["low"][0] < found["ratio"][0] < found["high"][0]
    assert found["end_to_end"][0] < found["ratio"][0]
    assert found["refusal"][1] == "precision: float32 / mixed_float16"
    assert found["sentence"][1].startswith("cannot be compared")
    assert found["ratio"].isna()[1]


def test_nothing_to_compare_with():
    runs = frames.runs({"run_id": "a"})
    steady = frames.steady(a=1)
    found = speedups(runs, steady, costs(runs, steady), "a", Thing.DEVICE)
    assert found.empty
    assert list(found.columns) == list(SPEEDUP_COLUMNS)
    with pytest.raises(KeyError, match="nobody"):
        speedups(runs, steady, costs(runs, steady), "nobody", Thing.DEVICE)


def test_configurations_are_told_apart_by_what_differs():
    found = configurations(_frames()[0])
    assert list(found["runs"]) == [1, 3, 3]
    assert found["label"][1].startswith("device=gpu, precision=float32")
