"""A real MLflow store, run folders in it, and stand-ins for training processes: scripts that write a real journal."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient

from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import SubprocessGang

CHECKOUT = Path(__file__).parents[3]

_PREAMBLE = """
import os, signal, subprocess, sys, time
from training.names import Metric, Phase, RunStatus, Tag
from training.run_folder import RunFolder
from training.worker.journal import Journal

folder, index = RunFolder(sys.argv[1]), int(sys.argv[2])
journal = Journal(folder.worker(index).journal)

def epoch(number, loss=0.5, seconds=0.0):
    journal.phase(Phase.TRAINING)
    journal.series(Metric.WINDOW, [(number * 10 + 10, 1000.0, time.time())])
    time.sleep(seconds)
    journal.metrics({Metric.LOSS: loss, Metric.ACCURACY: 0.9, Metric.TIME_EPOCH_TRAIN: 1.0}, step=number)
"""


@pytest.fixture(scope="session")
def tracking_uri(store_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A SQLite store as the product makes it, with an experiment of these tests."""
    home = tmp_path_factory.mktemp("store")
    shutil.copy(store_template, home / "mlflow.db")
    uri = f"sqlite:///{home}/mlflow.db"
    MlflowClient(uri).create_experiment("runs", artifact_location=(home / "artifacts").as_uri())
    return uri


@pytest.fixture
def client(tracking_uri: str) -> MlflowClient:
    """A client of the store."""
    return MlflowClient(tracking_uri)


@pytest.fixture
def new_run(tmp_path: Path, tracking_uri: str) -> Callable[..., RunFolder]:
    """Makes a SCHEDULED run with its folder: RunSpec fields by name, Launch fields in `launch`."""

    def make(launch: dict[str, Any] | None = None, uri: str = tracking_uri, **fields: Any) -> RunFolder:
        spec = RunSpec.from_dict({"dataset": "synthetic", "epochs": 3, "log_device_placement": False} | fields)
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("runs")
        assert experiment is not None
        run_id = client.create_run(experiment.experiment_id).info.run_id
        client.update_run(run_id, status="SCHEDULED")
        where = Launch(run_id, uri, str(tmp_path / run_id), submitted_at=time.time() - 2.0)
        return RunFolder.create(spec, Launch(**(vars(where) | (launch or {}))))

    return make


@pytest.fixture
def gang_of() -> Callable[..., SubprocessGang]:
    """Makes the gang of a run whose workers run a script: Python source that finds `journal`, `index`, `epoch`."""

    def make(folder: RunFolder, script: str) -> SubprocessGang:
        path = write_script(folder, script)
        return SubprocessGang(folder, lambda index: [sys.executable, str(path), str(folder.path), str(index)])

    return make


def write_script(folder: RunFolder, script: str) -> Path:
    path = folder.path / "stand_in.py"
    path.write_text(_PREAMBLE + textwrap.dedent(script))
    return path


@pytest.fixture
def start_supervisor(tmp_path: Path) -> Any:
    """Starts a supervisor process of a run whose workers run a script; ends it with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: RunFolder, script: str, **environment: str) -> subprocess.Popen[bytes]:
        main = folder.path / "supervise.py"
        stand_in = write_script(folder, script)
        main.write_text(
            textwrap.dedent(f"""
            import sys
            from training.run_folder import RunFolder
            from training.worker.gang import SubprocessGang
            from training.worker.supervisor import supervise
            folder = RunFolder(sys.argv[1])
            command = lambda index: [sys.executable, {str(stand_in)!r}, str(folder.path), str(index)]
            code = supervise(folder, SubprocessGang(folder, command))
            print("tensorflow" in sys.modules)
            sys.exit(code)
            """)
        )
        log = open(folder.path / "supervisor.out", "wb")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, str(main), str(folder.path)],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until a condition holds."""

    def wait(condition: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.05)

    return wait


@pytest.fixture
def text_of() -> Callable[[Path], str]:
    """What is in a file that may not exist yet."""
    return lambda path: path.read_text() if path.exists() else ""


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """Whether a process runs (a zombie does not)."""

    def look(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return look
