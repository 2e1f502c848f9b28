"""Curves, points, and what is said of them."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.analysis.scaling import begun, curves, devices, points, predictions, worth_using
from experiments.analysis.scaling_fit import fit
from experiments.analysis.scaling_laws import AMDAHL, UNIVERSAL
from tests.experiments.analysis import frames
from training.names import Metric

GPU = {"device": "gpu", "gpu_model": "A GPU"}
MIRRORED = {**GPU, "strategy": "mirrored"}


def _case_a6():
    return frames.runs(
        {"run_id": "one", **GPU, "global_batch_size": 64},
        {"run_id": "strong", **MIRRORED, "replicas": 2, "global_batch_size": 64},
        {"run_id": "weak", **MIRRORED, "replicas": 2, "global_batch_size": 128},
    )


def test_case_a6_strong_and_weak_are_two_curves():
    found = curves(_case_a6())
    named = {label: list(group["run_id"]) for label, group in found.groupby("label")}
    assert named == {
        "mnist_cnn on gpu, replicas, fixed global batch of 64": ["one", "strong"],
        "mnist_cnn on gpu, replicas, fixed per-replica batch of 64": ["one", "weak"],
    }


def test_a_curve_of_which_no_run_has_finished_is_not_offered():
    """Runs that were cancelled while they waited know no versions, and would make a curve of their own."""
    cancelled = {"status": "KILLED", "tensorflow": "", "keras": ""}
    runs = frames.runs(
        {"run_id": "one", **GPU, "global_batch_size": 64},
        {"run_id": "two", **MIRRORED, "replicas": 2, "global_batch_size": 64},
        {"run_id": "stopped", **MIRRORED, "replicas": 2, "global_batch_size": 64, "status": "KILLED"},
        {"run_id": "no one", **GPU, **cancelled, "global_batch_size": 64},
        {"run_id": "no two", **MIRRORED, **cancelled, "replicas": 2, "global_batch_size": 64},
    )
    assert curves(runs)["key"].nunique() == 2
    assert list(begun(runs)["run_id"]) == ["one", "two", "stopped"]


def test_case_a4_the_point_lies_below_the_ideal_line():
    curve = curves(_case_a6()).query("run_id != 'weak'").query("scaling.str.startswith('strong')")
    found = points(curve, frames.steady(one=1 / 197, strong=1 / 286, weak=1))
    assert list(found["count"]) == [1, 2]
    assert found["speedup"][1] == pytest.approx(0.69, abs=0.005)
    assert found["efficiency"][1] == pytest.approx(0.344, abs=0.001)
    assert found["ideal"][1] == pytest.approx(2 / 197)
    assert "one run each" in found["note"][1]


def test_points_with_repeats_have_intervals():
    runs = frames.runs(
        *({"run_id": f"a{i}", **GPU} for i in range(3)),
        *({"run_id": f"b{i}", **MIRRORED, "replicas": 2} for i in range(3)),
    )
    steady = frames.steady(a0=100, a1=101, a2=99, b0=180, b1=182, b2=178)
    curve = curves(runs)
    assert curve["curve"].nunique() == 1
    found = points(curve, steady)
    assert found["throughput_low"][0] < 100 < found["throughput_high"][0]
    assert found["efficiency_low"][1] < 0.9 < found["efficiency_high"][1] < 1
    assert found["per_device"][1] == pytest.approx(90, rel=1e-3)
    assert found["called"][1] == "faster"
    assert math.isnan(found["speedup_low"][0])


def test_other_strategies_and_workers_are_other_curves_and_plain_single_devices_start_them():
    workers = {"strategy": "multi_worker_mirrored"}
    runs = frames.runs(
        {"run_id": "plain"},
        {"run_id": "alone", **workers},
        {"run_id": "two", **workers, "workers": 2},
        {"run_id": "virtual", "strategy": "mirrored", "replicas": 2, "logical_devices": 2},
    )
    found = curves(runs)
    assert set(found["run_id"]) == {"plain", "two"}
    assert set(found["axis"]) == {"workers"}


def test_no_curve_from_nothing():
    assert curves(frames.runs()).empty
    assert curves(frames.runs({"run_id": "a"})).empty


def _fit(counts, law=AMDAHL, sigma=0.05, noise=0.005, seed=0):
    n = np.repeat(np.asarray(counts, float), 3)
    x = 100 * law.relative(n, sigma) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(n)))
    return fit(n, x, law)


def test_predictions_go_to_twice_the_largest_and_no_further():
    found = predictions(_fit([1, 2, 4]))
    assert list(found["count"]) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(found["predicted"]) == [False] * 4 + [True] * 4
    assert (found["low"] < found["throughput"]).all()
    assert (found["throughput"] < found["high"]).all()


def test_two_numbers_of_devices_predict_nothing():
    found = predictions(_fit([1, 2]))
    assert list(found["count"]) == [1, 2]
    assert not found["predicted"].any()


def _measured(efficiencies):
    return pd.DataFrame({"count": list(efficiencies), "efficiency": list(efficiencies.values())})


def test_devices_worth_using():
    law = _fit([1, 2, 4, 8])  # 5%: efficiency at n is 1 / (1 + 0.05 (n - 1))
    measured = _measured({1: 1.0, 2: 0.95, 4: 0.87, 8: 0.74})
    found = worth_using(measured, law, 0.7)
    assert found.count == 9  # 1 + (1/0.7 - 1) / 0.05 = 9.57
    assert found.low <= 9 <= found.high
    assert not found.at_limit
    far = worth_using(measured, law, 0.3)
    assert (far.count, far.at_limit) == (16, True)
    assert far.sentence(0.3, "GPUs").startswith("at least 16 GPUs")


def test_devices_worth_using_without_a_law_that_may_predict():
    found = worth_using(_measured({1: 1.0, 2: 0.6}), _fit([1, 2]), 0.7)
    assert (found.count, found.at_limit) == (1, False)
    assert "of the measured numbers" in found.note
    with pytest.raises(ValueError, match="efficiency 0"):
        worth_using(_measured({1: 1.0}), None, 0)


def test_the_device_that_others_wait_for_is_named():
    def series(index, use, memory):
        names = (Metric.SYSTEM_GPU_UTILIZATION, Metric.SYSTEM_GPU_MEMORY)
        return [
            ("a", name.format(index=index), range(3), values) for name, values in zip(names, (use, memory), strict=True)
        ]

    epochs = ("a", Metric.EXAMPLES_PER_SECOND, range(3), [100, 800, 802])
    history = frames.history(*series(0, [70, 71, 72], [10, 30, 20]), *series(1, [97, 98, 99], [10, 10, 10]), epochs)
    found = devices(history, "a")
    assert list(found["device"]) == ["GPU:0", "GPU:1"]
    assert list(found["memory_mb"]) == [30, 10]
    assert list(found["slowest"]) == [False, True]
    # Equal parts of the epochs after the first: synchronous training allows no other.
    assert list(found["throughput"]) == [400.5, 400.5]
    assert devices(history, "b").empty


def test_memory_is_of_one_measure_for_all_gpus():
    """The process that records what the allocator gave out sees its own GPU only, the sampler both."""
    used = [("a", Metric.SYSTEM_GPU_MEMORY.format(index=index), range(2), [70, 80 + index]) for index in range(2)]
    given_out = [("a", Metric.GPU_PEAK_MEMORY.format(index=index), range(2), [9, 5 + index]) for index in range(2)]
    epochs = ("a", Metric.EXAMPLES_PER_SECOND, range(2), [100, 800])
    assert list(devices(frames.history(*used, given_out[0], epochs), "a")["memory_mb"]) == [80, 81]
    assert list(devices(frames.history(*used, *given_out, epochs), "a")["memory_mb"]) == [9, 9]


def test_universal_refuses_three_numbers_of_devices_to_predict():
    n = np.repeat([1.0, 2, 3], 3)
    found = fit(n, 100 * UNIVERSAL.relative(n, 0.05, 0.01) * np.linspace(0.99, 1.01, 9), UNIVERSAL)
    assert "4 are needed" in found.refusal(4)


def test_workers_are_counted_as_workers_also_with_several_replicas_each():
    runs = frames.runs(
        {"run_id": "w1", "strategy": "mirrored", "replicas": 2, "global_batch_size": 128},
        {"run_id": "w2", "strategy": "multi_worker_mirrored", "replicas": 2, "workers": 2, "global_batch_size": 256},
    )
    (curve,) = [part for _, part in curves(runs).groupby("key") if part["axis"].iloc[0] == "workers"]
    assert dict(zip(curve["run_id"], curve["count"], strict=True)) == {"w1": 1, "w2": 2}


def test_runs_of_others_without_a_batch_size_are_passed_over():
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", "replicas": 2, "strategy": "mirrored"})
    runs[["global_batch_size", "per_replica_batch_size"]] = pd.NA
    assert curves(runs).empty


@pytest.mark.parametrize("name", ["global_batch_size", "per_replica_batch_size"])
@pytest.mark.parametrize("value", [0, pd.NA])
def test_runs_of_others_whose_batch_is_none_are_passed_over(name, value):
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", "replicas": 2, "strategy": "mirrored"})
    runs[name] = pd.array([value, value], dtype="Int64")
    assert curves(runs).empty


def test_what_is_worth_using_is_against_the_fewest_measured_also_by_a_law():
    law = _fit([2, 4, 8])  # 5%: efficiency at n against 2 is 1.05 / (1 + 0.05 (n - 1))
    found = worth_using(_measured({2: 1.0, 4: 0.91, 8: 0.78}), law, 0.8)
    assert found.note == "by Amdahl's law"
    assert found.count == 7  # 1 + (1.05/0.8 - 1) / 0.05 = 7.25; against one device it would be 6
    assert 6 < found.low <= 7 <= found.high
    assert worth_using(_measured({2: 1.0, 4: 0.91, 8: 0.78}), law, 1.0).count == 2


def test_what_is_worth_using_is_not_sure_where_its_interval_is_not():
    speeds = {"a1": 100.0, "a2": 130.0, "b1": 170.0, "b2": 215.0}
    curve = pd.DataFrame({"run_id": list(speeds), "count": [1, 1, 2, 2]})
    found = worth_using(points(curve, frames.steady(**speeds)), None, 0.8)
    assert found.count == 2
    assert found.doubt == "not surely, by its interval"
    assert found.sentence(0.8).endswith("; not surely, by its interval")
    assert found.finding(0.8).endswith("efficiency or better; not surely, by its interval")
