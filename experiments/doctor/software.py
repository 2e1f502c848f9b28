"""Python and the installed packages, against what this checkout and TensorFlow itself ask for."""

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from experiments.doctor.finding import Finding, ok, problem, warning
from experiments.settings import CHECKOUT, Settings

PYTHON_AREA, PACKAGES_AREA = "Python", "Packages"
CUDA_EXTRA = "and-cuda"
INSTALL_CUDA = "pip install 'tensorflow[and-cuda]'"

# Other distributions that install the module `tensorflow` over this one. The first is gone from the package index.
_RIVALS = ("tensorflow-gpu", "tensorflow-cpu", "tf-nightly", "intel-tensorflow")
_MINOR = re.compile(r"Programming Language :: Python :: (\d+\.\d+)")


def python(settings: Settings) -> Iterator[Finding]:
    """Whether TensorFlow says that it runs on this Python."""
    del settings
    try:
        metadata = importlib.metadata.metadata("tensorflow")
    except importlib.metadata.PackageNotFoundError:
        metadata = None
    yield python_finding(
        platform.python_version(),
        str(metadata["Requires-Python"] or "") if metadata else "",
        metadata.get_all("Classifier", []) if metadata else [],
    )


def python_finding(version: str, requires: str, classifiers: Iterable[str]) -> Finding:
    """Judges a Python version.

    Args:
        version: such as `3.11.7`.
        requires: TensorFlow's `Requires-Python`; empty when it is not installed.
        classifiers: TensorFlow's, which name the versions it was built for.
    """
    built_for = [found[1] for found in map(_MINOR.fullmatch, classifiers) if found]
    minor = ".".join(version.split(".")[:2])
    fits = not requires or SpecifierSet(requires).contains(version, prereleases=True)
    detail = f"TensorFlow is built for {', '.join(built_for)}" if built_for else ""
    if not fits or (built_for and minor not in built_for):
        wanted = f"use one of {', '.join(built_for)}" if built_for else f"use a Python {requires}"
        return problem(PYTHON_AREA, f"Python {version} is none that TensorFlow supports", wanted, detail)
    return ok(PYTHON_AREA, f"Python {version}", "\n".join(filter(None, [sys.executable, detail])))


def packages(settings: Settings) -> Iterator[Finding]:
    """Whether what requirements.txt pins is what is installed, and nothing gets in TensorFlow's way."""
    del settings
    yield from package_findings(pins(CHECKOUT / "requirements.txt"), installed())


def pins(requirements: Path) -> dict[str, str]:
    """Distribution -> pinned version (empty where none is pinned) of a requirements file."""
    found: dict[str, str] = {}
    for line in requirements.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text and not text.startswith("-"):
            requirement = Requirement(text)
            exact = [each.version for each in requirement.specifier if each.operator == "=="]
            found[canonicalize_name(requirement.name)] = exact[0] if exact else ""
    return found


def installed() -> dict[str, str]:
    """Every installed distribution and its version."""
    return {
        canonicalize_name(each.name): each.version
        for each in reversed(list(importlib.metadata.distributions()))  # the first on the path is what is imported
    }


def package_findings(wanted: Mapping[str, str], have: Mapping[str, str]) -> Iterator[Finding]:
    """Compares pinned with installed versions.

    Args:
        wanted: distribution -> version, empty for any.
        have: distribution -> version.
    """
    missing = [name for name in wanted if name not in have]
    other = [f"{name} {have[name]}, pinned {pin}" for name, pin in wanted.items() if pin and have.get(name, pin) != pin]
    rivals = [f"{name} {have[name]}" for name in _RIVALS if name in have]
    if missing:
        yield problem(PACKAGES_AREA, f"{', '.join(missing)} not installed", "run `make setup`")
    if other:
        yield warning(
            PACKAGES_AREA,
            f"{len(other)} of {len(wanted)} packages differ from requirements.txt",
            "run `make setup` in this checkout, or use its .venv/bin/python",
            "\n".join(other),
        )
    if rivals:
        yield problem(
            PACKAGES_AREA,
            f"{', '.join(rivals)} overwrites tensorflow",
            f"pip uninstall {' '.join(text.split()[0] for text in rivals)}, then run `make setup` again",
            "tensorflow-gpu is from the guide's time: since 2.1 tensorflow itself runs on GPUs, and "
            f"{INSTALL_CUDA} brings CUDA and cuDNN along.",
        )
    if not (missing or other or rivals):
        yield ok(PACKAGES_AREA, f"all {len(wanted)} packages are there, as requirements.txt pins them")


def missing_cuda_packages(requires: Iterable[str], have: Mapping[str, str]) -> list[str]:
    """Which of the CUDA libraries that `tensorflow[and-cuda]` brings are not installed as packages.

    Args:
        requires: TensorFlow's `Requires-Dist`.
        have: distribution -> version.
    """
    wanted = []
    for text in requires:
        requirement = Requirement(text)
        if requirement.marker and "extra" in str(requirement.marker):
            applies = requirement.marker.evaluate({"extra": CUDA_EXTRA})
            if applies and not requirement.marker.evaluate({"extra": ""}):
                wanted.append(canonicalize_name(requirement.name))
    return [name for name in wanted if name not in have]
