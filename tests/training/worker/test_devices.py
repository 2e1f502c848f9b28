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


TWO_GPUS = {"device": "gpu", "strategy": "mirrored", "replicas": 2}
CASES = {
    "growth on every visible GPU, and only those are visible": (
        {**TWO_GPUS, "memory_growth": True},
        [["visible", ["0", "1"], "GPU"], ["growth", "0", True], ["growth", "1", True]],
    ),
    "a limit on every visible GPU": (
        {**TWO_GPUS, "memory_limit_mib": 1024},
        [["visible", ["0", "1"], "GPU"], ["logical", "0", [1024]], ["logical", "1", [1024]]],
    ),
    "simulated GPUs are slices of one": (
        {**TWO_GPUS, "logical_devices": 2, "memory_limit_mib": 512},
        [["visible", ["0"], "GPU"], ["logical", "0", [512, 512]]],
    ),
    "a CPU run hides every GPU": ({}, [["visible", [], "GPU"]]),
}


def test_the_calls_that_set_gpus_up():
    """In one process for all cases: the fakes keep TensorFlow from fixing its devices."""
    made = run_python(
        f"""
import json
import tensorflow as tf
from training.spec import RunSpec
from training.worker import devices
{FAKE_GPUS}
made = {{}}
for case, fields in { ({case: fields for case, (fields, _) in CASES.items()})!r}.items():
    devices.configure(RunSpec.from_dict(fields), 2)
    made[case] = calls[:]
    calls.clear()
print(json.dumps(made))
"""
    )
    assert made == {case: calls for case, (_, calls) in CASES.items()}


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
