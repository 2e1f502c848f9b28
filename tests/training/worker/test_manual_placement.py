"""Manual placement in processes with two logical CPUs: where variables are, and what the placement log says."""

from pathlib import Path

import pandas as pd
import pytest

from tests.support.forked import run_python_forked
from training import catalog
from training.worker import placement

SCRIPT = """
from training.worker.placement import redirect_stderr
redirect_stderr(FOLDER + "/start.log")
import json
import keras
import tensorflow as tf
from training import catalog
from training.worker.manual_placement import place_layers

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.debugging.set_log_device_placement(True)


def place(variable):
    return variable.value.device.rpartition("device:")[2]


def train(workload, strategy):
    module = catalog.load(catalog.WORKLOADS[workload].path)
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = module.build_model((28, 28, 1), 10)
        module.compile_model(model, 0.001)
        model.optimizer.build(model.trainable_variables)
    batch = module.examples(tf.random.uniform((4, 28, 28, 1)), tf.zeros((4,), tf.int32))
    strategy.run(model.test_step, args=(batch,))
    model.reset_metrics()

    @tf.function
    def run_step():
        strategy.run(model.train_step, args=(batch,))

    run_step()
    return {
        "variables": {variable.path: place(variable) for variable in model.variables},
        "slots": {variable.path: place(variable) for variable in model.optimizer.variables},
        "loss": float(model.get_metrics_result()["loss"]),
    }


answers = {}
for name, workload, mapping, strategy in CASES:
    redirect_stderr(f"{FOLDER}/{name}.log")
    if mapping:
        place_layers(mapping)
    one = tf.distribute.OneDeviceStrategy("/CPU:0")
    answers[name] = train(workload, one if strategy == "one_device" else tf.distribute.get_strategy())
print(json.dumps(answers))
"""


def train(folder: Path, *cases: tuple[str, str, dict[str, str], str]) -> dict[str, tuple[dict, pd.DataFrame]]:
    """Trains one step for each case, all in one process. A mapping holds from its case on.

    Args:
        folder: for the logs.
        cases: name, workload, mapping and strategy of each.

    Returns:
        Name -> what it answered, and its placement table.
    """
    answers = run_python_forked(f"FOLDER, CASES = {str(folder)!r}, {cases!r}\n{SCRIPT}")
    return {
        name: (answers[name], placement.table(folder / f"{name}.log", catalog.WORKLOADS[workload].layers))
        for name, workload, _, _ in cases
    }


MAPPING = {"conv2d_1": "/CPU:1", "dense": "/CPU:1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, tuple[dict, pd.DataFrame]]:
    """The guide's CNN, as it is and with two layers sent to the second device."""
    return train(
        tmp_path_factory.mktemp("placed"),
        ("plain", "mnist_cnn", {}, "one_device"),
        ("placed", "mnist_cnn", MAPPING, "one_device"),
        ("without a strategy", "mnist_cnn", {}, "none"),
    )


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
@pytest.mark.parametrize("case", ["placed", "without a strategy"])
def test_named_layers_go_where_they_are_sent_and_the_others_stay(trained, case):
    check_places(*trained[case])


@pytest.mark.slow
def test_the_backward_pass_stays_on_the_strategys_device(trained):
    # tf.device covers the ops made inside it; TensorFlow makes the gradient's later.
    assert places(trained["placed"][1], "conv2d_1") == {"forward": {"CPU:1"}, "backward": {"CPU:0"}}


@pytest.mark.slow
def test_placing_changes_no_number(trained):
    plain, table = trained["plain"]
    assert trained["placed"][0]["loss"] == pytest.approx(plain["loss"], abs=1e-6)
    assert set(plain["variables"].values()) == {"CPU:0"}
    assert set(table["device"]) == {"CPU:0"}


@pytest.mark.slow
def test_a_named_part_takes_the_layers_inside_it_along(tmp_path):
    answer, table = train(tmp_path, ("vae", "vae", {"encoder": "/CPU:1"}, "one_device"))["vae"]
    variables = {path: device for path, device in answer["variables"].items() if path.startswith("vae/")}
    assert {device for path, device in variables.items() if "/encoder/" in path} == {"CPU:1"}
    assert {device for path, device in variables.items() if "/decoder/" in path} == {"CPU:0"}
    assert places(table, "encoder")["forward"] == {"CPU:1"}
