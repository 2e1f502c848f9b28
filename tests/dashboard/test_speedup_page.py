"""Speedup: nothing, one run, pairs, typed names, doubtful runs put back, the address, what is claimed."""

import re

import pytest
from mlflow.entities import Metric as Point

from experiments import queue
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import charts, table, words
from tests.dashboard.seed import GPU_SEEN, NASTY_NAMES, add_run, add_timed, cpu_and_gpu, gpu_scaling, timed
from training.names import Metric, RunStatus
from training.spec import RunSpec

ALT = "Speedup of each configuration"


def test_without_a_run_the_page_says_how_to_get_one(home: Settings, open_page: OpenPage) -> None:
    app = open_page("speedup")

    assert "Nothing to compare yet" in words(app)
    assert [link.proto.label for link in app.page_link] == ["Start a ready-made experiment"]
    assert not charts(app)


def test_one_run_is_no_comparison_and_leads_to_a_second(home: Settings, open_page: OpenPage) -> None:
    run_id = add_timed(home, RunSpec(name=NASTY_NAMES[0]), 5_000)

    app = open_page("speedup")

    assert "One run, and nothing to compare it with" in words(app)
    assert NASTY_NAMES[0] in [text.value for text in app.text]
    (link,) = app.page_link
    assert link.proto.label == "Launch it with one thing changed"
    assert link.proto.query_string == f"spec={run_id}"


def test_runs_that_failed_have_no_speed(home: Settings, open_page: OpenPage) -> None:
    add_run(home, RunSpec(), RunStatus.FAILED)

    assert "No finished run here" in words(open_page("speedup"))


def test_cpu_against_gpu(home: Settings, open_page: OpenPage) -> None:
    cpu_and_gpu(home)

    app = open_page("speedup")

    (figure,) = charts(app)
    assert figure["layout"]["title"]["text"].startswith("GPU is 8.0")
    assert "as fast as CPU" in figure["layout"]["title"]["text"]
    row = table(app, ALT).iloc[0].to_dict()
    assert (row["Configuration"], row["Runs"], row["Called"]) == ("GPU", 3, "faster")
    assert row["Steady speedup"].startswith("8.0")
    assert row["Interval from"] == "spread between runs"
    assert row["Claimed"] == "10x"
    assert re.fullmatch(r"has paid for its start after 1 epoch \(0\.\d to \d\.\d epochs\)", row["Its start"])
    assert 1 < float(row["Whole run"][:-1]) < 8
    assert "Against 3 baseline runs at 5,0" in words(app)
    assert "these runs differ in device, with what follows from it, and agree in" in words(app)
    assert "workload mnist_cnn · data set fashion_mnist · examples=60000, pipeline=memory" in words(app)
    assert "none has a flag" in words(app)
    assert len(table(app, "Runs behind the figure")) == 6


def test_one_run_each_is_marked(home: Settings, open_page: OpenPage) -> None:
    cpu_and_gpu(home, repeats=1)

    app = open_page("speedup")

    assert table(app, ALT)["Interval from"].tolist() == ["one run each: spread between runs unknown"]
    assert "one run each: spread between runs unknown; three of each settle it." in words(app)
    assert charts(app)[0]["layout"]["title"]["text"].endswith("too few runs to call it a difference")


def test_another_baseline_from_the_address_says_slower(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home)

    app = open_page("speedup", baseline=ids["gpu"][0])

    row = table(app, ALT).iloc[0]
    assert (row["Configuration"], row["Called"]) == ("CPU", "slower")
    assert row["Steady speedup"] == "0.13x"
    assert app.query_params["thing"] == "device"
    # The newest run of the configuration stands for it.
    assert app.query_params["baseline"] == ids["gpu"][-1]


def test_what_is_chosen_stands_in_the_address_and_comes_back(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home)
    app = open_page("speedup")

    app.selectbox(key="speedup_baseline").set_value(ids["gpu"][-1]).run()

    address = dict(app.query_params)
    again = open_page("speedup", **address)
    assert table(again, ALT)["Called"].tolist() == table(app, ALT)["Called"].tolist() == ["slower"]


@pytest.mark.parametrize("name", ["thing", "rule", "baseline", "group", "back", "other"])
def test_an_address_with_nonsense_shows_the_newest_comparison(home: Settings, open_page: OpenPage, name: str) -> None:
    cpu_and_gpu(home)

    app = open_page("speedup", **{name: "../../etc/passwd,<script>"})

    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]


