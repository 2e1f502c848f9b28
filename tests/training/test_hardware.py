"""Processors and GPUs: CUDA's rules, and a container's limits."""

import os

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import hardware
from training.hardware import Gpu

GPUS = [
    Gpu(index, f"GPU-{uuid}", "NVIDIA H100", 81_559, 80_000, "9.0") for index, uuid in enumerate(["aa1", "aa2", "b"])
]


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,7,1", [0]),
        ("0,0", []),
        ("GPU-b,GPU-aa1", [2, 0]),
        ("GPU-b,2", []),
        ("GPU-aa", []),
        ("1,GPU-aa", [1]),
        ("MIG-1", []),
        ("²", []),
        ("9" * 5000, []),
    ],
)
def test_visible_gpus_follow_cudas_rule(text, indices):
    environ = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert [gpu.index for gpu in hardware.visible(GPUS, environ)] == indices


@given(st.text(max_size=60))
def test_any_value_of_the_variable_gives_distinct_gpus(text):
    shown = hardware.visible(GPUS, {"CUDA_VISIBLE_DEVICES": text})
    assert len({gpu.index for gpu in shown}) == len(shown) <= len(GPUS)


def test_devices_are_mapped_to_what_was_chosen():
    """D8: CUDA_VISIBLE_DEVICES=2,0 appears to TensorFlow as GPU:0 and GPU:1."""
    shown = hardware.visible(GPUS, {"CUDA_VISIBLE_DEVICES": "2,0"})
    assert hardware.gpu_ids([0, 1], shown) == "GPU:0 = physical 2 (GPU-b)\nGPU:1 = physical 0 (GPU-aa1)"


def test_a_slice_is_shown_by_the_name_it_was_chosen_by():
    environ = {"CUDA_VISIBLE_DEVICES": "MIG-a, MIG-b"}
    assert hardware.gpu_ids([0, 1], [], environ) == "GPU:0 = MIG-a\nGPU:1 = MIG-b"
    assert hardware.gpu_ids([0], [], {}) == "GPU:0 = unknown"


def test_without_a_driver_the_reason_is_told(monkeypatch):
    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert hardware.gpus() == hardware.Gpus(error="NVML Shared Library Not Found")


def test_what_the_driver_answers_becomes_gpus(monkeypatch):
    class Memory:
        total, free = 81_559 << 20, 80_000 << 20

    answers = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlSystemGetDriverVersion": "555.42.02",
        "nvmlSystemGetCudaDriverVersion": 12050,
        "nvmlDeviceGetHandleByIndex": 0,
        "nvmlDeviceGetMemoryInfo": Memory,
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetUUID": "GPU-aa1",
        "nvmlDeviceGetName": "NVIDIA H100",
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, lambda *arguments, answer=answer: answer)
    assert hardware.gpus() == hardware.Gpus((GPUS[0],), "555.42.02", "12.5")
    assert GPUS[0].description == "GPU 0: NVIDIA H100, 81,559 MiB (80,000 free), compute capability 9.0"


@pytest.mark.gpu
def test_the_real_driver_answers():
    found = hardware.gpus()
    assert found.error == ""
    assert found.driver
    assert all(gpu.memory_mib >= gpu.free_mib > 0 for gpu in found.found)
    assert all(gpu.uuid.startswith("GPU-") for gpu in found.found)


@pytest.fixture
def cores(monkeypatch):
    """A host of 192 cores, all in the affinity mask."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(192)))


class TestUsableCpus:
    def test_a_quota_of_version_2_counts(self, cores, tmp_path):
        group = tmp_path / "cgroup"
        group.write_text("0::/docker/abc\n")
        (tmp_path / "docker/abc").mkdir(parents=True)
        (tmp_path / "docker/abc/cpu.max").write_text("200000 100000\n")
        assert hardware.usable_cpus(tmp_path, group) == 2

    def test_the_smallest_of_all_levels_counts(self, cores, tmp_path):
        group = tmp_path / "cgroup"
        group.write_text("0::/a/b\n")
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/cpu.max").write_text("350000 100000\n")
        (tmp_path / "a/b/cpu.max").write_text("max 100000\n")
        assert hardware.usable_cpus(tmp_path, group) == 3

    def test_a_quota_of_version_1_counts(self, cores, tmp_path):
        group = tmp_path / "cgroup"
        group.write_text("3:memory:/x\n1:cpu,cpuacct:/\n")
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text("400000\n")
        (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
        assert hardware.usable_cpus(tmp_path, group) == 4

    def test_inside_a_container_the_limit_stands_at_the_root(self, cores, tmp_path):
        group = tmp_path / "cgroup"
        group.write_text("0::/../outside\n")
        (tmp_path / "cpu.max").write_text("50000 100000\n")
        assert hardware.usable_cpus(tmp_path, group) == 1

    @pytest.mark.parametrize("limit", ["max 100000", "-1 100000", "0 100000", "1 0", "nonsense", ""])
    def test_no_limit_leaves_the_affinity_mask(self, cores, tmp_path, limit):
        (tmp_path / "cpu.max").write_text(limit)
        assert hardware.usable_cpus(tmp_path, tmp_path / "missing") == 192

    def test_here_it_is_at_most_the_hosts(self):
        assert 1 <= hardware.usable_cpus() <= (os.cpu_count() or 1)


def test_cpu_model_is_the_kernels_or_the_architecture(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC\n")
    assert hardware.cpu_model(info) == "AMD EPYC"
    info.write_text("processor\t: 0\nCPU implementer\t: 0x41\n")
    assert hardware.cpu_model(info) == hardware.cpu_model(tmp_path / "missing") != ""
