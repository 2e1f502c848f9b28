"""The doctor on TensorFlow, processors and GPUs: judgements on machines that are not here, then this one."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.doctor import Level, devices
from experiments.settings import Settings
from training.hardware import Gpu, Gpus

BUILD: dict[str, Any] = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}
H100 = Gpu(0, "GPU-a", "NVIDIA H100", 81_559, 80_000, "9.0")
A100 = Gpu(1, "GPU-b", "NVIDIA A100", 40_960, 40_000, "8.0")
DRIVER = Gpus((H100, A100), "555.42", "12.5")
NO_DRIVER = Gpus(error="NVML Shared Library Not Found")
REASON = "Cannot dlopen some GPU libraries."


def probed(*gpus: Gpu, reasons: tuple[str, ...] = (), build: dict | None = None) -> dict:
    seen = [
        {"name": f"/physical_device:GPU:{place}", "model": gpu.name, "compute_capability": gpu.compute_capability}
        for place, gpu in enumerate(gpus)
    ]
    return {
        "error": "",
        "tensorflow": "2.21.0",
        "keras": "3.15.1",
        "build": build or BUILD,
        "gpus": seen,
        "reasons": list(reasons),
    }


def judge(driver, shown, probe, missing=(), visible=None, signs=()):
    found = list(devices.gpu_findings(driver, shown, probe, missing, visible, signs))
    return found, [each for each in found if each.level is not Level.OK]


@pytest.mark.parametrize(
    ("capability", "how"),
    [
        ("5.2", "none"),
        ("6.1", "native"),
        ("7.5", "native"),
        ("8.0", "native"),
        ("8.6", "native"),
        ("8.9", "native"),
        ("9.0", "ptx"),
        ("12.0", "ptx"),
    ],
)
def test_compute_capabilities_follow_cudas_rules(capability, how):
    assert devices.support(capability, BUILD["cuda_compute_capabilities"]) == how


def test_machine_code_of_one_architecture_fits_that_one_only():
    assert devices.support("9.0", ["sm_90a"]) == "native"
    assert devices.support("9.2", ["sm_90a"]) == "none"
    assert devices.support("12.0", ["sm_120"]) == "native"
    assert devices.support("8.0", ["sm_86"]) == "none"


class TestGpus:
    def test_no_gpu_is_no_fault_and_has_a_reason(self):
        found, bad = judge(NO_DRIVER, [], probed(reasons=("Could not find cuda drivers",)))
        assert bad == []
        assert "Could not find cuda drivers" in found[0].detail

    def test_each_gpu_is_told_with_driver_and_memory(self):
        found, bad = judge(DRIVER, [A100], probed(A100), visible="1")
        assert found[0].title == "GPU 0: NVIDIA H100, 81,559 MiB (80,000 free), compute capability 9.0"
        assert "driver 555.42" in found[0].detail
        assert [each.title for each in bad] == ["CUDA_VISIBLE_DEVICES=1 hides 1 of 2 GPUs"]

    def test_missing_cuda_wheels_name_the_command(self):
        _, bad = judge(DRIVER, DRIVER.found, probed(reasons=(REASON,)), missing=["nvidia-cudnn-cu12"])
        assert [each.title for each in bad] == ["TensorFlow sees 0 of 2 GPUs"]
        assert "pip install 'tensorflow[and-cuda]'" in bad[0].remedy
        assert REASON in bad[0].detail

    def test_an_old_driver_is_named(self):
        old = Gpus((A100,), "470.82", "11.4")
        _, bad = judge(old, [A100], probed(reasons=(REASON,)), missing=["nvidia-cudnn-cu12"])
        assert bad[0].remedy.startswith("update the NVIDIA driver: 470.82 runs CUDA up to 11.4")

    def test_a_build_without_cuda_is_named(self):
        _, bad = judge(DRIVER, DRIVER.found, probed(build={"is_cuda_build": False}))
        assert "built without CUDA" in bad[0].remedy

    def test_libraries_that_are_there_and_do_not_work_point_to_tensorflows_reason(self):
        _, bad = judge(DRIVER, DRIVER.found, probed(H100, reasons=(REASON,)))
        assert bad[0].title == "TensorFlow sees 1 of 2 GPUs"
        assert "TensorFlow's own reason" in bad[0].remedy

    def test_a_gpu_that_needs_compiling_is_a_warning(self):
        """A9: the first run on it may take half an hour."""
        _, bad = judge(DRIVER, DRIVER.found, probed(H100, A100))
        assert [(each.level, each.title[:28]) for each in bad] == [(Level.WARNING, "GPU:0 has compute capability")]
        assert "CUDA_CACHE_MAXSIZE" in bad[0].remedy

    def test_a_gpu_that_is_too_old_is_a_problem(self):
        old = Gpu(0, "GPU-c", "GTX 980", 4_096, 4_000, "5.2")
        _, bad = judge(Gpus((old,), "555.42", "12.5"), [old], probed(old))
        assert [each.level for each in bad] == [Level.PROBLEM]

    def test_a_driver_that_does_not_answer_is_a_problem(self, tmp_path):
        found, bad = judge(Gpus(error="Driver/library version mismatch"), [], probed(), signs=[tmp_path])
        assert found == bad
        assert bad[0].detail == "Driver/library version mismatch"

    def test_a_driver_without_gpus_says_so(self):
        found, bad = judge(Gpus(driver="555.42", cuda="12.5"), [], probed())
        assert bad == []
        assert found[0].title.startswith("the NVIDIA driver knows no GPU")


def test_a_container_is_offered_its_own_cores():
    """F13: 2 of 192."""
    found = devices.processor_finding(2, 192, "AMD EPYC")
    assert (found.level, found.title) == (Level.OK, "2 of the host's 192 processor cores")
    assert "runs are offered 2" in found.detail
    assert devices.processor_finding(8, 8, "x").title == "8 processor cores"


def test_tensorflow_is_told_with_what_it_was_built_with():
    found = devices.tensorflow_finding(probed())
    assert found.title == "TensorFlow 2.21.0"
    for fact in ("CUDA 12.5.1", "cuDNN 9", "sm_60, sm_70, sm_80, sm_89, compute_90"):
        assert fact in found.detail
    broken = devices.tensorflow_finding({"error": "ImportError: libfoo.so", "reasons": []})
    assert (broken.level, broken.detail) == (Level.PROBLEM, "ImportError: libfoo.so")


class TestProbe:
    """Asking TensorFlow, with an interpreter that answers at once in its place."""

    @pytest.fixture
    def asked(self, tmp_path) -> Path:
        """Grows by a line with every question."""
        return tmp_path / "asked"

    def settings(self, tmp_path: Path, asked: Path, answer: str, code: int = 0) -> Settings:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\necho asked >> {asked}\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
        python.chmod(0o755)
        return Settings(tmp_path / "home", "sqlite:////nowhere.db", python=str(python))

    def test_a_good_answer_is_remembered_until_something_changes(self, tmp_path, asked, monkeypatch):
        settings = self.settings(tmp_path, asked, json.dumps(probed(H100)))
        driver = Gpus((H100,), "555.42", "12.5")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for _ in range(2):
            assert devices.probe(settings, driver)["tensorflow"] == "2.21.0"
        assert asked.read_text().count("asked") == 1
        devices.probe(settings, Gpus((H100,), "560.01", "12.6"))
        assert asked.read_text().count("asked") == 2
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        devices.probe(settings, driver)
        assert asked.read_text().count("asked") == 3

    def test_an_answer_that_misses_gpus_is_asked_for_again(self, tmp_path, asked, monkeypatch):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        settings = self.settings(tmp_path, asked, json.dumps(probed()))
        for _ in range(2):
            devices.probe(settings, DRIVER)
        assert asked.read_text().count("asked") == 2

    def test_what_was_remembered_may_be_spoilt(self, tmp_path, asked):
        settings = self.settings(tmp_path, asked, json.dumps(probed()))
        file = settings.home / "cache/tensorflow-probe.json"
        file.parent.mkdir(parents=True)
        for spoilt in ("", "{", "[]", '{"key": 1, "found": 2}'):
            file.write_text(spoilt)
            assert devices.probe(settings, NO_DRIVER)["tensorflow"] == "2.21.0"

    def test_an_interpreter_that_dies_or_is_missing_is_told(self, tmp_path, asked):
        settings = self.settings(tmp_path, asked, "", code=3)
        assert devices.probe(settings, NO_DRIVER)["error"].startswith("its process ended with exit code 3")
        missing = Settings(tmp_path, "sqlite:////nowhere.db", python=str(tmp_path / "none"))
        assert "cannot be started" in devices.probe(missing, NO_DRIVER)["error"]

    def test_a_data_folder_that_cannot_be_written_does_not_matter(self, tmp_path, asked):
        settings = self.settings(tmp_path, asked, json.dumps(probed()))
        settings.home.write_text("a file")
        assert devices.probe(settings, NO_DRIVER)["tensorflow"] == "2.21.0"
