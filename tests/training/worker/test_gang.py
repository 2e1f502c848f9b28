"""How training processes start: their environment, cores and ports; and that nothing of them is left."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.support.memory import own_peak_mb
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import (
    RUN_MARK,
    Ports,
    SubprocessGang,
    end_strays,
    visible_gpus,
    worker_cores,
    worker_environment,
)

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def folder_of(tmp_path):
    """Makes a run's folder; Launch fields in `launch`. Nothing of MLflow is needed."""

    def make(launch=None, **fields):
        where = Launch("run", "sqlite:///unused.db", str(tmp_path / "run"), **(launch or {}))
        return RunFolder.create(RunSpec(**fields), where)

    return make


def two_workers(**fields):
    return {"strategy": "multi_worker_mirrored", "workers": 2} | fields


def run(folder, *lines):
    """Runs a gang whose workers run these lines, to its end. Returns the exit codes."""
    gang = SubprocessGang(folder, lambda index: [sys.executable, "-c", "\n".join(lines), str(index)])
    gang.start()
    deadline = time.monotonic() + 30
    while None in gang.poll() and time.monotonic() < deadline:
        time.sleep(0.02)
    codes = gang.poll()
    gang.end(0.0)
    return codes


def test_environment_of_a_cpu_run(folder_of, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("TF_CONFIG", "left over")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit")
    folder = folder_of({"gpu_ids": [3]})
    assert run(folder, "import json, os", "print(json.dumps(dict(os.environ)))", "import training") == [0]
    seen = json.loads(folder.worker(0).stdout.read_text())
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert seen["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert seen["PYTHONUNBUFFERED"] == "1"
    assert seen[RUN_MARK] == str(folder.path)
    assert "TF_CONFIG" not in seen
    assert seen["KERAS_BACKEND"] == "tensorflow"
    assert seen["TF_XLA_FLAGS"] == "--tf_xla_cpu_global_jit"
    assert seen["TF_ENABLE_ONEDNN_OPTS"] == "1"


def test_onednn_is_off_where_a_person_turned_it_off(folder_of):
    folder = folder_of()
    environment = worker_environment(folder, folder.spec(), folder.launch(), {"TF_ENABLE_ONEDNN_OPTS": "0"}, 0, [])
    assert environment["TF_ENABLE_ONEDNN_OPTS"] == "0"


def test_workers_find_each_other(folder_of):
    folder = folder_of(**two_workers())
    assert run(folder, "import os", "print(os.environ['TF_CONFIG'])") == [0, 0]
    configs = [json.loads(folder.worker(index).stdout.read_text()) for index in range(2)]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2
    assert [config["task"] for config in configs] == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]


def test_single_worker_of_a_multi_worker_strategy_has_a_cluster_too(folder_of):
    folder = folder_of(**two_workers(workers=1))
    environment = worker_environment(folder, folder.spec(), folder.launch(), {}, 0, [20_000])
    assert json.loads(environment["TF_CONFIG"])["cluster"] == {"worker": ["127.0.0.1:20000"]}


@pytest.mark.parametrize(
    ("fields", "gpu_ids", "inherited", "expected"),
    [
        ({"device": "cpu"}, [5], "5", [[]]),
        ({"device": "gpu"}, [5], None, [["5"]]),
        ({"device": "gpu"}, None, "GPU-1234", [None]),
        ({"device": "gpu", "strategy": "mirrored", "replicas": 2}, [5, 6], None, [["5", "6"]]),
        (two_workers(device="gpu"), [5, 6], None, [["5"], ["6"]]),
        (two_workers(device="gpu"), None, "2,3", [["2"], ["3"]]),
        (two_workers(device="gpu"), None, None, [["0"], ["1"]]),
    ],
)
def test_gpus_that_a_worker_sees(fields, gpu_ids, inherited, expected):
    spec, launch = RunSpec(**fields), Launch("run", "", "", gpu_ids=gpu_ids)
    assert [visible_gpus(spec, launch, index, inherited) for index in range(spec.workers)] == expected


@pytest.mark.parametrize(
    ("threads", "cpus", "expected"),
    [(1, 2, [[0], [4]]), (1, 1, []), (2, 2, []), (None, 2, [])],
)
def test_workers_are_pinned_when_they_fill_the_host(threads, cpus, expected):
    spec = RunSpec(**two_workers(cpu_threads=threads))
    assert worker_cores(spec, Launch("run", "", "", cpus=cpus), [0, 4]) == expected


def test_pinned_worker_runs_on_its_core(folder_of):
    cores = sorted(os.sched_getaffinity(0))
    folder = folder_of({"cpus": len(cores)}, **two_workers(workers=len(cores), cpu_threads=1))
    run(folder, "import os", "print(os.sched_getaffinity(0))")
    assert len(cores) > 1, "a machine with one core pins nothing"
    seen = [folder.worker(index).stdout.read_text().strip() for index in range(len(cores))]
    assert seen == [f"{{{core}}}" for core in cores]


def test_ports_are_given_once():
    first, second = Ports(), Ports()
    ports = first.take(20) + second.take(20)
    assert len(set(ports)) == 40
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))
    first.release()
    assert len(first.take(1)) == 1
    first.release()
    second.release()


