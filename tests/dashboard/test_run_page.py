"""Run: live, ended, failed, empty, unknown; typed texts as typed; what is heavy only in the open tab."""

import html
import re
import time

import pandas as pd
import pytest

from experiments import queue
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import charts, table, words
from tests.dashboard.seed import NASTY_NAMES, add_run, history_of
from training.names import PLACEMENT_COLUMNS, Artifact, RunStatus, Tag
from training.spec import RunSpec


def test_without_a_run_the_page_says_how_to_choose_one(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run")

    assert "No run chosen" in words(app)
    assert app.page_link[0].proto.label == "All runs"


@pytest.mark.parametrize(
    "run_id", ["f" * 32, "../../etc/passwd", "x" * 5_000, "' OR 1=1", "<script>alert(1)</script>", "`a`"]
)
def test_an_unknown_run_gets_a_friendly_page(morning: dict[str, str], open_page: OpenPage, run_id: str) -> None:
    app = open_page("run", run=run_id)

    assert "There is no such run" in words(app)
    assert run_id[:80] in words(app)
    assert app.page_link[0].proto.label == "All runs"


def test_a_finished_run(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["finished"])

    assert "Finished" in words(app)
    assert {metric.label: metric.value for metric in app.metric} == {
        "Epochs done": "5 of 5",
        "Validation accuracy": "89.90%",
        "Validation loss": "0.2850",
        "Examples/s, last epoch": "7,539",
        "Time in all": "52.4 s",
    }
    titles = [chart["layout"]["title"]["text"] for chart in charts(app)]
    assert titles == [
        "Best validation loss is 0.285, at epoch 5",
        "Best validation accuracy is 89.90%, at epoch 5",
        "Training took 78% of the run's 52.7 s, after 1.8 s in the queue",
        "Steady throughput is 7,442 examples/s",
        "Waiting for input took 1.4% of the training time of later epochs",
    ]
    phases = table(app, "Time by phase")
    assert "training, first epoch (warm-up)" in phases["phase"].tolist()
    assert table(app, "Time by epoch")["Epoch"].tolist()[0] == "1 (warm-up)"
    # It is compared as the candidate: its natural baseline is found where it is compared.
    (compare,) = [link for link in app.page_link if link.proto.label == "Compare"]
    assert compare.proto.query_string == f"other={morning['finished']}"
    # It has ended: nothing to stop.
    assert [button.label for button in app.button] == ["Use this spec again"]


def test_a_running_run_shows_how_far_it_is_and_can_be_stopped(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["running"])

    assert app.progress[0].value == pytest.approx(37.5, abs=1)
    assert re.match(r"Training, epoch 4 of 8 · about \d+ s left", app.progress[0].text)
    assert {metric.label: metric.value for metric in app.metric}["Epochs done"] == "3 of 8"
    assert "Yes, stop it" in [button.label for button in app.button]


def test_a_failed_run_says_why_before_anything_else(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["failed"])

    said = words(app)
    assert "**This run failed**" in said
    assert any(text.value.endswith("OOM when allocating [65536,26]") for text in app.text)


def test_nan_and_infinity_are_gaps_with_a_note(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["failed"])

    assert "loss is NaN at epoch 2 and at 1 more; val_loss is infinite at epoch 2 and at 1 more" in words(app)
    loss = charts(app)[0]["data"][0]
    assert loss["y"] == [2.3, None, None]
    assert {metric.label: metric.value for metric in app.metric}["Validation loss"] == "–"

    app.toggle(key="run_logarithmic").set_value(True).run()

    assert not app.exception
    assert app.query_params["run_log_scale"] == "1", "a link shows a colleague the same view"
    assert charts(app)[0]["layout"]["yaxis"]["type"] == "log"


def test_a_waiting_run_says_what_it_waits_for(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["waiting"])

    assert "**Waiting to start**" in words(app)
    assert "waiting for 2 CPUs" in [text.value for text in app.text]
    assert "Curves appear here after the first epoch." in words(app)
    assert "Times appear here once the process has started." in words(app)


def test_simulated_devices_are_marked(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["simulated"], run_tab="Devices")

    assert "2 simulated devices" in words(app)
    agree = table(app, "What was asked and what TensorFlow reports").set_index("What")
    assert agree.loc["Replicas in sync"].tolist() == ["2", "2", "✓"]
    assert agree.loc["Devices"].tolist()[:2] == [
        "CPU:0, CPU:1 (simulated: 2 logical devices on one CPU)",
        "CPU:0, CPU:1",
    ]


def test_devices_tab_counts_ops_and_sets_asked_beside_actual(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["finished"], run_tab="Devices")

    assert table(app, "Ops on each device").to_dict("records") == [
        {"device": "CPU:0", "compute": 4, "input": 2, "total": 6},
        {"device": "CPU:1", "compute": 3, "input": 0, "total": 3},
    ]
    titles = [chart["layout"]["title"]["text"] for chart in charts(app)]
    assert titles[-2:] == [
        "57% of 7 compute ops ran on CPU:0, the rest on 1 other device",
        "All 2 input ops ran on CPU:0",
    ]
    # The same run on the page of its placement.
    full = table(open_page("placement", run=morning["finished"]), "Ops by device")
    assert full[["Role", "Device", "Ops"]].to_numpy().tolist() == [
        ["compute", "CPU:0", 4],
        ["compute", "CPU:1", 3],
        ["input", "CPU:0", 2],
    ]
    manual = table(app, "Manual placement, asked and actual").iloc[0].to_dict()
    assert manual == {
        "Layer": "dense",
        "Asked": "CPU:0",
        "Ran on": "CPU:0, CPU:1",
        "Ops": 2,
        "Elsewhere": 1,
        "Kept": "✕ not kept",
    }


def test_other_replicas_than_asked_are_told_apart(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(
        home, RunSpec(strategy="mirrored", replicas=2, logical_devices=2), tags={Tag.REPLICAS_IN_SYNC: "1"}
    )

    app = open_page("run", run=run_id, run_tab="Devices")

    agree = table(app, "What was asked and what TensorFlow reports").set_index("What")
    assert agree.loc["Replicas in sync"].tolist() == ["2", "1", "≠ differs"]


def test_a_large_placement_table_is_capped(home: Settings, open_page: OpenPage) -> None:
    rows = [(f"op{n}", "MatMul", "CPU:0", "graph", "compute", "", 1) for n in range(200_000)]
    run_id = add_run(home, RunSpec(), placement=pd.DataFrame(rows, columns=list(PLACEMENT_COLUMNS)))

    app = open_page("run", run=run_id, run_tab="Devices")

    assert len(table(app, "Ops and their devices")) == 1_000
    assert "The 1,000 commonest; the download holds all." in words(app)
    assert table(app, "Ops on each device")["total"].tolist() == [200_000]


def test_spec_tab_shows_the_command_and_what_was_changed(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["simulated"], run_tab="Spec")

    assert app.code[0].value == (
        "python -m experiments run --set strategy=mirrored --set replicas=2 --set logical_devices=2 --set user=omar"
    )
    fields = table(app, "Spec").set_index("Field")
    assert fields.loc["strategy"].tolist() == ["mirrored", "changed"]
    assert fields.loc["epochs"].tolist() == ["5", ""]


def test_environment_tab_is_flat(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["finished"], run_tab="Environment")

    values = dict(table(app, "Environment").itertuples(index=False, name=None))
    assert values["tensorflow"] == "2.21.0"
    assert values["cpu.model"] == "AMD EPYC"


def test_log_tab_shows_the_end_as_code(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["finished"], run_tab="Log")

    lines = app.code[0].value.splitlines()
    assert lines[-1] == "epoch 399: loss 0.0013"
    assert len(lines) <= 301
    assert app.code[0].proto.language in ("", "plaintext")


def test_the_log_of_each_worker_has_an_address(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(home, RunSpec(strategy="multi_worker_mirrored", workers=2), log="from the chief\n")
    app = open_page("run", run=run_id, run_tab="Log", run_worker="1")

    assert app.selectbox(key="run_log_worker").value == "1"
    assert "It left no log that can be read here." in words(app)

    app.selectbox(key="run_log_worker").set_value("0").run()

    assert not app.exception
    assert app.query_params["run_worker"] == "0"
    assert app.code[-1].value == "from the chief"


def test_what_is_drawn_can_be_taken_away(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("run", run=morning["finished"])

    labels = [button.proto.label for button in app.get("download_button")]
    assert labels == ["History (CSV)", "Phases (CSV)", "Epochs (CSV)", "Windows (CSV)"]


@pytest.mark.parametrize("name", NASTY_NAMES)
def test_a_nasty_name_is_a_plain_title(home: Settings, open_page: OpenPage, name: str) -> None:
    run_id = add_run(home, RunSpec(name=name, notes=name), RunStatus.FAILED, tags={Tag.REASON: name})

    app = open_page("run", run=run_id)

    title = next(found.proto.body for found in app.get("html") if "typed-title" in found.proto.body)
    inner = re.fullmatch(r'<h1 class="typed-title">(.*)</h1>', title)
    assert inner
    assert "<" not in inner[1]
    assert html.unescape(inner[1]) == name
    # The reason is a text, the one element that Streamlit reads nothing into; no Markdown holds any of it.
    assert name in [text.value for text in app.text]
    assert not [
        found for kind in ("markdown", "caption") for found in app.get(kind) if name in str(getattr(found, "value", ""))
    ]


def test_stop_reaches_the_queue(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(home, RunSpec(), RunStatus.RUNNING, points=history_of(1))
    app = open_page("run", run=run_id)

    assert queue.get_run(home, run_id).data.tags.get(Tag.CANCEL_REQUESTED) is None
    app.button(key="run_stop_yes").click().run()

    assert queue.get_run(home, run_id).data.tags[Tag.CANCEL_REQUESTED] == "true"
    assert "Stopping; finished epochs are kept." in words(app)
    assert "Yes, stop it" not in [button.label for button in app.button]


def test_a_stop_that_does_not_arrive_is_said(
    home: Settings, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = add_run(home, RunSpec(), RunStatus.RUNNING, points=history_of(1))
    app = open_page("run", run=run_id)

    def away(*_: object) -> None:
        raise ConnectionError("no route to the server")

    with monkeypatch.context() as patch:
        patch.setattr(queue, "cancel", away)
        app.button(key="run_stop_yes").click().run()
    assert not app.exception
    assert "**The tracking store does not answer**" in words(app)
    assert "**The tracking store does not answer**" not in words(app.run())
    app.button(key="run_stop_yes").click().run()
    assert queue.get_run(home, run_id).data.tags[Tag.CANCEL_REQUESTED] == "true"


def test_stopping_a_run_that_has_not_started_ends_it_at_once(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(home, RunSpec(), RunStatus.SCHEDULED)
    app = open_page("run", run=run_id)

    app.button(key="run_stop_yes").click().run()

    assert queue.get_run(home, run_id).info.status == RunStatus.KILLED
    time.sleep(1.1)  # the table of runs is at most a second old; the page redraws by itself every two
    assert "**This run was stopped**" in words(app.run())


def test_a_run_of_someone_else_with_nothing_recorded(home: Settings, open_page: OpenPage) -> None:
    run = home.client().create_run(home.experiment_id(), run_name="foreign")
    home.client().set_terminated(run.info.run_id)

    for tab in ("Times", "Devices", "Spec", "Environment", "Log"):
        app = open_page("run", run=run.info.run_id, run_tab=tab)
        assert "foreign" in words(app)
    assert "It left no log that can be read here." in words(app)


def test_broken_records_do_not_break_the_page(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(
        home, RunSpec(), tags={Tag.REPLICAS_IN_SYNC: "many", Tag.PARAMETERS: "?", Tag.JIT_COMPILE: "maybe"}
    )
    home.client().log_text(run_id, "{not json", Artifact.SPEC)
    home.client().log_text(run_id, "[1, 2]", Artifact.ENVIRONMENT)

    for tab in ("Devices", "Spec", "Environment"):
        open_page("run", run=run_id, run_tab=tab)


def test_a_link_to_mlflow_only_where_there_is_a_server(
    morning: dict[str, str], open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not open_page("run", run=morning["finished"]).link_button

    monkeypatch.setenv("SPEEDUP_LAB_MLFLOW_UI", "http://lab.example:5000/")
    from dashboard import data

    data._settings.clear()

    link = open_page("run", run=morning["finished"]).link_button[0]
    assert re.fullmatch(rf"http://lab.example:5000/#/experiments/\d+/runs/{morning['finished']}", link.proto.url)
