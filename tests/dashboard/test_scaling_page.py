"""Scaling: nothing, one number of devices, a curve in full, the address, doubtful runs, and completing a curve."""

import dataclasses

import pytest

from dashboard import analyses
from dashboard.components import note
from experiments import completing, queue
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import charts, table, words
from tests.dashboard.seed import NASTY_NAMES, SEEN, add_run, add_timed, gpu_scaling, timed
from training.names import Metric, RunStatus, Tag
from training.spec import RunSpec

POINTS, MISSING = "Points of the curve", "Missing runs"


def test_without_a_run_the_page_says_how_to_get_one(home: Settings, open_page: OpenPage) -> None:
    app = open_page("scaling")

    assert "No curve yet" in words(app)
    (link,) = app.page_link
    assert link.proto.label == "Start a ready-made experiment"
    # What the link says is what the Launch page opens with.
    launch = open_page("launch", **note.READY_MADE)
    assert launch.segmented_control(key="launch_what").value == "Ready-made experiment"
    assert "launch_plan" in [box.key for box in launch.selectbox]


def test_one_number_of_devices_is_no_curve(home: Settings, open_page: OpenPage) -> None:
    run_id = add_timed(home, RunSpec(name=NASTY_NAMES[3]), 5_000)

    app = open_page("scaling")

    assert "No two runs differ in the number of replicas or workers only" in words(app)
    assert app.page_link[0].proto.query_string == f"spec={run_id}"


def test_a_curve_in_full(home: Settings, open_page: OpenPage) -> None:
    gpu_scaling(home)

    app = open_page("scaling")

    throughput, efficiency = charts(app)
    assert throughput["layout"]["title"]["text"].startswith("8 replicas train 5.1")
    assert throughput["layout"]["title"]["text"].endswith("as fast as 1: 64% of ideal")
    assert efficiency["layout"]["title"]["text"].startswith("4 replicas work at 80% efficiency")
    points = table(app, POINTS)
    assert points["Replicas"].tolist() == [1, 2, 4, 8]
    assert points["Runs"].tolist() == [3, 3, 3, 3]
    assert points["Called"].tolist() == ["the baseline", "faster", "faster", "faster"]
    assert points["Efficiency"].tolist() == ["100%", "93%", "81%", "64%"]
    said = words(app)
    assert "of a step does not get faster with more replicas (" in said
    assert "AFIPS Spring Joint Computer Conference (1967)" in said
    assert "work at 80% efficiency or better, by Amdahl's law" in said
    assert (
        "these runs differ in the number of replicas, at a fixed global batch of 512: strong scaling, with what" in said
    )
    assert "Neither GPUs nor workers were sampled in that run" in said
    assert len(table(app, "Runs behind the figure")) == 12


def test_two_numbers_predict_nothing_and_say_why(home: Settings, open_page: OpenPage) -> None:
    gpu_scaling(home, counts=(1, 2))

    app = open_page("scaling")

    assert "Nothing is predicted beyond what was measured" in words(app)
    assert "2 numbers of devices were measured, 3 are needed" in words(app)
    assert not [trace for trace in charts(app)[0]["data"] if trace.get("name", "").startswith("predicted")]


def test_the_chosen_efficiency_and_curve_stand_in_the_address(home: Settings, open_page: OpenPage) -> None:
    gpu_scaling(home)
    app = open_page("scaling")

    app.slider(key="scaling_efficiency_at").set_value(90).run()

    assert app.query_params["efficiency"] == "90"
    assert "work at 90% efficiency or better" in words(app)
    again = open_page("scaling", **dict(app.query_params))
    assert again.slider(key="scaling_efficiency_at").value == 90
    assert again.query_params["curve"] == app.query_params["curve"]
    assert charts(again) == charts(app)


@pytest.mark.parametrize(("name", "value"), [("efficiency", "7"), ("efficiency", "²"), ("curve", "<b>"), ("back", ",")])
def test_an_address_with_nonsense_shows_the_newest_curve(
    home: Settings, open_page: OpenPage, name: str, value: str
) -> None:
    gpu_scaling(home, counts=(1, 2), repeats=1)

    app = open_page("scaling", **{name: value})

    assert table(app, POINTS)["Replicas"].tolist() == [1, 2]
    assert "At least 2 replicas work at 80% efficiency" in words(app)
    assert ("names a curve that these runs do not make" in words(app)) == (name == "curve")


def _simulated(home: Settings) -> list[str]:
    """A curve over simulated replicas of a CPU: every run is doubtful. Gives the run ids."""
    specs = [
        RunSpec(strategy="mirrored", replicas=2, logical_devices=2, epochs=3, group="sim", name=NASTY_NAMES[0]),
        RunSpec(logical_devices=2, epochs=3, group="sim", name=NASTY_NAMES[1]),
    ]
    return [
        add_timed(home, spec, rate, seed=n) for n, (spec, rate) in enumerate(zip(specs, (5_500, 5_000), strict=True))
    ]


def test_a_curve_of_doubtful_runs_only_shows_them_and_they_can_be_put_back(home: Settings, open_page: OpenPage) -> None:
    ids = _simulated(home)
    app = open_page("scaling")
    assert "No run of this curve can be used" in words(app)
    assert not charts(app)
    assert {NASTY_NAMES[0], NASTY_NAMES[1]} <= {text.value for text in app.text}
    assert "2 simulated replicas share the same hardware" in [text.value for text in app.text]

    app.button(key="scaling_all").click().run()

    assert not app.exception
    assert table(app, POINTS)["Runs"].tolist() == [1, 1]
    assert set(app.query_params["back"].split(",")) == set(ids)
    assert charts(app)[0]["layout"]["title"]["text"].endswith("one run each: spread between runs unknown")

    app.button(key="scaling_none").click().run()

    assert not charts(app)


