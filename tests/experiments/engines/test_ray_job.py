"""A gang of two workers on a real Ray of two CPUs, with stand-ins for training processes, in a driver of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path

import pytest

from experiments.engines.ray_worker import WorkerProcess
from tests.experiments.engines.conftest import assert_gone, wait_for_text
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[3]

DRIVER = """
import json, os, pathlib, signal, sys, time
from experiments.engines.ray_job import RayGang
from training.run_folder import RunFolder

folder = RunFolder(sys.argv[1])
log = folder.path / "driver.jsonl"

def tell(what, value):
    with log.open("a") as file:
        file.write(json.dumps([what, value]) + "\\n")

def command(folder, index):
    return ["stand_in", str(folder.path), str(index)]

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
gang = RayGang(folder, command)
began = time.monotonic()
gang.start()
tell("blocked for", time.monotonic() - began)
codes = gang.poll()
while not asked and (codes := gang.poll()) == [None, None]:
    time.sleep(0.05)
tell("codes", list(codes))
tell("pids", list(gang.pids()))
began = time.monotonic()
gang.end(3.0)
tell("end took", time.monotonic() - began)
tell("codes after", list(gang.poll()))
tell("peak", gang.peak_memory_mb())
tell("heavy", [name for name in ("tensorflow", "keras") if name in sys.modules])
sys.stdout.flush()
os._exit(0)
"""

STAND_IN = """
import json, os, pathlib, signal, sys, time
folder, index = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if index == 0:
    signal.signal(signal.SIGTERM, lambda *_: ((folder / "asked").touch(), sys.exit(143)))
told = {"pid": os.getpid(), "nice": os.nice(0), "cores": sorted(os.sched_getaffinity(0)), "env": dict(os.environ)}
(folder / f"told-{index}.part").write_text(json.dumps(told))
(folder / f"told-{index}.part").rename(folder / f"told-{index}")
print("to standard output")
print("to standard error", file=sys.stderr)
while not (folder / f"go-{index}").exists():
    time.sleep(0.02)
