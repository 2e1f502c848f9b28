"""The command line: what it prints where, with which exit code, and how soon. Refusals: test_cli_refusals.py."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from experiments import queue, waiting
from experiments.settings import CHECKOUT, Settings
from tests.experiments.test_foreground import FINISHES, HANGS
from tests.support.command_line import Run, refused
from training.names import PLACEMENT_COLUMNS, Artifact, Metric, RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec

TINY = ("--set", "dataset=synthetic", "--set", "cpu_threads=1", "--set", "epochs=2")
SPEC = RunSpec(dataset="synthetic", cpu_threads=1, epochs=2)


# --- submit, list, show, cancel ----------------------------------------------------------------------------------


def test_submit_prints_the_id_and_says_who_would_start_it(cli_run: Run, settings: Settings) -> None:
    answer = cli_run("submit", *TINY, "--set", "logical_devices=2", "--set", "replicas=2", "--set", "strategy=mirrored")
    assert answer.code == 0
    assert settings.client().get_run(answer.out.strip()).info.status == "SCHEDULED"
    assert "warning: logical_devices=2 simulates devices" in answer.err
    assert "make run" in answer.err
    once = cli_run("submit", *TINY, "--submission", "s", "--json").json
    assert once["status"] == "SCHEDULED"
    assert cli_run("submit", *TINY, "--submission", "s", "--json").json == once


def test_a_token_that_was_used_for_other_fields_says_so(cli_run: Run) -> None:
    first = cli_run("submit", *TINY, "--submission", "mine")
    again = cli_run("submit", *TINY, "--submission", "mine")
    other = cli_run("submit", *TINY, "--set", "epochs=7", "--submission", "mine")
    assert first.out == again.out == other.out
    assert "was submitted with this token before" not in first.err + again.err
    assert "was submitted with this token before, and stays as it is: it differs in epochs" in other.err


def test_a_worker_that_a_run_has_not_is_refused(cli_run: Run, settings: Settings) -> None:
    run_id = queue.submit(settings, SPEC)
    refused(cli_run("log", run_id, "--worker", "1"), "--worker 1", "has 1 worker, counted from 0")


def test_cancelling_what_has_ended_says_so(cli_run: Run, settings: Settings) -> None:
    run_id = queue.submit(settings, SPEC)
    assert "had ended already" not in cli_run("cancel", run_id).err
    assert "had ended already: nothing to stop" in cli_run("cancel", run_id).err


def test_set_goes_on_top_of_a_spec_file(cli_run: Run, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(RunSpec(dataset="synthetic", cpu_threads=1, epochs=7, seed=5, user="ada").to_json())
    answer = cli_run("submit", "--spec", str(file), "--set", "epochs=3", "--set", "tags.a=b=c")
    run = settings.client().get_run(answer.out.strip())
    assert (run.data.params["epochs"], run.data.params["seed"]) == ("3", "5")
    assert (run.data.params["user"], run.data.tags["tag.a"]) == ("ada", "b=c")


def test_a_list_of_nothing(cli_run: Run) -> None:
    answer = cli_run("list")
    assert (answer.code, answer.out) == (0, "")
    assert "no runs yet" in answer.err
    assert cli_run("list", "--json").json == []


def test_a_list_is_newest_first_limited_aloud_and_shows_names_as_text(cli_run: Run, settings: Settings) -> None:
    client = settings.client()
    names = [f"run {index}" for index in range(52)]
    for index, name in enumerate(names):
        client.create_run(settings.experiment_id(), start_time=1_700_000_000_000 + index, run_name=name)
    bad = client.create_run(settings.experiment_id(), run_name="\x1b[31m模型" + "x" * 100 + "\n").info.run_id
    client.log_metric(bad, Metric.LOSS, math.inf)
    answer = cli_run("list")
    lines = answer.out.splitlines()
    assert len(lines) == 51
    assert r"\x1b[31m模型xx" in lines[1]
    assert "\x1b" not in answer.out
    assert "run 51" in lines[2]
    assert "the newest 50 of 53 runs: --limit 0" in answer.err
    assert len(cli_run("list", "--limit", "0").out.splitlines()) == 54
    rows = cli_run("list", "--json").json
    assert len(rows) == 53
    assert rows[0]["loss"] == "Infinity"
    assert rows[1]["loss"] is None
    assert rows[-1]["submitted"] == "2023-11-14T22:13:20+00:00"
    assert len(cli_run("list", "--json", "--limit", "2").json) == 2
    assert cli_run("list", "--json", "--status", "finished").json == []


def test_show_gives_the_record(cli_run: Run, settings: Settings) -> None:
    run_id = queue.submit(settings, RunSpec(dataset="synthetic", cpu_threads=1, name="<b>naïve</b>", user="ada"))
    client = settings.client()
    client.log_metric(run_id, Metric.LOSS, math.nan)
    client.log_metric(run_id, Metric.TIME_EPOCH_TRAIN, 200.0)
    client.set_tag(run_id, Tag.NOTICE, "NaN at\x1b[2J epoch 0")
    record = cli_run("show", run_id[:8], "--json").json
    keys = ["run_id", "name", "status", "reason", "spec", "params", "metrics", "tags"]
    assert list(record) == [*keys, "verdict", "flags", "unchecked"]
    assert (record["verdict"], record["flags"], record["unchecked"]) == (None, [], [])
    assert (record["run_id"], record["name"], record["status"]) == (run_id, "<b>naïve</b>", "SCHEDULED")
    assert RunSpec.from_dict(record["spec"]).user == "ada"
    assert record["metrics"][Metric.LOSS] == "NaN"
    text = cli_run("show", run_id).out
    assert "<b>naïve</b>" in text
    assert "3 min 20 s" in text
    assert r"NaN at\x1b[2J epoch 0" in text
    assert "\x1b" not in text


def test_cancel_says_what_became_of_the_run(cli_run: Run, settings: Settings) -> None:
    waiting, live = queue.submit(settings, SPEC), queue.submit(settings, SPEC)
    settings.client().update_run(live, status=RunStatus.RUNNING)
    assert cli_run("cancel", waiting, "--json").json == {"run_id": waiting, "status": "KILLED"}
    assert cli_run("cancel", live[:10]).out == f"{live} is being stopped\n"
    again = cli_run("cancel", waiting)
    assert (again.code, again.out) == (0, f"{waiting} KILLED\n")


# --- log, placement, doctor --------------------------------------------------------------------------------------


def test_log_shows_the_end_as_text(cli_run: Run, settings: Settings) -> None:
    run_id = queue.submit(settings, SPEC)
    assert "has printed nothing" in cli_run("log", run_id).err
    file = RunFolder.of(settings.runs_folder, run_id).worker(0).stdout
    file.parent.mkdir()
    file.write_text("".join(f"line {index}\n" for index in range(400)) + "\x1b[31mred\n")
    lines = cli_run("log", run_id).out.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (301, "... earlier lines are left out", r"\x1b[31mred")
    assert cli_run("log", run_id, "--last", "1", "--json").json == {
        "run_id": run_id,
        "worker": 0,
        "lines": ["... earlier lines are left out", "\x1b[31mred"],
    }
    settings.client().set_terminated(run_id, RunStatus.FINISHED)
    assert cli_run("log", run_id, "--follow", "--last", "1").out.splitlines()[-1] == r"\x1b[31mred"
    refused(cli_run("log", run_id, "--follow", "--json"), "--follow", "leave out")


def test_placement_compares_asked_and_actual(cli_run: Run, settings: Settings, tmp_path: Path) -> None:
    spec = RunSpec(dataset="synthetic", cpu_threads=1, manual_placement={"dense": "/CPU:0", "flatten": "/CPU:0"})
    run_id = queue.submit(settings, spec)
    assert "no placement is recorded" in cli_run("placement", run_id).err
    rows = [
        ("while/dense/MatMul", "MatMul", "CPU:0", "graph", "compute", "dense", 2),
        ("while/other/MatMul", "MatMul", "GPU:0", "graph", "compute", "other", 5),
    ]
    pd.DataFrame(rows, columns=list(PLACEMENT_COLUMNS)).to_parquet(tmp_path / "placement.parquet")
    client = settings.client()
    client.log_artifact(run_id, str(tmp_path / "placement.parquet"), Artifact.PLACEMENT_DIR)
    client.set_tag(run_id, Tag.DEVICES_SEEN, "CPU:0, GPU:0")
    found = cli_run("placement", run_id, "--json").json
    assert found == {
        "run_id": run_id,
        "devices_asked": "CPU:0",
        "devices_seen": "CPU:0, GPU:0",
        "layers": [
            {"layer": "dense", "asked": "CPU:0", "actual": "CPU:0", "ops": 1, "elsewhere": 0, "agrees": True},
            {"layer": "flatten", "asked": "CPU:0", "actual": "", "ops": 0, "elsewhere": 0, "agrees": False},
        ],
        "counts": [
            {"role": "compute", "device": "CPU:0", "op_type": "MatMul", "ops": 1, "count": 2},
            {"role": "compute", "device": "GPU:0", "op_type": "MatMul", "ops": 1, "count": 5},
        ],
        "surprises": [],
    }
    assert [op["name"] for op in cli_run("placement", run_id, "--ops", "--json").json["ops"]] == [
        row[0] for row in rows
    ]
    text = cli_run("placement", run_id, "--ops").out
    assert "while/other/MatMul" in text
    assert "not in the log" in text


@pytest.mark.slow
def test_doctor_tells_every_area(cli_run: Run) -> None:
    found = cli_run("doctor", "--json").json
    assert {"Python", "TensorFlow", "Data sets", "Tracking", "Disk"} <= {each["area"] for each in found}
    assert all(each["remedy"] for each in found if each["level"] != "ok")
    assert cli_run("doctor").code == 0


# --- run ---------------------------------------------------------------------------------------------------------


def test_run_without_a_controller_names_both_remedies(cli_run: Run, settings: Settings) -> None:
    refused(cli_run("run", *TINY), "no controller", "make run", "--inline")
    assert settings.client().search_runs([settings.experiment_id()]) == []


def test_run_inline_tells_its_progress_on_stderr_and_its_record_on_stdout(
    cli_run: Run, supervisor: Callable[[str], None]
) -> None:
    supervisor(FINISHES)
    answer = cli_run("run", "--inline", *TINY, "--json")
    assert answer.code == 0
    record = answer.json
    assert (record["status"], record["metrics"]["loss"]) == ("FINISHED", 0.4)
    assert record["run_id"] in answer.err
    assert "epoch 1/2: loss 0.5000" in answer.err
    assert "epoch 2/2: loss 0.4000" in answer.err
    assert "controller" not in answer.err


def test_run_inline_with_a_token_that_was_used_starts_nothing(cli_run: Run, supervisor: Callable[[str], None]) -> None:
    supervisor(FINISHES)
    first = cli_run("run", "--inline", *TINY, "--submission", "a", "--json").json
    supervisor("raise SystemExit('started again')")
    assert cli_run("run", "--inline", *TINY, "--submission", "a", "--json").json == first


def test_a_run_that_fails_is_exit_code_1(cli_run: Run, supervisor: Callable[[str], None]) -> None:
    supervisor("raise SystemExit(3)")
    answer = cli_run("run", "--inline", *TINY)
    assert answer.code == 1
    assert "the supervisor exited with code 3" in answer.out


def test_run_waits_for_what_the_controller_does(cli_run: Run, settings: Settings) -> None:
    (settings.locks_folder / "controller.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    client = settings.client()

    def carry_out() -> None:
        while not (runs := client.search_runs([settings.experiment_id()], "attributes.status = 'SCHEDULED'")):
            time.sleep(0.1)
        client.log_metric(runs[0].info.run_id, Metric.TIME_EPOCH_TRAIN, 1.0, step=0)
        client.set_terminated(runs[0].info.run_id, RunStatus.FINISHED)

    controller = threading.Thread(target=carry_out, daemon=True)
    controller.start()
    answer = cli_run("run", *TINY, "--json")
    controller.join(60)
    assert (answer.code, answer.json["status"]) == (0, "FINISHED")
    assert "epoch 1/2: 1 s training" in answer.err


def test_interrupting_a_run_cancels_it(cli_run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.locks_folder / "controller.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting.Watcher, "until_the_end", interrupt)
    answer = cli_run("run", *TINY, "--json")
    assert (answer.code, answer.json["status"]) == (1, "KILLED")
    assert "cancelling the run" in answer.err


def test_an_interruption_while_submitting_kills_the_run_that_was_being_submitted(
    cli_run: Run, settings: Settings, supervisor: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor(HANGS)
    real = RunFolder.write_spec

    def write_spec(folder: RunFolder, spec: RunSpec) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        real(folder, spec)

    monkeypatch.setattr(RunFolder, "write_spec", write_spec)
    answer = cli_run("run", "--inline", *TINY, "--json")
    assert (answer.code, answer.json["status"]) == (1, "KILLED")
    (run,) = settings.client().search_runs([settings.experiment_id()])
    assert run.info.status == RunStatus.KILLED


# --- as a process ------------------------------------------------------------------------------------------------


def process(settings: Settings, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """The command line as a person starts it."""
    environment = os.environ | {"SPEEDUP_LAB_HOME": str(settings.home)} | variables
    return subprocess.Popen(
        [sys.executable, "-m", "experiments", *arguments],
        cwd=CHECKOUT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_help_comes_at_once_and_imports_nothing_large(settings: Settings) -> None:
    code = (
        "import sys\nfrom experiments import cli\n"
        "try:\n    cli.main(['run', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "large = {'mlflow', 'pandas', 'numpy', 'ray', 'tensorflow', 'keras', 'streamlit'} & set(sys.modules)\n"
        "sys.exit(f'imported {large}' if large else 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--inline" in ended.stdout


@pytest.mark.slow
def test_no_command_imports_tensorflow(settings: Settings) -> None:
    run_id = queue.submit(settings, SPEC)
    code = (
        "import sys\nfrom experiments import cli\n"
        f"for line in ['list', 'show {run_id}', 'log {run_id}', 'placement {run_id}', 'cancel {run_id}', 'submit --set "
        "dataset=synthetic --set cpu_threads=1', 'run', 'doctor', 'restore', 'speedup', 'scaling']:\n"
        "    cli.main(line.split())\n"
        "heavy = {'tensorflow', 'keras', 'streamlit', 'ray'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    environment = os.environ | {"SPEEDUP_LAB_HOME": str(settings.home)}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_pipe_that_is_closed_early_is_no_error(settings: Settings) -> None:
    for _ in range(3):
        settings.client().create_run(settings.experiment_id())
    started = process(settings, "list", "--limit", "0")
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert "Traceback" not in started.stderr.read()
    assert started.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["a batch system's end", "a closed terminal"])
def test_a_signal_kills_an_inline_run_in_order(settings: Settings, tmp_path: Path, number: signal.Signals) -> None:
    """The run is KILLED, its record is printed, no process is left."""
    (tmp_path / "sitecustomize.py").write_text(
        "from experiments.engines import inline\n"
        f"inline.InlineEngine._supervisor = lambda self, launch, spec: [{sys.executable!r}, '-c', {HANGS!r}]\n"
    )
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    # Where these tests run under nohup, a child would leave SIGHUP ignored, as it should.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        started = process(settings, "run", "--inline", *TINY, "--json", PYTHONPATH=path)
    finally:
        signal.signal(number, before)
    assert started.stderr is not None
    assert "run " in started.stderr.readline()
    started.send_signal(number)
    out, err = started.communicate(timeout=120)
    assert started.returncode == 1, err
    assert json.loads(out)["status"] == "KILLED"
    assert "stopping the run" in err
