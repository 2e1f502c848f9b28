"""One scaling curve, answered in full."""

import numpy as np
import pandas as pd
import pytest

from experiments.analysis import curve as curve_module
from experiments.analysis.curve import FIT_COLUMNS, missing, read
from experiments.analysis.evidence import gather
from experiments.analysis.scaling import curves
from tests.experiments.analysis import frames


def _evidence(speeds, repeats=3, spread=0.01, put_back=frozenset(), **more):
    """Strong scaling over replicas of GPUs: count -> examples per second; repeats `spread` apart."""
    rows, parts = [], []
    for count, speed in speeds.items():
        for index in range(repeats):
            run_id = f"n{count}r{index}"
            strategy = "mirrored" if count > 1 else "one_device"
            rows.append({"run_id": run_id, "device": "gpu", "replicas": count, "strategy": strategy, **more})
            seconds = 60_000 / (speed * (1 + spread * (index - (repeats - 1) / 2)))
            parts.append(frames.epochs(run_id, [2 * seconds, *[seconds] * 3], examples=60_000))
    runs = frames.runs(*({**row, "global_batch_size": 64} for row in rows))
    return gather(runs, pd.concat(parts, ignore_index=True), put_back)


def _key(evidence):
    (key,) = curves(evidence.runs)["key"].unique()
    return key


def _amdahl(sigma, *counts):
    return {n: 1000 * n / (1 + sigma * (n - 1)) for n in counts}


def test_a_curve_is_answered_in_full():
    evidence = _evidence(_amdahl(0.1, 1, 2, 4, 8))
    found = read(evidence, _key(evidence))
    assert list(found.points["count"]) == [1, 2, 4, 8]
    assert found.fit is not None
    assert found.worth is not None
    assert found.fit.law.name == "Amdahl's law"
    assert found.fit.parameters["sigma"].value == pytest.approx(0.1, abs=0.005)
    assert found.refusal == ""
    assert found.predictions.loc[found.predictions["predicted"], "count"].max() == 16
    assert found.worth.count == 3  # 1 / (1 + 0.1 * 2) = 0.83, 1 / (1 + 0.1 * 3) = 0.77
    assert found.sentences[0].startswith("10.0% of a step does not get faster with more replicas")
    assert found.title.startswith("8 replicas train 4.71x (4.")
    assert found.title.endswith("as fast as 1: 59% of ideal")
    table = found.parameters()
    assert list(table.columns) == list(FIT_COLUMNS)
    assert list(table.loc[table["preferred"], "parameter"]) == ["sigma"]


def test_two_numbers_of_devices_refuse_to_predict():
    evidence = _evidence({1: 1000, 2: 1800})
    found = read(evidence, _key(evidence))
    assert "2 numbers of devices were measured, 3 are needed" in found.refusal
    assert not found.predictions["predicted"].any()
    assert found.title.startswith("2 replicas train 1.80x")


def test_retrograde_scaling_is_told():
    evidence = _evidence({1: 1000, 2: 1500, 4: 1300, 8: 900})
    found = read(evidence, _key(evidence))
    assert found.title.endswith("the fastest were 2")
    slower = _evidence({1: 1000, 2: 700})
    assert read(slower, _key(slower)).title.endswith("more is slower")


def test_other_numbers_are_called_the_fastest_only_where_that_is_sure():
    near = _evidence({1: 100, 4: 376, 8: 373}, spread=0.06)
    found = read(near, _key(near))
    assert found.points["throughput"].idxmax() == 1
    assert found.title.endswith("as fast as 1: 47% of ideal")
    alone = _evidence({1: 100, 4: 376, 8: 300}, repeats=1)
    assert read(alone, _key(alone)).title.endswith("as fast as 1: one run each: spread between runs unknown")
    sure = _evidence({1: 100, 4: 376, 8: 300})
    assert read(sure, _key(sure)).title.endswith("as fast as 1; the fastest were 4")


def test_one_run_each_is_marked():
    evidence = _evidence({1: 1000, 2: 1800}, repeats=1)
    assert read(evidence, _key(evidence)).title.endswith("one run each: spread between runs unknown")


def test_doubtful_runs_are_left_out_and_a_curve_without_any_says_so():
    evidence = _evidence({1: 1000, 2: 1800}, logical_devices=2)
    found = read(evidence, _key(evidence))
    assert found.title == "No run of this curve can be used"
    assert found.worth is None
    assert found.points.empty
    assert set(found.left_out["flag"]) == {"simulated"}
    assert len(missing(evidence, found, 2)) == 2
    back = _evidence({1: 1000, 2: 1800}, logical_devices=2, put_back=frozenset(evidence.runs["run_id"]))
    assert read(back, _key(back)).title.startswith("2 replicas train 1.80x")


def test_its_key_outlives_new_runs_and_names_one_curve():
    before, after = _evidence({1: 1000, 2: 1800}), _evidence({1: 1000, 2: 1800, 4: 3000})
    assert _key(before) == _key(after)
    assert _key(_evidence({1: 1000, 2: 1800}, precision="mixed_float16")) != _key(before)


def test_bad_questions_are_refused():
    evidence = _evidence({1: 1000, 2: 1800})
    with pytest.raises(KeyError, match="no curve nothing"):
        read(evidence, "nothing")
    for efficiency in (0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="choose such as"):
            read(evidence, _key(evidence), efficiency)


def test_what_is_missing_to_complete_and_to_halve():
    evidence = _evidence({1: 1000, 2: 1800}, repeats=2)
    found = read(evidence, _key(evidence))
    lacking = missing(evidence, found, most=4)
    assert dict(zip(lacking["count"], lacking["repeats"], strict=True)) == {1: 1, 2: 1, 3: 3, 4: 3}
    assert lacking.loc[lacking["count"] == 3, "refusal"].item() == (
        "a global batch of 64 does not divide by 3 replicas"
    )
    halved = missing(evidence, found, most=4, halve=True)
    assert np.all(halved["repeats"] > 0)
    assert set(halved["count"]) == {1, 2}


def test_the_default_efficiency_is_a_share():
    assert 0 < curve_module.EFFICIENCY <= 1