sys.exit(int((folder / f"go-{index}").read_text()))
"""


@pytest.fixture
def start(ray_head, tmp_path):
    """Starts a gang: its folder, its driver process, and what each worker told of itself."""
    drivers = []

    def make():
        spec = RunSpec.from_dict(
            {"dataset": "synthetic", "strategy": "multi_worker_mirrored", "workers": 2, "cpu_threads": 1}
        )
        run_id = uuid.uuid4().hex
        folder = RunFolder.create(spec, Launch(run_id, "", str(tmp_path / run_id), gpu_ids=[], cpus=2))
        modules = tmp_path / "modules"
        modules.mkdir(exist_ok=True)
        (modules / "stand_in.py").write_text(textwrap.dedent(STAND_IN))
        (modules / "driver.py").write_text(textwrap.dedent(DRIVER))
        environment = {
            **os.environ,
            "RAY_ADDRESS": f"127.0.0.1:{ray_head.port}",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": f"{CHECKOUT}:{modules}",
            # As the job's runtime environment does on a real cluster.
            "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(
                {"runtime_env": {"env_vars": {"PYTHONPATH": f"{CHECKOUT}:{modules}", "CUDA_VISIBLE_DEVICES": ""}}}
            ),
        }
        with open(tmp_path / "driver.log", "wb") as log:
            driver = subprocess.Popen(
                [sys.executable, str(modules / "driver.py"), str(folder.path)],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        drivers.append(driver)
        told = [json.loads(wait_for_text(folder.path / f"told-{index}", 120.0)) for index in range(2)]
        return folder, driver, told

    yield make
    for driver in drivers:
        if driver.poll() is None:
            driver.kill()
        driver.wait()


def said(folder, driver):
    assert driver.wait(60) == 0
    return dict(json.loads(line) for line in (folder.path / "driver.jsonl").read_text().splitlines())


def test_two_workers_from_start_to_end(start):
    folder, driver, told = start()
    first, second = (each["env"] for each in told)
    cluster = json.loads(first["TF_CONFIG"])["cluster"]
    assert len(set(cluster["worker"])) == 2
    assert json.loads(first["TF_CONFIG"])["task"] == {"type": "worker", "index": 0}
    assert json.loads(second["TF_CONFIG"]) == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert {each["env"]["CUDA_VISIBLE_DEVICES"] for each in told} == {""}
    assert {each["env"]["TF_CPP_MIN_LOG_LEVEL"] for each in told} == {"0"}
    assert "TF_USE_LEGACY_KERAS" not in first
    assert {each["nice"] for each in told} == {os.nice(0)}
    if len(os.sched_getaffinity(0)) == 2:
        assert [len(each["cores"]) for each in told] == [1, 1], "workers that fill the host are pinned"
    for index in range(2):
        assert folder.worker(index).stdout.read_text() == "to standard output\n"
        assert "to standard error\n" in folder.worker(index).stderr.read_text()
    (folder.path / "go-0").write_text("0")
    (folder.path / "go-1").write_text("3")
    end = said(folder, driver)
    assert end["codes after"] == [0, 3]
    assert end["blocked for"] < 30
    assert end["heavy"] == [], "the driver needs no TensorFlow"
    assert end["peak"] > 1


def test_exit_of_one_worker_leaves_the_other_to_the_supervisor(start):
    folder, driver, told = start()
    os.kill(told[1]["pid"], signal.SIGKILL)
    end = said(folder, driver)
    assert end["codes"] == [None, -9]
    assert end["pids"] == [told[0]["pid"]]
    assert end["codes after"] == [143, -9], "the other was asked, and not killed"
    assert (folder.path / "asked").exists()
    assert end["end took"] < 10
    assert_gone([each["pid"] for each in told], 0)
    assert not (folder.path / "ray-train").exists()


def test_stop_ends_all_workers(start):
    folder, driver, told = start()
    driver.terminate()
    end = said(folder, driver)
    assert end["codes after"] == [143, -15]
    assert_gone([each["pid"] for each in told], 0)


def test_workers_do_not_outlive_a_killed_driver(start, ray_head):
    _, driver, told = start()
    driver.kill()
    assert_gone([each["pid"] for each in told])


def test_worker_whose_actor_is_killed(start):
    folder, driver, told = start()
    process = WorkerProcess.read(folder, 1)
    assert process
    assert process.pid == told[1]["pid"]
    actor = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(actor, signal.SIGKILL)
    assert_gone([told[1]["pid"]], 5)
    end = said(folder, driver)
    assert end["codes"] == [None, -9], "the one that Ray ends because of it is not to blame"


@pytest.mark.parametrize(
    ("in_order", "told", "host", "said_by_ray", "codes"),
    [
        ([1], {}, None, {0}, [None, -9]),
        ([1, 0], {}, None, {0}, [None, -9]),
        ([1, 0], {0: -9}, None, {0}, [None, -9]),
        ([1, 0], {0: 1}, None, {0}, [1, -9]),
        ([0, 1], {0: -9}, None, {1}, [-9, -9]),
        ([0, 1], {}, None, set(), [-9, None]),
        ([1], {}, "elsewhere", {0}, [-9, None]),
        ([], {}, None, {0}, [-9, None]),
        ([], {}, None, set(), [-9, -9]),
    ],
    ids=[
        "Ray names the other",
        "one after the other",
        "the killed one's actor tells",
        "the other failed",
        "killed, then lost",
        "Ray names none",
        "elsewhere",
        "none was lost",
        "unknown",
    ],
)
def test_the_worker_that_was_lost_first_is_to_blame(tmp_path, in_order, told, host, said_by_ray, codes):
    from experiments.engines.ray_job import RayGang

    spec = RunSpec.from_dict({"dataset": "synthetic", "strategy": "multi_worker_mirrored", "workers": 2})
    folder = RunFolder.create(spec, Launch("run", "", str(tmp_path / "run"), gpu_ids=[], cpus=2))
    # Nobody reaps them before the end, as in a container whose process 1 reaps nothing.
    workers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    files = [
        WorkerProcess(socket.gethostname(), workers[0].pid),
        WorkerProcess(host or socket.gethostname(), workers[1].pid),
    ]
    try:
        for index, file in enumerate(files):
            file.write(folder, index)
        gang = RayGang(folder)
        assert gang.poll() == [None, None]
        for index in in_order:
            workers[index].kill()
            time.sleep(0.1)  # well below the supervisor's interval
        for index, code in told.items():
            files[index].exit_code = code
            files[index].write(folder, index)
        gang._lost = said_by_ray
        before = gang.poll()
        assert before == [told.get(index) if told.get(index) == codes[index] else None for index in range(2)]
        gang._thread = threading.Thread(target=int)
        gang._thread.start()
        gang._thread.join()
        assert gang.poll() == codes
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
