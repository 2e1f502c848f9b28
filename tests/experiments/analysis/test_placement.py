"""Where ops ran, and what moved."""

import time

import numpy as np
import pandas as pd
import pytest

from experiments.analysis.placement import (
    asked_and_actual,
    asked_of,
    diff,
    moves,
    normal_name,
    per_device,
    summary,
)
from experiments.analysis.placement_surprises import surprises
from tests.experiments.analysis import frames

GPU_RUN = frames.placement(
    ("while/body/_1/sequential_1/conv2d_1/convolution", "Conv2D", "GPU:0", "compute", "conv2d"),
    ("while/body/_1/sequential_1/conv2d_1/BiasAdd", "BiasAdd", "GPU:0", "compute", "conv2d"),
    ("while/body/_1/sequential_1/conv2d_1/Cast", "Cast", "CPU:0", "compute", "conv2d"),
    ("while/body/_1/sequential_1/dense_1/MatMul", "MatMul", "CPU:0", "compute", "dense"),
    ("while/body/_1/input/IteratorGetNext", "IteratorGetNext", "CPU:0", "input", ""),
    ("while/body/_1/add", "AddV2", "CPU:0", "compute", ""),
)


def test_ops_by_device_and_type_with_input_apart():
    found = summary(GPU_RUN)
    assert found[found["role"] == "input"]["op_type"].tolist() == ["IteratorGetNext"]
    shares = per_device(GPU_RUN).set_index(["role", "device"])["share"]
    assert shares["compute", "CPU:0"] == pytest.approx(3 / 5)
    assert shares["input", "CPU:0"] == 1


def test_case_d3_asked_and_actual_side_by_side():
    found = asked_and_actual(GPU_RUN, {"conv2d": "/GPU:1", "dense": "/CPU:0", "flatten": "/GPU:0"}).set_index("layer")
    assert list(found.loc["conv2d"]) == ["GPU:1", "GPU:0, CPU:0", 3, 3, False]
    assert list(found.loc["dense"]) == ["CPU:0", "CPU:0", 1, 0, True]
    assert list(found.loc["flatten"]) == ["GPU:0", "", 0, 0, False]
    assert asked_and_actual(GPU_RUN.iloc[:0], {}).dtypes.equals(found.reset_index().dtypes)


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ('{"dense": "/CPU:1"}', {"dense": "/CPU:1"}),
        ("{}", {}),
        ("", {}),
        ("[1]", {}),
        ("not JSON", {}),
        ("[" * 100_000, {}),
    ],
)
def test_what_was_asked_is_read_from_a_runs_param(param, asked):
    assert asked_of({"spec": None, "params": {"manual_placement": param}}) == asked
    assert asked_of({"spec": {"manual_placement": {"flatten": "/CPU:0"}}, "params": {}}) == {"flatten": "/CPU:0"}


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("while/body/_1/while/replica_1/sequential_1/dense_1/MatMul", "sequential_1/dense_1/MatMul"),
        ("replica_3/Adam/add", "Adam/add"),
        ("__inference_run_steps_1234", "__inference_run_steps"),
        ("StatefulPartitionedCall_2/x/Relu", "x/Relu"),
        ("gradient_tape/while/sequential_1/dense/MatMul_1", "gradient_tape/sequential_1/dense/MatMul_1"),
        ("while", "while"),
    ],
)
def test_names_are_normalised(name, normal):
    assert normal_name(name) == normal


def test_what_moved_from_where_to_where_on_how_many_replicas():
    one = frames.placement(
        ("while/body/_1/sequential_1/conv2d_1/convolution", "Conv2D", "CPU:0", "compute", "conv2d"),
        ("while/body/_1/gradient_tape/sequential_1/conv2d_1/convolution", "Conv2D", "CPU:0", "compute", "conv2d"),
        ("while/body/_1/Adam/add", "AddV2", "CPU:0", "compute", ""),
        ("while/body/_1/only_here/x", "Relu", "CPU:0", "compute", ""),
        ("", "ReadVariableOp", "CPU:0", "compute", ""),
    )
    two = frames.placement(
        ("while/body/_9/while/sequential_2/conv2d_2/convolution", "Conv2D", "GPU:0", "compute", "conv2d"),
        ("while/body/_9/while/replica_1/sequential_2/conv2d_2/convolution", "Conv2D", "GPU:1", "compute", "conv2d"),
        ("while/body/_9/gradient_tape/sequential_2/conv2d_2/convolution", "Conv2D", "GPU:0", "compute", "conv2d"),
        ("while/body/_9/while/Adam/add", "AddV2", "CPU:0", "compute", ""),
        ("", "ReadVariableOp", "CPU:0", "compute", ""),
        ("", "ReadVariableOp", "CPU:1", "compute", ""),
    )
    found = diff(one, two).set_index("name")
    moved = found.loc["conv2d/convolution"]
    assert moved["change"] == "moved"
    assert (moved["from"], moved["to"], moved["replicas_from"], moved["replicas_to"]) == ("CPU:0", "GPU:0, GPU:1", 1, 2)
    assert found.loc["gradient_tape/conv2d/convolution", "to"] == "GPU:0"
    assert found.loc["Adam/add", "change"] == "same"
    assert found.loc["only_here/x", "change"] == "only in first"
    assert found.loc["(ReadVariableOp)", "change"] == "same kind"
    counted = moves(diff(one, two))
    assert counted.iloc[0].tolist()[0] == "moved"
    assert counted["ops"].sum() == len(found)


@pytest.mark.parametrize(
    "name", ["a/while", "while", "a", "while/body/_1/replica_1/a/b", "x/__inference_f_12", "_1/_2"]
)
def test_an_op_without_a_layer_goes_by_its_normal_name(name):
    assert diff(frames.placement(), frames.placement((name, "Mul", "CPU:0", "compute", "")))["name"].tolist() == [
        normal_name(name)
    ]


def test_a_run_moved_nothing_against_itself():
    assert set(diff(GPU_RUN, GPU_RUN)["change"]) == {"same"}


def test_case_d4_an_empty_table_and_one_that_is_none():
    empty = frames.placement()
    assert summary(empty).empty
    assert set(diff(empty, GPU_RUN)["change"]) == {"only in second"}
    with pytest.raises(ValueError, match="column name is missing"):
        summary(pd.DataFrame({"op": []}))


def test_200_000_ops_take_less_than_two_seconds():
    n = 200_000
    index = np.arange(n)
    layers = np.array(["conv2d", "dense", "flatten", ""])[index % 4]
    table = pd.DataFrame(
        {
            "name": [f"while/body/_1/replica_{i % 8}/sequential_1/scope_{i // 8}/op_{i % 97}" for i in index],
            "op_type": np.array(["MatMul", "Conv2D", "AddV2"])[index % 3],
            "device": np.array([f"GPU:{i}" for i in range(8)] + ["CPU:0"])[index % 9],
            "source": "graph",
            "role": "compute",
            "layer": layers,
            "count": 1,
        }
    )
    other = table.assign(device="CPU:0")
    began = time.process_time()
    summary(table)
    surprises(table, "gpu", {})
    page = time.process_time() - began
    differences = diff(table, other)
    assert page < 1
    assert time.process_time() - began < 2
    assert len(differences) > 10_000