def _disturbed(home: Settings) -> str:
    points = [*timed(60_000.0, startup=9.0), Point(Metric.OTHERS_CPU, 45.0, 0, 0)]
    spec = RunSpec(device="gpu", group="cpu against gpu", epochs=3, name=NASTY_NAMES[1])
    return add_run(home, spec, points=points, tags={**GPU_SEEN, "replicas_in_sync": "1"})


def test_a_doubtful_run_stays_out_is_named_and_can_be_put_back(home: Settings, open_page: OpenPage) -> None:
    cpu_and_gpu(home)
    doubtful = _disturbed(home)
    app = open_page("speedup")
    assert "Unfinished or doubtful: 1 run left out" in words(app)
    said = [text.value for text in app.text]
    assert NASTY_NAMES[1] in said
    assert "other processes used the processors: 45% (limit 15%)" in said
    assert table(app, ALT)["Runs"].tolist() == [3]

    app.checkbox(key=f"speedup_back_{doubtful}").check().run()

    assert not app.exception
    assert table(app, ALT)["Runs"].tolist() == [4]
    assert app.query_params["back"] == doubtful
    assert "1 run put back by hand" in words(app)
    again = open_page("speedup", back=doubtful)
    assert table(again, ALT)["Runs"].tolist() == [4]

    again.checkbox(key=f"speedup_back_{doubtful}").uncheck().run()

    assert table(again, ALT)["Runs"].tolist() == [3]
    assert "back" not in again.query_params


def test_a_run_without_a_number_cannot_be_put_back(home: Settings, open_page: OpenPage) -> None:
    cpu_and_gpu(home)
    short = add_run(
        home,
        RunSpec(device="gpu", name="short", epochs=3),
        points=timed(40_000.0, epochs=1),
        tags={**GPU_SEEN, "replicas_in_sync": "1"},
    )

    app = open_page("speedup", back=short)

    assert "no number" in words(app)
    assert not [box for box in app.checkbox if box.key == f"speedup_back_{short}"]
    assert table(app, ALT)["Runs"].tolist() == [3]


def test_typed_texts_never_become_markup(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=1, group=NASTY_NAMES[0])
    app = open_page("speedup", group=NASTY_NAMES[0])

    assert app.selectbox(key="speedup_group").value == NASTY_NAMES[0]
    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]
    assert set(table(app, "Runs behind the figure")["run"]) == {"cpu 0", "gpu 0"}
    assert ids["cpu"][0] == app.query_params["baseline"]
    assert "<script>" not in "".join(markdown.value for markdown in [*app.markdown, *app.caption])


def test_a_pair_finds_what_it_differs_in(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=1)
    half = add_timed(home, RunSpec(device="gpu", precision="mixed_float16", epochs=3, name="half"), 60_000)

    app = open_page("speedup", baseline=ids["gpu"][0], other=half)

    assert app.query_params["thing"] == "precision"
    assert table(app, ALT)["Configuration"].tolist() == ["mixed_float16"]
    assert "precision: float32 / mixed_float16" in words(app)

    app = open_page("speedup", baseline=ids["cpu"][0], other=half)

    assert "These two runs do not compare" in words(app)
    assert "cannot be compared: precision: float32 / mixed_float16" in words(app)
    assert not charts(app)


def test_one_run_is_chosen_to_compare_with_and_all_that_match_again(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=1)
    half = add_timed(home, RunSpec(device="gpu", precision="mixed_float16", epochs=3, name="half"), 60_000)
    app = open_page("speedup", baseline=ids["cpu"][0])
    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]
    box = app.selectbox(key="speedup_other")
    assert [option.partition(" – ")[0] for option in box.options] == ["gpu 0", "half"]
    assert "does not compare: 1 field in the way" in box.options[1]

    app.selectbox(key="speedup_other").set_value(half).run()

    assert app.query_params["other"] == half
    assert "cannot be compared: precision: float32 / mixed_float16" in words(app)
    assert not charts(app)

    app.selectbox(key="speedup_other").set_value(None).run()

    assert "other" not in app.query_params
    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]


def test_a_pair_leaves_out_what_else_matches(home: Settings, open_page: OpenPage) -> None:
    sweep = _batches(home, repeats=1)
    other = add_timed(home, RunSpec(device="cpu", epochs=3, global_batch_size=64, name="middle"), 3_500)

    app = open_page("speedup", baseline=sweep["cpu"], other=other)

    assert len(table(app, ALT)) == len(charts(app)) == 1
    assert "batch: 8 / 64" in words(app)