def test_completing_a_curve_queues_exactly_what_is_missing_once(home: Settings, open_page: OpenPage) -> None:
    ids = _simulated(home)
    app = open_page("scaling", back=",".join(ids))
    missing = table(app, MISSING)
    wanted = dict(zip(missing["Replicas"], missing["Runs to queue"], strict=True))
    assert wanted == {1: "2", 2: "2"}
    before = set(analyses.data.runs()["run_id"])
    button = next(each for each in app.button if each.label == "Queue these 4 runs")

    button.click().run()
    # The second click of a double click finds the button gone.
    button.click().run()

    assert not app.exception
    assert "4 runs queued" in words(app)
    assert [link.proto.query_string for link in app.page_link if link.proto.label == "Watch them on the Runs page"] == [
        "runs_status=Scheduled"
    ]
    client = home.client()
    found = [run for run in client.search_runs([home.experiment_id()]) if run.info.run_id not in before]
    assert sorted((run.data.params["strategy"], run.data.params["replicas"]) for run in found) == [
        ("mirrored", "2"),
        ("mirrored", "2"),
        ("one_device", "1"),
        ("one_device", "1"),
    ]
    assert {run.info.status for run in found} == {RunStatus.SCHEDULED}
    assert {run.data.tags[Tag.GROUP] for run in found} == {"sim"}
    assert {run.data.params["logical_devices"] for run in found} == {"2"}
    assert {run.data.params["global_batch_size"] for run in found} == {"64"}
    assert len({run.data.tags[Tag.SUBMISSION] for run in found}) == 4
    assert NASTY_NAMES[0] not in {run.info.run_name for run in found}

    # What is under way is not missing any more, for nobody.
    again = open_page("scaling", back=",".join(ids))
    assert not [each for each in again.button if each.label.startswith("Queue")]
    assert "or they are under way" in words(again)


def test_the_same_button_pressed_twice_queues_once(home: Settings, open_page: OpenPage) -> None:
    ids = _simulated(home)
    open_page("scaling", back=",".join(ids))
    runs = analyses.ended_runs()
    (key,) = analyses.curves(runs)["key"].unique()
    curve, evidence = analyses.scaling_curve(runs, key, 0.8, ids)
    missing = analyses.missing(evidence, curve, halve=False)

    first = analyses.queue_missing(missing, key, "", "one-token")
    second = analyses.queue_missing(missing, key, "", "one-token")

    assert first == second
    assert len(first[0]) == 4
    assert len(set(first[0])) == 4


def test_what_no_machine_can_run_is_refused_and_not_queued(home: Settings, open_page: OpenPage) -> None:
    gpu_scaling(home, counts=(1, 2), repeats=2)

    app = open_page("scaling")

    missing = table(app, MISSING)
    assert missing["Runs to queue"].eq("none").all()
    assert missing["Cannot be queued"].str.len().gt(0).all()
    assert "None of them can be queued; each row says why." in words(app)


def test_the_slowest_worker_is_named(home: Settings, open_page: OpenPage) -> None:
    from mlflow.entities import Metric as Point

    for workers, rate in ((1, 5_000.0), (2, 9_000.0)):
        strategy = "multi_worker_mirrored" if workers > 1 else "one_device"
        spec = RunSpec(strategy=strategy, workers=workers, cpu_threads=1, epochs=3)
        shares = [
            Point(Metric.WORKER_THROUGHPUT.format(index=index), speed, 0, epoch)
            for index, speed in enumerate((5_000.0, 4_000.0)[: workers if workers > 1 else 0])
            for epoch in range(3)
        ]
        add_run(home, spec, points=[*timed(rate), *shares], tags={**SEEN, Tag.REPLICAS_IN_SYNC: str(workers)})

    app = open_page("scaling")

    assert "The slowest is worker 1: the others wait for it." in [text.value for text in app.text]
    assert table(app, "Each device")["Examples/s"].tolist() == ["5,000", "4,000"]
    assert table(app, POINTS)["Workers"].tolist() == [1, 2]


def test_workers_with_several_replicas_each_are_counted_as_workers(home: Settings, open_page: OpenPage) -> None:
    for workers, rate in ((1, 5_000.0), (3, 12_000.0)):
        strategy = "multi_worker_mirrored" if workers > 1 else "mirrored"
        spec = RunSpec(device="gpu", strategy=strategy, workers=workers, replicas=2, global_batch_size=96, epochs=3)
        add_timed(home, spec, rate)

    app = open_page("scaling")

    throughput, _ = charts(app)
    dots = next(trace for trace in throughput["data"] if trace["name"] == "runs")
    assert dots["x"] == table(app, POINTS)["Workers"].tolist() == [1, 3]
    assert "**Each device of the newest run on 3**" in words(app)


def test_a_missing_run_is_its_template_with_the_point_changed() -> None:
    template = RunSpec(name="mine", device="gpu", strategy="mirrored", replicas=2, gpus=(5, 6), group="g", seed=4)
    row = {"strategy": "mirrored", "replicas": 4, "workers": 1, "logical_devices": 0, "global_batch_size": 128}

    spec = completing.point_spec(template, row)

    assert spec == dataclasses.replace(template, name="", gpus=None, replicas=4, global_batch_size=128)
    assert queue.params(spec)["group"] == "g"
