"""A run's end, whatever happens to its processes, as MLflow shows it."""

import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.memory import own_peak_mb
from training.names import Metric, Tag
from training.worker import recording
from training.worker.supervisor import AlreadyStartedError, supervise

FAST = {"SPEEDUP_LAB_TELEMETRY_S": "0.2"}


@pytest.fixture
def ended(client):
    """The run as MLflow has it, after checking that it has ended."""

    def look(folder):
        run = client.get_run(folder.launch().run_id)
        assert run.info.end_time is not None
        return run

    return look


@pytest.fixture
def losses(client):
    """The (epoch, loss) points of a run, as often as they are stored."""

    def look(folder):
        history = client.get_metric_history(folder.launch().run_id, Metric.LOSS)
        return sorted((point.step, point.value) for point in history)

    return look


def artifact(client, folder, path):
    return Path(client.download_artifacts(folder.launch().run_id, path)).read_text()


def test_run_that_goes_well(new_run, gang_of, client, ended, losses):
    folder = new_run()
    script = """
        journal.params({"extra": "1"})
        journal.tags({Tag.HOST: "here"})
        folder.environment.write_text('{"python": "3"}')
        folder.model.mkdir(); (folder.model / "weights.bin").write_bytes(b"w")
        print("hello from standard output")
        where = "/job:localhost/replica:0/task:0/device:CPU:0"
        sys.stderr.write(f"I0000 00:00:1.1 1 execute.cc:1775] Executing op AddV2 in device {where}\\n")
        sys.stderr.write("a warning\\n")
        for number in range(3):
            epoch(number, 1.0 - number / 10, seconds=0.5)
        journal.end(RunStatus.FINISHED)
    """
    assert supervise(folder, gang_of(folder, script), FAST) == 0
    run = ended(folder)
    assert run.info.status == "FINISHED"
    assert run.data.tags[Tag.REASON] == ""
    assert run.data.tags[Tag.PHASE] == "ended"
    assert run.data.tags[Tag.HOST] == "here"
    assert Tag.NOTICE not in run.data.tags
    assert run.data.params["extra"] == "1"
    assert losses(folder) == [(0, 1.0), (1, 0.9), (2, 0.8)]
    assert run.data.metrics[Metric.TIME_QUEUE] >= 2.0
    # The kernel counts a child's memory from before its exec, when it shared all that this process ever held.
    assert 5 < run.data.metrics[Metric.SYSTEM_PEAK_MEMORY] < max(500.0, 1.1 * own_peak_mb())
    cpu = client.get_metric_history(run.info.run_id, Metric.SYSTEM_CPU)
    assert max(point.value for point in cpu) > 0, "the imports alone take some"
    paths = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert paths == {"spec.json", "environment.json", "logs", "model"}
    assert artifact(client, folder, "logs/worker-0.log") == "a warning\nhello from standard output\n"


OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[65536,32,26,26]"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "the training process was killed by signal 9 in epoch 2"),
        ("journal.end(RunStatus.FAILED, 'ValueError: bad axis')\nsys.exit(1)", "ValueError: bad axis"),
        ("sys.exit(0)", "the training process ended without a word in epoch 2"),
        ("raise RuntimeError('bad luck')", "the training process exited 1 in epoch 2: RuntimeError: bad luck"),
        (f"journal.end(RunStatus.FAILED, '{OOM}')\nsys.exit(1)", f"OOM (tensor of shape [65536,32,26,26]): {OOM}"),
        ("journal.end(RunStatus.FINISHED)\nos.abort()", "the training process exited -6 after it had finished"),
    ],
)
def test_process_that_dies(new_run, gang_of, ended, losses, script, reason):
    folder = new_run()
    assert supervise(folder, gang_of(folder, "epoch(0)\njournal.phase(Phase.TRAINING)\n" + script)) == 1
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", reason)
    assert losses(folder) == [(0, 0.5)]


def two_workers(new_run, **launch):
    return new_run(launch, strategy="multi_worker_mirrored", workers=2)


