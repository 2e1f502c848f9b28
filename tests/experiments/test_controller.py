"""MLflow stays true to what really runs, whatever happens to supervisors, engine, store and controller."""

import logging
import subprocess
import sys
import threading
import time

import pytest

from experiments import controller as module
from experiments import queue
from experiments.controller import AlreadyDrivenError, Controller, only_controller
from experiments.engines.base import FOREGROUND, EngineStatus
from tests.support.scripted_engine import ScriptedEngine
from tests.support.stores import settings_in
from training.names import Metric, RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec
from training.worker.journal import Journal
from training.worker.recorder import Recorder
from training.worker.recording import replay


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """What takes a minute so that nobody is judged too early takes a moment here."""
    for name, seconds in {"GONE_FOR_S": 0.2, "ENGINE_AWAY_S": 0.4, "LET_GO_S": 0.3, "REPLAY_AGAIN_S": 0.1}.items():
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(module, "UNFINISHED_S", 0.3)


@pytest.fixture
def submit(settings):
    """Queues a run of one CPU."""

    def make(**fields):
        spec = RunSpec.from_dict({"dataset": "synthetic", "cpu_threads": 1, **fields})
        return queue.submit(settings, spec)

    return make


@pytest.fixture
def engine():
    """An engine of two CPUs."""
    return ScriptedEngine((2, 0))


@pytest.fixture
def new_controller(settings, engine):
    """Makes controllers of the queue, one after another; they end with the test."""
    made = []

    def make():
        made.append(Controller(settings, engine))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def run_of(settings):
    """A run as MLflow has it."""
    return lambda run_id: settings.client().get_run(run_id)


