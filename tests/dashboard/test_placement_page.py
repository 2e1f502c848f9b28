"""Placement: nothing, one run, surprises, two runs, the address, and 200,000 ops."""

import time
from pathlib import Path

import pandas as pd
import pytest
import streamlit as st

from dashboard.components import placement_view
from dashboard.figures import placement_map
from experiments.analysis import placement
from experiments.analysis.placement_surprises import surprises
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import charts, table, words
from tests.dashboard.seed import GPU_SEEN, NASTY_NAMES, PLACEMENT, add_run
from training.names import PLACEMENT_COLUMNS, Artifact, RunStatus
from training.spec import RunSpec

ALT = "Ops and their devices"


def on_gpu(*cpu_ops: str) -> pd.DataFrame:
    """A placement of a GPU run; the named ops are on the CPU."""
    rows = [
        (
            f"sequential/{layer}/{op}",
            op,
            "CPU:0" if f"{layer}/{op}" in cpu_ops else "GPU:0",
            "graph",
            "compute",
            layer,
            1,
        )
        for layer in ("conv2d", "dense")
        for op in ("MatMul", "BiasAdd", "Relu")
    ]
    rows.append(("IteratorGetNext", "IteratorGetNext", "CPU:0", "graph", "input", "", 2))
    return pd.DataFrame(rows, columns=list(PLACEMENT_COLUMNS))


def test_without_a_run_the_page_says_how_to_get_one(home: Settings, open_page: OpenPage) -> None:
    app = open_page("placement")

    assert "No run has ended yet" in words(app)
    assert [link.proto.label for link in app.page_link] == ["Launch a run"]


def test_a_run_without_a_log_says_so(home: Settings, open_page: OpenPage) -> None:
    add_run(home, RunSpec(name="bare"))

    assert "This run has no placement" in words(open_page("placement"))


def test_a_cpu_run(home: Settings, open_page: OpenPage) -> None:
    add_run(home, RunSpec(manual_placement={"dense": "/CPU:0"}), placement=PLACEMENT)

    app = open_page("placement")

    (figure,) = charts(app)
    assert figure["layout"]["title"]["text"] == "4 of 7 compute ops are on CPU:0, 3 on CPU:1"
    assert table(app, "Ops by device")["Ops"].tolist() == [4, 3, 2]
    manual = table(app, "Layers placed by hand").iloc[0].to_dict()
    assert (manual["Layer"], manual["Asked"], manual["Kept"]) == ("dense", "CPU:0", "✕ not kept")
    assert "None is possible" in words(app)
    assert len(table(app, ALT)) == len(PLACEMENT)
    assert "9 ops" in words(app)