def test_killed_worker_ends_the_others(new_run, gang_of, ended, losses, alive):
    folder = two_workers(new_run)
    script = """
        open(folder.path / f"pid-{index}", "w").write(str(os.getpid()))
        epoch(0)
        if index == 1:
            time.sleep(1.0)
            os.kill(os.getpid(), 9)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)
    """
    began = time.monotonic()
    assert supervise(folder, gang_of(folder, script)) == 1
    assert time.monotonic() - began < 60
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", "worker 1 exited -9 in epoch 2")
    assert losses(folder) == [(0, 0.5)]
    assert not alive(int((folder.path / "pid-0").read_text()))


def test_a_full_disk_is_named(new_run, gang_of, ended, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=4096))
    folder = new_run()
    assert supervise(folder, gang_of(folder, "epoch(0)\nsys.exit(1)")) == 1
    reason = ended(folder).data.tags[Tag.REASON]
    assert reason == f"the training process exited 1 in epoch 2: no space left in {folder.path}"


def test_only_the_chief_is_recorded_and_every_log_kept(new_run, gang_of, client, ended, losses):
    folder = two_workers(new_run)
    script = """
        print(f"I am worker {index}")
        for number in range(3):
            epoch(number)
        journal.end(RunStatus.FINISHED)
    """
    assert supervise(folder, gang_of(folder, script)) == 0
    assert losses(folder) == [(0, 0.5), (1, 0.5), (2, 0.5)]
    assert ended(folder).info.status == "FINISHED"
    for index in range(2):
        assert artifact(client, folder, f"logs/worker-{index}.log") == f"I am worker {index}\n"


def test_worker_that_never_joins(new_run, gang_of, ended, alive):
    folder = two_workers(new_run, join_deadline_s=1.5)
    script = """
        if index == 1:
            os.close(1)
            time.sleep(600)
        journal.phase(Phase.STARTING)
        time.sleep(600)
    """
    # Worker 1 writes nothing at all: its journal is opened by the preamble, but stays empty.
    began = time.monotonic()
    assert supervise(folder, gang_of(folder, script)) == 1
    assert time.monotonic() - began < 60
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", "worker 1 of 2 never joined")


def test_run_that_hangs_after_its_first_steps(new_run, gang_of, ended):
    folder = new_run({"stall_deadline_s": 1.0})
    script = """
        journal.joined()
        journal.phase(Phase.COMPILING)
        time.sleep(2.0)  # longer than the deadline, but before the first step: it may compile
        journal.phase(Phase.TRAINING)
        journal.series(Metric.WINDOW, [(32, 1e6, time.time())])
        time.sleep(600)
    """
    assert supervise(folder, gang_of(folder, script)) == 1
    run = ended(folder)
    assert run.info.status == "FAILED"
    assert run.data.tags[Tag.REASON] == "no progress since step 32 for 1 s, in epoch 1"


def test_processes_that_a_worker_leaves_behind_are_killed(new_run, gang_of, alive):
    folder = new_run()
    script = """
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
        open(folder.path / "grandchild", "w").write(str(child.pid))
        epoch(0)
        os.kill(os.getpid(), 9)
    """
    assert supervise(folder, gang_of(folder, script)) == 1
    assert not alive(int((folder.path / "grandchild").read_text()))


@pytest.mark.parametrize(("value", "notice"), [("nan", "NaN at epoch 2"), ("inf", "inf at epoch 2")])
def test_loss_that_is_no_number(new_run, gang_of, client, ended, value, notice):
    folder = new_run()
    script = f"""
        epoch(0)
        epoch(1, float("{value}"))
        epoch(2, float("nan"))
        journal.end(RunStatus.FINISHED)
    """
    assert supervise(folder, gang_of(folder, script)) == 0
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.NOTICE]) == ("FINISHED", notice)
    assert len(client.get_metric_history(run.info.run_id, Metric.LOSS)) == 3


