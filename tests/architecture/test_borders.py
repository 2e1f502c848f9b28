"""Who may import whom. import-linter's contracts stand in pyproject.toml; here they run, and are shown to bite."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS, lint_imports

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = ("dashboard", "experiments", "training")


def test_the_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == EXIT_STATUS_SUCCESS


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
    lint = (
        "import sys; from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(config_filename='pyproject.toml', no_cache=True))"
    )
    result = subprocess.run([sys.executable, "-c", lint], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == EXIT_STATUS_ERROR, result.stdout + result.stderr
    said = " ".join(result.stdout.split())
    assert " 0 kept, " in said
    missed = [(module, imported) for module, imported in FORBIDDEN if f"{module} -> {imported} (l." not in said]
    assert missed == []


# Where TensorFlow may be imported; and the page files, which draw when they are imported: they have a test below.
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


def loaded_heavyweights(code: str) -> dict[str, list[str]]:
    """Runs code in a fresh process. Returns which of the heavy packages it then has, per `report(name)` call."""
    program = f"""
import importlib, json, sys
found = {{}}
def report(name):
    found[name] = [heavy for heavy in ("tensorflow", "keras", "streamlit", "plotly", "ray") if heavy in sys.modules]
{code}
print("FOUND " + json.dumps(found))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("FOUND ")]
    found: dict[str, list[str]] = json.loads(line.removeprefix("FOUND "))
    return found


@pytest.mark.slow
def test_no_module_outside_training_processes_loads_tensorflow() -> None:
    names = modules_without_tensorflow()
    assert {"training.spec", "experiments.settings", "dashboard.data"} <= set(names)
    code = f"for name in {names!r}:\n    importlib.import_module(name)\n    report(name)"
    guilty = {name: heavy for name, heavy in loaded_heavyweights(code).items() if {"tensorflow", "keras"} & set(heavy)}
    assert guilty == {}


@pytest.mark.slow
def test_only_the_dashboard_loads_streamlit_and_plotly() -> None:
    names = [name for name in modules_without_tensorflow() if not name.startswith("dashboard")]
    code = f"for name in {names!r}:\n    importlib.import_module(name)\n    report(name)"
    guilty = {name: heavy for name, heavy in loaded_heavyweights(code).items() if {"streamlit", "plotly"} & set(heavy)}
    assert guilty == {}


@pytest.mark.slow
def test_no_page_loads_tensorflow(tmp_path: Path) -> None:
    pages = sorted(path.name for path in (CHECKOUT / "dashboard" / "app_pages").glob("[!_]*.py"))
    assert pages
    code = f"""
import os
os.environ["SPEEDUP_LAB_HOME"] = {str(tmp_path)!r}
sys.path.insert(0, ".")
from experiments.settings import Settings
Settings.from_environment().prepare()
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("dashboard/app.py", default_timeout=120).run()
for page in {pages!r}:
    app.switch_page("app_pages/" + page).run()
    report(page)
"""
    assert {
        page: [h for h in heavy if h in ("tensorflow", "keras")] for page, heavy in loaded_heavyweights(code).items()
    } == {page: [] for page in pages}
