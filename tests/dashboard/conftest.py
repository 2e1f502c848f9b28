"""The pages on a real MLflow store in a folder of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from experiments.settings import Settings
from tests.dashboard.seed import showcase
from tests.support.stores import copied

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
OpenPage = Callable[..., AppTest]


@pytest.fixture(scope="session", autouse=True)
def _components_are_looked_for_once() -> Iterator[None]:
    """Streamlit looks for components in the metadata of every installed package, a second for every page opened."""
    found = manifest_scanner.scan_component_manifests()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: found)
        yield


@pytest.fixture
def home(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """An empty data folder that the pages of this test see."""
    yield from _seen_by_the_pages(settings, monkeypatch)


@pytest.fixture(scope="session")
def morning_store(store_template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, dict[str, str]]:
    """A data folder with one run of each kind, made once: tests that use it change nothing in it."""
    settings = copied(store_template, tmp_path_factory.mktemp("morning") / "home")
    return settings, showcase(settings)


@pytest.fixture
def morning(
    morning_store: tuple[Settings, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """The pages see a store with one run of each kind. Gives kind -> run id."""
    for _ in _seen_by_the_pages(morning_store[0], monkeypatch):
        yield morning_store[1]


def _seen_by_the_pages(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.setenv("SPEEDUP_LAB_HOME", str(settings.home))
    # Caches belong to the server process, which all tests share.
    for caches in (st.cache_data, st.cache_resource):
        caches.clear()
    yield settings
    for caches in (st.cache_data, st.cache_resource):
        caches.clear()


def opened(page: str, **query: str) -> AppTest:
    """Opens a page of the app by its file name, with query parameters."""
    app = AppTest.from_file(str(APP), default_timeout=120)
    for name, value in query.items():
        app.query_params[name] = value
    app.switch_page(f"app_pages/{page}.py")
    app.run()
    assert not app.exception, app.exception
    return app


@pytest.fixture
def open_page() -> OpenPage:
    """Opens a page; use it after `home` or `morning`."""
    return opened
