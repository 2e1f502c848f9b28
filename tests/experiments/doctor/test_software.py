"""The doctor on Python and packages: pure judgements, then this very environment."""

import importlib.metadata
import sys

import pytest

from experiments.doctor import Level, software
from experiments.settings import CHECKOUT, Settings

CLASSIFIERS = [f"Programming Language :: Python :: {version}" for version in ("3", "3.11", "3.12", "3 :: Only")]


@pytest.mark.parametrize(
    ("version", "level"),
    [("3.11.7", Level.OK), ("3.12.0rc1", Level.OK), ("3.9.18", Level.PROBLEM), ("3.14.0", Level.PROBLEM)],
)
def test_a_python_is_judged_by_what_tensorflow_says(version, level):
    found = software.python_finding(version, ">=3.10", CLASSIFIERS)
    assert found.level is level
    if level is Level.PROBLEM:
        assert found.remedy == "use one of 3.11, 3.12"


def test_without_tensorflow_no_python_is_wrong():
    assert software.python_finding("3.14.0", "", []).level is Level.OK


def test_pins_are_read_with_extras_comments_and_without_versions(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("# a\nray[default,train]==2.60.0\nScikit_Learn  # any\n\n-c constraints.txt\nnumpy>=2\n")
    assert software.pins(file) == {"ray": "2.60.0", "scikit-learn": "", "numpy": ""}


def test_missing_and_other_packages_are_told_with_the_remedy():
    wanted = {"keras": "3.15.1", "ray": "2.60.0", "scipy": "", "numpy": "2.4.6"}
    missing, other = software.package_findings(wanted, {"keras": "3.14.0", "scipy": "1", "numpy": "2.4.6"})
    assert (missing.level, missing.title, missing.remedy) == (Level.PROBLEM, "ray not installed", "run `make setup`")
    assert (other.level, other.detail) == (Level.WARNING, "keras 3.14.0, pinned 3.15.1")


def test_the_guides_package_is_named():
    (found,) = software.package_findings({}, {"tensorflow-gpu": "2.12.0"})
    assert found.level is Level.PROBLEM
    assert "pip uninstall tensorflow-gpu" in found.remedy
    assert "pip install 'tensorflow[and-cuda]'" in found.detail


def test_cuda_packages_are_those_of_the_wheels_own_extra():
    requires = ["numpy>=1.26", "nvidia-cudnn-cu12<10,>=9; extra == 'and-cuda'", 'nvidia_nccl_cu12; extra == "and-cuda"']
    requires.append("tensorflow-io; extra == 'gcs-filesystem'")
    assert software.missing_cuda_packages(requires, {"numpy": "2"}) == ["nvidia-cudnn-cu12", "nvidia-nccl-cu12"]
    assert software.missing_cuda_packages(requires, {"nvidia-cudnn-cu12": "9"}) == ["nvidia-nccl-cu12"]


def test_this_tensorflow_names_its_cuda_packages():
    requires = importlib.metadata.requires("tensorflow") or []
    assert "nvidia-cudnn-cu12" in software.missing_cuda_packages(requires, {})


def test_this_environment(tmp_path):
    settings = Settings.from_environment({"SPEEDUP_LAB_HOME": str(tmp_path)})
    (found,) = software.python(settings)
    assert found.level is Level.OK
    assert sys.executable in found.detail
    assert software.pins(CHECKOUT / "requirements.txt")["tensorflow"] == importlib.metadata.version("tensorflow")
    assert [each.level for each in software.packages(settings)] == [Level.OK]
