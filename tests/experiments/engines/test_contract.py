"""What every engine promises, tried on each of them with real processes."""

import itertools
import json
import time
import uuid
from pathlib import Path

import pytest

from experiments.capacity import Request
from experiments.engines import inline, ray_engine
from experiments.engines.base import EngineStatus
from tests.experiments.engines.conftest import assert_gone, python, wait_for_end, wait_for_text
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec

WAITS = "(folder / 'pid').write_text(str(os.getpid()))\nwhile not (folder / 'go').exists(): time.sleep(0.02)\n"
ONE_CPU = Request(1, 1, 0)


@pytest.fixture
def new_launch(tmp_path):
    """Makes the launch of a run whose folder is written: RunSpec fields by name."""

    def make(where="runs", **fields):
        spec = RunSpec.from_dict({"dataset": "synthetic", **fields})
        run_id = uuid.uuid4().hex
        launch = Launch(run_id, "http://127.0.0.1:9", str(tmp_path / where / run_id), gpu_ids=[])
        RunFolder.create(spec, launch)
        return launch, spec

    return make


def test_from_start_to_success(make_engine, new_launch):
    engine = make_engine(python(WAITS))
    launch, spec = new_launch()
    handle = engine.start(launch, spec, ONE_CPU)
    wait_for_text(Path(launch.folder, "pid"))
    assert engine.state(handle).status is EngineStatus.RUNNING
    Path(launch.folder, "go").touch()
    assert wait_for_end(engine, handle).status is EngineStatus.SUCCEEDED
    assert engine.state(handle).status is EngineStatus.SUCCEEDED, "it is remembered"


def test_exit_code_of_a_supervisor_that_fails(make_engine, new_launch):
    engine = make_engine(python("sys.exit(3)"))
    launch, spec = new_launch()
    state = wait_for_end(engine, engine.start(launch, spec, ONE_CPU))
    assert state.status is EngineStatus.FAILED
    assert "exited with code 3" in state.detail


def test_stop_asks_the_supervisor_and_nothing_is_left(make_engine, new_launch):
    asked = "signal.signal(signal.SIGTERM, lambda *_: ((folder / 'asked').touch(), sys.exit(143)))\n"
    engine = make_engine(python(asked + WAITS))
    launch, spec = new_launch()
    handle = engine.start(launch, spec, ONE_CPU)
    pid = int(wait_for_text(Path(launch.folder, "pid")))
    began = time.monotonic()
    engine.stop(handle)
    engine.stop(handle)
    assert wait_for_end(engine, handle).status is EngineStatus.STOPPED
    assert time.monotonic() - began < 60
    assert Path(launch.folder, "asked").exists()
    assert_gone([pid])
    engine.stop(handle)
    assert engine.state(handle).status is EngineStatus.STOPPED


def test_stop_kills_a_supervisor_that_does_not_listen(make_engine, new_launch, monkeypatch):
    for module in (inline, ray_engine):
        monkeypatch.setattr(module, "STOP_WAIT_S", 1)
    engine = make_engine(python("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS))
    launch, spec = new_launch()
    handle = engine.start(launch, spec, ONE_CPU)
    pid = int(wait_for_text(Path(launch.folder, "pid")))
    engine.stop(handle)
    assert wait_for_end(engine, handle).status is EngineStatus.STOPPED
    assert_gone([pid])


@pytest.mark.parametrize(
    "handle", ["", "ray:", "ray:nobody", "inline:1:0.00", "inline:x", "foreground", "ray:../../etc"]
)
def test_unknown_handle(make_engine, handle):
    engine = make_engine(None)
    engine.stop(handle)
    assert engine.state(handle).status is EngineStatus.UNKNOWN


def test_a_supervisor_whose_handle_got_lost_is_found(make_engine, new_launch):
    command = python(WAITS)
    launch, spec = new_launch()
    assert make_engine(command).find(launch, spec) == ""
    handle = make_engine(command).start(launch, spec, ONE_CPU)
    wait_for_text(Path(launch.folder, "pid"))
    later = make_engine(command)
    assert later.find(launch, spec) == handle
    Path(launch.folder, "go").touch()
    wait_for_end(later, handle)


def test_another_engine_knows_a_supervisor_by_its_handle(make_engine, new_launch):
    launch, spec = new_launch()
    handle = make_engine(python(WAITS)).start(launch, spec, ONE_CPU)
    pid = int(wait_for_text(Path(launch.folder, "pid")))
    later = make_engine(None)
    assert later.state(handle).status is EngineStatus.RUNNING
    later.stop(handle)
    later.stop(handle)
    wait_for_end(later, handle)
    assert_gone([pid])


def test_environment_of_a_cpu_run(make_engine, new_launch, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    tell = "import json; (folder / 'told').write_text(json.dumps(dict(os.environ)))"
    engine = make_engine(python(tell))
    launch, spec = new_launch()
    wait_for_end(engine, engine.start(launch, spec, ONE_CPU))
    told = json.loads(wait_for_text(Path(launch.folder, "told")))
    assert told["CUDA_VISIBLE_DEVICES"] == ""
    assert told["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert told["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert Path(told["PYTHONPATH"], "training", "spec.py").exists()


def test_nothing_a_person_typed_reaches_a_shell(make_engine, new_launch, tmp_path):
    pwned = tmp_path / "pwned"
    texts = [
        f"x; touch {pwned}",
        f"$(touch {pwned})",
        f"`touch {pwned}`",
        f"' && touch {pwned} #",
        f'" | touch {pwned}',
    ]
    # The data folder's own name is chosen by an administrator, who may like quotes.
    launch, spec = new_launch(
        where=f"it's $(touch {pwned.name}) & more",
        name=texts[0],
        user=texts[1],
        group=texts[2],
        notes=texts[3],
        tags={"key": texts[4]},
    )
    assert RunFolder(launch.folder).spec() == spec
    engine = make_engine(None)  # the real command
    handle = engine.start(launch, spec, ONE_CPU)
    wait_for_text(RunFolder(launch.folder).worker(0).journal)
    engine.stop(handle)
    assert wait_for_end(engine, handle).status is EngineStatus.STOPPED
    assert not list(itertools.chain(tmp_path.rglob("pwned"), Path.cwd().glob("pwned")))


def test_capacity_is_that_of_real_machines(make_engine):
    found = make_engine(None).capacity()
    assert found.cpus >= 1
    assert (found.cpus, found.gpus) == tuple(map(sum, zip(*found.nodes, strict=True)))
    assert len(found.gpu_ids) == found.gpus
