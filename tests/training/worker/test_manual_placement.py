"""Manual placement in fresh processes with two logical CPUs: where variables are, and what the placement log says."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from training import catalog
from training.worker import placement

CHECKOUT = Path(__file__).parents[3]

SCRIPT = """
import json, sys
from training.worker.placement import redirect_stderr
log, workload, mapping, strategy_name = sys.argv[1:]
redirect_stderr(log)
import keras
import tensorflow as tf
from training import catalog
from training.worker.manual_placement import place_layers

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.debugging.set_log_device_placement(True)
place_layers(json.loads(mapping))
module = catalog.load(catalog.WORKLOADS[workload].path)
keras.utils.set_random_seed(0)


def build():
    model = module.build_model((28, 28, 1), 10)
    module.compile_model(model, 0.001)
    model.optimizer.build(model.trainable_variables)
    return model


if strategy_name == "one_device":
    strategy = tf.distribute.OneDeviceStrategy("/CPU:0")
    with strategy.scope():
        model = build()
else:
    strategy = tf.distribute.get_strategy()
    model = build()
batch = module.examples(tf.random.uniform((4, 28, 28, 1)), tf.zeros((4,), tf.int32))
strategy.run(model.test_step, args=(batch,))
model.reset_metrics()


@tf.function
def run_step():
    strategy.run(model.train_step, args=(batch,))


run_step()
place = lambda variable: variable.value.device.rpartition("device:")[2]
print("ANSWER " + json.dumps({
    "variables": {variable.path: place(variable) for variable in model.variables},
    "slots": {variable.path: place(variable) for variable in model.optimizer.variables},
    "loss": float(model.get_metrics_result()["loss"]),
}))
"""


def train(
    folder: Path, workload: str, mapping: dict[str, str], strategy: str = "one_device"
) -> tuple[dict, pd.DataFrame]:
    """Trains one step in a process of its own. Returns what it printed and its placement table."""
    log = folder / "stderr.log"
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log), workload, json.dumps(mapping), strategy],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
    )
    assert answer.returncode == 0, log.read_text()[-3000:]
    line = next(line for line in answer.stdout.splitlines() if line.startswith("ANSWER "))
    return json.loads(line.removeprefix("ANSWER ")), placement.table(log, catalog.WORKLOADS[workload].layers)


MAPPING = {"conv2d_1": "/CPU:1", "dense": "/CPU:1"}


@pytest.fixture(scope="module")
def placed(tmp_path_factory) -> tuple[dict, pd.DataFrame]:
    """The guide's CNN with two layers sent to the second device."""
    return train(tmp_path_factory.mktemp("placed"), "mnist_cnn", MAPPING)


def places(table: pd.DataFrame, layer: str) -> dict[str, set[str]]:
    """The devices on which the compute ops of a layer are, those of the backward pass apart."""
    own = table[(table["role"] == "compute") & (table["layer"] == layer)]
    backward = own["name"].str.contains("gradient_tape/", regex=False)
    return {"forward": set(own["device"][~backward]), "backward": set(own["device"][backward])}


def check_places(answer: dict, table: pd.DataFrame) -> None:
    for path, device in answer["variables"].items():
        assert device == ("CPU:1" if path.split("/")[-2] in MAPPING else "CPU:0"), path
    for path, device in answer["slots"].items():
        named = "conv2d_1_" in path or ("_dense_" in path and "_dense_1_" not in path)
        assert device == ("CPU:1" if named else "CPU:0"), path
    forward = table[(table["layer"] != "") & ~table["name"].str.contains("gradient_tape/")]
    for layer, ops in forward.groupby("layer"):
        assert set(ops["device"]) == {"CPU:1" if layer in MAPPING else "CPU:0"}, layer
    assert {"conv2d", "conv2d_1", "conv2d_2", "dense", "dense_1"} <= set(forward["layer"])


@pytest.mark.slow
def test_named_layers_go_where_they_are_sent_and_the_others_stay(placed):
    check_places(*placed)


@pytest.mark.slow
def test_they_do_without_a_strategy_too(tmp_path):
    check_places(*train(tmp_path, "mnist_cnn", MAPPING, strategy="none"))


@pytest.mark.slow
def test_the_backward_pass_stays_on_the_strategys_device(placed):
    # tf.device covers the ops made inside it; TensorFlow makes the gradient's later.
    assert places(placed[1], "conv2d_1") == {"forward": {"CPU:1"}, "backward": {"CPU:0"}}


@pytest.mark.slow
def test_placing_changes_no_number(placed, tmp_path):
    plain, table = train(tmp_path, "mnist_cnn", {})
    assert placed[0]["loss"] == pytest.approx(plain["loss"], abs=1e-6)
    assert set(plain["variables"].values()) == {"CPU:0"}
    assert set(table["device"]) == {"CPU:0"}


@pytest.mark.slow
def test_a_named_part_takes_the_layers_inside_it_along(tmp_path):
    answer, table = train(tmp_path, "vae", {"encoder": "/CPU:1"})
    variables = {path: device for path, device in answer["variables"].items() if path.startswith("vae/")}
    assert {device for path, device in variables.items() if "/encoder/" in path} == {"CPU:1"}
    assert {device for path, device in variables.items() if "/decoder/" in path} == {"CPU:0"}
    assert places(table, "encoder")["forward"] == {"CPU:1"}
