"""The runs that complete a curve, or halve its intervals."""

import pandas as pd
import pytest

from experiments.analysis.missing import (
    MISSING_COLUMNS,
    not_under_way,
    repeats_to_halve,
    sensible_counts,
    to_complete,
    to_halve,
)
from experiments.analysis.scaling import curves, points
from tests.experiments.analysis import frames
from training.spec import RunSpec

GPU = {"device": "gpu", "gpu_model": "A GPU"}


def _weak_gpus(ones, twos) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    runs = frames.runs(
        *(
            {"run_id": f"t{i}", **GPU, "strategy": "mirrored", "replicas": 2, "global_batch_size": 128}
            for i in range(twos)
        ),
        *({"run_id": f"o{i}", **GPU} for i in range(ones)),
    )
    curve = curves(runs)
    speeds = {f"o{i}": 100 + i for i in range(ones)} | {f"t{i}": 180 + i for i in range(twos)}
    return curve, points(curve, frames.steady(**speeds)), runs


def test_what_is_missing_to_draw_a_weak_curve():
    found = to_complete(*_weak_gpus(3, 1), most=4)
    assert list(found.columns) == list(MISSING_COLUMNS)
    rows = found[["count", "strategy", "replicas", "workers", "global_batch_size", "repeats", "reason"]]
    assert rows.to_numpy().tolist() == [
        [2, "mirrored", 2, 1, 128, 2, "1 of 3 repeats"],
        [3, "mirrored", 3, 1, 192, 3, "not measured"],
        [4, "mirrored", 4, 1, 256, 3, "not measured"],
    ]
    assert (found["template"] == "t0").all()
    assert (found["refusal"] == "").all()


def test_a_complete_curve_lacks_nothing():
    assert to_complete(*_weak_gpus(3, 3), most=2).empty


def test_a_batch_that_does_not_divide_is_refused_in_words():
    runs = frames.runs({"run_id": "two", "workers": 2, "strategy": "multi_worker_mirrored"}, {"run_id": "one"})
    curve = curves(runs)
    found = to_complete(curve, points(curve, frames.steady(one=1, two=2)), runs, most=3).set_index("count")
    assert found.loc[3, "refusal"] == "a global batch of 64 does not divide by 3 replicas"
    assert found.loc[1, "strategy"] == "one_device"
    assert list(found.loc[2, ["strategy", "workers", "replicas"]]) == ["multi_worker_mirrored", 2, 1]


def test_every_row_that_is_not_refused_is_a_spec_that_may_run():
    curve, measured, runs = _weak_gpus(1, 1)
    for row in to_complete(curve, measured, runs, most=8).to_dict("records"):
        fields = ("strategy", "replicas", "workers", "logical_devices", "global_batch_size")
        assert (
            RunSpec.from_dict({"device": "gpu", **{name: row[name] for name in fields}}).total_replicas == row["count"]
        )


def test_repeats_to_halve():
    # 3 and 3: t(4) sqrt(2/3) = 2.267; half is 1.133; 7 each: 1.165, 8 each: 1.072.
    assert repeats_to_halve(3, 3) == 8
    assert 2 < repeats_to_halve(2, 2) < repeats_to_halve(3, 3)


def test_halving_asks_both_sides_and_a_single_run_first_for_repeats():
    found = to_halve(*_weak_gpus(3, 3))
    assert found[["count", "repeats", "reason"]].to_numpy().tolist() == [
        [1, 5, "to halve the interval"],
        [2, 5, "to halve the interval"],
    ]
    single = to_halve(*_weak_gpus(3, 1))
    assert single[["count", "repeats", "reason"]].to_numpy().tolist() == [[2, 2, "to know the spread between runs"]]


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 3, 4, 6]), (16, [1, 2, 3, 4, 8, 16])])
def test_sensible_counts(most, counts):
    assert sensible_counts(most) == counts


def test_what_waits_or_trains_already_is_not_missing():
    curve, measured, runs = _weak_gpus(3, 1)
    missing = to_complete(curve, measured, runs, most=3)
    asks = {**GPU, "strategy": "mirrored", "replicas": 2, "global_batch_size": 128, "gpu_model": "", "cpu_model": ""}
    live = [
        {"run_id": "w", **asks, "status": "SCHEDULED"},
        {"run_id": "x", **asks, "status": "RUNNING", "precision": "mixed_float16"},
        {"run_id": "y", **asks, "status": "KILLED"},
    ]
    left = not_under_way(missing, pd.concat([frames.runs(*live), runs], ignore_index=True))
    assert list(left.columns) == list(MISSING_COLUMNS)
    assert left[["count", "repeats", "reason"]].to_numpy().tolist() == [
        [2, 1, "1 of 3 repeats, 1 under way"],
        [3, 3, "not measured"],
    ]
    live[2]["status"] = "RUNNING"
    left = not_under_way(missing, pd.concat([frames.runs(*live), runs], ignore_index=True))
    assert list(left["count"]) == [3]


def test_workers_of_several_replicas_keep_them():
    runs = frames.runs(
        {"run_id": "w1", "strategy": "mirrored", "replicas": 2, "global_batch_size": 128},
        {"run_id": "w2", "strategy": "multi_worker_mirrored", "replicas": 2, "workers": 2, "global_batch_size": 256},
    )
    everything = curves(runs)
    curve = everything[everything["axis"] == "workers"]
    found = to_complete(curve, points(curve, frames.steady(w1=100, w2=180)), runs, most=3)
    three = found[found["count"] == 3].iloc[0]
    assert (three["replicas"], three["workers"], three["global_batch_size"]) == (2, 3, 64 * 6)
    one = found[found["count"] == 1].iloc[0]
    assert (one["strategy"], one["replicas"], one["workers"]) == ("mirrored", 2, 1)
