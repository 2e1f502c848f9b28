"""`run --inline` with the real supervisor and the real training process: no server, no Ray, no controller."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import typing
from pathlib import Path

import psutil
import pytest

from experiments import cli
from experiments.settings import CHECKOUT, Settings

TINY = [
    *("--set", "dataset=synthetic", "--set", "dataset_options.examples=320"),
    *("--set", "dataset_options.validation_examples=64", "--set", "cpu_threads=1", "--set", "steps_per_execution=2"),
]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts a command as a person does, on a data folder of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "RAY_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "experiments", *arguments],
        cwd=CHECKOUT,
        env=environment | {"SPEEDUP_LAB_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(home: Path) -> list[psutil.Process]:
    """Every process whose command line names the data folder."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(home) in argument for argument in process.info["cmdline"] or [])
    ]


def test_two_first_commands_at_once_on_a_fresh_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*arguments: str) -> typing.Any:
        """The JSON document of a command that succeeds; in this process, where all is imported already."""
        code = cli.main([*arguments, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    home = tmp_path / "a lab"
    monkeypatch.setenv("SPEEDUP_LAB_HOME", str(home))
    options = [*TINY, "--set", "epochs=2", "--set", "seed=3", "--set", "manual_placement.dense=/CPU:0"]
    commands = [start(home, "run", "--inline", "--json", *options) for _ in range(2)]
    ended = [command.communicate(timeout=800) for command in commands]
    for command, (_, err) in zip(commands, ended, strict=True):
        assert command.returncode == 0, err
        assert [line.split(":")[0] for line in err.splitlines() if line.startswith("epoch")] == [
            "epoch 1/2",
            "epoch 2/2",
        ]
        assert "Traceback" not in err
    records = [json.loads(out) for out, _ in ended]
    assert len({record["run_id"] for record in records}) == 2
    for record in records:
        assert record["status"] == "FINISHED"
        assert record["spec"]["epochs"] == 2
        assert {"loss", "accuracy", "val_loss", "time/queue", "time/first_step", "time/epoch_train"} <= set(
            record["metrics"]
        )
        assert record["tags"]["devices_seen"] == "CPU:0"
        assert record["tags"]["env.tensorflow"]
    first, second = (record["metrics"]["loss"] for record in records)
    assert math.isclose(first, second, abs_tol=1e-4), "the same seed gives the same loss"
    assert {row["run_id"] for row in answer("list")} == {record["run_id"] for record in records}

    run_id = records[0]["run_id"]
    placement = answer("placement", run_id[:8])
    (layer,) = placement["layers"]
    assert (layer["layer"], layer["asked"], layer["actual"], layer["agrees"]) == ("dense", "CPU:0", "CPU:0", True)
    counts = {each["op_type"]: each for each in placement["counts"] if each["role"] == "compute"}
    assert counts["MatMul"]["count"] >= 1
    assert counts["Conv2D"]["device"] == "CPU:0"
    lines = answer("log", run_id)["lines"]
    assert any(line.startswith("epoch 2/2") for line in lines)
    assert not any("placer.cc" in line for line in lines)
    assert processes_of(home) == []


def test_ctrl_c_in_the_middle_kills_the_run_and_keeps_its_epochs(settings: Settings) -> None:
    home = settings.home
    command = start(home, "run", "--inline", "--json", *TINY, "--set", "epochs=5000")
    assert command.stderr is not None
    seen: list[str] = []
    for line in command.stderr:
        seen.append(line)
        if line.startswith("epoch 1/5000"):
            break
    began = time.monotonic()
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=300)
    taken = time.monotonic() - began
    assert command.returncode == 1, (seen, err)
    record = json.loads(out)
    assert record["status"] == "KILLED"
    assert record["reason"]
    assert "loss" in record["metrics"], "finished epochs are kept"
    assert taken < 60, f"{taken:.0f} s"
    assert processes_of(home) == []
