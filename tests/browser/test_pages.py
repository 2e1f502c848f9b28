"""What every page owes its readers: typed names as typed, nothing from other hosts, both themes, the keyboard."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from dashboard import report
from tests.browser.conftest import Lab, cells, go, new_context, new_tab
from tests.dashboard.seed import NASTY_NAMES, PLACEMENT, SEEN, add_run, history_of, timed
from training.names import RunStatus, Tag
from training.spec import RunSpec

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


EVERY_NAME = " ".join(NASTY_NAMES)
"""Each of them in one, to draw few pages. Two of them stand at a text's start as well."""


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
        for name in (*NASTY_NAMES, EVERY_NAME)
    }


@pytest.fixture(scope="module")
def visits(browser: Browser) -> Iterator[tuple[Page, set[str | None]]]:
    """One tab, in which the tests go from page to page as a person does, and the hosts that it asks for anything."""
    hosts: set[str | None] = set()
    context = new_context(browser)
    tab = new_tab(context)
    tab.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    yield tab, hosts
    context.close()


@pytest.fixture
def visited(visits: tuple[Page, set[str | None]]) -> Page:
    return visits[0]


# The one that holds the others comes last: until a page is drawn, the one before is still there.
@pytest.mark.parametrize("name", [NASTY_NAMES[0], NASTY_NAMES[2], EVERY_NAME])
def test_a_typed_name_is_shown_as_typed(visited: Page, lab: Lab, nasty: dict[str, str], name: str) -> None:
    page = visited
    go(page, f"{lab.address}/run?run={nasty[name]}&run_tab=Log")

    expect(page.locator("h1.typed-title")).to_have_text(name)
    reason_and_notice = page.locator("[class*=st-key-callout_] [data-testid=stText]")
    expect(reason_and_notice).to_have_text([name, name])
    expect(page.get_by_test_id("stCode").last).to_contain_text(name)
    # Nothing of it became an element.
    for element in ("script", "img[src=x]", "a[href^=javascript]", ".katex"):
        expect(page.locator(f"[data-testid=stMainBlockContainer] {element}")).to_have_count(0)


def test_typed_names_are_shown_as_typed_in_the_table(visited: Page, lab: Lab, nasty: dict[str, str]) -> None:
    go(visited, f"{lab.address}/runs")

    for name in nasty:
        expect(cells(visited, name).first).to_be_attached()


def test_a_click_opens_a_run_and_two_ticks_compare(visited: Page, lab: Lab) -> None:
    page = visited
    for seed in (1, 2):
        add_run(lab.settings, RunSpec(name=f"ticked {seed}", precision=("float32", "mixed_bfloat16")[seed - 1]))
    go(page, f"{lab.address}/runs?runs_text=ticked")
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

    go(page, f"{lab.address}/runs?runs_text=ticked")
    expect(cells(page, "ticked 1")).to_be_attached()
    grid = page.get_by_test_id("stDataFrame").bounding_box()
    assert grid
    page.mouse.click(grid["x"] + 250, grid["y"] + 52)
    expect(page.get_by_role("heading", name="ticked 2")).to_be_visible()


SCRIPT = NASTY_NAMES[0]


@pytest.fixture(scope="module")
def measured(lab: Lab) -> str:
    """Finished runs on one and on two workers, with a placement, in a group whose name is a script. Gives one's id."""
    workers = {"strategy": "multi_worker_mirrored", "workers": 2, "cpu_threads": 1}
    for fields in ({"cpu_threads": 1}, workers):
        spec = RunSpec.from_dict({"name": SCRIPT, "group": SCRIPT, "user": SCRIPT, "epochs": 3} | fields)
        tags = {**SEEN, Tag.REPLICAS_IN_SYNC: str(spec.workers)}
        for seed in range(2):
            points = timed(5_000.0 * spec.workers * (1 + 0.01 * seed), seed=seed)
            latest = add_run(lab.settings, spec, points=points, tags=tags, placement=PLACEMENT)
    return latest


