"""`python -m training.worker`: bad input is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.__main__ import main


def folder_with(path: Path, spec: str = "", launch: str = "") -> str:
    folder = RunFolder.create(RunSpec(), Launch("run", "", str(path / "run")))
    if spec:
        folder.spec_path.write_text(spec)
    if launch:
        folder.launch_path.write_text(launch)
    return str(folder.path)


def test_refusals(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for arguments, words in [
        ([], "usage: python -m training.worker RUN_FOLDER"),
        (["a", "b"], "usage: "),
        (["--help"], "usage: "),
        ([str(tmp_path / "missing")], "is not a folder"),
        ([str(tmp_path / "empty")], "spec.json is missing"),
        ([folder_with(tmp_path / "spec", spec='{"epochs": 0}')], "spec.json cannot run: epochs"),
        ([folder_with(tmp_path / "launch", launch="{}")], "launch.json cannot be read"),
    ]:
        assert main(arguments) == 2
        output = capsys.readouterr()
        assert words in output.err
        assert output.err.count("\n") == 1
        assert output.out == ""


def test_run_that_was_started_before_is_refused(tmp_path, capsys):
    path = folder_with(tmp_path)
    RunFolder(path).supervisor_journal.touch()
    assert main([path]) == 2
    assert "as a new run" in capsys.readouterr().err


@pytest.mark.parametrize("heavy", ["tensorflow", "mlflow", "pandas", "ray", "psutil"])
def test_nothing_heavy_is_imported_before_the_training_starts(heavy):
    code = f"import sys, training.worker.__main__; sys.exit({heavy!r} in sys.modules)"
    checkout = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": checkout})
    assert done.returncode == 0
