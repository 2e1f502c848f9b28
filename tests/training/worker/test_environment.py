"""The environment of a run as tags and in full, read in a process that has TensorFlow."""

import json
import sys

import pytest

from tests.support.fresh_process import run_python

SCRIPT = """
import gc, json, os, sys, time
from training.worker import environment
environment.describe()
gc.enable()  # it is off while TensorFlow is imported
times = []
for _ in range(5):
    began = time.process_time()
    tags = environment.describe()
    times.append(time.process_time() - began)
began = time.process_time()
full = environment.full()
full_seconds = time.process_time() - began

from training import hardware
gpus = [hardware.Gpu(i, f"GPU-u{i}", "NVIDIA H100", 80000, 79000, "9.0") for i in range(8)]
hardware.gpus = lambda: hardware.Gpus(tuple(gpus), "555.42", "12.5")
environment._visible_ordinals = lambda: [0, 1]
os.environ["CUDA_VISIBLE_DEVICES"] = "6,5"
with_gpus = environment.describe()

import tensorflow as tf
profiler = [environment.profiler_is_on()]
tf.profiler.experimental.start(PROFILE)
profiler.append(environment.profiler_is_on())
tf.profiler.experimental.stop(save=False)
profiler.append(environment.profiler_is_on())
print(json.dumps({
    "tags": tags, "full": full, "seconds": min(times), "full_seconds": full_seconds, "with_gpus": with_gpus,
    "profiler": profiler
}))
"""


@pytest.fixture(scope="module")
def described(tmp_path_factory) -> dict:
    secrets = {"TF_VAR_password": "secret", "MLFLOW_TRACKING_TOKEN": "secret"}
    script = f"PROFILE = {str(tmp_path_factory.mktemp('profile'))!r}\n{SCRIPT}"
    return run_python(script, {"TF_CPP_MIN_LOG_LEVEL": "0", **secrets})


@pytest.mark.slow
def test_the_profiler_is_seen_while_it_runs(described):
    assert described["profiler"] == [False, True, False]


@pytest.mark.slow
class TestDescribe:
    def test_versions_processor_and_host_are_tags(self, described):
        from importlib.metadata import version

        tags = described["tags"]
        assert tags["env.tensorflow"] == version("tensorflow")
        assert tags["env.keras"] == version("keras")
        assert tags["env.numpy"] == version("numpy")
        assert tags["env.python"] == sys.version.split()[0]
        assert int(tags["env.cpu_count"]) >= 1
        assert tags["env.cpu_model"]
        assert tags["env.host"]
        assert all(isinstance(value, str) and value for value in tags.values())

    def test_a_process_that_sees_no_gpu_has_no_gpu_tags(self, described):
        assert not {"env.gpu_model", "env.gpu_ids", "env.driver"} & described["tags"].keys()
        assert described["full"]["gpus"] == []

    def test_full_is_json_with_build_devices_and_packages(self, described):
        full = described["full"]
        assert full["tags"] == described["tags"]
        assert full["tensorflow"]["build"]["is_cuda_build"] in (True, False)
        assert full["tensorflow"]["logical_devices"] == ["/device:CPU:0"]
        assert full["packages"]["mlflow"]
        assert full["cpu"]["usable"] <= full["cpu"]["of_host"]

    def test_no_secret_is_recorded(self, described):
        assert described["full"]["variables"]["TF_CPP_MIN_LOG_LEVEL"] == "0"
        assert "secret" not in json.dumps(described["full"])

    def test_it_takes_little_time(self, described):
        assert described["seconds"] < 0.15
        assert described["full_seconds"] < 1.0

    def test_devices_are_mapped_to_what_was_chosen(self, described):
        """D8: CUDA_VISIBLE_DEVICES=6,5 appears to TensorFlow as GPU:0 and GPU:1."""
        tags = described["with_gpus"]
        assert tags["env.gpu_ids"] == "GPU:0 = physical 6 (GPU-u6)\nGPU:1 = physical 5 (GPU-u5)"
        assert tags["env.gpu_model"] == "NVIDIA H100"
        assert tags["env.driver"] == "555.42"
