"""Launch, watch, stop, see the result: through the real page, a real controller and a real training process."""

import re
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from experiments.results import Results
from tests.browser.conftest import Lab, cells
from training.names import RunStatus

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def open_launch(page: Page, lab: Lab, name: str) -> None:
    """The form, filled for a run on synthetic data."""
    page.goto(f"{lab.address}/launch")
    choose(page, "Data set", "Synthetic")
    fill(page.get_by_role("textbox", name="Run name", exact=True), name)
    expect(page.get_by_test_id("stCode").filter(has_text=f"name={name}")).to_be_visible()


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=re.compile(label)).click()
    page.get_by_role("option", name=re.compile(option)).click()


def fill(field: Locator, value: str) -> None:
    field.fill(value)
    field.press("Enter")


def set_number(page: Page, label: str, value: int) -> None:
    fill(page.get_by_role("spinbutton", name=label, exact=True), str(value))


def runs_named(lab: Lab, name: str) -> list[dict]:
    return [run for run in Results(lab.settings).rows() if run["name"] == name]


def wait_for_one(lab: Lab, name: str) -> dict:
    deadline = time.monotonic() + 60
    while not (found := runs_named(lab, name)):
        assert time.monotonic() < deadline, f"no run {name} was queued"
        time.sleep(0.2)
    return found[0]


def test_launch_watch_and_see_the_result(page: Page, lab: Lab) -> None:
    open_launch(page, lab, "from-the-browser")
    page.get_by_text("More: Data set options").click()
    set_number(page, "Examples", 640)
    set_number(page, "Validation examples", 100)
    set_number(page, "Epochs", 2)
    expect(page.get_by_test_id("stCode").filter(has_text="epochs=2")).to_be_visible()

    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("link", name="Watch the run").click()

    expect(page.get_by_role("heading", name="from-the-browser")).to_be_visible()
    # Without a reload: the page follows the run by itself, from waiting to its end.
    expect(page.get_by_text(re.compile("Finished$"))).to_be_visible(timeout=240_000)
    expect(page.get_by_text("2 of 2", exact=True)).to_be_visible()
    expect(page.get_by_text(re.compile("Best validation loss is")).first).to_be_visible()
    expect(page.get_by_role("button", name="Stop run")).to_have_count(0)
    (run,) = runs_named(lab, "from-the-browser")
    assert run["status"] == RunStatus.FINISHED
    assert run["epoch"] == 2
    assert run["run_id"] in page.url

    page.get_by_role("tab", name="Devices").click()
    expect(page.get_by_text(re.compile("compute ops ran on CPU:0")).first).to_be_visible()
    page.get_by_role("tab", name="Log").click()
    expect(page.get_by_role("button", name="Log", exact=True)).to_be_visible()

    # The run is in the table, and its row leads back to it.
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    fill(page.get_by_role("textbox", name="Search"), "from-the-browser")
    expect(page).to_have_url(re.compile("runs_text=from-the-browser"))
    expect(cells(page, "from-the-browser")).to_be_attached()
    grid = page.get_by_test_id("stDataFrame").bounding_box()
    assert grid
    page.mouse.click(grid["x"] + 250, grid["y"] + 50)
    expect(page.get_by_role("heading", name="from-the-browser")).to_be_visible()


def stop(page: Page) -> None:
    page.get_by_role("button", name="Stop run").click()
    page.get_by_role("button", name="Yes, stop it").click()


def test_a_double_click_starts_one_run(page: Page, lab: Lab) -> None:
    open_launch(page, lab, "clicked-twice")
    page.get_by_text("More: Data set options").click()
    set_number(page, "Examples", 64)
    set_number(page, "Epochs", 1)
    expect(page.get_by_test_id("stCode").filter(has_text="epochs=1")).to_be_visible()

    page.get_by_role("button", name="Start", exact=True).dblclick()

    wait_for_one(lab, "clicked-twice")
    time.sleep(5)
    assert len(runs_named(lab, "clicked-twice")) == 1


def test_a_reload_keeps_the_run_and_stop_ends_it(page: Page, lab: Lab) -> None:
    open_launch(page, lab, "stop-me")
    page.get_by_text("More: Data set options").click()
    set_number(page, "Examples", 640)
    set_number(page, "Epochs", 2_000)
    expect(page.get_by_test_id("stCode").filter(has_text="epochs=2000")).to_be_visible()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("link", name="Watch the run").click()
    expect(page.get_by_text(re.compile(r"(Training|Validating), epoch ([2-9]|\d{2,}) of 2000"))).to_be_visible(
        timeout=240_000
    )
    run_id = wait_for_one(lab, "stop-me")["run_id"]

    page.reload()

    # The same run, still training, for this and for any other session.
    expect(page.get_by_role("heading", name="stop-me")).to_be_visible()
    expect(page.get_by_text(re.compile(r"(Training|Validating), epoch \d+ of 2000"))).to_be_visible()
    assert len(runs_named(lab, "stop-me")) == 1

    stop(page)

    expect(page.get_by_text("This run was stopped")).to_be_visible(timeout=60_000)
    (run,) = runs_named(lab, "stop-me")
    assert run["run_id"] == run_id
    assert run["status"] == RunStatus.KILLED
    assert run["epoch"] >= 1


def test_a_second_person_sees_and_stops_the_same_live_run(page: Page, lab: Lab) -> None:
    open_launch(page, lab, "seen-by-all")
    set_number(page, "Epochs", 2_000)
    expect(page.get_by_test_id("stCode").filter(has_text="epochs=2000")).to_be_visible()
    page.get_by_role("button", name="Start", exact=True).click()
    run_id = wait_for_one(lab, "seen-by-all")["run_id"]
    assert page.context.browser
    other = page.context.browser.new_context()
    try:
        tab = other.new_page()
        tab.goto(f"{lab.address}/?run={run_id}")
        expect(tab.get_by_role("heading", name="seen-by-all")).to_be_visible()
        stop(tab)
        expect(tab.get_by_text("This run was stopped")).to_be_visible(timeout=120_000)
    finally:
        other.close()
