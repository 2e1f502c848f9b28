"""What every page owes its readers: typed names as typed, nothing from other hosts, both themes, the keyboard."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Lab, cells
from tests.dashboard.seed import NASTY_NAMES, add_run, history_of
from training.names import RunStatus, Tag
from training.spec import RunSpec

pytestmark = [pytest.mark.browser, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def nasty(lab: Lab) -> dict[str, str]:
    """A failed run for each nasty name, which is also its reason, user and group. Gives name -> run id."""
    return {
        name: add_run(
            lab.settings,
            RunSpec(name=name, user=name, group=name, notes=name),
            RunStatus.FAILED,
            points=history_of(2),
            tags={Tag.REASON: name, Tag.NOTICE: name},
            log=name,
        )
        for name in NASTY_NAMES
    }


@pytest.mark.parametrize("name", NASTY_NAMES)
def test_a_typed_name_is_shown_as_typed(page: Page, lab: Lab, nasty: dict[str, str], name: str) -> None:
    page.goto(f"{lab.address}/run?run={nasty[name]}&run_tab=Log")

    expect(page.locator("h1.typed-title")).to_have_text(name)
    reason_and_notice = page.locator("[class*=st-key-callout_] [data-testid=stText]")
    expect(reason_and_notice).to_have_text([name, name])
    expect(page.get_by_test_id("stCode").last).to_contain_text(name)
    # Nothing of it became an element.
    for element in ("script", "img[src=x]", "a[href^=javascript]", ".katex"):
        expect(page.locator(f"[data-testid=stMainBlockContainer] {element}")).to_have_count(0)


def test_typed_names_are_shown_as_typed_in_the_table(page: Page, lab: Lab, nasty: dict[str, str]) -> None:
    page.goto(f"{lab.address}/runs")

    for name in nasty:
        expect(cells(page, name).first).to_be_attached()


def test_a_click_opens_a_run_and_two_ticks_compare(page: Page, lab: Lab) -> None:
    for seed in (1, 2):
        add_run(lab.settings, RunSpec(name=f"ticked {seed}", precision=("float32", "mixed_bfloat16")[seed - 1]))
    page.goto(f"{lab.address}/runs?runs_text=ticked")
    expect(cells(page, "ticked 1")).to_be_attached()
    compare = page.get_by_role("link", name="Compare the two ticked")
    grid = page.get_by_test_id("stDataFrame").bounding_box()
    assert grid

    for row in (0, 1):
        page.mouse.click(grid["x"] + 16, grid["y"] + 52 + 35 * row)
    expect(compare).to_have_attribute("href", re.compile("baseline=.*other="))
    compare.click()

    expect(page.get_by_role("heading", name="Speedup")).to_be_visible()
    expect(page.get_by_text("precision: float32 / mixed_bfloat16")).to_be_visible()

    page.goto(f"{lab.address}/runs?runs_text=ticked")
    expect(cells(page, "ticked 1")).to_be_attached()
    grid = page.get_by_test_id("stDataFrame").bounding_box()
    assert grid
    page.mouse.click(grid["x"] + 250, grid["y"] + 52)
    expect(page.get_by_role("heading", name="ticked 2")).to_be_visible()


def test_nothing_is_fetched_from_another_host(page: Page, lab: Lab, nasty: dict[str, str]) -> None:
    hosts: set[str | None] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))

    for path in ("launch", "runs", f"run?run={next(iter(nasty.values()))}", "environment"):
        page.goto(f"{lab.address}/{path}")
        expect(page.locator("h1").first).to_be_visible()
        expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)

    # `None` is what data: and blob: addresses have.
    assert hosts <= {"127.0.0.1", None, ""}


@pytest.mark.parametrize("context", ["light", "dark"], indirect=True)
def test_the_page_follows_the_readers_theme(context: BrowserContext, page: Page, lab: Lab) -> None:
    page.goto(f"{lab.address}/runs")
    expect(page.locator("h1").first).to_be_visible()

    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    background = page.get_by_test_id("stApp").evaluate("element => getComputedStyle(element).backgroundColor")

    assert background == ("rgb(18, 23, 28)" if dark else "rgb(255, 255, 255)")


def test_start_can_be_reached_and_pressed_by_keyboard(page: Page, lab: Lab) -> None:
    page.goto(f"{lab.address}/launch")
    start = page.get_by_role("button", name="Start", exact=True)
    expect(start).to_be_enabled()

    start.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")

    expect(start).to_be_focused()


def test_every_control_has_a_name(page: Page, lab: Lab, nasty: dict[str, str]) -> None:
    for path in ("launch", "runs", f"run?run={next(iter(nasty.values()))}", "environment"):
        page.goto(f"{lab.address}/{path}")
        expect(page.locator("h1").first).to_be_visible()
        expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)

        nameless = page.get_by_test_id("stMainBlockContainer").evaluate(
            """root => [...root.querySelectorAll('button, input:not([type=hidden]), textarea, select, a[href]')]
                .filter(one => one.offsetParent !== null)
                .filter(one => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')
                    || one.textContent.trim() || one.title || one.closest('label') || one.placeholder
                    || (one.id && document.querySelector(`label[for="${one.id}"]`))))
                .map(one => one.outerHTML.slice(0, 200))"""
        )

        assert nameless == [], f"{path}: {nameless}"


def test_an_unknown_run_has_a_friendly_page(page: Page, lab: Lab) -> None:
    page.goto(f"{lab.address}/run?run=../../etc/passwd")

    expect(page.get_by_text("There is no such run")).to_be_visible()
    page.get_by_role("link", name="All runs").click()
    expect(page).to_have_url(re.compile("/runs$"))
