"""Placement: distinct ops by device, input apart from compute."""

import pandas as pd

from dashboard.figures import placement
from experiments.analysis.placement import per_device, summary
from training.names import PLACEMENT_COLUMNS


def table(*rows: tuple[str, str, str, int]) -> pd.DataFrame:
    """Rows of (op_type, device, role, how many distinct ops); every op was logged three times."""
    ops = [row[:3] for row in rows for _ in range(row[3])]
    listed = [(f"op{n}", op, device, "graph", role, "", 3) for n, (op, device, role) in enumerate(ops)]
    return pd.DataFrame(listed, columns=list(PLACEMENT_COLUMNS)).astype({"count": "int64"})


MIXED = table(
    ("MatMul", "GPU:0", "compute", 30),
    ("Conv2D", "GPU:0", "compute", 50),
    ("Conv2D", "CPU:0", "compute", 10),
    ("TensorSliceDataset", "CPU:0", "input", 5),
)


def test_devices_with_input_apart_from_compute() -> None:
    counts = placement.device_table(per_device(MIXED))

    assert counts.to_dict("records") == [
        {"device": "GPU:0", "compute": 80, "input": 0, "total": 80},
        {"device": "CPU:0", "compute": 10, "input": 5, "total": 15},
    ]


def test_ops_of_one_role_in_falling_order() -> None:
    ops = placement.ops_table(summary(MIXED), "compute")

    assert list(ops.itertuples(index=False, name=None)) == [
        ("Conv2D", "CPU:0", 10),
        ("Conv2D", "GPU:0", 50),
        ("MatMul", "GPU:0", 30),
    ]
    assert placement.ops_title(ops, "compute") == "89% of 90 compute ops ran on GPU:0, the rest on 1 other device"


def test_rare_op_types_are_summed_and_none_is_lost() -> None:
    many = table(*[(f"Op{n:02}", "CPU:0", "compute", 40 - n) for n in range(30)])

    ops = placement.ops_table(summary(many), "compute")

    assert len(ops) == placement.MOST_OP_TYPES + 1
    assert ops.iloc[-1]["op_type"] == placement.OTHERS
    assert ops["ops"].sum() == len(many)
    assert placement.ops_title(ops, "compute") == f"All {len(many):,} compute ops ran on CPU:0"


def test_nothing_was_logged() -> None:
    nothing = table()

    assert placement.device_table(per_device(nothing)).empty
    ops = placement.ops_table(summary(nothing), "compute")
    assert list(ops.columns) == list(placement.OPS_COLUMNS)
    assert placement.ops_title(ops, "compute") == "No compute op was logged"


def test_a_device_looks_the_same_in_both_drawings() -> None:
    compute = placement.ops_figure(placement.ops_table(summary(MIXED), "compute"), "compute")
    inputs = placement.ops_figure(placement.ops_table(summary(MIXED), "input"), "input")

    colors = {bar.name: bar.marker.color for bar in compute.data}
    assert colors["CPU:0"] == inputs.data[0].marker.color
    assert colors["CPU:0"] != colors["GPU:0"]