NAMELESS = """root => [...root.querySelectorAll('button, input:not([type=hidden]), textarea, select, a[href]')]
    .filter(one => one.offsetParent !== null)
    .filter(one => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')
        || one.textContent.trim() || one.title || one.closest('label') || one.placeholder
        || (one.id && document.querySelector(`label[for="${one.id}"]`))))
    .map(one => one.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize(
    ("path", "heading"),
    [
        ("launch", "Launch a run"),
        ("runs", "Runs"),
        ("run?run={nasty}", SCRIPT),
        ("environment", "Environment"),
        ("speedup?group={group}", "Speedup"),
        ("scaling?group={group}", "Scaling"),
        ("placement?run={measured}", "Placement"),
    ],
)
def test_a_page_fetches_nothing_from_elsewhere_and_names_its_controls(
    visits: tuple[Page, set[str | None]], lab: Lab, nasty: dict[str, str], measured: str, path: str, heading: str
) -> None:
    page, hosts = visits

    go(page, f"{lab.address}/{path.format(nasty=nasty[SCRIPT], measured=measured, group=quote(SCRIPT))}")
    expect(page.locator("h1").first).to_have_text(heading)
    if path.startswith(("speedup", "scaling", "placement")):
        expect(page.locator(".js-plotly-plot svg.main-svg").first).to_be_visible()
        typed = page.get_by_role("combobox", name="Run" if "placement" in path else "Group", exact=True)
        expect(typed).to_have_value(re.compile(f"^{re.escape(SCRIPT)}"))
        typed.click()
        expect(page.get_by_role("option").filter(has_text=SCRIPT).first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)

    main = page.get_by_test_id("stMainBlockContainer")
    expect(main.locator("script")).to_have_count(0)
    # The failed run's own page says why it failed.
    errors = (
        "[data-testid=stException]" if path.startswith("run?") else "[data-testid=stException], [class*=callout_error]"
    )
    expect(main.locator(errors)).to_have_count(0)
    asked = set(hosts)
    hosts.clear()
    # `None` is what data: and blob: addresses have.
    assert asked <= {"127.0.0.1", None, ""}
    assert main.evaluate(NAMELESS) == []


def test_a_report_draws_its_charts_from_a_file_without_a_network(
    page: Page, lab: Lab, measured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEEDUP_LAB_HOME", str(lab.settings.home))
    file = tmp_path / "report.html"
    assert report.main(["--group", SCRIPT, "--output", str(file)]) == 0
    said: list[str] = []
    fetched: set[str] = set()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: fetched.add(urlsplit(request.url).scheme))
    page.context.set_offline(True)
    try:
        page.goto(file.as_uri())

        expect(page.locator("h1")).to_have_text(SCRIPT)
        places = page.locator("[data-figure]")
        assert places.count() >= 2
        for place in places.all():
            expect(place.locator("svg.main-svg").first).to_be_visible()
    finally:
        page.context.set_offline(False)
    assert said == []
    assert fetched <= {"file", "data", "blob"}


@pytest.mark.parametrize("context", ["light", "dark"], indirect=True)
def test_the_page_follows_the_readers_theme(context: BrowserContext, page: Page, lab: Lab) -> None:
    page.goto(f"{lab.address}/runs")
    expect(page.locator("h1").first).to_be_visible()

    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    background = page.get_by_test_id("stApp").evaluate("element => getComputedStyle(element).backgroundColor")

    assert background == ("rgb(18, 23, 28)" if dark else "rgb(255, 255, 255)")


def test_start_can_be_reached_and_pressed_by_keyboard(visited: Page, lab: Lab) -> None:
    page = visited
    go(page, f"{lab.address}/launch")
    start = page.get_by_role("button", name="Start", exact=True)
    expect(start).to_be_enabled()

    start.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")

    expect(start).to_be_focused()


def test_an_unknown_run_has_a_friendly_page(page: Page, lab: Lab) -> None:
    page.goto(f"{lab.address}/run?run=../../etc/passwd")

    expect(page.get_by_text("There is no such run")).to_be_visible()
    page.get_by_role("link", name="All runs").click()
    expect(page).to_have_url(re.compile("/runs$"))
