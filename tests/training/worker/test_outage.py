"""A tracking server that goes away, and a database that many write to: training goes on and nothing is lost."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric as MlflowMetric

from training.names import Metric, Tag
from training.worker.recording import LONGEST_PAUSE_S, replay

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WINDOWS = 60
STEADY = f"""
journal.phase(Phase.TRAINING)
for number in range({WINDOWS}):
    while number >= {WINDOWS} // 2 and not (folder.path / "go").exists():
        time.sleep(0.05)
    before = time.monotonic()
    journal.series(Metric.WINDOW, [(number, float(number), time.time())])
    journal.metrics({{Metric.LOSS: 1.0 / (number + 1)}}, number)
    open(folder.path / "slowest", "a").write(f"{{time.monotonic() - before}}\\n")
    time.sleep(0.02)
journal.end(RunStatus.FINISHED)
"""


class Server:
    """A real `mlflow server` on a port of its own, which can be stopped and started again."""

    def __init__(self, home):
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{self.home}/mlflow.db"]
        command += ["--artifacts-destination", str(self.home / "artifacts")]
        with open(self.home / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )
        deadline = time.monotonic() + 120
        while not self.answers():
            assert time.monotonic() < deadline, (self.home / "server.log").read_text()[-2_000:]
            time.sleep(0.2)

    def answers(self):
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=2).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(store_template, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    shutil.copy(store_template, server.home / "mlflow.db")
    server.start()
    MlflowClient(server.uri).create_experiment("runs")
    yield server
    server.stop()


def assert_complete(client, folder):
    run_id = folder.launch().run_id
    losses = client.get_metric_history(run_id, Metric.LOSS)
    assert sorted(point.step for point in losses) == list(range(WINDOWS))
    windows = client.get_metric_history(run_id, Metric.WINDOW)
    assert sorted(point.value for point in windows) == [float(number) for number in range(WINDOWS)]
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert [file.path for file in client.list_artifacts(run_id, "logs")] == ["logs/worker-0.log"]
    # The run ended when the training did, not when the server was back.
    last = max(point.timestamp for point in losses)
    assert abs(run.info.end_time - last) < 10_000


@pytest.mark.alone
def test_server_that_is_away_for_a_while(server, new_run, start_supervisor, eventually, text_of):
    folder = new_run(uri=server.uri, epochs=WINDOWS)
    client = MlflowClient(server.uri)
    process = start_supervisor(folder, STEADY)
    eventually(lambda: client.get_run(folder.launch().run_id).info.status == "RUNNING")
    eventually(lambda: client.get_metric_history(folder.launch().run_id, Metric.LOSS))
    server.stop()
    (folder.path / "go").touch()
    eventually(lambda: '"end"' in text_of(folder.supervisor_journal))
    assert process.poll() is None, "it waits for the server"
    time.sleep(5.0)
    server.start()
    assert process.wait(120) == 0
    assert_complete(client, folder)
    slowest = max(float(line) for line in (folder.path / "slowest").read_text().split())
    assert slowest < 2.0, "writing to the journal waited for the server"
    assert "recording again after" in folder.supervisor_log.read_text()


def test_server_that_stays_away(server, new_run, start_supervisor, eventually):
    folder = new_run(uri=server.uri, epochs=WINDOWS)
    client = MlflowClient(server.uri)
    process = start_supervisor(folder, STEADY, SPEEDUP_LAB_RECORD_DEADLINE_S="2")
    eventually(lambda: client.get_run(folder.launch().run_id).info.status == "RUNNING")
    server.stop()
    (folder.path / "go").touch()
    try:
        assert process.wait(120) == 0
        assert "to be recorded later" in folder.supervisor_log.read_text()
    finally:
        server.start()
    assert client.get_run(folder.launch().run_id).info.status == "RUNNING"
    assert replay(folder)
    assert_complete(client, folder)


@pytest.mark.alone
def test_stop_while_the_server_is_away(server, new_run, start_supervisor, eventually):
    folder = new_run(uri=server.uri)
    client = MlflowClient(server.uri)
    process = start_supervisor(folder, "epoch(0)\ntime.sleep(600)")
    eventually(lambda: client.get_metric_history(folder.launch().run_id, Metric.LOSS))
    server.stop()
    try:
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert time.monotonic() - began < 15.0
    finally:
        server.start()
    assert replay(folder)
    run = client.get_run(folder.launch().run_id)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("KILLED", "stopped by request")


def test_many_runs_write_to_one_database(new_run, client, start_supervisor):
    script = """
    for number in range(50):
        values = {Metric.LOSS: number, Metric.ACCURACY: number, Metric.VAL_LOSS: number, Metric.VAL_ACCURACY: number}
        journal.metrics(values, number)
        time.sleep(0.1)
    journal.end(RunStatus.FINISHED)
    """
    folders = [new_run(epochs=50) for _ in range(5)]
    processes = [start_supervisor(folder, script) for folder in folders]
    experiment = client.get_run(folders[0].launch().run_id).info.experiment_id
    while any(process.poll() is None for process in processes):
        client.search_runs([experiment])  # a browser that polls
        time.sleep(0.2)
    assert [process.returncode for process in processes] == [0] * 5
    names = (Metric.LOSS, Metric.ACCURACY, Metric.VAL_LOSS, Metric.VAL_ACCURACY)
    histories = [client.get_metric_history(folder.launch().run_id, name) for folder in folders for name in names]
    assert [sorted(point.step for point in history) for history in histories] == [list(range(50))] * 20
    for folder in folders:
        assert client.get_run(folder.launch().run_id).info.status == "FINISHED"


@pytest.mark.alone
def test_supervisor_leaves_the_machine_to_the_training(new_run, client, start_supervisor, eventually):
    folder = new_run()
    process = start_supervisor(
        folder,
        """
        for number in range(10_000):
            journal.series(Metric.WINDOW, [(number, 1.0, time.time())])
            time.sleep(0.25)
        """,
    )

    def cpu_seconds():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def recorded():
        return len(client.get_metric_history(folder.launch().run_id, Metric.WINDOW))

    eventually(lambda: recorded() > WINDOWS // 2)  # MLflow's imports are over, and it has written more than once
    before, writes = cpu_seconds(), 0.0
    for _ in range(6):
        time.sleep(LONGEST_PAUSE_S)
        # What it cannot do without, at this moment on this machine: write a few points to MLflow once a pause.
        writes += _cpu_seconds_of_a_write(client, folder.launch().run_id)
    used = cpu_seconds() - before
    assert used < 4.0 * writes, f"the supervisor used {used:.2f} s of a core, its writes are worth {writes:.2f} s"


def _cpu_seconds_of_a_write(client, run_id):
    points = [MlflowMetric("window", 1.0, int(time.time() * 1000), step) for step in range(12)]
    before = time.process_time()
    client.log_batch(run_id, points)
    return time.process_time() - before
