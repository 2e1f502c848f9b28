"""System metrics are of this run's own processes and GPUs."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from training.names import Metric
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.gpu_telemetry import GpuTelemetry
from training.worker.telemetry import Sampler, run_gpus

OPTIONAL = {Metric.CPU_THROTTLED}  # not every machine counts it


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
    one, four = Sampler(lambda: {busy.pid: 0}, cpus=1), Sampler(lambda: {busy.pid: 0}, cpus=4)
    one.sample(), four.sample()
    before, began = worker.cpu_times().user, time.monotonic()
    time.sleep(2.0)
    first, second = one.sample(), four.sample()
    expected = 100 * (worker.cpu_times().user - before) / (time.monotonic() - began)
    assert first[Metric.SYSTEM_CPU] == pytest.approx(expected, rel=0.3)
    assert second[Metric.SYSTEM_CPU] == pytest.approx(expected / 4, rel=0.3)
    assert 120 < first[Metric.SYSTEM_PEAK_MEMORY] < 200, "the largest process, not the sum"
    assert first[Metric.SYSTEM_MEMORY] > first[Metric.SYSTEM_PEAK_MEMORY], "the sum, not the largest"
    assert set(first) - OPTIONAL == {
        Metric.SYSTEM_CPU,
        Metric.SYSTEM_MEMORY,
        Metric.SYSTEM_PEAK_MEMORY,
        Metric.OTHERS_CPU,
        Metric.RUNNABLE_THREADS,
        Metric.CPU_STEAL,
    }
    assert first[Metric.RUNNABLE_THREADS] > 0


def test_only_what_is_not_the_runs_counts_as_others(busy):
    """The same busy process is the run's for one sampler, and somebody else's for the other."""
    idle = subprocess.Popen(["sleep", "60"])
    ours, theirs = Sampler(lambda: {busy.pid: 0}), Sampler(lambda: {idle.pid: 0})
    (worker,) = psutil.Process(busy.pid).children()
    ours.sample(), theirs.sample()
    before, began = worker.cpu_times().user, time.monotonic()
    time.sleep(2.0)
    counted, not_counted = theirs.sample()[Metric.OTHERS_CPU], ours.sample()[Metric.OTHERS_CPU]
    idle.kill()
    idle.wait()
    used = 100 * (worker.cpu_times().user - before) / (time.monotonic() - began) / (os.cpu_count() or 1)
    assert counted - not_counted == pytest.approx(used, rel=0.3)


def test_what_a_child_used_is_kept_when_it_ends():
    work = "import time; began = time.process_time()\nwhile time.process_time() < began + 0.7: pass"
    parent = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {work!r}]); print(flush=True)"
    process = subprocess.Popen([sys.executable, "-c", f"{parent}; time.sleep(60)"], stdout=subprocess.PIPE)
    sampler = Sampler(lambda: {process.pid: 0}, clock=iter([0.0, 0.0, 1.0, 1.0]).__next__)
    assert process.stdout is not None
    process.stdout.readline()
    values = sampler.sample()
    process.kill()
    process.communicate()
    assert 70 <= values[Metric.SYSTEM_CPU] < 150


def test_each_of_several_workers_by_its_own(busy):
    idle = subprocess.Popen(["sleep", "60"])
    both = Sampler(lambda: {idle.pid: 0, busy.pid: 1}, cpus=4, workers=2)
    alone = Sampler(lambda: {busy.pid: 0}, cpus=4)
    both.sample(), alone.sample()
    time.sleep(1.0)
    values = both.sample()
    assert not [name for name in alone.sample() if "worker" in name]
    idle.kill()
    idle.wait()
    assert values["system/worker_0_cpu_percentage"] < 5
    # Each has two of the four CPUs.
    assert values["system/worker_1_cpu_percentage"] == pytest.approx(2 * values[Metric.SYSTEM_CPU], rel=0.3)
    assert values["system/worker_1_cpu_percentage"] > 5
    assert 120 < values["system/worker_1_memory_megabytes"] < 250
    assert values["system/worker_0_memory_megabytes"] < 60


def test_nothing_left_to_sample():
    process = subprocess.Popen(["true"])
    process.wait()
    assert Sampler(lambda: {process.pid: 0}, workers=2).sample() == {}


@pytest.mark.parametrize(
    ("fields", "gpu_ids", "environment", "expected"),
    [
        ({}, [1], {"CUDA_VISIBLE_DEVICES": "1"}, []),
        ({"device": "gpu"}, [1], {"CUDA_VISIBLE_DEVICES": "0"}, [1]),
        ({"device": "gpu"}, None, {"CUDA_VISIBLE_DEVICES": "1,GPU-abc"}, [1, "GPU-abc"]),
        ({"device": "gpu", "strategy": "mirrored", "replicas": 2}, None, {}, [0, 1]),
        ({"device": "gpu", "strategy": "multi_worker_mirrored", "workers": 2}, None, {}, []),
        ({"device": "gpu"}, None, {"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_gpus_of_the_run(fields, gpu_ids, environment, expected):
    assert run_gpus(RunSpec(**fields), Launch("run", "", "", gpu_ids=gpu_ids), environment) == expected


def test_gpu_that_cannot_be_read_is_left_out(caplog):
    assert Sampler(dict, ["GPU-00000000-0000-0000-0000-000000000000"]).sample() == {}
    assert "GPU" in caplog.text


def test_the_runs_own_processes_are_not_others_on_its_gpu(busy, monkeypatch):
    (worker,) = psutil.Process(busy.pid).children()
    monkeypatch.setattr(GpuTelemetry, "sample", lambda self, own: {str(pid): 1.0 for pid in own})
    values = Sampler(lambda: {busy.pid: 0}, [0]).sample()
    assert {name for name in values if name.isdigit()} == {str(busy.pid), str(worker.pid)}
