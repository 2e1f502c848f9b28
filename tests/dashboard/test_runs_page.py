"""Runs: nothing, one of each kind, thousands; filters in the address; a row leads to its run."""

import time
import typing
from urllib.parse import parse_qs

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from experiments.settings import Settings
from experiments.wording import count
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import table, words
from tests.dashboard.seed import NASTY_NAMES, add_many, add_run, cpu_and_gpu
from training.names import RunStatus
from training.spec import RunSpec

ALT = "Runs, newest first"


def test_without_a_run_the_page_says_how_to_get_one(home: Settings, open_page: OpenPage) -> None:
    app = open_page("runs")

    assert "No run yet" in words(app)
    assert "python -m experiments run" in words(app)
    assert not app.dataframe
    assert app.page_link[0].proto.label == "Launch a run"


def test_one_run_is_counted_as_one(home: Settings, open_page: OpenPage) -> None:
    add_run(home, RunSpec(name="only"))

    app = open_page("runs")

    assert "1 run in all · 0 waiting or running" in words(app)
    assert table(app, ALT)["name"].tolist() == ["only"]


def test_newest_first_with_status_in_words(morning: dict[str, str], open_page: OpenPage) -> None:
    shown = table(open_page("runs"), ALT)

    assert shown["name"].tolist()[:2] == ["next in line", "watch me"]
    assert shown["status"].tolist()[:2] == ["○ Scheduled", "► Running"]
    simulated = shown[shown["name"] == "mnist_cnn cpu mirrored 2"].iloc[0]
    assert simulated["device"] == "CPU (2 simulated)"
    assert shown[shown["name"] == "lr 1e6"].iloc[0]["reason"].startswith("worker 0 exited 1 in epoch 4")
    running = shown[shown["name"] == "watch me"].iloc[0]
    assert running["progress"] == pytest.approx(3 / 8, abs=0.01)
    assert running["val_accuracy"] == pytest.approx(0.889)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"runs_text": "LR 1E6"}, ["lr 1e6"]),
        ({"runs_status": "Failed"}, ["lr 1e6"]),
        ({"runs_group": "cpu against gpu"}, ["mnist_cnn cpu one_device 1"]),
        ({"runs_text": "omar", "runs_status": "Scheduled"}, ["next in line"]),
    ],
)
def test_filters_come_from_the_address(
    morning: dict[str, str], open_page: OpenPage, query: dict[str, str], names: list[str]
) -> None:
    app = open_page("runs", **query)

    assert table(app, ALT)["name"].tolist() == names
    assert f"{count(len(names), 'run').split()[0]} of 7 runs" in words(app)


def test_a_filter_that_leaves_nothing_says_so(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("runs", runs_text="no such run (.*")

    assert "No run matches" in words(app)
    assert not app.dataframe


def test_typing_a_filter_changes_the_table(morning: dict[str, str], open_page: OpenPage) -> None:
    app = open_page("runs")

    app.text_input(key="runs_text").set_value("too long").run()

    assert table(app, ALT)["name"].tolist() == ["too long"]


def test_nasty_names_reach_the_table_unchanged(home: Settings, open_page: OpenPage) -> None:
    for name in NASTY_NAMES:
        add_run(home, RunSpec(name=name, user=name, group=name), RunStatus.FINISHED)

    shown = table(open_page("runs"), ALT)

    for column in ("name", "user", "group"):
        assert sorted(shown[column]) == sorted(NASTY_NAMES)


def _tick(app: AppTest, *names: str) -> None:
    shown = table(app, ALT)["name"].tolist()
    app.session_state["runs_table"] = {"selection": {"rows": [shown.index(name) for name in names]}}
    app.run()
    assert not app.exception


def _compare(app: AppTest) -> typing.Any:
    return next(link.proto for link in app.page_link if link.proto.label == "Compare the two ticked")


def test_two_ticked_runs_lead_to_their_comparison(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=1)
    add_run(home, RunSpec(name="still there"), RunStatus.RUNNING)
    app = open_page("runs")
    assert _compare(app).disabled

    _tick(app, "gpu 0", "cpu 0")

    assert not _compare(app).disabled
    assert parse_qs(_compare(app).query_string) == {"baseline": ids["cpu"], "other": ids["gpu"]}

    _tick(app, "gpu 0", "still there")

    assert _compare(app).disabled


def test_a_tick_stays_with_its_run_when_a_run_is_added(home: Settings, open_page: OpenPage) -> None:
    ids = cpu_and_gpu(home, repeats=1)
    app = open_page("runs")
    _tick(app, "gpu 0", "cpu 0")
    add_run(home, RunSpec(name="newest"))
    st.cache_resource.clear()  # else the table may be a second old

    app.run()

    assert table(app, ALT)["name"].tolist()[0] == "newest"
    assert parse_qs(_compare(app).query_string) == {"baseline": ids["cpu"], "other": ids["gpu"]}
    assert app.session_state["runs_table"]["selection"]["rows"] == [1, 2]


@pytest.mark.alone
@pytest.mark.slow
def test_five_thousand_runs_are_all_there_and_fast(home: Settings, open_page: OpenPage) -> None:
    add_many(home, 5_000)
    app = open_page("runs")
    assert "5,000 runs in all" in words(app)
    assert len(table(app, ALT)) == 5_000
    assert table(app, ALT)["name"].iloc[-1] == "run 4998"

    # Once read, every later look asks only for what changed.
    started = time.perf_counter()
    app.run()

    assert time.perf_counter() - started < 2.0
