"""Which ops of a GPU run are on the CPU as a surprise, and which are not."""

import pytest

from experiments.analysis.placement_surprises import APART, COLUMNS, LIKE, WHOLE, surprises
from tests.experiments.analysis import frames

LOOP = "while/body/_1/while"
MODEL = f"{LOOP}/sequential_1"
CONV = [
    (f"{MODEL}/conv2d_1/convolution", "Conv2D", "GPU:0", "compute", "conv2d"),
    (f"{MODEL}/conv2d_1/BiasAdd", "BiasAdd", "GPU:0", "compute", "conv2d"),
    (f"{MODEL}/conv2d_1/BiasAdd/ReadVariableOp", "ReadVariableOp", "GPU:0", "compute", "conv2d"),
]
FLATTEN = (f"{MODEL}/flatten_1/Reshape", "Reshape", "CPU:0", "compute", "flatten")
POOLING = (f"{MODEL}/max_pooling2d_1/MaxPool2d", "MaxPool", "CPU:0", "compute", "max_pooling2d")
ADAM_ON_GPU = (f"{LOOP}/adam/Sqrt", "Sqrt", "GPU:0", "compute", "")
ADAM_ON_CPU = (f"{LOOP}/adam/Sqrt_1", "Sqrt", "CPU:0", "compute", "")
UPDATE = (f"{LOOP}/adam/AssignSubVariableOp", "AssignSubVariableOp", "CPU:0", "compute", "")


def found(*rows, asked=None, device="gpu"):
    return surprises(frames.placement(*CONV, *rows), device, asked or {}).to_numpy().tolist()


def test_an_op_apart_from_its_layer():
    cast = (f"{MODEL}/conv2d_1/Cast", "Cast", "CPU:0", "compute", "conv2d")
    assert found(cast) == [[cast[0], "Cast", "conv2d", "CPU:0", APART, 3, 4]]
    assert found(cast, device="cpu") == []


def test_a_whole_layer_while_others_are_on_a_gpu():
    assert found(FLATTEN, POOLING) == [
        [FLATTEN[0], "Reshape", "flatten", "CPU:0", WHOLE, 0, 1],
        [POOLING[0], "MaxPool", "max_pooling2d", "CPU:0", WHOLE, 0, 1],
    ]
    everything = frames.placement(FLATTEN, POOLING)
    assert surprises(everything, "gpu", {}).empty, "nothing is on a GPU that these could be apart from"


def test_a_layer_that_was_asked_onto_the_cpu_is_where_it_should_be():
    assert found(FLATTEN, asked={"flatten": "/CPU:0"}) == []
    assert found(FLATTEN, asked={"flatten": "/GPU:0"})[0][4] == WHOLE
    # Its variables are updated where they are, and no name tells whose they are.
    assert found(FLATTEN, ADAM_ON_GPU, ADAM_ON_CPU, UPDATE, asked={"flatten": "/CPU:0"}) == []


def test_an_optimizers_updates_apart_from_their_like_or_from_the_layers_variables():
    assert found(ADAM_ON_GPU, ADAM_ON_CPU) == [[ADAM_ON_CPU[0], "Sqrt", "", "CPU:0", LIKE, 1, 2]]
    assert found(UPDATE) == [[UPDATE[0], "AssignSubVariableOp", "", "CPU:0", LIKE, 0, 1]]
    assert surprises(frames.placement(*CONV[:2], UPDATE), "gpu", {}).empty, "no variable is known to be on a GPU"


def test_the_order_is_layers_in_part_whole_layers_then_the_rest():
    cast = (f"{MODEL}/conv2d_1/Cast", "Cast", "CPU:0", "compute", "conv2d")
    assert [row[4] for row in found(UPDATE, FLATTEN, cast)] == [APART, WHOLE, LIKE]


@pytest.mark.parametrize(
    "row",
    [
        (f"{MODEL}/flatten_1/Shape", "Shape", "CPU:0", "compute", "flatten"),
        (f"{MODEL}/conv2d_1/Reshape/shape", "Const", "CPU:0", "compute", "conv2d"),
        (f"{MODEL}/conv2d_1/strided_slice", "StridedSlice", "CPU:0", "compute", "conv2d"),
        (f"{MODEL}/text_vectorization_1/StringLower", "StringLower", "CPU:0", "compute", "text_vectorization"),
        (f"{LOOP}/input/IteratorGetNext", "IteratorGetNext", "CPU:0", "input", ""),
        ("while/enter/_2", "Enter", "CPU:0", "compute", ""),
        ("resource", "_Arg", "CPU:0", "compute", ""),
        (f"{LOOP}/loss/Prod", "Prod", "CPU:0", "compute", ""),
        (f"{LOOP}/adam/Cast/ReadVariableOp", "ReadVariableOp", "CPU:0", "compute", ""),
        # No scope of its own, with its like on the GPU: the loop's own counting.
        (f"{LOOP}/BiasAdd", "BiasAdd", "CPU:0", "compute", ""),
        ("cond/then/_0/BiasAdd", "BiasAdd", "CPU:0", "compute", ""),
        # In a scope, but nothing says that it could run on a GPU.
        (f"{LOOP}/metrics/Bincount", "Bincount", "CPU:0", "compute", ""),
    ],
    ids=lambda row: row[0].rpartition("/")[2] if isinstance(row, tuple) else None,
)
def test_what_belongs_on_the_host_is_no_surprise(row):
    assert found(row) == []


def test_eager_ops_are_not_judged():
    eager = frames.placement(*CONV, ("", "BiasAdd", "CPU:0", "compute", ""))
    eager.loc[len(CONV), "source"] = "eager"
    assert surprises(eager, "gpu", {}).empty


def test_case_d4_an_empty_table():
    assert list(surprises(frames.placement(), "gpu", {}).columns) == COLUMNS
