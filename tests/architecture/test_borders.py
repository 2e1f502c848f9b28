"""Who may import whom. import-linter's contracts stand in pyproject.toml; here they run, and are shown to bite."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = ("dashboard", "experiments", "training")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Checks the contracts in a process of its own: import-linter turns off every logger of the one it runs in."""
    code = (
        "import sys; from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_contracts_hold() -> None:
    result = lint(CHECKOUT)
    assert result.returncode == EXIT_STATUS_SUCCESS, result.stdout + result.stderr


# What must not be: a module, and what it imports.
FORBIDDEN = [
    ("training.spec", "experiments.settings"),
    ("training.worker.loop", "dashboard.data"),
    ("experiments.settings", "dashboard.data"),
    ("experiments.settings", "streamlit"),
    ("experiments.settings", "plotly"),
    ("training.spec", "streamlit"),
    ("experiments.settings", "tensorflow"),
    ("dashboard.data", "keras"),
    ("training.catalog", "tensorflow"),
    ("experiments.settings", "ray"),
    ("training.worker.loop", "ray"),
    ("dashboard.data", "ray"),
    ("dashboard.data", "mlflow"),
    ("training.run_folder", "mlflow"),
    ("experiments.analysis.intervals", "mlflow"),
    ("experiments.analysis.intervals", "experiments.results"),
]


def test_every_forbidden_import_is_found(tmp_path: Path) -> None:
    for room in ROOMS:
        shutil.copytree(CHECKOUT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    for module, imported in FORBIDDEN:
        with open(tmp_path.joinpath(*module.split(".")).with_suffix(".py"), "a") as file:
            file.write(f"\nimport {imported}\n")
    result = lint(tmp_path)
    assert result.returncode == EXIT_STATUS_ERROR, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert " 0 kept, " in said
    missed = [(module, imported) for module, imported in FORBIDDEN if f"{module} -> {imported} (l." not in said]
    assert missed == []


# Where TensorFlow may be imported; and the page files, which draw when they are imported: dashboard/test_imports.py.
WITH_TENSORFLOW = ("training.worker", "training.workloads", "training.datasets")
DRAWS_ON_IMPORT = ("dashboard.app", "dashboard.app_pages")


def modules_without_tensorflow() -> list[str]:
    """Every module that a process may import without TensorFlow coming along."""
    found = []
    for room in ROOMS:
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            parts = path.relative_to(CHECKOUT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not any(name == root or name.startswith(f"{root}.") for root in (*WITH_TENSORFLOW, *DRAWS_ON_IMPORT)):
                found.append(name)
    return found


PROGRAM = """
import importlib, json, os, sys
sys.path.insert(0, os.getcwd())
found = []
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
    found.append([name, [heavy for heavy in ("tensorflow", "keras", "streamlit", "plotly") if heavy in sys.modules]])
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def loaded() -> list[tuple[str, list[str]]]:
    """One fresh process imports every module, the dashboard's last.

    Returns:
        In that order: the module, and which of the heavy packages the process has by then.
    """
    modules = sorted(modules_without_tensorflow(), key=lambda name: (name.startswith("dashboard"), name))
    assert modules
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(modules)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("FOUND ")]
    return [(name, heavy) for name, heavy in json.loads(line.removeprefix("FOUND "))]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_only_the_dashboard_loads_streamlit_and_plotly(loaded: list[tuple[str, list[str]]]) -> None:
    others = [(name, heavy) for name, heavy in loaded if name.startswith(("experiments", "training"))]
    assert {"training.spec", "experiments.settings"} <= {name for name, _ in others}
    assert [(name, heavy) for name, heavy in others if {"streamlit", "plotly"} & set(heavy)] == []
    assert "plotly" in loaded[-1][1]  # the look-out does see what is there


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_other_module_loads_tensorflow(loaded: list[tuple[str, list[str]]]) -> None:
    assert "dashboard.data" in {name for name, _ in loaded}
    assert [(name, heavy) for name, heavy in loaded if {"tensorflow", "keras"} & set(heavy)] == []
