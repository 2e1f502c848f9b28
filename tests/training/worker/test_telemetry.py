"""System metrics are of this run's own processes and GPUs."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from training.names import Metric
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.telemetry import Sampler, run_gpus


@pytest.fixture
def busy():
    """A process that keeps one core busy and holds 120 MB, as the child of another that waits for it."""
    work = "import time; big = bytearray(120_000_000); print('up', flush=True)\nwhile True: pass"
    wait = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    process = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_descendants_are_counted_and_normalised(busy):
    (worker,) = psutil.Process(busy.pid).children()
    one, four = Sampler(lambda: [busy.pid], cpus=1), Sampler(lambda: [busy.pid], cpus=4)
    one.sample(), four.sample()
    before, began = worker.cpu_times().user, time.monotonic()
    time.sleep(2.0)
    first, second = one.sample(), four.sample()
    expected = 100 * (worker.cpu_times().user - before) / (time.monotonic() - began)
    assert first[Metric.SYSTEM_CPU] == pytest.approx(expected, rel=0.3)
    assert second[Metric.SYSTEM_CPU] == pytest.approx(expected / 4, rel=0.3)
    assert 120 < first[Metric.SYSTEM_PEAK_MEMORY] < 200, "the largest process, not the sum"
    assert first[Metric.SYSTEM_MEMORY] > first[Metric.SYSTEM_PEAK_MEMORY], "the sum, not the largest"
    assert set(first) == {Metric.SYSTEM_CPU, Metric.SYSTEM_MEMORY, Metric.SYSTEM_PEAK_MEMORY}


def test_nothing_left_to_sample():
    process = subprocess.Popen(["true"])
    process.wait()
    assert Sampler(lambda: [process.pid]).sample() == {}


@pytest.mark.parametrize(
    ("fields", "gpu_ids", "environment", "expected"),
    [
        ({}, [1], {"CUDA_VISIBLE_DEVICES": "1"}, []),
        ({"device": "gpu"}, [1], {"CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"device": "gpu"}, None, {"CUDA_VISIBLE_DEVICES": "1,GPU-abc"}, [1, "GPU-abc"]),
        ({"device": "gpu", "strategy": "mirrored", "replicas": 2}, None, {}, [0, 1]),
        ({"device": "gpu"}, None, {"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_gpus_of_the_run(fields, gpu_ids, environment, expected):
    assert run_gpus(RunSpec(**fields), Launch("run", "", "", gpu_ids=gpu_ids), environment) == expected


def test_gpu_that_cannot_be_read_is_left_out(caplog):
    assert Sampler(list, ["GPU-00000000-0000-0000-0000-000000000000"]).sample() == {}
    assert "GPU" in caplog.text


def test_gpus_are_asked_for_by_index_or_uuid(monkeypatch):
    """Where no GPU is, the calls to NVML are what can be checked."""

    def no_utilization(handle):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)  # as for a MIG slice

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: ("index", index))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: ("uuid", uuid))
    used = {("index", 5): 2_000_000, ("uuid", "GPU-abc"): 3_000_000}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(used=used[handle]))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", no_utilization)
    expected = {"system/gpu_0_memory_usage_megabytes": 2.0, "system/gpu_1_memory_usage_megabytes": 3.0}
    assert Sampler(list, [5, "GPU-abc"]).sample() == expected


@pytest.mark.gpu
def test_gpu_is_sampled():
    values = Sampler(list, [0]).sample()
    assert 0 <= values["system/gpu_0_utilization_percentage"] <= 100
    assert values["system/gpu_0_memory_usage_megabytes"] > 0
