"""The real app in Chromium: Streamlit, a controller with the inline engine, and a store in a folder of its own."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import typing
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from experiments.settings import Settings
from tests.support.stores import copied

CHECKOUT = Path(__file__).resolve().parents[2]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 120_000
"""A shared machine with two cores can be slow; a test that waits this long has failed."""
expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Lab:
    """The running app."""

    address: str
    settings: Settings


@pytest.fixture(scope="session")
def lab(store_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Streamlit on a free port and a controller, both ended by their process id."""
    settings = copied(store_template, tmp_path_factory.mktemp("lab") / "home")
    port = _free_port()
    environment = {**os.environ, "SPEEDUP_LAB_HOME": str(settings.home), "TF_CPP_MIN_LOG_LEVEL": "2"}
    log = (settings.home / "servers.log").open("wb")
    commands = (
        [sys.executable, "-m", "streamlit", "run", "dashboard/app.py", "--server.port", str(port)],
        [sys.executable, "-m", "experiments.controller", "--engine", "inline"],
    )
    servers = [
        subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log, start_new_session=True)
        for command in commands
    ]
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", servers[0])
        yield Lab(f"http://127.0.0.1:{port}", settings)
    finally:
        # The controller first: it ends its runs.
        for server in reversed(servers):
            _end(server)
        log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(address: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert server.poll() is None, f"Streamlit ended with exit code {server.returncode}"
            assert time.monotonic() < deadline, "Streamlit did not answer"
            time.sleep(0.2)


def _end(server: subprocess.Popen) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium: its headless shell, which draws no window of its own around the page, or else the whole."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert path, "Chromium is missing: install Debian's package `chromium-headless-shell`"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def _contexts(browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    opened: dict[str, BrowserContext] = {}
    yield opened
    for context in opened.values():
        context.close()


@pytest.fixture(params=["light"])
def context(browser: Browser, _contexts: dict[str, BrowserContext], request: pytest.FixtureRequest) -> BrowserContext:
    """A person's browser; parametrize it indirectly for the dark page. Kept, so that it reads the app's code once."""
    scheme = str(request.param)
    if scheme not in _contexts:
        _contexts[scheme] = new_context(browser, scheme)
    return _contexts[scheme]


def new_context(browser: Browser, color_scheme: typing.Any = "light") -> BrowserContext:
    """A browser of another person."""
    context = browser.new_context(
        color_scheme=color_scheme, viewport={"width": 1440, "height": 900}, reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    return context


def new_tab(context: BrowserContext) -> Page:
    """A tab in which no script may open a dialog: a typed name that runs as a script would."""
    tab = context.new_page()

    def refuse(dialog: object) -> None:
        raise AssertionError(f"a dialog opened: {dialog}")

    tab.on("dialog", refuse)
    return tab


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """An empty tab."""
    tab = new_tab(context)
    yield tab
    tab.close()


def go(page: Page, address: str) -> None:
    """Opens a page of the app. From another one as "Back" does, without loading the app again, which takes seconds:
    until the new one is drawn, the old one is still there."""
    if urlsplit(page.url).netloc == urlsplit(address).netloc:
        page.evaluate(
            "address => { history.pushState({}, '', address); dispatchEvent(new PopStateEvent('popstate')) }", address
        )
    else:
        page.goto(address)


def cells(page: Page, text: str) -> Locator:
    """Table cells with just this text. A table is drawn on a canvas; its cells are elements inside that."""
    return page.locator("td[role=gridcell]").filter(has_text=re.compile(f"^{re.escape(text)}$"))
