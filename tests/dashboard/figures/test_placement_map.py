"""The map of devices and op types, and the ways that ops took between two runs."""

import pandas as pd

from dashboard.figures import placement_map, theme
from experiments.analysis import placement
from tests.experiments.analysis import frames

MIXED = frames.placement(
    ("a/conv", "Conv2D", "GPU:0", "compute", "conv2d"),
    ("b/conv", "Conv2D", "GPU:0", "compute", "conv2d"),
    ("c/conv", "Conv2D", "CPU:0", "compute", "conv2d"),
    ("a/dense", "MatMul", "GPU:0", "compute", "dense"),
    ("next", "IteratorGetNext", "CPU:0", "input", ""),
)


def test_types_against_devices_with_the_commonest_first() -> None:
    table = placement_map.map_table(placement.summary(MIXED), "compute")

    assert table.index.tolist() == ["Conv2D", "MatMul"]
    assert table.columns.tolist() == ["CPU:0", "GPU:0"]
    assert table.to_numpy().tolist() == [[1, 2], [0, 1]]
    assert placement_map.map_title(table, "compute") == "3 of 4 compute ops are on GPU:0, 1 on CPU:0"
    figure = placement_map.map_figure(table, "compute")
    assert [list(row) for row in figure.data[0].text] == [["1", "2"], ["", "1"]]
    # Where there is no op there is no colour either.
    assert figure.data[0].z[1][0] is None


def _luminance(color: str) -> float:
    """WCAG 2's relative luminance."""
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_numbers_can_be_read_on_every_cell() -> None:
    figure = placement_map.map_figure(placement_map.map_table(placement.summary(MIXED), "compute"), "compute")
    text = _luminance(figure.data[0].textfont.color)
    for _, color in figure.data[0].colorscale:
        assert (_luminance(color) + 0.05) / (text + 0.05) > 4.5  # WCAG 2, AA


def test_rare_types_are_summed_and_none_is_lost() -> None:
    rows = [(f"op{n}.{copy}", f"T{n:02}", "CPU:0", "compute", "") for n in range(40) for copy in range(40 - n)]
    table = placement_map.map_table(placement.summary(frames.placement(*rows)), "compute")

    assert len(table) == placement_map.MOST_OP_TYPES + 1
    assert table.index[-1] == placement_map.OTHERS
    assert int(table.to_numpy().sum()) == len(rows)
    assert placement_map.map_title(table, "compute") == f"All {len(rows):,} compute ops are on CPU:0"


def test_many_devices_are_told_by_the_least_and_the_busiest() -> None:
    rows = [(f"op{n}", "T", f"GPU:{n % 3}", "compute", "") for n in range(7)]
    table = placement_map.map_table(placement.summary(frames.placement(*rows)), "compute")
    assert placement_map.map_title(table, "compute") == "7 compute ops on 3 devices, from 2 on GPU:2 to 3 on GPU:0"


def test_nothing_of_a_role() -> None:
    table = placement_map.map_table(placement.summary(MIXED[MIXED["role"] == "input"]), "compute")

    assert placement_map.map_title(table, "compute") == "No compute op was logged"
    assert placement_map.map_figure(table, "compute").layout.title.text == "No compute op was logged"


def _moves(**after: str) -> pd.DataFrame:
    second = MIXED.copy()
    for name, device in after.items():
        second.loc[second["name"] == name.replace("_", "/"), "device"] = device
    return placement.moves(placement.diff(MIXED, second))


def test_what_moved_is_the_title() -> None:
    moves = _moves(a_dense="CPU:0")

    assert placement_map.moves_title(moves) == "1 of 3 ops moved, most of them from GPU:0 to CPU:0"
    figure = placement_map.moves_figure(moves)
    assert {bar.name: list(bar.x) for bar in figure.data} == {
        "moved to another kind of device": [1],
        "where it was": [1, 1],
    }
    assert "GPU:0 → CPU:0" in figure.layout.yaxis.ticktext


def test_most_is_more_than_half_of_what_moved() -> None:
    moves = pd.DataFrame(
        [("moved", "CPU:0", f"GPU:{index}", ops) for index, ops in enumerate((4, 3, 3))],
        columns=["change", "from", "to", "ops"],
    )
    assert placement_map.moves_title(moves) == "10 of 10 ops moved, the commonest way is from CPU:0 to GPU:0"
    half = moves.assign(ops=[5, 3, 2])
    assert placement_map.moves_title(half) == "10 of 10 ops moved, the commonest way is from CPU:0 to GPU:0"
    most = moves.assign(ops=[6, 2, 2])
    assert placement_map.moves_title(most) == "10 of 10 ops moved, most of them from CPU:0 to GPU:0"


def test_nothing_moved() -> None:
    assert placement_map.moves_title(_moves()) == "All 3 ops are where they were"


def test_other_devices_of_the_same_kind_are_no_move() -> None:
    moves = _moves(a_dense="GPU:1")
    assert placement_map.moves_title(moves) == (
        "1 of 3 ops are on other devices of the same kind; none changed its kind"
    )


def test_typed_names_are_drawn_as_typed() -> None:
    table = placement_map.map_table(
        placement.summary(frames.placement(("a", "<b>T</b>", "<i>D</i>", "compute", ""))), "compute"
    )
    figure = placement_map.map_figure(table, "compute")
    assert list(figure.data[0].y) == [theme.plain("<b>T</b>")]
    assert list(figure.data[0].x) == [theme.plain("<i>D</i>")]
    assert "<i>" not in figure.layout.title.text
