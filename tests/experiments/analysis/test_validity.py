"""Flags of doubtful timing, each from its figure."""

import pytest

from experiments.analysis import validity
from experiments.analysis.validity import flags, included, unchecked
from tests.experiments.analysis import frames
from training.names import Metric


def _flags(run, history=None, steady=None):
    runs = frames.runs({"run_id": "a", **run})
    steady = frames.steady(a=100) if steady is None else steady
    return flags(runs, steady, frames.history() if history is None else history).set_index("flag")


def test_an_ordinary_run_has_none_and_may_be_drawn():
    runs = frames.runs({"run_id": "a"})
    found = flags(runs, frames.steady(a=100), frames.history())
    assert found.empty
    assert list(found.columns) == list(validity.FLAG_COLUMNS)
    assert included(runs, found)["a"]


@pytest.mark.parametrize(
    ("run", "flag", "words"),
    [
        ({"status": "KILLED"}, "unfinished", "did not finish"),
        ({"status": "RUNNING"}, "unfinished", "still under way"),
        ({"replicas": 2, "strategy": "mirrored", "device": "gpu", "replicas_in_sync": 1}, "replicas", "asked for 2"),
        ({"device": "gpu", "devices_seen": "/CPU:0"}, "device", "TensorFlow saw /CPU:0"),
        ({"replicas": 2, "strategy": "mirrored", "logical_devices": 2}, "simulated", "share the same hardware"),
    ],
)
def test_flags_of_the_record(run, flag, words):
    found = _flags(run)
    assert found.loc[flag, "excludes"]
    assert words in found.loc[flag, "detail"]


def test_more_threads_than_cpus():
    run = {"workers": 2, "strategy": "multi_worker_mirrored", "cpu_threads": 2}
    assert _flags({**run, "cpu_count": 2}).loc["oversubscribed", "detail"] == "2 x 2 threads on 2 CPUs"
    assert _flags({**run, "cpu_count": 4}).empty
    assert _flags(run).empty  # not recorded: not raised


def test_windows_that_were_thinned_on_the_way():
    steps = range(32, 3201, 32)
    whole = frames.history(("a", Metric.WINDOW, steps, [500.0] * len(steps)))
    assert "sampled" not in _flags({}, whole).index
    found = _flags({}, whole.iloc[::2])
    assert not found.loc["sampled", "excludes"]
    assert "only 50 of its windows" in found.loc["sampled", "detail"]


def test_the_profiler_and_a_notice():
    assert _flags({"profiler": True}).loc["profiler", "excludes"]
    assert _flags({"profiler": False}).empty
    noticed = _flags({"notice": "NaN at epoch 1"})
    assert not noticed.loc["notice", "excludes"]
    compiled = _flags({"notice": "CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer."})
    assert not compiled.loc["compiled_kernels", "excludes"]


@pytest.mark.parametrize(
    ("metric", "values", "flag"),
    [
        (Metric.OTHERS_CPU, [40, 30, 50], "contention"),
        (Metric.RUNNABLE_THREADS, [2.5, 2.0, 3.0], "oversubscribed"),
        (Metric.CPU_STEAL, [5, 6, 7], "steal"),
        (Metric.CPU_THROTTLED, [20, 10, 30], "throttled"),
        (Metric.GPU_OTHERS.format(index=0), [0, 1, 0], "gpu_contention"),
        (Metric.GPU_THROTTLED.format(index=0), [0, 0, 1], "gpu_throttled"),
        (Metric.GPU_CLOCK.format(index=0), [1980, 1980, 1980, 1980, 1200], "gpu_clock"),
    ],
)
def test_flags_of_the_samples(metric, values, flag):
    found = _flags({}, frames.history(("a", metric, range(len(values)), values)))
    assert found.loc[flag, "excludes"]
    calm = [1500.0] * 3 if flag == "gpu_clock" else [0.0] * 3
    assert _flags({}, frames.history(("a", metric, range(3), calm))).empty


def test_a_single_sample_of_a_gpu_says_nothing_of_a_whole_run():
    once = [1.0, *[0.0] * 39]
    assert _flags({}, frames.history(("a", Metric.GPU_THROTTLED.format(index=0), range(40), once))).empty
    assert _flags({}, frames.history(("a", Metric.GPU_CLOCK.format(index=0), range(2), [1980, 1200]))).empty


def test_drift_and_no_steady_state():
    steady = frames.steady(a=100)
    steady[["drift", "drift_t"]] = [0.05, 8.0]
    assert "5.0% slower" in _flags({}, steady=steady).loc["drift", "detail"]
    steady[["drift", "drift_t"]] = [0.05, 1.0]
    assert _flags({}, steady=steady).empty
    steady["relative_se"] = 0.13
    assert _flags({}, steady=steady).loc["noisy", "detail"] == "throughput is known to 13.0% only (limit 5%)"
    assert _flags({}, steady=frames.steady(a=0)).loc["no_steady_state", "detail"] == "no steady state: too short"


def test_a_run_is_put_back_by_hand_but_not_without_a_number():
    runs = frames.runs({"run_id": "a", "logical_devices": 2}, {"run_id": "b"})
    found = flags(runs, frames.steady(a=100, b=0), frames.history())
    assert list(included(runs, found)) == [False, False]
    assert list(included(runs, found, frozenset({"a", "b"}))) == [True, False]


def test_what_was_not_recorded_is_said():
    run = frames.runs({"run_id": "a", "device": "gpu"}).iloc[0]
    history = frames.history(("a", Metric.OTHERS_CPU, [0], [0]), ("b", Metric.CPU_STEAL, [0], [0]))
    found = unchecked(run, history)
    assert not any(Metric.OTHERS_CPU in text for text in found)
    assert any(Metric.CPU_STEAL in text for text in found)
    assert any("gpu_0_sm_clock" in text for text in found)
    assert any("cpu_count" in text for text in found)
    assert any("profiler" in text for text in found)
    known = frames.runs({"run_id": "a", "cpu_count": 2, "profiler": False}).iloc[0]
    assert not any("cpu_count" in text or "profiler" in text for text in unchecked(known, history))
