"""Runs: nothing, one of each kind, thousands; filters in the address; a row leads to its run."""

import time

import pytest

from dashboard.components.text import count
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import table, words
from tests.dashboard.seed import NASTY_NAMES, add_many, add_run
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
