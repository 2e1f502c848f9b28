"""Launch, watch, stop, see the result: through the real page, a real controller and a real training process."""

import re
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from experiments.results import Results
from tests.browser.conftest import Lab, cells, new_context, new_tab
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


def test_a_double_click_starts_one_run_which_a_reload_keeps_and_another_person_stops(page: Page, lab: Lab) -> None:
    open_launch(page, lab, "clicked-twice")
    page.get_by_text("More: Data set options").click()
    set_number(page, "Examples", 640)
    set_number(page, "Epochs", 2_000)
    # The browser needs the other core.
    set_number(page, "CPU threads", 1)
    expect(page.get_by_test_id("stCode").filter(has_text="cpu_threads=1")).to_be_visible()

    page.get_by_role("button", name="Start", exact=True).dblclick()

    run_id = wait_for_one(lab, "clicked-twice")["run_id"]
    page.get_by_role("link", name="Watch the run").click()
    expect(page.get_by_text(re.compile(r"(Training|Validating), epoch ([2-9]|\d{2,}) of 2000"))).to_be_visible(
        timeout=240_000
    )
    assert len(runs_named(lab, "clicked-twice")) == 1

    page.reload()

    # The same run, still training, for this and for any other session.
    expect(page.get_by_role("heading", name="clicked-twice")).to_be_visible()
    expect(page.get_by_text(re.compile(r"(Training|Validating), epoch \d+ of 2000"))).to_be_visible()
    assert len(runs_named(lab, "clicked-twice")) == 1

    browser = page.context.browser
    assert browser
    another = new_context(browser)
    try:
        tab = new_tab(another)
        tab.goto(f"{lab.address}/?run={run_id}")
        expect(tab.get_by_role("heading", name="clicked-twice")).to_be_visible()
        page.close()
        tab.get_by_role("button", name="Stop run").click()
        tab.get_by_role("button", name="Yes, stop it").click()
        expect(tab.get_by_text("This run was stopped")).to_be_visible(timeout=60_000)
    finally:
        another.close()
    (run,) = runs_named(lab, "clicked-twice")
    assert (run["run_id"], run["status"]) == (run_id, RunStatus.KILLED)
    assert run["epoch"] >= 1
