"""What every test gets: its own data folder, none of the developer's servers, and GPU tests that skip by themselves."""

import atexit
import os
import shutil
import tempfile
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

if typing.TYPE_CHECKING:
    from experiments.settings import Settings

# Before any test module is imported: a default read at import time must not find the checkout's data folder, nor a
# developer's tracking server or Ray cluster.
for variable in [*os.environ]:
    if variable.startswith("SPEEDUP_LAB_") or variable in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "RAY_ADDRESS"):
        del os.environ[variable]
_HOME = tempfile.mkdtemp(prefix="speedup-lab-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ["SPEEDUP_LAB_HOME"] = _HOME
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests first, then slow ones, then the browser; without an NVIDIA GPU, `gpu` tests skip.

    Side by side it is the other way round, so that at the end no process waits for the other's longest file.
    """
    side_by_side = hasattr(config, "workerinput")
    items.sort(
        key=lambda item: 2 * bool(item.get_closest_marker("browser")) + bool(item.get_closest_marker("slow")),
        reverse=side_by_side,
    )
    for item in items:
        # `make test` looks for them by this.
        if item.get_closest_marker("alone") and "mark.alone" not in item.path.read_text():
            raise pytest.UsageError(f"{item.nodeid} is marked `alone` elsewhere than in its own file")
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_tests and not _nvidia_gpus():
        for item in gpu_tests:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: typing.Any) -> typing.Any:
    """Whole files to each process; those that share a Ray head, or the app and its browser, to the same one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((folder for folder in _TOGETHER if file.startswith(folder)), file)

    return Scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


_TOGETHER = ("tests/experiments/engines/", "tests/browser/")


def _nvidia_gpus() -> int:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()


@pytest.fixture(autouse=True)
def _environment_stays() -> Iterator[None]:
    """A test that sets a variable in this process does not leak it into the next one."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


# --- a data folder with a real MLflow store for each test: making one takes seconds, so one is made and then copied ---


@pytest.fixture(scope="session")
def store_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a prepared data folder."""
    from tests.support.stores import settings_in

    home = tmp_path_factory.mktemp("template") / "home"
    database = settings_in(home).prepare().database
    assert database is not None
    return database


@pytest.fixture
def new_settings(store_template: Path, tmp_path: Path) -> Callable[[str], "Settings"]:
    """Makes a data folder, ready to use, by its name."""
    from tests.support.stores import copied

    return lambda name: copied(store_template, tmp_path / name)


@pytest.fixture
def settings(new_settings: Callable[[str], "Settings"]) -> "Settings":
    """A data folder of this test's own."""
    return new_settings("home")