def test_output_goes_to_files_and_peak_memory_is_known(folder_of):
    folder = folder_of()
    script = "import os, sys; big = bytearray(150_000_000); os.write(1, b'one'); os.write(2, b'two'); sys.exit(3)"
    gang = SubprocessGang(folder, lambda index: [sys.executable, "-c", script])
    gang.start()
    while None in gang.poll():
        time.sleep(0.02)
    assert gang.poll() == [3]
    assert list(gang.pids()) == []
    assert folder.worker(0).stdout.read_text() == "one"
    assert folder.worker(0).stderr.read_text() == "two"
    # The kernel counts a child's memory from before its exec, when it shared all that this process ever held.
    assert 150 < gang.peak_memory_mb() < max(400.0, 1.1 * own_peak_mb())
    gang.end(0.0)


def test_end_asks_first_then_kills(folder_of):
    folder = folder_of()
    polite = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(60)"
    )
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    for script, code in ((polite, 7), (stubborn, -9)):
        command = [sys.executable, "-c", script]
        gang = SubprocessGang(folder, functools.partial(lambda command, index: command, command))
        folder.worker(0).stdout.unlink(missing_ok=True)
        gang.start()
        while not (folder.worker(0).stdout.exists() and folder.worker(0).stdout.read_text()):
            time.sleep(0.02)
        gang.end(2.0)
        assert gang.poll() == [code]


def test_workers_die_with_their_supervisor(folder_of, alive, eventually):
    folder = folder_of()
    script = textwrap.dedent("""
        import sys, time
        from training.run_folder import RunFolder
        from training.worker.gang import SubprocessGang
        stray = "import time; time.sleep(600)"
        worker = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', %r])"
        worker = worker % stray + "; print(p.pid, flush=True); time.sleep(600)"
        gang = SubprocessGang(RunFolder(sys.argv[1]), lambda index: [sys.executable, "-c", worker])
        gang.start()
        print(*gang.pids(), flush=True)
        time.sleep(600)
    """)
    supervisor = subprocess.Popen(
        [sys.executable, "-c", script, str(folder.path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
    )
    assert supervisor.stdout is not None
    worker = int(supervisor.stdout.readline())
    eventually(lambda: folder.worker(0).stdout.read_text())
    stray = int(folder.worker(0).stdout.read_text())
    assert alive(worker)
    assert alive(stray)
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    supervisor.stdout.close()
    eventually(lambda: not alive(worker), 10)
    assert end_strays(folder) == [stray]
    assert not alive(stray)
    assert end_strays(folder) == []


def test_start_from_another_thread_is_refused(folder_of):
    gang = SubprocessGang(folder_of(), lambda index: ["true"])
    errors: list[Exception] = []

    def start():
        try:
            gang.start()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "from the main thread" in str(errors[0])
