"""Every device field of a spec reaches TensorFlow. Where no GPU is, the call that would set it up is asserted."""

import pytest

from tests.support.forked import run_python_forked

pytestmark = pytest.mark.slow


def configured(fields: dict, report: str, before: str = "") -> object:
    """Configures devices for a spec in a process of its own and evaluates `report` there."""
    return run_python_forked(
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
    made = run_python_forked(
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


def test_simulated_gpus_share_the_memory_of_the_gpu_that_is_shown():
    """The driver counts all GPUs of a machine, and TensorFlow those that CUDA shows the process."""
    told = run_python_forked(
        f"""
import json, os
import tensorflow as tf
from training import hardware
from training.spec import RunSpec
from training.worker import devices
{FAKE_GPUS}
sizes = (80_000, 24_000)
found = tuple(hardware.Gpu(i, f"GPU-{{i}}", "A GPU", size, size, "9.0") for i, size in enumerate(sizes))
hardware.gpus = lambda: hardware.Gpus(found, "555.42", "12.5")
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
spec = RunSpec.from_dict({dict(TWO_GPUS, logical_devices=2)!r})
devices.configure(spec, 2)
os.environ["CUDA_VISIBLE_DEVICES"] = "MIG-1"
try:
    devices.configure(spec, 2)
except devices.DeviceError as error:
    calls.append(str(error))
print(json.dumps(calls))
"""
    )
    assert ["logical", "0", [10_800, 10_800]] in told
    assert "set memory_limit_mib" in told[-1]


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict:
    """What one process says of one thing after the other."""
    return run_python_forked(
        f"""
import json, time
from types import SimpleNamespace
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker import process
from training.worker.journal import JournalReader
said = {{}}

def error_of(call):
    try:
        call()
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"

# A data set that loads slowly, for a GPU that is not there.
process._load_data = lambda spec: time.sleep(600)
launch = Launch("run", "", {str(tmp_path_factory.mktemp("run"))!r})
folder = RunFolder.create(RunSpec(device="gpu", log_device_placement=False), launch)
process.run_worker(folder, 0, time.time())
said["slow data"] = JournalReader(folder.worker(0).journal).new_events()[-1]["reason"]

import tensorflow as tf
from training.worker import devices, strategies, timing
from training.worker.loop import Loop
two_gpus = RunSpec(device="gpu", strategy="mirrored", replicas=2)
said["two GPUs"] = error_of(lambda: devices.configure(two_gpus, 2))
devices.configure(RunSpec(log_device_placement=False), 2)
two_workers = RunSpec(strategy="multi_worker_mirrored", workers=2)
said["no TF_CONFIG"] = error_of(lambda: strategies.create(two_workers))
said["too few devices"] = error_of(lambda: devices.report(RunSpec(strategy="mirrored", replicas=4)))
mirrored = strategies.create(RunSpec(strategy="mirrored"))
said["mirrored"] = [mirrored.num_replicas_in_sync, list(mirrored.extended.worker_devices)]

try:
    tf.function(lambda index: tf.gather(tf.range(3), index))(tf.constant([7]))
except tf.errors.InvalidArgumentError as error:
    said["graph"] = process.reason_of(error)

said["GPU sync"] = timing.synchronizer("gpu") is tf.test.experimental.sync_devices
loop = Loop.__new__(Loop)
loop._steps = SimpleNamespace(begin=lambda epoch: None, run=lambda start, count: (0.0, 0.0))
loop._synchronize = lambda: time.sleep(0.2)
loop._done, loop.plan = 0, SimpleNamespace(global_batch=8)
said["window"] = loop._window(0, 0, 4).seconds

compiled = []
for step, clustered in ((lambda: 1, ""), (tf.function(lambda: 1, jit_compile=True), ""), (lambda: 1, "autoclustering")):
    tf.config.optimizer.set_jit(clustered)
    loop._train_step = step
    compiled.append(loop.jit_compiled)
said["compiled"] = compiled
print(json.dumps(said))
"""
    )


def test_fewer_gpus_than_asked_is_refused_before_anything_is_built(said):
    assert said["two GPUs"] == "DeviceError: asked 2 GPUs, TensorFlow sees 0"


def test_a_gpu_that_is_not_there_is_said_at_once_while_data_still_loads(said):
    assert said["slow data"].startswith("asked 1 GPU, TensorFlow sees 0")


def test_what_tensorflow_made_is_checked_against_what_was_asked(said):
    assert said["no TF_CONFIG"].startswith("StrategyError: asked 2 replicas, TensorFlow has 1 in sync: is TF_CONFIG")
    assert said["too few devices"] == "DeviceError: asked 4 CPU devices, TensorFlow sees 1"
    assert said["mirrored"] == [1, ["/job:localhost/replica:0/task:0/device:CPU:0"]]


def test_a_windows_time_ends_when_the_device_has_finished(said):
    assert said["GPU sync"]
    assert 0.2 <= said["window"] < 2.0


def test_the_reason_of_an_error_in_a_graph_is_its_cause(said):
    assert said["graph"] == "InvalidArgumentError: indices[0] = 7 is not in [0, 3)"


def test_whether_xla_compiles_is_read_from_what_was_made(said):
    assert said["compiled"] == [False, True, True]