def step_until(controller, condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "stepped in vain"
        controller.step()
        time.sleep(0.05)


def step_for(controller, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        controller.step()
        time.sleep(0.05)


def start(controller, run_id, settings):
    """Starts a run as its supervisor would: RUNNING."""
    controller.step()
    settings.client().update_run(run_id, status="RUNNING")


def with_journal(settings, run_id):
    """What a supervisor and its chief have left on disk after one epoch."""
    folder = RunFolder.of(settings.runs_folder, run_id)
    journal = Journal(folder.worker(0).journal)
    journal.metrics({Metric.LOSS: 0.5}, step=0)
    return folder


@pytest.mark.parametrize(
    ("status", "detail", "reason"),
    [
        (EngineStatus.UNKNOWN, "", "the scheduler was restarted"),
        (EngineStatus.STOPPED, "", "it was stopped from outside"),
        (EngineStatus.FAILED, "the supervisor was killed by signal 9", "the supervisor was killed by signal 9"),
        (EngineStatus.SUCCEEDED, "", "its supervisor ended without a word"),
    ],
)
def test_supervisor_that_is_gone(settings, submit, engine, new_controller, run_of, status, detail, reason):
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    with_journal(settings, run_id)
    engine.set(run_id, status, detail)
    step_until(controller, lambda: RunStatus(run_of(run_id).info.status).is_terminal)
    run = run_of(run_id)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", reason)
    assert run.info.end_time is not None
    assert run.data.metrics[Metric.LOSS] == 0.5, "what it had reported is kept"


def test_what_the_supervisor_decided_stands(settings, submit, engine, new_controller, run_of):
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    folder = with_journal(settings, run_id)
    Journal(folder.supervisor_journal).end(RunStatus.FINISHED)
    engine.set(run_id, EngineStatus.SUCCEEDED)
    step_until(controller, lambda: run_of(run_id).info.status == "FINISHED")
    assert run_of(run_id).data.tags[Tag.REASON] == ""


def test_supervisor_that_died_of_a_cancel(settings, submit, engine, new_controller, run_of):
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    queue.cancel(settings, run_id)
    queue.cancel(settings, run_id)
    step_for(controller, 0.3)
    assert engine.stopped == [run_id], "asked once"
    engine.set(run_id, EngineStatus.STOPPED)
    step_until(controller, lambda: run_of(run_id).info.status == "KILLED")
    assert run_of(run_id).data.tags[Tag.REASON] == "stopped by request"


def test_a_supervisor_in_the_middle_of_its_end_is_waited_for(
    settings, submit, engine, new_controller, run_of, monkeypatch
):
    monkeypatch.setattr(module, "GONE_FOR_S", 60.0)
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    engine.set(run_id, EngineStatus.SUCCEEDED)
    step_for(controller, 0.5)
    assert run_of(run_id).info.status == "RUNNING"


def test_what_a_run_held_is_free_only_when_its_supervisor_is_gone(settings, submit, engine, new_controller):
    first, controller = submit(cpu_threads=2), new_controller()
    start(controller, first, settings)
    second = submit(cpu_threads=2)
    settings.client().set_terminated(first, "FINISHED")
    controller.step()
    assert engine.running == [first], "its process still holds the machine"
    engine.set(first, EngineStatus.SUCCEEDED)
    controller.step()
    assert engine.running == [second]


def test_a_run_that_somebody_else_ended_or_deleted_is_stopped(settings, submit, engine, new_controller):
    killed, deleted, controller = submit(), submit(), new_controller()
    start(controller, killed, settings)
    start(controller, deleted, settings)
    settings.client().set_terminated(killed, "KILLED")
    settings.client().delete_run(deleted)
    step_until(controller, lambda: sorted(engine.stopped) == sorted([killed, deleted]))


def test_a_new_controller_takes_over(settings, submit, engine, new_controller, run_of):
    lives, lost, waits = submit(), submit(), submit()
    start(new_controller(), lives, settings)
    settings.client().update_run(lost, status="RUNNING")
    assert engine.running == [lives, lost]
    engine.set(lost, EngineStatus.UNKNOWN)
    later = new_controller()
    later.step()
    assert run_of(waits).info.status == "SCHEDULED", "what the old one gave away is not given twice"
    step_until(later, lambda: run_of(lost).info.status == "FAILED")
    assert run_of(lost).data.tags[Tag.REASON] == "the scheduler was restarted"
    step_until(later, lambda: engine.running == [lives, waits])
    assert run_of(lives).info.status == "RUNNING"


def test_a_supervisor_that_outlives_its_scheduler_is_adopted(settings, submit, engine, new_controller, run_of):
    run_id = submit()
    start(new_controller(), run_id, settings)
    folder = with_journal(settings, run_id)
    supervisor = Recorder(folder)
    engine.set(run_id, EngineStatus.UNKNOWN)
    later = new_controller()
    step_for(later, 0.6)
    assert run_of(run_id).info.status == "RUNNING"
    supervisor.close()
    step_until(later, lambda: run_of(run_id).info.status == "FAILED")


def test_engine_that_stays_away(settings, submit, engine, new_controller, run_of):
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    supervisor = Recorder(with_journal(settings, run_id))
    engine.away = True
    step_for(controller, 0.8)
    assert run_of(run_id).info.status == "RUNNING", "its supervisor lives"
    supervisor.close()
    step_until(controller, lambda: run_of(run_id).info.status == "FAILED")
    assert run_of(run_id).data.tags[Tag.REASON] == "the scheduler went away"


def test_a_fault_after_an_idle_spell_is_no_long_absence(settings, submit, engine, new_controller, run_of):
    run_id, controller = submit(), new_controller()
    time.sleep(0.6)  # longer than the engine may be away: nothing was asked of it
    start(controller, run_id, settings)
    engine.away = True
    controller.step()
    engine.away = False
    step_for(controller, 0.3)
    assert run_of(run_id).info.status == "RUNNING"


def test_a_start_whose_answer_got_lost_is_taken_back(settings, submit, engine, new_controller, run_of):
    first, second = submit(group="one"), submit(group="one")
    controller = new_controller()
    engine.loses_answers = True
    start(controller, first, settings)
    supervisor = Recorder(RunFolder.of(settings.runs_folder, first))
    engine.loses_answers = False
    controller.step()
    assert run_of(first).data.tags[Tag.ENGINE_HANDLE] == f"scripted:{first}"
    controller.step()
    assert engine.running == [first], "what it holds is held, and runs of a group go one at a time"
    queue.cancel(settings, first)
    controller.step()
    assert engine.stopped == [first]
    supervisor.close()
    settings.client().set_terminated(first, RunStatus.KILLED)
    engine.set(first, EngineStatus.STOPPED)
    step_until(controller, lambda: engine.running == [second])


def test_a_run_that_is_opened_again_holds_nothing_and_ends_as_it_did(settings, submit, engine, new_controller, run_of):
    run_id, controller = submit(group="one"), new_controller()
    start(controller, run_id, settings)
    folder = with_journal(settings, run_id)
    Journal(folder.supervisor_journal).end(RunStatus.FINISHED)
    replay(folder)
    engine.set(run_id, EngineStatus.SUCCEEDED)
    step_until(controller, lambda: not controller._live)
    settings.client().update_run(run_id, status="RUNNING")  # a notebook logs an evaluation into it
    second = submit(group="one")
    controller.step()
    assert engine.running == [second], "at once: what has ended holds nothing"
    step_until(controller, lambda: run_of(run_id).info.status == "FINISHED")


def test_a_run_that_a_list_lacks_is_not_stopped_unless_it_has_ended(
    settings, submit, engine, new_controller, run_of, monkeypatch
):
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    with monkeypatch.context() as patch:
        patch.setattr(controller, "_unended", list)
        step_for(controller, 0.8)
    assert engine.stopped == []
    assert run_of(run_id).info.status == "RUNNING"


def test_handle_is_saved_when_the_store_is_back(settings, submit, engine, new_controller, run_of, monkeypatch):
    run_id, controller = submit(), new_controller()
    client = settings.client()
    with monkeypatch.context() as patch:
        patch.setattr(client, "log_batch", lambda *values, **more: (_ for _ in ()).throw(OSError("away")))
        with pytest.raises(OSError, match="away"):
            controller.step()
    controller.step()
    assert run_of(run_id).data.tags[Tag.ENGINE_HANDLE] == f"scripted:{run_id}"
    assert len(engine.started) == 1


def test_submission_that_was_cut_short(settings, new_controller, run_of, monkeypatch):
    tags = {Tag.SUBMISSION: "unfinished:token"}
    run_id = settings.client().create_run(settings.experiment_id(), tags=tags).info.run_id
    controller = new_controller()
    monkeypatch.setattr(module, "UNFINISHED_S", 3600.0)
    controller.step()
    assert run_of(run_id).info.status == "RUNNING"
    monkeypatch.setattr(module, "UNFINISHED_S", 0.3)
    step_until(controller, lambda: run_of(run_id).info.status == "FAILED")
    assert run_of(run_id).data.tags[Tag.REASON] == "its submission was cut short: submit it again"


@pytest.mark.parametrize("status", ["SCHEDULED", "RUNNING"])
def test_foreground_run_whose_process_is_gone(settings, new_controller, run_of, status):
    spec = RunSpec(dataset="synthetic", cpu_threads=1)
    run_id = queue.submit(settings, spec, tags={Tag.ENGINE_HANDLE: FOREGROUND})
    folder = RunFolder.of(settings.runs_folder, run_id)
    folder.write_launch(launch_of(settings, run_id))
    settings.client().update_run(run_id, status=status)
    supervisor = Recorder(folder)
    controller = new_controller()
    step_for(controller, 0.6)
    assert run_of(run_id).info.status == status, "its process lives"
    supervisor.close()
    step_until(controller, lambda: run_of(run_id).info.status == "FAILED")
    assert run_of(run_id).data.tags[Tag.REASON] == "its process is gone"


def test_foreground_run_of_another_host_is_left_alone(settings, new_controller, run_of):
    tags = {Tag.ENGINE_HANDLE: FOREGROUND, Tag.HOST: "elsewhere"}
    run_id = queue.submit(settings, RunSpec(dataset="synthetic", cpu_threads=1), tags=tags)
    step_for(new_controller(), 0.8)
    assert run_of(run_id).info.status == "SCHEDULED"


def test_record_that_is_broken_still_ends(settings, submit, engine, new_controller, run_of):
    run_id, controller = submit(), new_controller()
    start(controller, run_id, settings)
    RunFolder.of(settings.runs_folder, run_id).launch_path.write_text("{")
    engine.set(run_id, EngineStatus.FAILED, "exit code 1")
    step_until(controller, lambda: run_of(run_id).info.status == "FAILED")
    assert "its record is broken" in run_of(run_id).data.tags[Tag.REASON]


def test_store_that_is_away_is_said_once(tmp_path, engine, caplog, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(module, "POLL_S", 0.05)
    settings = settings_in(tmp_path, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    settings.prepare()
    stop = threading.Event()
    controller = Controller(settings, engine)
    passes = []
    step = controller.step

    def counted():
        passes.append(0)
        step()

    monkeypatch.setattr(controller, "step", counted)
    with caplog.at_level(logging.INFO, "experiments"):
        thread = threading.Thread(target=controller.run_forever, args=(stop,))
        thread.start()
        deadline = time.monotonic() + 30
        while len(passes) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        stop.set()
        thread.join()
    assert len(passes) >= 4, "it goes on trying"
    [record] = caplog.records
    assert "the tracking store does not answer" in record.getMessage()
    assert not record.exc_info


def test_a_fault_of_ours_does_not_end_the_loop(settings, engine, caplog, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.01)
    controller = Controller(settings, engine)
    stop = threading.Event()
    outcomes = iter([KeyError("a fault"), None])

    def step():
        outcome = next(outcomes)
        if outcome is None:
            stop.set()
        else:
            raise outcome

    monkeypatch.setattr(controller, "step", step)
    with caplog.at_level(logging.INFO, "experiments"):
        controller.run_forever(stop)
    assert "a fault" in caplog.text, "with its traceback"
    assert "works again" in caplog.text


def test_a_pass_that_waited_for_somebody_does_not_hold_up_the_next(settings, engine, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.1)
    stop, controller, passes = threading.Event(), Controller(settings, engine), []

    def step():
        passes.append(time.monotonic())
        time.sleep(1.0)
        if len(passes) == 2:
            stop.set()

    monkeypatch.setattr(controller, "step", step)
    controller.run_forever(stop)
    assert passes[1] - passes[0] < 1.0 + 0.5 * 1.0 / module.SHARE_OF_TIME


def test_a_submission_wakes_the_loop(settings, submit, engine, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 30.0)
    stop = threading.Event()
    controller = Controller(settings, engine)
    thread = threading.Thread(target=controller.run_forever, args=(stop,))
    thread.start()
    time.sleep(0.5)
    run_id = submit()
    deadline = time.monotonic() + 10
    while engine.running != [run_id] and time.monotonic() < deadline:
        time.sleep(0.02)
    stop.set()
    thread.join()
    assert engine.running == [run_id]


def test_only_one_controller_drives_a_data_folder(settings):
    with only_controller(settings):
        refused = subprocess.run(
            [sys.executable, "-m", "experiments.controller", "--engine", "inline"],
            env={"SPEEDUP_LAB_HOME": str(settings.home), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode == 2
        assert "already driven by process" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    with only_controller(settings), pytest.raises(AlreadyDrivenError, match="set SPEEDUP_LAB_HOME"):
        only_controller(settings).__enter__()


def launch_of(settings, run_id):
    from training.run_folder import Launch

    return Launch(run_id, settings.tracking_uri, str(settings.runs_folder / run_id), submitted_at=time.time())
