"""What is asked of NVML, and what its answers mean. Where no GPU is, the calls are what can be checked."""

from types import SimpleNamespace

import pynvml
import pytest

from training.worker.gpu_telemetry import GpuTelemetry


@pytest.fixture
def driver(monkeypatch):
    """A driver whose answers a test may change: one GPU, busy, with the run's process 11 on it."""
    answers = SimpleNamespace(use=50, pids=[11], reasons=0)

    def rates(handle):
        if answers.use is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)  # as for a MIG slice
        return SimpleNamespace(gpu=answers.use)

    used = {("index", 5): 2_000_000, ("uuid", "GPU-abc"): 3_000_000}
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: ("index", index))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: ("uuid", uuid))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(used=used[handle]))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", rates)
    monkeypatch.setattr(
        pynvml,
        "nvmlDeviceGetComputeRunningProcesses",
        lambda handle: [SimpleNamespace(pid=pid) for pid in answers.pids],
    )
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", lambda handle: answers.reasons)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetClockInfo", lambda handle, kind: 1980 if kind == pynvml.NVML_CLOCK_SM else 0
    )
    return answers


def test_gpus_are_asked_for_by_index_or_uuid(driver, caplog):
    driver.use = None
    telemetry = GpuTelemetry([5, "GPU-abc"])
    expected = {
        "system/gpu_0_memory_usage_megabytes": 2.0,
        "system/gpu_0_other_processes": 0.0,
        "system/gpu_0_throttled": 0.0,
        "system/gpu_1_memory_usage_megabytes": 3.0,
        "system/gpu_1_other_processes": 0.0,
        "system/gpu_1_throttled": 0.0,
    }
    assert telemetry.sample({11}) == telemetry.sample({11}) == expected
    assert caplog.text.count("gpu_0_utilization_percentage") == 1


@pytest.mark.parametrize(
    ("pids", "others"),
    [([11], 0), ([11, 12, 13], 1), ([], 0), ([900], 0), ([900, 901, 902], 2)],
    ids=["its own", "one more", "none yet", "its own in another namespace", "two more in another namespace"],
)
def test_other_processes(driver, pids, others):
    driver.pids = pids
    assert GpuTelemetry([5]).sample({11, 12})["system/gpu_0_other_processes"] == others


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [
        (pynvml.nvmlClocksEventReasonGpuIdle, 0),
        (pynvml.nvmlClocksEventReasonApplicationsClocksSetting, 0),
        (pynvml.nvmlClocksEventReasonSwPowerCap, 1),
        (pynvml.nvmlClocksEventReasonSwThermalSlowdown, 1),
        (pynvml.nvmlClocksEventReasonHwThermalSlowdown, 1),
        (pynvml.nvmlClocksEventReasonHwSlowdown | pynvml.nvmlClocksEventReasonGpuIdle, 1),
        (pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown, 1),
    ],
)
def test_throttling(driver, reasons, throttled):
    driver.reasons = reasons
    assert GpuTelemetry([5]).sample({11})["system/gpu_0_throttled"] == throttled


def test_the_clock_counts_only_while_the_gpu_works(driver):
    telemetry = GpuTelemetry([5])
    assert telemetry.sample({11})["system/gpu_0_sm_clock_mhz"] == 1980
    driver.use = 0
    assert "system/gpu_0_sm_clock_mhz" not in telemetry.sample({11})


@pytest.mark.gpu
def test_a_real_gpu_is_sampled():
    values = GpuTelemetry([0]).sample(set())
    assert 0 <= values["system/gpu_0_utilization_percentage"] <= 100
    assert values["system/gpu_0_memory_usage_megabytes"] > 0
    assert values["system/gpu_0_throttled"] in (0, 1)
    assert values["system/gpu_0_other_processes"] >= 0
