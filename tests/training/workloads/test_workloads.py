"""Every workload of the catalogue: what the catalogue says of it, precision, XLA, and what its steps count."""

import typing

import pytest

from tests.support.fresh_process import run_python
from training import catalog

pytestmark = pytest.mark.slow

PRELUDE = """
import json, math
import keras
import numpy as np
import tensorflow as tf
from training import catalog
from training.datasets import synthetic

def made(name, shape=(28, 28, 1), classes=10, policy="float32", seed=3):
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(seed)
    workload = catalog.load(catalog.WORKLOADS[name].path)
    model = workload.build_model(shape, classes)
    workload.compile_model(model, 0.002)
    model.optimizer.build(model.trainable_variables)
    return workload, model

def batch(workload, shape, count, start=0):
    options = {"shape": "x".join(map(str, shape)), "examples": start + count, "validation_examples": 1}
    data = synthetic.load(options)
    features = tf.cast(data.train.features[start:], tf.float32) * data.scale
    return workload.examples(features, tf.constant(data.train.labels[start:]))

def logs(model):
    values = {name: float(value) for name, value in model.get_metrics_result().items()}
    model.reset_metrics()
    return values

small = {name: (max(w.smallest_side, 8), max(w.smallest_side, 8) + w.side_multiple, 3)
         for name, w in catalog.WORKLOADS.items()}
"""

FACTS = """
def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.get_weights(), other.get_weights()))

for name in catalog.WORKLOADS:
    workload, model = made(name)
    config = model.optimizer.get_config()
    report[name] = {
        "layers": [layer.name for layer in model.layers],
        "built": model.built,
        "parameters": model.count_params(),
        "jit_compile": model.jit_compile,
        "optimizer": type(model.optimizer).__name__,
        "learning_rate": config["learning_rate"],
        "same_seed": equal(model, made(name)[1]),
        "other_seed": equal(model, made(name, seed=4)[1]),
        "smallest": made(name, small[name], 3)[1](tf.zeros((2, *small[name]))).shape.as_list(),
    }
cnn = made("mnist_cnn")[1]
report["cnn_layers"] = [
    {key: value for key, value in layer.get_config().items() if key in
     ("filters", "kernel_size", "strides", "padding", "activation", "pool_size", "units")}
    for layer in cnn.layers]
report["cnn_loss"] = cnn.loss.get_config()
"""

STEPS = """
for name in catalog.WORKLOADS:
    shape = small[name]
    workload, model = made(name, shape)
    same = batch(workload, shape, 16)
    losses = [model.train_step(same) and logs(model) for _ in range(6)]
    state = [np.isfinite(value).all() for value in model.get_weights()]
    model.test_step(batch(workload, shape, 5))
    whole = logs(model)
    model.test_step(batch(workload, shape, 4))
    model.test_step(batch(workload, shape, 1, start=4))
    parts = logs(model)
    again = [model.test_step(batch(workload, shape, 5)) and logs(model) for _ in range(2)]
    report[name] = {"losses": losses, "finite": all(map(bool, state)), "whole": whole, "parts": parts,
                    "again": again}
workload, model = made("vae", (8, 8, 1))
images = batch(workload, (8, 8, 1), 6)
model.test_step(images)
before = logs(model)
model.test_step(images)
model.test_step(images[:0])
report["vae_empty"] = [before, logs(model)]
model.save(FOLDER + "/vae.keras")
loaded = keras.models.load_model(FOLDER + "/vae.keras")
report["vae_saved"] = float(np.abs(loaded(images) - model(images)).max())
report["vae_range"] = [float(tf.reduce_min(model(images))), float(tf.reduce_max(model(images)))]
"""

PRECISION = """
for name in catalog.WORKLOADS:
    for policy in ("float32", "mixed_bfloat16", "mixed_float16"):
        workload, model = made(name, small[name], policy=policy)
        examples = batch(workload, small[name], 16)
        losses = [model.train_step(examples) and logs(model)["loss"] for _ in range(5)]
        images = examples[0] if isinstance(examples, tuple) else examples
        report[name + "/" + policy] = {
            "losses": losses, "output": model(images).dtype.name,
            "compute": sorted({layer.compute_dtype for layer in model._flatten_layers()}),
            "variables": sorted({variable.dtype for variable in model.trainable_variables})}
"""

XLA = """
for name in catalog.WORKLOADS:
    workload, model = made(name, small[name])
    examples = batch(workload, small[name], 16)
    train = tf.function(model.train_step, jit_compile=True)
    report[name] = [train(examples) and logs(model)["loss"] for _ in range(5)]
"""


