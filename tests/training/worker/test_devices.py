"""Every device field of a spec reaches TensorFlow. Where no GPU is, the call that would set it up is asserted."""

import pytest

from tests.support.fresh_process import run_python

pytestmark = pytest.mark.slow


def configured(fields: dict, report: str, before: str = "") -> object:
    """Configures devices for a spec in a fresh process and evaluates `report` there."""
    return run_python(
        f"""
import json
import keras, tensorflow as tf
from tensorflow.python.framework import config as framework_config
from training.spec import RunSpec
from training.worker import devices
{before}
spec = RunSpec.from_dict({fields!r})
devices.configure(spec, 2)
print(json.dumps({report}))
"""
    )


FAKE_GPUS = """
class Gpu:
    def __init__(self, index):
        self.name, self.device_type = f"/physical_device:GPU:{index}", "GPU"
calls = []
fakes = [Gpu(0), Gpu(1), Gpu(2)]
tf.config.list_physical_devices = lambda kind=None: fakes
tf.config.set_visible_devices = lambda devices, kind: calls.append(["visible", [d.name[-1] for d in devices], kind])
tf.config.experimental.set_memory_growth = lambda gpu, on: calls.append(["growth", gpu.name[-1], on])
tf.config.set_logical_device_configuration = lambda gpu, parts: calls.append(
    ["logical", gpu.name[-1], [part.memory_limit for part in parts]]
)
"""


def test_threads_simulated_devices_determinism_and_precision_of_a_cpu_run():
    found = configured(
        {"logical_devices": 3, "cpu_threads": 1, "deterministic": True, "precision": "mixed_bfloat16"},
        """{
            "intra": tf.config.threading.get_intra_op_parallelism_threads(),
            "inter": tf.config.threading.get_inter_op_parallelism_threads(),
            "deterministic": framework_config.is_op_determinism_enabled(),
            "policy": keras.config.dtype_policy().name,
            "visible": [d.device_type for d in tf.config.get_visible_devices()],
            "seen": devices.report(spec).seen,
        }""",
    )
    assert found == {
        "intra": 1,
        "inter": 1,
        "deterministic": True,
        "policy": "mixed_bfloat16",
        "visible": ["CPU"],
        "seen": ["CPU:0", "CPU:1", "CPU:2"],
    }


def test_threads_default_to_the_cores_of_the_worker():
    assert configured({}, "tf.config.threading.get_intra_op_parallelism_threads()") == 2


def test_memory_growth_is_set_on_every_visible_gpu_and_only_those_are_visible():
    calls = configured(
        {"device": "gpu", "strategy": "mirrored", "replicas": 2, "memory_growth": True}, "calls", FAKE_GPUS
    )
    assert calls == [["visible", ["0", "1"], "GPU"], ["growth", "0", True], ["growth", "1", True]]


def test_a_memory_limit_is_set_on_every_visible_gpu():
    calls = configured(
        {"device": "gpu", "strategy": "mirrored", "replicas": 2, "memory_limit_mib": 1024}, "calls", FAKE_GPUS
    )
    assert calls == [["visible", ["0", "1"], "GPU"], ["logical", "0", [1024]], ["logical", "1", [1024]]]


def test_simulated_gpus_are_slices_of_one():
    calls = configured(
        {
            "device": "gpu",
            "strategy": "mirrored",
            "replicas": 2,
            "logical_devices": 2,
            "memory_limit_mib": 512,
        },
        "calls",
        FAKE_GPUS,
    )
    assert calls == [["visible", ["0"], "GPU"], ["logical", "0", [512, 512]]]


def test_a_cpu_run_hides_every_gpu():
    calls = configured({}, "calls", FAKE_GPUS)
    assert calls == [["visible", [], "GPU"]]


def test_fewer_gpus_than_asked_is_refused_before_anything_is_built():
    message = run_python(
        """
import json
from training.spec import RunSpec
from training.worker import devices
try:
    devices.configure(RunSpec(device="gpu", strategy="mirrored", replicas=2), 2)
except devices.DeviceError as error:
    print(json.dumps(str(error)))
"""
    )
    assert message == "asked 2 GPUs, TensorFlow sees 0"
