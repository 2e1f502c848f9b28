"""What is installed is what is written down, and what is imported is written down."""

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]


def requirements(name: str) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in (CHECKOUT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line]


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt"])
def test_every_package_is_pinned_exactly_and_comes_from_no_particular_place(name: str) -> None:
    for requirement in requirements(name):
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), requirement
        assert requirement.url is None, requirement
    assert "://" not in (CHECKOUT / name).read_text()
    assert not [line for line in (CHECKOUT / name).read_text().splitlines() if line.startswith("-")]


def test_no_package_is_pinned_twice() -> None:
    names = [canonicalize_name(r.name) for file in ("requirements.txt", "constraints.txt") for r in requirements(file)]
    assert sorted(names) == sorted(set(names))


def test_everything_that_comes_along_is_pinned_and_installed_in_that_version() -> None:
    pinned = {
        canonicalize_name(r.name): r for file in ("requirements.txt", "constraints.txt") for r in requirements(file)
    }
    seen: set[str] = set()
    waiting = [(r.name, frozenset(r.extras)) for r in requirements("requirements.txt")]
    wrong = []
    while waiting:
        name, extras = waiting.pop()
        key = f"{canonicalize_name(name)}[{','.join(sorted(extras))}]"
        if key in seen:
            continue
        seen.add(key)
        distribution = metadata.distribution(name)
        requirement = pinned.get(canonicalize_name(name))
        if requirement is None:
            wrong.append(f"{name} is not pinned")
        elif distribution.version not in requirement.specifier:
            wrong.append(f"{name} {distribution.version} is installed, {requirement} is pinned: make setup")
        for text in distribution.requires or []:
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                waiting.append((needed.name, frozenset(needed.extras)))
    assert wrong == []


def test_every_import_is_a_direct_requirement() -> None:
    direct = {canonicalize_name(r.name) for r in requirements("requirements.txt")}
    providers = metadata.packages_distributions()
    undeclared: dict[str, str] = {}
    for path in (p for room in ("dashboard", "experiments", "training") for p in (CHECKOUT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                roots = {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                roots = {node.module.partition(".")[0]}
            else:
                continue
            for root in roots - set(sys.stdlib_module_names) - {"dashboard", "experiments", "training", "benchmarks"}:
                if not {canonicalize_name(name) for name in providers.get(root, [])} & direct:
                    undeclared[root] = str(path.relative_to(CHECKOUT))
    assert undeclared == {}
