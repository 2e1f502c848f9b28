"""Submitting and cancelling, against a real store."""

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from experiments import admission, queue, results
from experiments.queue import UnknownRun, cancel, is_unfinished, submit
from experiments.settings import CHECKOUT, ExperimentDeletedError, Settings
from tests.support.stores import settings_in
from training.mlflow_limits import LONGEST_PARAM, LONGEST_TAG
from training.names import Artifact, RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec, SpecError

TINY = RunSpec(dataset="synthetic", cpu_threads=1, epochs=2, user="ada", tags={"ticket": "7"}, group="g", notes="why")


def test_a_submitted_run_is_scheduled_and_holds_everything(settings: Settings) -> None:
    before_ms = time.time() * 1000 - 1
    run_id = submit(settings, TINY)
    run = settings.client().get_run(run_id)
    assert run.info.status == "SCHEDULED"
    assert run.info.run_name == TINY.display_name
    assert before_ms <= run.info.start_time <= time.time() * 1000
    assert run.info.end_time is None
    assert run.data.params == queue.params(TINY)
    tags = run.data.tags
    assert (tags[Tag.USER], tags[Tag.GROUP], tags[Tag.NOTE], tags["tag.ticket"]) == ("ada", "g", "why", "7")
    assert tags[Tag.SIMULATED] == "false"
    assert tags[Tag.DEVICES_ASKED] == "CPU:0"
    assert Tag.ENGINE_HANDLE not in tags
    assert results.spec(settings, run_id) == TINY
    assert RunFolder.of(settings.runs_folder, run_id).spec() == TINY
    assert RunFolder.of(settings.runs_folder, run_id).spec_path.read_text() == TINY.to_json()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (RunSpec(dataset="synthetic", cpu_threads=4096), "cpu_threads=4096 needs"),
        (RunSpec(dataset="synthetic", epochs=0), "epochs=0 is too small"),
        (RunSpec(dataset="none"), "dataset='none' is unknown: choose one of"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_queued(settings: Settings, spec: RunSpec, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        submit(settings, spec)
    assert settings.client().search_runs([settings.experiment_id()]) == []
    assert list(settings.runs_folder.iterdir()) == []


def test_the_same_token_makes_one_run_and_another_token_another(settings: Settings) -> None:
    first = submit(settings, TINY, "form-1")
    assert submit(settings, TINY, "form-1") == first
    assert submit(settings, TINY, "form-2") != first
    assert submit(settings, TINY) != submit(settings, TINY)
    odd = "'; DROP TABLE runs; -- ü"
    assert submit(settings, TINY, odd) == submit(settings, TINY, odd)
    assert len(settings.client().search_runs([settings.experiment_id()])) == 5


def test_ten_clicks_at_once_make_one_run(settings: Settings) -> None:
    with ThreadPoolExecutor(10) as pool:
        run_ids = list(pool.map(lambda _: submit(settings, TINY, "clicked"), range(10)))
    assert len(set(run_ids)) == 1
    assert len(settings.client().search_runs([settings.experiment_id()])) == 1


@pytest.mark.slow
def test_one_token_in_three_processes_makes_one_run(settings: Settings) -> None:
    code = (
        "from experiments import queue\nfrom experiments.settings import Settings\nfrom training.spec import RunSpec\n"
        "spec = RunSpec(dataset='synthetic', cpu_threads=1)\n"
        "print(queue.submit(Settings.from_environment(), spec, 'shared'))\n"
    )
    environment = os.environ | {"SPEEDUP_LAB_HOME": str(settings.home)}
    command = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    run_ids = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [run.info.run_id for run in settings.client().search_runs([settings.experiment_id()])] == list(run_ids)


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("step", ["log_batch", "log_text", "write_folder", "set_tag", "update_run"])
def test_a_submission_that_dies_in_the_middle_leaves_nothing_that_looks_submitted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        if step == "write_folder":
            patch.setattr(RunFolder, "write_spec", crash)
        else:
            patch.setattr(MlflowClient, step, crash)
        with pytest.raises(Crash):
            submit(settings, TINY, "token")
    client = settings.client()
    assert client.search_runs([settings.experiment_id()], "attributes.status = 'SCHEDULED'") == []
    left = client.search_runs([settings.experiment_id()])
    assert len(left) == 1
    if step != "update_run":
        assert is_unfinished(left[0])
        assert len(results.Results(settings).runs()) == 0
    again = submit(settings, TINY, "token")
    assert client.get_run(again).info.status == "SCHEDULED"
    assert submit(settings, TINY, "token") == again


def test_long_params_are_kept_whole_beside_and_said(settings: Settings) -> None:
    spec = RunSpec(
        dataset="synthetic", cpu_threads=1, notes="n" * 20_000, tags={f"key {i}": "v" * 5_000 for i in range(50)}
    )
    run_id = submit(settings, spec)
    run = settings.client().get_run(run_id)
    assert len(run.data.params["notes"]) == len(run.data.params["tags"]) == LONGEST_PARAM
    assert len(run.data.tags[Tag.NOTE]) == LONGEST_TAG
    assert [line.split(" has ")[0] for line in run.data.tags[Tag.NOTICE].splitlines()] == ["param tags", "param notes"]
    assert Artifact.PARAMS in run.data.tags[Tag.NOTICE]
    assert results.Results(settings).runs().notice[0] == run.data.tags[Tag.NOTICE]
    full = json.loads(Path(client_file(settings, run_id, Artifact.PARAMS)).read_text())
    assert full == queue.params(spec)
    assert results.spec(settings, run_id) == spec


def test_150_params_are_all_there(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec has fewer fields now; MLflow takes 100 in one request."""
    many = {f"field_{index}": str(index) for index in range(150)}
    monkeypatch.setattr(queue, "params", lambda _: many)
    assert settings.client().get_run(submit(settings, TINY)).data.params == many


def client_file(settings: Settings, run_id: str, path: str) -> str:
    return str(settings.client().download_artifacts(run_id, path))


def test_a_waiting_run_is_killed_at_once_and_a_second_cancel_changes_nothing(settings: Settings) -> None:
    run_id = submit(settings, TINY)
    assert cancel(settings, run_id) is RunStatus.KILLED
    run = settings.client().get_run(run_id)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("KILLED", "cancelled before it started")
    assert run.info.end_time is not None
    assert cancel(settings, run_id) is RunStatus.KILLED
    assert settings.client().get_run(run_id).info.end_time == run.info.end_time


def test_a_live_run_is_only_asked_to_stop(settings: Settings) -> None:
    client = settings.client()
    starting, running, finished = (submit(settings, TINY) for _ in range(3))
    client.set_tag(starting, Tag.ENGINE_HANDLE, "ray:1")
    client.update_run(running, status=RunStatus.RUNNING)
    client.set_terminated(finished, RunStatus.FINISHED)
    assert cancel(settings, starting) is RunStatus.SCHEDULED
    assert cancel(settings, running) is cancel(settings, running) is RunStatus.RUNNING
    assert cancel(settings, finished) is RunStatus.FINISHED
    for run_id, asked in ((starting, "true"), (running, "true"), (finished, None)):
        assert client.get_run(run_id).data.tags.get(Tag.CANCEL_REQUESTED) == asked
    assert results.Results(settings).runs().set_index("run_id").reason[running] == "stopping"


@pytest.mark.parametrize("run_id", ["", "0" * 32, "../x", "%"])
def test_cancelling_an_unknown_run_names_it(settings: Settings, run_id: str) -> None:
    with pytest.raises(UnknownRun, match="is unknown"):
        cancel(settings, run_id)


def test_a_deleted_experiment_refuses_and_a_restored_one_takes_runs(settings: Settings) -> None:
    settings.client().delete_experiment(settings.experiment_id())
    with pytest.raises(ExperimentDeletedError, match="restore"):
        submit(settings, TINY)
    settings.restore_experiment()
    assert submit(settings, TINY)


def test_the_queue_is_driven_only_while_the_process_that_says_so_lives(settings: Settings) -> None:
    assert not queue.is_driven(settings)
    lock = settings.locks_folder / "controller.lock"
    lock.write_text("")
    assert not queue.is_driven(settings)
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    assert queue.is_driven(settings)
    os.utime(lock, (1, 1))
    assert not queue.is_driven(settings), "this process is younger: it only has the number"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock.write_text(f"process {ended.pid} on {socket.gethostname()}")
    assert not queue.is_driven(settings)


@contextlib.contextmanager
def tracking_server(settings: Settings, log: Path) -> Iterator[str]:
    """A real MLflow server on the store of the settings; its address."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", settings.tracking_uri, "--no-serve-artifacts"]
    command += ["--default-artifact-root", settings.artifacts_folder.as_uri()]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(20)


@pytest.mark.alone
@pytest.mark.slow
def test_against_a_server_submitting_is_quick_and_results_are_the_same(settings: Settings, tmp_path: Path) -> None:
    with tracking_server(settings, tmp_path / "server.log") as address:
        remote = settings_in(settings.home, MLFLOW_TRACKING_URI=address)
        run_id = submit(remote, TINY)
        times = []
        for _ in range(8):
            began = time.perf_counter()
            submit(remote, TINY, f"token-{began}")
            times.append(time.perf_counter() - began)
        client = remote.client()
        requests = []
        for _ in range(8):
            began = time.perf_counter()
            client.get_run(run_id)
            requests.append(time.perf_counter() - began)
        # Half a second, and on a machine that is busy with other things no more than a dozen plain requests.
        assert min(times) < max(0.5, 12 * min(requests)), (times, requests)
        client.log_metric(run_id, "loss", float("nan"), step=0)
        client.log_metric(run_id, "loss", float("-inf"), step=1)
        client.log_metric(run_id, "throughput/window", 5.0, step=7)
        client.update_run(run_id, status=RunStatus.RUNNING)
        near, far = results.Results(settings).runs(), results.Results(remote).runs()
        assert len(far) == 9
        assert near.equals(far)
        near, far = results.history(settings, run_id), results.history(remote, run_id)
        assert near.equals(far)
        assert [str(value) for value in far[far.metric == "loss"].value] == ["nan", "-inf"]
        assert results.spec(remote, run_id) == TINY
        assert results.record(remote, run_id)["spec"] == TINY.to_dict()


@pytest.mark.slow
def test_results_stay_whole_while_eight_writers_and_two_readers_share_the_store(settings: Settings) -> None:
    """Without WAL, and with short waits, SQLite answers "database is locked"."""
    spec = RunSpec(dataset="synthetic", cpu_threads=1)
    run_ids = [submit(settings, spec) for _ in range(8)]
    stop, faults = threading.Event(), []

    def write(run_id: str) -> None:
        client = MlflowClient(settings.tracking_uri)
        for step in range(20):
            for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
                client.log_metric(run_id, name, step / 20, step=step)

    def read() -> None:
        found = results.Results(settings, max_age_s=0)
        while not stop.is_set():
            try:
                assert len(found.runs()) == 8
            except Exception as error:
                faults.append(error)
                raise

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, run_ids))
    stop.set()
    for reader in readers:
        reader.join()
    assert faults == []
    with closing(sqlite3.connect(str(settings.database))) as connection:
        assert connection.execute("SELECT count(*) FROM metrics").fetchone() == (8 * 20 * 4,)


def test_admission_is_asked_with_these_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def check(given: Settings, spec: RunSpec) -> list[object]:
        asked.append((given, spec))
        return []

    monkeypatch.setattr(admission, "check", check)
    submit(settings, TINY)
    assert asked == [(settings, TINY)]