def test_a_baseline_that_nothing_matches_names_the_fields_and_shows_no_other_comparison(
    home: Settings, open_page: OpenPage
) -> None:
    cpu_and_gpu(home, repeats=1)
    alone = add_timed(home, RunSpec(precision="mixed_bfloat16", deterministic=True, name=NASTY_NAMES[0]), 900)

    app = open_page("speedup", baseline=alone)

    assert "No run compares with this one" in words(app)
    (said,) = [text.value for text in app.text if "Baseline:" in text.value]
    assert said.splitlines() == [
        f"Baseline: {NASTY_NAMES[0]}",
        "cpu 0: cannot be compared: deterministic: on / off",
        "gpu 0: cannot be compared: precision: mixed_bfloat16 / float32; deterministic: on / off",
    ]
    assert not charts(app)


def test_two_runs_that_differ_in_two_things_are_no_dead_end(home: Settings, open_page: OpenPage) -> None:
    add_timed(home, RunSpec(name="plain"), 1_000)
    newest = add_timed(home, RunSpec(precision="mixed_bfloat16", deterministic=True), 900)

    app = open_page("speedup")

    assert "plain: cannot be compared: deterministic: on / off" in words(app)
    assert [link.proto.query_string for link in app.page_link] == [f"spec={newest}"]


def test_a_run_alone_in_the_address_finds_its_natural_baseline(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=2)

    app = open_page("speedup", other=ids["gpu"][0])

    assert (app.query_params["baseline"], app.query_params["other"]) == (ids["cpu"][1], ids["gpu"][0])
    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]

    app = open_page("speedup", other=ids["cpu"][0])

    assert "other" not in app.query_params
    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]


def test_an_other_run_that_is_a_repeat_or_gone_is_said(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=2)

    assert "all fields are the same in both runs" in words(
        open_page("speedup", baseline=ids["cpu"][0], other=ids["cpu"][1])
    )
    assert "has not ended, or is not among these" in words(open_page("speedup", other="f" * 32))


def _batches(home: Settings, repeats: int = 3) -> dict[str, str]:
    """A sweep on which the GPU begins to win in the middle of 32 and 128. Gives device -> a run of it."""
    speeds = {"cpu": {8: 1000, 32: 3000, 128: 4000}, "gpu": {8: 500, 32: 1500, 128: 8000}}
    ids: dict[str, list[str]] = {}
    for device, rates in speeds.items():
        for batch, rate in rates.items():
            spec = RunSpec(device=device, epochs=3, global_batch_size=batch, group="sweep")
            for index in range(repeats):
                ids.setdefault(device, []).append(add_timed(home, spec, rate * (1 + 0.005 * index), seed=index))
    return {device: mine[0] for device, mine in ids.items()}


@pytest.mark.parametrize("thing", ["batch size", "device"])
def test_runs_at_several_batches_show_where_the_gpu_begins_to_win(
    home: Settings, open_page: OpenPage, thing: str
) -> None:
    sweep = _batches(home)

    app = open_page("speedup", baseline=sweep["cpu"], thing=thing)

    _, figure = charts(app)
    assert figure["layout"]["title"]["text"] == (
        "The GPU is faster than the CPU from a batch of 64 on: the crossing lies between 32 and 128"
    )
    assert [trace["name"] for trace in figure["data"]] == ["CPU", "GPU"]
    assert "from batch 8 to 128, the largest measured, and had not stopped growing there" in words(app)
    assert "Batch sizes (CSV)" in [button.proto.label for button in app.get("download_button")]


def test_one_batch_has_no_curve_against_the_batch(home: Settings, open_page: OpenPage) -> None:
    cpu_and_gpu(home, repeats=1)

    assert len(charts(open_page("speedup"))) == 1


@pytest.fixture
def foreign_options(monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs of this test are someone else's: their data options are no JSON."""
    own, options = queue.params, "examples: 600 <b>"
    monkeypatch.setattr(queue, "params", lambda spec: own(spec) | {"dataset_options": options})
    return options


def test_data_options_that_someone_else_wrote_are_shown_as_they_are(
    home: Settings, open_page: OpenPage, foreign_options: str
) -> None:
    cpu_and_gpu(home)

    app = open_page("speedup")

    assert f"data set options {foreign_options}" in words(app)
    assert table(app, ALT)["Configuration"].tolist() == ["GPU"]


def test_the_same_on_a_scaling_curve(home: Settings, open_page: OpenPage, foreign_options: str) -> None:
    gpu_scaling(home, (1, 2))

    app = open_page("scaling")

    assert f"data set options {foreign_options}" in words(app)
    assert len(charts(app)) == 2