def run(*parts: str, folder: object = "") -> typing.Any:
    """Runs parts of the script in one fresh process; returns the report of each."""
    lines = [PRELUDE, f"FOLDER = {str(folder)!r}", "reports = []"]
    for part in parts:
        lines += ["report = {}", part, "reports.append(report)"]
    lines.append("print(json.dumps(reports))")
    return run_python("\n".join(lines), {"TF_CPP_MIN_LOG_LEVEL": "2"}, timeout=280)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> typing.Any:
    return run(FACTS, STEPS, PRECISION, XLA, folder=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def facts(reports: typing.Any) -> typing.Any:
    return reports[0]


@pytest.fixture(scope="module")
def steps(reports: typing.Any) -> typing.Any:
    return reports[1]


@pytest.fixture(scope="module")
def precisions(reports: typing.Any) -> typing.Any:
    return reports[2]


workloads = pytest.mark.parametrize("name", list(catalog.WORKLOADS))


@workloads
def test_it_is_what_the_catalogue_says(facts: typing.Any, name: str) -> None:
    assert tuple(facts[name]["layers"]) == catalog.WORKLOADS[name].layers
    assert facts[name]["built"]
    assert facts[name]["smallest"][0] == 2, "the smallest shape the catalogue allows can be computed"


@workloads
def test_the_loop_decides_about_xla_and_the_run_about_the_learning_rate(facts: typing.Any, name: str) -> None:
    assert facts[name]["jit_compile"] is False
    assert facts[name]["optimizer"] == "Adam"
    assert facts[name]["learning_rate"] == pytest.approx(0.002)


@workloads
def test_the_seed_decides_the_weights(facts: typing.Any, name: str) -> None:
    assert facts[name]["same_seed"]
    assert not facts[name]["other_seed"]


def test_mnist_cnn_is_the_guides(facts: typing.Any) -> None:
    assert facts["mnist_cnn"]["parameters"] == 93_322
    convolution = {"kernel_size": [3, 3], "strides": [1, 1], "padding": "valid", "activation": "relu"}
    pool = {"pool_size": [2, 2], "strides": [2, 2], "padding": "valid"}
    assert facts["cnn_layers"] == [
        {"filters": 32, **convolution},
        pool,
        {"filters": 64, **convolution},
        pool,
        {"filters": 64, **convolution},
        {},
        {"units": 64, "activation": "relu"},
        {"units": 10, "activation": "linear"},
    ]
    assert facts["cnn_loss"]["from_logits"] is True


@workloads
def test_training_lowers_the_loss_and_keeps_every_weight_finite(steps: typing.Any, name: str) -> None:
    assert steps[name]["losses"][-1]["loss"] < steps[name]["losses"][0]["loss"]
    assert steps[name]["finite"]


@workloads
def test_validation_counts_every_example_once(steps: typing.Any, name: str) -> None:
    for metric, value in steps[name]["whole"].items():
        assert steps[name]["parts"][metric] == pytest.approx(value, rel=1e-5), metric
    assert steps[name]["again"][0] == steps[name]["again"][1], "validation has no chance in it"


def test_metrics_have_their_names(steps: typing.Any) -> None:
    assert set(steps["mnist_cnn"]["losses"][0]) == {"loss", "accuracy"}
    assert set(steps["vae"]["losses"][0]) == {"loss", "reconstruction_loss", "kl_loss"}
    for logs in (steps["vae"]["losses"][0], steps["vae"]["whole"]):
        assert logs["loss"] == pytest.approx(logs["reconstruction_loss"] + logs["kl_loss"], rel=1e-5)
        assert logs["kl_loss"] > 0


def test_an_empty_batch_changes_nothing_in_the_vae(steps: typing.Any) -> None:
    before, after = steps["vae_empty"]
    assert after == pytest.approx(before, rel=1e-6)


def test_a_saved_vae_can_be_loaded(steps: typing.Any) -> None:
    assert steps["vae_saved"] < 1e-6
    low, high = steps["vae_range"]
    assert 0 <= low < high <= 1


@workloads
@pytest.mark.parametrize(("policy", "compute"), [("mixed_bfloat16", "bfloat16"), ("mixed_float16", "float16")])
def test_mixed_precision_trains_with_float32_variables_and_output(
    precisions: typing.Any, name: str, policy: str, compute: str
) -> None:
    mixed, plain = precisions[f"{name}/{policy}"], precisions[f"{name}/float32"]
    assert compute in mixed["compute"]
    assert compute not in plain["compute"]
    assert mixed["variables"] == ["float32"]
    assert mixed["output"] == "float32"
    assert mixed["losses"][0] == pytest.approx(plain["losses"][0], rel=0.02)
    assert mixed["losses"][-1] < mixed["losses"][0]


@workloads
def test_xla_trains_it_alike(reports: typing.Any, precisions: typing.Any, name: str) -> None:
    compiled, plain = reports[3][name], precisions[f"{name}/float32"]["losses"]
    # XLA makes other normal numbers from the same seed, so the VAE's noise differs.
    assert compiled == pytest.approx(plain, rel=0.03 if name == "vae" else 1e-4)
    assert compiled[-1] < compiled[0]