def test_a_surprise_is_named_with_its_layer(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(home, RunSpec(device="gpu"), placement=on_gpu("dense/BiasAdd"), tags=GPU_SEEN)

    app = open_page("placement", run=run_id)

    assert "1 surprise: on the CPU, unasked, in a run on a GPU" in words(app)
    row = table(app, "Surprises").iloc[0].to_dict()
    assert (row["name"], row["layer"], row["on_gpu"], row["of"]) == ("sequential/dense/BiasAdd", "dense", 2, 3)


def test_a_whole_layer_on_the_cpu_is_a_surprise_unless_it_was_asked_for(home: Settings, open_page: OpenPage) -> None:
    dense = on_gpu("dense/MatMul", "dense/BiasAdd", "dense/Relu")
    run_id = add_run(home, RunSpec(device="gpu"), placement=dense, tags=GPU_SEEN)
    by_hand = RunSpec(device="gpu", manual_placement={"dense": "/CPU:0"})
    asked = add_run(home, by_hand, placement=dense, tags=GPU_SEEN)

    surprising = table(open_page("placement", run=run_id), "Surprises")

    assert surprising[["layer", "why"]].to_numpy().tolist() == [["dense", "whole layer"]] * 3
    assert "No surprise" in words(open_page("placement", run=asked))


def test_what_moved_between_two_runs_stands_in_the_address(home: Settings, open_page: OpenPage) -> None:
    first = add_run(home, RunSpec(device="gpu", name=NASTY_NAMES[0]), placement=on_gpu(), tags=GPU_SEEN)
    second = add_run(home, RunSpec(device="gpu", name=NASTY_NAMES[1]), placement=on_gpu("dense/Relu"), tags=GPU_SEEN)
    app = open_page("placement", run=first)
    assert len(charts(app)) == 1

    app.selectbox(key="placement_other").set_value(second).run()

    assert not app.exception
    assert dict(app.query_params) == {"run": first, "other": second}
    moved = charts(app)[0]
    assert moved["layout"]["title"]["text"] == "1 of 7 ops moved, most of them from GPU:0 to CPU:0"
    rows = table(app, "What moved, op by op")
    assert rows[["change", "layer", "from", "to"]].to_numpy().tolist() == [["moved", "dense", "GPU:0", "CPU:0"]]
    again = open_page("placement", **dict(app.query_params))
    assert charts(again) == charts(app)
    assert "<script>" not in "".join(each.value for each in [*app.markdown, *app.caption])


@pytest.mark.parametrize("query", [{"run": "../../etc/passwd"}, {"other": "<b>"}, {"role": "x"}])
def test_an_address_with_nonsense_shows_the_newest_run(
    home: Settings, open_page: OpenPage, query: dict[str, str]
) -> None:
    add_run(home, RunSpec(), placement=PLACEMENT)
    add_run(home, RunSpec(), RunStatus.RUNNING)

    app = open_page("placement", **query)

    assert charts(app)[0]["layout"]["title"]["text"].startswith("4 of 7 compute ops")
    assert ("is not there, or has not ended" in words(app)) == ("run" in query)


def test_searching_finds_in_any_case_and_counts(home: Settings, open_page: OpenPage) -> None:
    add_run(home, RunSpec(), placement=PLACEMENT)

    app = open_page("placement", find="CONV2D_1")

    assert table(app, ALT)["name"].tolist() == ["sequential/conv2d_1/convolution"]
    assert "1 of 9 ops" in words(app)


def test_a_damaged_table_is_said_and_another_run_can_be_chosen(
    home: Settings, open_page: OpenPage, tmp_path: Path
) -> None:
    good, bad = add_run(home, RunSpec(), placement=PLACEMENT), add_run(home, RunSpec(name="bad"))
    file = tmp_path / Path(Artifact.PLACEMENT_TABLE).name
    file.write_bytes(b"garbage")
    home.client().log_artifact(bad, str(file), Artifact.PLACEMENT_DIR)

    app = open_page("placement", run=bad)

    assert not app.exception
    assert "A part of a run cannot be read" in words(app)
    app.selectbox(key="placement_run").set_value(good).run()
    assert not app.exception
    assert "9 ops" in words(app)


def many_ops(rows: int) -> pd.DataFrame:
    """A placement of so many distinct ops on 8 GPUs, with 120 layers and 60 op types."""
    numbers = range(rows)
    return pd.DataFrame(
        {
            "name": [f"while/body/replica_{n % 8}/model/layer_{n % 120}/op_{n // 8}" for n in numbers],
            "op_type": [f"Type{n % 60}" for n in numbers],
            "device": ["CPU:0" if n % 1_000 == 0 else f"GPU:{n % 8}" for n in numbers],
            "source": "graph",
            "role": ["input" if n % 50 == 0 else "compute" for n in numbers],
            "layer": [f"layer_{n % 120}" for n in numbers],
            "count": 1,
        }
    )[list(PLACEMENT_COLUMNS)]


def test_200_000_ops_are_counted_searched_and_drawn_within_two_seconds() -> None:
    table = many_ops(200_000)

    started = time.process_time()  # of this process alone: another test may have the other core
    summary = placement.summary(table)
    figure = placement_map.map_figure(placement_map.map_table(summary, "compute"), "compute")
    surprises(table, "gpu", {})
    placement_view.device_shares(table)
    found = placement_view.matching(table, "layer_7/")
    elapsed = time.process_time() - started

    assert elapsed < 2.0
    assert len(figure.data[0].y) == placement_map.MOST_OP_TYPES + 1
    assert int(summary["ops"].sum()) == 200_000
    assert found["name"].str.contains("layer_7/").all()
    assert len(found) == int(table["name"].str.contains("layer_7/").sum())


@pytest.mark.slow
def test_200_000_ops_are_never_sent_to_a_browser_at_once(home: Settings, open_page: OpenPage) -> None:
    add_run(home, RunSpec(device="gpu"), placement=many_ops(200_000), tags=GPU_SEEN)

    app = open_page("placement")

    assert len(table(app, ALT)) == placement_view.MOST_ROWS
    assert "200,000 ops; the 500 commonest are shown; the download holds all" in words(app)


# Measured on two slow cores: 1.0 s for one run, 1.9 s against another. The test allows half as much again of the
# processor, and any wait of a machine that other work shares.
MOST_CPU_S = 3.0
MOST_WALL_S = 10.0


@pytest.mark.slow
@pytest.mark.parametrize("compared", [False, True], ids=["one run", "against another"])
def test_the_first_draw_of_200_000_ops_from_their_artifact(home: Settings, open_page: OpenPage, compared: bool) -> None:
    ops = many_ops(200_000)
    first = add_run(home, RunSpec(device="gpu"), placement=ops, tags=GPU_SEEN)
    # The same model traced anew: other scopes around it, and every op on another device.
    anew = ops.assign(name=ops["name"].str.replace("body", "body/_7"), device="CPU:0")
    second = add_run(home, RunSpec(device="gpu"), placement=anew, tags=GPU_SEEN)
    small = add_run(home, RunSpec(), placement=PLACEMENT)
    query = {"run": first, **({"other": second} if compared else {})}
    open_page("placement", run=small)  # what a server imports once
    for caches in (st.cache_data, st.cache_resource):
        caches.clear()

    wall, cpu = time.perf_counter(), time.process_time()
    app = open_page("placement", **query)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu

    assert len(charts(app)) == (2 if compared else 1)
    assert cpu < MOST_CPU_S, f"{cpu:.2f} s of the processor, {wall:.2f} s"
    assert wall < MOST_WALL_S
