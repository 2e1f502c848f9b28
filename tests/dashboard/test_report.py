"""The report: one file that stands alone, says what the group's runs say, and shows typed texts as text."""

import base64
import hashlib
import json
import os
import stat
import subprocess
import sys
import typing
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dashboard import report
from experiments import cli
from experiments.settings import CHECKOUT, Settings
from tests.support.stores import copied
from tests.support.timed_runs import GPU, repeats, timed_run
from training.names import RunStatus
from training.spec import RunSpec

GROUP = "<script>alert(1)</script> **b** [x](javascript:1) <a href='https://example.org'>$a$</a>"
NAME = "<b>bold</b><img src=x onerror=alert(1)> & :red[x]"
BASE: dict[str, typing.Any] = {
    "dataset": "synthetic",
    "cpu_threads": 1,
    "epochs": 4,
    "group": GROUP,
    "name": NAME,
    "user": "<i>mei</i>",
}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """What is in a page: elements with attributes, visible text, scripts."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text, self.styles = "", ""
        self.scripts: list[tuple[dict[str, str], str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "script":
            self.scripts.append((found, ""))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self._open[-1:] == ["style"]:
            self.styles += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def store(store_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A group of CPU runs, GPU runs ten times as fast, two workers, and one run that was stopped."""
    settings = copied(store_template, tmp_path_factory.mktemp("report") / "home")
    repeats(settings, RunSpec(**BASE), 1000)
    repeats(settings, RunSpec(**BASE, device="gpu"), 10_000, GPU)
    repeats(settings, RunSpec(**BASE, workers=2, strategy="multi_worker_mirrored"), 1800)
    timed_run(settings, RunSpec(**BASE), 1000, RunStatus.KILLED)
    timed_run(settings, RunSpec(**(BASE | {"group": "other", "name": "of another group"})), 10)
    return settings


@pytest.fixture
def command(
    store: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command on the store: exit code, stdout, stderr."""
    monkeypatch.setenv("SPEEDUP_LAB_HOME", str(store.home))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(list(arguments))
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def written(store: Settings, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report's text, written by the command in its own process."""
    file = tmp_path_factory.mktemp("out") / "report.html"
    ended = subprocess.run(
        [sys.executable, "-m", "experiments", "report", GROUP, "--output", str(file), "--json"],
        cwd=CHECKOUT,
        env=os.environ | {"SPEEDUP_LAB_HOME": str(store.home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"group": GROUP, "file": str(file), "runs": 10}
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [each.name for each in file.parent.iterdir()] == ["report.html"]
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(written: str) -> Page:
    return Page(written)


def test_nothing_in_it_is_fetched_from_anywhere(page: Page) -> None:
    leading = [
        (tag, name, value)
        for tag, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster", "formaction", "background")
        or name.startswith("on")
    ]
    assert leading == []
    assert not {"link", "iframe", "object", "embed", "base", "img", "form"} & {tag for tag, _ in page.elements}
    assert "url(" not in page.styles
    assert "@import" not in page.styles


def test_it_forbids_itself_everything_but_its_own_scripts(page: Page) -> None:
    (policy,) = [each["content"] for tag, each in page.elements if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    (allowed,) = [part.split()[1:] for part in policy.split(";") if part.split()[0] == "script-src"]
    running = [text for attributes, text in page.scripts if "type" not in attributes]
    assert len(running) == 2
    for script in running:
        assert "\r" not in script
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed
    assert len(allowed) == 2
    assert "plotly.js v" in running[0]


def test_its_figures_are_those_of_the_group(page: Page) -> None:
    figures = {a["id"]: json.loads(text) for a, text in page.scripts if a.get("type") == "application/json"}
    places = {a["data-figure"] for _, a in page.elements if "data-figure" in a}
    assert places == set(figures)
    assert sorted(figures) == [
        "scaling-1-1-data",
        "scaling-1-2-data",
        "speedup-1-1-data",
        "speedup-2-1-data",
    ]
    titles = [each["layout"]["title"]["text"] for each in figures.values()]
    assert any(title.startswith("GPU is 10.00x (") for title in titles)
    assert any(title.startswith("2 workers train 1.80x (") for title in titles)


def test_it_says_what_the_commands_say(page: Page, command: Callable[..., tuple[int, str, str]]) -> None:
    for words in (
        "2 workers train 1.80x (",
        "waiting for input: 30% of training time",
        "nothing is predicted beyond the measured points: 2 numbers of devices were measured, 3 are needed",
        "unfinished",
        "left out of the figures",
        "Amdahl's law",
        "A CPU",
        "2.21.0",
        "python -m experiments run --set dataset=synthetic",
        "python -m experiments speedup --baseline=",
        "ahead from the start",
    ):
        assert words in page.text
    assert "of another group" not in page.text
    code, out, _ = command("scaling", "--group", GROUP, "--json")
    assert code == 0
    curve = json.loads(out)["curve"]
    assert curve["title"] in page.text
    assert f"--curve={curve['key']}" in page.text


def test_typed_texts_are_text(written: str, page: Page) -> None:
    assert GROUP in page.text
    assert NAME in page.text
    assert not {"b", "i", "a", "img"} & {tag for tag, _ in page.elements}
    for typed in ("<script>alert", "<img src=x", "<b>bold", "<i>mei", "<a href"):
        markup = written.replace(next(text for a, text in page.scripts if "type" not in a), "")
        assert typed not in markup


def test_typed_texts_in_a_figure_are_text_there_too() -> None:
    assert report._data('{"a": "</script><!--&"}') == '{"a": "\\u003c/script\\u003e\\u003c!--\\u0026"}'
    assert json.loads(report._data('{"a": "</script><!--&"}')) == {"a": "</script><!--&"}


def test_what_cannot_be_written_is_one_line(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, err = command("report", GROUP, "--output", str(tmp_path / "no" / "report.html"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "make the folder first" in err
    code, out, err = command("report", GROUP, "--output", str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is a folder: name a file in it" in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    with pytest.raises(OSError, match="there"):
        report.write("page", folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_group_without_anything_to_compare_says_so(settings: Settings, tmp_path: Path) -> None:
    timed_run(settings, RunSpec(**BASE), 1000)
    text = report.render(report.content(settings, GROUP), report.datetime(2026, 1, 2, 3, 4, tzinfo=report.UTC))
    page = Page(text)
    assert "written 2026-01-02 03:04 UTC" in page.text
    assert "Nothing in this group can be compared" in page.text
    assert "No scaling curve" in page.text
    assert "None: nothing that was recorded makes a timing doubtful." in page.text
    assert not [1 for attributes, _ in page.scripts if "type" in attributes]