@pytest.mark.slow
def test_a_request_in_mlflow_alone_stops_the_run(new_run, gang_of, client, ended, monkeypatch):
    """As when the command that carries a run out is gone, and no controller has it."""
    monkeypatch.setattr(recording, "LOOK_EVERY_S", 0.2)
    folder = new_run()
    client.set_tag(folder.launch().run_id, Tag.HOST, "here")
    script = """
        epoch(0)
        from mlflow import MlflowClient
        launch = folder.launch()
        time.sleep(1.0)  # the supervisor has looked before
        MlflowClient(launch.tracking_uri).set_tag(launch.run_id, Tag.CANCEL_REQUESTED, "true")
        time.sleep(600)
    """
    assert supervise(folder, gang_of(folder, script)) == 143
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("KILLED", "stopped by request")


@pytest.mark.slow
def test_run_deleted_while_it_runs_is_stopped(new_run, start_supervisor, client, eventually, alive):
    folder = new_run()
    process = start_supervisor(folder, "print(os.getpid(), flush=True)\nepoch(0)\ntime.sleep(600)", **FAST)
    run_id = folder.launch().run_id
    eventually(lambda: client.get_run(run_id).info.status == "RUNNING")
    pid = int(folder.worker(0).stdout.read_text())
    client.delete_run(run_id)
    assert process.wait(60) == 1
    assert not alive(pid)
    assert f"run {run_id} was deleted in MLflow: the training was stopped" in folder.supervisor_log.read_text()


@pytest.mark.slow
def test_stop(new_run, start_supervisor, client, ended, losses, eventually, text_of, alive):
    folder = new_run()
    script = """
        print(os.getpid(), flush=True)
        epoch(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # saving something that takes long
        journal.phase(Phase.SAVING)
        time.sleep(600)
    """
    process = start_supervisor(folder, script)
    eventually(lambda: client.get_run(folder.launch().run_id).info.status == "RUNNING")
    eventually(lambda: "saving" in text_of(folder.worker(0).journal))
    pid = int(folder.worker(0).stdout.read_text())
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 143
    assert time.monotonic() - began < 15
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("KILLED", "stopped by request")
    assert losses(folder) == [(0, 0.5)]
    assert not alive(pid)
    assert (folder.path / "supervisor.out").read_text().splitlines()[-1] == "False", "TensorFlow was imported"


@pytest.mark.slow
def test_stop_that_reaches_the_process_first(new_run, start_supervisor, client, ended, eventually):
    folder = new_run()
    process = start_supervisor(folder, "print(os.getpid(), flush=True)\nepoch(0)\ntime.sleep(600)")
    eventually(lambda: client.get_run(folder.launch().run_id).info.status == "RUNNING")
    os.kill(int(folder.worker(0).stdout.read_text()), signal.SIGTERM)
    time.sleep(0.4)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert ended(folder).info.status == "KILLED"


def test_run_cancelled_before_it_began(new_run, gang_of, client, ended):
    folder = new_run()
    client.set_tag(folder.launch().run_id, Tag.CANCEL_REQUESTED, "now")
    assert supervise(folder, gang_of(folder, "time.sleep(600)")) == 143
    run = ended(folder)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("KILLED", "stopped by request")


def test_run_that_has_ended_is_left_as_it_is(new_run, gang_of, client, ended):
    folder = new_run()
    client.set_terminated(folder.launch().run_id, "FAILED")
    assert supervise(folder, gang_of(folder, "time.sleep(600)")) == 143
    assert ended(folder).info.status == "FAILED"


def test_run_is_started_once(new_run, gang_of):
    folder = new_run()
    assert supervise(folder, gang_of(folder, "journal.end(RunStatus.FINISHED)")) == 0
    with pytest.raises(AlreadyStartedError, match="as a new run"):
        supervise(folder, gang_of(folder, "journal.end(RunStatus.FINISHED)"))


def test_gang_that_cannot_start(new_run, ended):
    from training.worker.gang import SubprocessGang

    folder = new_run()
    assert supervise(folder, SubprocessGang(folder, lambda index: ["/nowhere/python"])) == 1
    run = ended(folder)
    assert run.info.status == "FAILED"
    assert run.data.tags[Tag.REASON].startswith("could not be started: FileNotFoundError")
