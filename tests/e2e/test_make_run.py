"""`make run`, the command itself: it starts, says one line, keeps data over a restart, and leaves nothing behind."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
import typing
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from training.names import Artifact, Tag

CHECKOUT = Path(__file__).resolve().parents[2]
READY = re.compile(r"Speedup Lab is ready: (http://127\.0\.0\.1:\d+)")
READY_S = 400.0  # Ray may need a second start on a busy machine
MARK = "SPEEDUP_LAB_E2E"  # this test's own mark: what it finds does not depend on the code that it tests


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return [probe.getsockname()[1] for probe in probes]


class Lab:
    """One data folder and its ports, on which `make run` can be started time and again."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.home, self.user_home, self.tmp = folder / "lab", folder / "user", folder / "tmp"
        for made in (self.home, self.user_home, self.tmp):
            made.mkdir()
        self.page, self.mlflow, self.ray, self.dashboard = free_ports(4)
        self.mark = uuid.uuid4().hex
        self.output = folder / "output"
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MAKE", "MFLAGS"))},
            "SPEEDUP_LAB_HOME": str(self.home),
            "SPEEDUP_LAB_PORT": str(self.page),
            "SPEEDUP_LAB_MLFLOW_PORT": str(self.mlflow),
            "SPEEDUP_LAB_RAY_PORT": str(self.ray),
            "SPEEDUP_LAB_RAY_DASHBOARD_PORT": str(self.dashboard),
            "HOME": str(self.user_home),
            "TMPDIR": str(self.tmp),
            MARK: self.mark,
        }
        self.seen: set[psutil.Process] = set()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it in a session of its own, like a terminal's foreground group."""
        with open(self.output, "wb") as output:
            return subprocess.Popen(
                ["make", "run"],
                cwd=CHECKOUT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until(self, process: subprocess.Popen[bytes], done: Callable[[], object], seconds: float) -> None:
        """Waits, and remembers every process that comes up meanwhile."""
        deadline = time.monotonic() + seconds
        while not done():
            assert process.poll() is None, f"make run ended with {process.returncode}:\n{self.said()}"
            assert time.monotonic() < deadline, self.said()
            self.look()
            time.sleep(0.5)
        self.look()

    def said(self) -> str:
        """What it printed so far."""
        return self.output.read_text(errors="replace")

    def look(self) -> set[psutil.Process]:
        """The live processes that it started, by their environment or by descent from one that was seen before."""
        parents = {}
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                parents[process] = process.ppid()
                if f"{MARK}={self.mark}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                    self.seen.add(process)
        living = {process for process in self.seen if self._lives(process)}
        grown = True
        while grown:
            pids = {process.pid for process in living}
            found = {process for process, parent in parents.items() if parent in pids and self._lives(process)}
            grown = not found <= living
            living |= found
        self.seen |= living
        return living

    @staticmethod
    def _lives(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def links(self) -> list[Path]:
        """Short names of the data folder in the machine's own folder for what is temporary."""
        return [link for link in Path("/tmp").glob("lab-*/home") if link.readlink() == self.home]

    def press_ctrl_c(self, process: subprocess.Popen[bytes]) -> set[psutil.Process]:
        """Sends what a terminal sends. Returns what is left when make has ended."""
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=90)
        return self.look()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """In a folder whose path is too long for Ray's sockets, as most people's are."""
    made = Lab(tmp_path)
    yield made
    for process in made.look():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def get(address: str, token: str = "", host: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if host:
        headers["Host"] = host
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def begin(lab: Lab, *arguments: str) -> subprocess.Popen[str]:
    """Starts the command line in another terminal, which needs no more than the data folder's name."""
    return subprocess.Popen(
        [CHECKOUT / ".venv" / "bin" / "python", "-m", "experiments", *arguments],
        cwd=CHECKOUT,
        env=lab.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(begun: subprocess.Popen[str]) -> str:
    """What a command that succeeds says in the end."""
    out, err = begun.communicate(timeout=120)
    assert begun.returncode == 0, err
    return out


SYNTHETIC = [
    *("--set", "dataset=synthetic", "--set", "dataset_options.examples=64"),
    *("--set", "dataset_options.validation_examples=64", "--set", "global_batch_size=32"),
]
TWO_WORKERS = ["--set", "strategy=multi_worker_mirrored", "--set", "workers=2", "--set", "cpu_threads=1"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_starts_again_after_a_kill_trains_and_ends_with_nothing_left(lab: Lab) -> None:
    process = lab.start()
    lab.until(process, lambda: READY.search(lab.said()), READY_S)
    token = (lab.home / "ray-token").read_text()
    earlier = MlflowClient(f"http://127.0.0.1:{lab.mlflow}").create_run("0").info.run_id
    # The launcher and make die without a word; their group is all that is not a component.
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    orphans = lab.look()
    assert len(orphans) > 5
    assert lab.links() != []  # the name that is short enough for Ray's sockets

    # The ports are still taken by them, and so the next start must end them before it looks at the ports.
    process = lab.start()
    lab.until(process, lambda: READY.search(lab.said()), READY_S)
    assert "that an earlier `make run` left when it was killed" in lab.said()
    assert orphans & lab.look() == set()
    assert get(f"http://127.0.0.1:{lab.mlflow}/api/2.0/mlflow/runs/get?run_id={earlier}")[0] == 200
    assert (lab.home / "ray-token").read_text() == token

    # Two runs, one after the other, while the rest is looked at: the first takes all the processors that Ray has.
    finishing = begin(lab, "run", "--json", *SYNTHETIC, *TWO_WORKERS, "--set", "epochs=2")
    lab.until(process, lambda: list((lab.home / "runs").glob("*")), 120)
    lasting = begin(lab, "submit", "--json", *SYNTHETIC, "--set", "epochs=100000")

    # One line with the address, and everything behind it answers.
    assert READY.findall(lab.said()) == [f"http://127.0.0.1:{lab.page}"]
    assert get(f"http://127.0.0.1:{lab.page}/_stcore/health") == (200, "ok")
    assert get(f"http://127.0.0.1:{lab.mlflow}/health") == (200, "OK")
    ray = f"http://127.0.0.1:{lab.dashboard}/api/jobs/"
    assert get(ray, token)[0] == 200

    # The doctor in another terminal looks at what was started, which listens on ports of its own.
    found = json.loads(answer(begin(lab, "doctor", "--json")))
    told = {(each["area"], each["level"]): each for each in found}
    assert f"http://127.0.0.1:{lab.mlflow}" in told["Tracking", "ok"]["detail"]
    assert told["Ray", "ok"]["title"].startswith("Ray has ")

    # Nobody without the token gets Ray to do anything, and nobody from outside reaches the page or MLflow.
    assert get(ray)[0] == 401
    assert get(ray, "guessed")[0] in (401, 403)
    assert stat.S_IMODE((lab.home / "ray-token").stat().st_mode) == 0o600
    listening = {
        connection.laddr.port: connection.laddr.ip
        for process in lab.look()
        for connection in connections(process)
        if connection.status == psutil.CONN_LISTEN
    }
    assert {listening[port] for port in (lab.page, lab.mlflow, lab.dashboard)} == {"127.0.0.1"}
    # Case E18: a page of another site that points its name here gets nothing from MLflow.
    assert (
        get(f"http://127.0.0.1:{lab.mlflow}/api/2.0/mlflow/experiments/search?max_results=1", host="evil.example")[0]
        == 403
    )

    # A second start finds the data folder in use.
    second = subprocess.run(["make", "run"], cwd=CHECKOUT, env=lab.environ, capture_output=True, text=True, timeout=120)
    assert second.returncode == 2
    assert f"SPEEDUP_LAB_HOME={lab.home} is in use by another `make run`" in second.stderr

    # A run of two workers trains to its end through Ray, and is recorded as one run.
    run = json.loads(answer(lasting))["run_id"]
    lab.until(process, lambda: finishing.poll() is not None, 300)
    finished = json.loads(answer(finishing))
    assert (finished["status"], finished["reason"]) == ("FINISHED", "")
    store = MlflowClient(f"http://127.0.0.1:{lab.mlflow}")
    runs = store.search_runs([each.experiment_id for each in store.search_experiments()])
    (recorded,) = [each for each in runs if each.info.run_id not in (run, earlier)]
    assert (recorded.info.run_id, recorded.info.status) == (finished["run_id"], "FINISHED")
    assert {name: recorded.data.params[name] for name in ("strategy", "workers")} == {
        "strategy": "multi_worker_mirrored",
        "workers": "2",
    }
    assert recorded.data.tags[Tag.REPLICAS_IN_SYNC] == "2"
    for name in ("loss", "val_loss", "time/epoch_train"):
        assert [point.step for point in store.get_metric_history(recorded.info.run_id, name)] == [0, 1], name
    logs = {Path(each.path).name for each in store.list_artifacts(recorded.info.run_id, Artifact.LOG_DIR)}
    assert {"worker-0.log", "worker-1.log"} <= logs

    # A run that trains for long ...
    journal = lab.home / "runs" / run / "worker-0" / "journal.jsonl"
    lab.until(process, lambda: journal.exists() and '"loss"' in journal.read_text(), 240)
    assert any("training.worker.process" in " ".join(each.cmdline()) for each in lab.look())

    # ... ends with all the rest on Ctrl-C, in order: MLflow heard of it.
    left = lab.press_ctrl_c(process)
    assert left == set(), lab.said()
    assert "Everything has ended. The data stay." in lab.said()
    assert len(lab.seen - orphans) > 15  # the look-out for leftovers did see what there was
    for port in (lab.page, lab.mlflow, lab.ray, lab.dashboard):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    stopped = MlflowClient(f"sqlite:///{lab.home}/mlflow.db").get_run(run)
    assert stopped.info.status == "KILLED"
    assert stopped.data.metrics["loss"] > 0

    # Nothing was written outside the data folder, but for Keras's own folder.
    assert list(lab.tmp.iterdir()) == lab.links() == []
    assert {path.name for path in lab.user_home.iterdir()} <= {".keras"}


def connections(process: psutil.Process) -> list[typing.Any]:
    try:
        return process.net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return []
