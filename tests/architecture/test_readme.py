"""The README names what there is and nothing else: a new page, setting or command fails here until it is told."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from training import catalog
from training.spec import STRATEGIES

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text()

# Variables by which processes find each other. Nobody sets them.
INTERNAL = {"SPEEDUP_LAB_STACK", "SPEEDUP_LAB_PART", "SPEEDUP_LAB_RUN"}


def table(first: str, second: str) -> set[str]:
    """Names in the first column of the README's table with these two headings."""
    _, _, rest = README.partition(f"| {first} | {second} |")
    assert rest, f"no table '{first} | {second}'"
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip().strip("`") for row in rows}


def source_files() -> Iterable[Path]:
    for room in ("dashboard", "experiments", "training"):
        yield from (CHECKOUT / room).rglob("*.py")


def test_every_make_target() -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", (CHECKOUT / "Makefile").read_text(), re.M))
    assert table("target", "does") == {f"make {target}" for target in targets}
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (CHECKOUT / "Makefile").read_text(), re.M)
    assert set(phony.split()) == targets


def test_every_page() -> None:
    pages = re.findall(r'st\.Page\("app_pages/\w+\.py", title="(.*?)"', (CHECKOUT / "dashboard" / "app.py").read_text())
    files = {path.stem for path in (CHECKOUT / "dashboard" / "app_pages").glob("[!_]*.py")}
    assert len(pages) == len(files)
    assert table("page", "what it is for") == set(pages)


def test_every_workload() -> None:
    assert table("workload", "what it is") == set(catalog.WORKLOADS)


def test_every_data_set() -> None:
    assert table("data set", "where it comes from") == set(catalog.DATASETS)


def test_every_strategy() -> None:
    assert table("strategy", "what it is") == set(STRATEGIES)


def test_every_command() -> None:
    from experiments.cli import _parser

    (commands,) = [action for action in _parser()._actions if action.dest == "command"]
    assert commands.choices is not None
    assert {name.partition(" ")[0] for name in table("command", "does")} == set(commands.choices)


def test_every_plan() -> None:
    assert table("plan", "what it answers") == {path.stem for path in (CHECKOUT / "experiments/plans").glob("*.yaml")}


def test_every_setting() -> None:
    read = {name for path in source_files() for name in re.findall(r"SPEEDUP_LAB_[A-Z_]+", path.read_text())}
    assert read - INTERNAL == {name for name in table("variable", "meaning") if name.startswith("SPEEDUP_LAB_")}


def test_every_default_of_a_setting() -> None:
    from experiments.settings import Settings

    settings = Settings.from_environment({})
    rows = {
        row.split("|")[1].strip().strip("`"): row.split("|")[3].strip().strip("`")
        for row in README.splitlines()
        if row.startswith("| `SPEEDUP_LAB_")
    }
    assert rows["SPEEDUP_LAB_HOST"] == settings.host
    assert rows["SPEEDUP_LAB_HOME"].startswith(settings.home.name)
    assert [int(rows[f"SPEEDUP_LAB_{name}"]) for name in ("PORT", "MLFLOW_PORT", "RAY_PORT", "RAY_DASHBOARD_PORT")] == [
        settings.port,
        settings.mlflow_port,
        settings.ray_port,
        settings.ray_dashboard_port,
    ]


def test_every_room_and_every_file_it_points_at_exists() -> None:
    rooms = {name.strip("`/") for name in table("folder", "what is in it")}
    for room in ("dashboard", "experiments", "training", "tests"):
        assert room in rooms
    missing = [
        name
        for name in re.findall(r"`((?:dashboard|experiments|training|tests|docs|\.ci)/[\w/.]*)`", README)
        if "NAME" not in name and not (CHECKOUT / name).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("image", re.findall(r"!\[.*?\]\((.*?)\)", README))
def test_every_picture_is_there(image: str) -> None:
    assert (CHECKOUT / image).is_file()


def test_the_recipes_name_what_the_code_has() -> None:
    strategies = (CHECKOUT / "training" / "worker" / "strategies.py").read_text()
    assert "_FACTORIES = {" in strategies
    assert "PAGES = [" in (CHECKOUT / "dashboard" / "app.py").read_text()
    for module in catalog.WORKLOADS.values():
        source = (CHECKOUT / Path(*module.path.split("."))).with_suffix(".py").read_text()
        assert re.findall(r"^def ([a-z]\w*)\(", source, re.M)[:3] == ["build_model", "compile_model", "examples"]
    for known in catalog.DATASETS.values():
        source = (CHECKOUT / Path(*known.path.split("."))).with_suffix(".py").read_text()
        assert re.search(r"^DOWNLOAD\b", source, re.M), known.path
        assert {"how_to_get", "find", "load"} <= set(re.findall(r"^def (\w+)\(", source, re.M)), known.path
