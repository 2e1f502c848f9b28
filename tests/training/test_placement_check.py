"""Asked against actual placement, on tables with known answers."""

import pandas as pd
import pytest

from training.names import PLACEMENT_COLUMNS
from training.placement_check import ASKED_COLUMNS, asked_against_actual


def table(*rows: tuple[str, str, str, str]) -> pd.DataFrame:
    """A placement table from (name, device, role, layer)."""
    full = [(name, "MatMul", device, "graph", role, layer, 3) for name, device, role, layer in rows]
    return pd.DataFrame(full, columns=list(PLACEMENT_COLUMNS))


OPS = table(
    ("m/dense_1/MatMul", "CPU:1", "compute", "dense"),
    ("m/dense_1/BiasAdd", "CPU:1", "compute", "dense"),
    ("gradient_tape/m/dense_1/MatMul/MatMul", "CPU:0", "compute", "dense"),
    ("m/conv2d_1/convolution", "CPU:0", "compute", "conv2d"),
    ("m/conv2d_1/Relu", "GPU:0", "compute", "conv2d"),
    ("input/Cast", "CPU:0", "input", ""),
)


def test_distinct_ops_are_counted_by_layer_part_and_device():
    found = asked_against_actual(OPS, {"dense": "/CPU:1", "conv2d": "/GPU:0"})
    assert list(found.columns) == list(ASKED_COLUMNS)
    assert found.values.tolist() == [
        ["dense", "forward", "CPU:1", "CPU:1", 2],
        ["dense", "gradient", "CPU:1", "CPU:0", 1],
        ["conv2d", "forward", "GPU:0", "CPU:0", 1],
        ["conv2d", "forward", "GPU:0", "GPU:0", 1],
    ]


def test_a_layer_without_ops_is_shown_as_placed_nowhere():
    found = asked_against_actual(OPS, {"flatten": "/CPU:1"})
    assert found.values.tolist() == [["flatten", "forward", "CPU:1", "", 0]]


def test_input_ops_are_not_counted():
    found = asked_against_actual(table(("a/dense/x", "CPU:0", "input", "dense")), {"dense": "/CPU:0"})
    assert found["ops"].tolist() == [0]


@pytest.mark.parametrize("ops", [OPS, table()])
def test_columns_and_types_hold_for_no_rows(ops):
    empty, full = asked_against_actual(ops, {}), asked_against_actual(OPS, {"dense": "/CPU:1"})
    assert len(empty) == 0
    assert empty.dtypes.equals(full.dtypes)
