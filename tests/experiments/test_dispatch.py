"""Which waiting runs start, in which order, and what the others are told."""

import pytest

from experiments import capacity, queue
from experiments.capacity import Capacity
from experiments.controller import Controller
from experiments.engines.base import FOREGROUND, EngineStatus
from tests.support.scripted_engine import ScriptedEngine
from training.names import RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec


@pytest.fixture
def submit(settings, monkeypatch):
    """Queues a run, whatever machines it needs: RunSpec fields by name."""
    plenty = Capacity(1000, 1000, ((1000, 1000),), "ray", tuple(range(1000)))
    monkeypatch.setattr(capacity, "of", lambda settings: plenty)

    def make(tags=None, **fields):
        spec = RunSpec.from_dict({"dataset": "synthetic", "global_batch_size": 48, **fields})
        return queue.submit(settings, spec, tags=tags)

    return make


@pytest.fixture
def look(settings):
    """Status and reason of a run in MLflow."""

    def at(run_id):
        run = settings.client().get_run(run_id)
        return run.info.status, run.data.tags.get(Tag.REASON, "")

    return at


def test_starts_what_fits_oldest_first(settings, submit, look):
    engine = ScriptedEngine((2, 0))
    first, second, third = (submit(cpu_threads=1) for _ in range(3))
    Controller(settings, engine).step()
    assert engine.running == [first, second]
    assert look(first) == ("SCHEDULED", "")
    assert look(third) == ("SCHEDULED", "waiting for 1 CPU: next in line")


def test_higher_priority_goes_first(settings, submit):
    engine = ScriptedEngine((1, 0))
    submit(cpu_threads=1)
    urgent = submit(cpu_threads=1, priority=5)
    Controller(settings, engine).step()
    assert engine.running == [urgent]


def test_a_large_run_is_not_starved_by_small_ones(settings, submit, look):
    engine = ScriptedEngine((2, 0))
    controller = Controller(settings, engine)
    small = submit(cpu_threads=1)
    controller.step()
    large, later, last = submit(cpu_threads=2), submit(cpu_threads=1), submit(cpu_threads=1)
    controller.step()
    assert engine.running == [small], "one CPU is free, and kept for the large run"
    assert look(large)[1] == "waiting for 2 CPUs: next in line"
    assert look(later)[1] == "waiting for 1 CPU: 1 run before it"
    assert look(last)[1] == "waiting for 1 CPU: 2 runs before it"
    engine.set(small, EngineStatus.SUCCEEDED)
    settings.client().set_terminated(small, "FINISHED")
    controller.step()
    assert engine.running == [large]


def test_a_run_that_waits_for_a_gpu_holds_up_no_cpu_run(settings, submit, look):
    engine = ScriptedEngine((4, 1))
    controller = Controller(settings, engine)
    first = submit(device="gpu", gpus=[0], cpu_threads=1)
    second = submit(device="gpu", gpus=[0], cpu_threads=1)
    cpu = submit(cpu_threads=2)
    controller.step()
    assert engine.running == [first, cpu]
    assert look(second)[1] == "waiting for GPU 0: next in line"


def test_gpus_are_given_by_index_and_once(settings, submit):
    engine = ScriptedEngine((16, 4))
    named = submit(device="gpu", gpus=[2], cpu_threads=1)
    two = submit(device="gpu", strategy="mirrored", replicas=2, cpu_threads=1)
    workers = submit(device="gpu", strategy="multi_worker_mirrored", workers=2, cpu_threads=1)
    one = submit(device="gpu", cpu_threads=1)
    cpu = submit(cpu_threads=1)
    controller = Controller(settings, engine)
    controller.step()
    given = {launch.run_id: launch.gpu_ids for launch in engine.started}
    assert given[named] == [2]
    assert given[two] == [0, 1]
    assert workers not in given, "one GPU is left for its two workers"
    assert one not in given, "and that is kept for them"
    assert given[cpu] == []


def test_a_cluster_of_several_nodes_chooses_gpus_itself(settings, submit):
    engine = ScriptedEngine((8, 2), (8, 2))
    run = submit(device="gpu", strategy="multi_worker_mirrored", workers=2, cpu_threads=1)
    Controller(settings, engine).step()
    [launch] = engine.started
    assert launch.run_id == run
    assert launch.gpu_ids is None


def test_launch_says_what_the_run_was_given(settings, submit):
    engine = ScriptedEngine((8, 0))
    run_id = submit(strategy="multi_worker_mirrored", workers=2)
    Controller(settings, engine).step()
    launch = RunFolder.of(settings.runs_folder, run_id).launch()
    assert launch == engine.started[0]
    assert (launch.cpus, launch.tracking_uri) == (8, settings.tracking_uri)
    assert launch.submitted_at == settings.client().get_run(run_id).info.start_time / 1000


def test_what_cannot_run_now_holds_up_nobody(settings, submit, look):
    engine = ScriptedEngine((2, 0))
    gpu, large, small = submit(device="gpu"), submit(cpu_threads=100), submit(cpu_threads=1)
    named = submit(device="gpu", gpus=[5])
    Controller(settings, engine).step()
    assert engine.running == [small]
    assert look(gpu) == ("SCHEDULED", "waiting: needs 1 GPU, this cluster has 0")
    assert look(large) == ("SCHEDULED", "waiting: needs 100 CPUs, this cluster has 2")
    engine.nodes = ((2, 2),)
    later = Controller(settings, engine)
    later.step()
    assert look(named)[1] == "waiting: needs GPU 5, which this cluster does not have"


def test_reason_is_written_only_when_it_changes(settings, submit, monkeypatch):
    engine = ScriptedEngine((1, 0))
    submit(cpu_threads=1)
    submit(cpu_threads=1)
    controller = Controller(settings, engine)
    controller.step()
    client = settings.client()
    written = []
    monkeypatch.setattr(client, "set_tag", lambda *values: written.append(values))
    controller.step()
    assert written == []


def test_a_long_queue_is_told_little_by_little(settings, submit, monkeypatch):
    monkeypatch.setattr("experiments.dispatch.REASONS_A_PASS", 2)
    engine = ScriptedEngine((1, 0))
    runs = [submit(cpu_threads=1) for _ in range(5)]
    controller = Controller(settings, engine)

    def told():
        reasons = [settings.client().get_run(run).data.tags[Tag.REASON] for run in runs[1:]]
        return [reason for reason in reasons if reason != queue.QUEUED_REASON]

    controller.step()
    assert told() == ["waiting for 1 CPU: next in line", "waiting for 1 CPU: 1 run before it"]
    controller.step()
    assert len(told()) == 4


def test_cancelled_before_it_started(settings, submit, look):
    engine = ScriptedEngine((1, 0))
    run_id = submit()
    settings.client().set_tag(run_id, Tag.CANCEL_REQUESTED, "true")
    Controller(settings, engine).step()
    assert engine.started == []
    assert look(run_id) == ("KILLED", "cancelled before it started")


def test_a_run_that_its_submitter_carries_out_is_left_alone(settings, submit, look):
    engine = ScriptedEngine((1, 0))
    run_id = submit(tags={Tag.ENGINE_HANDLE: FOREGROUND})
    Controller(settings, engine).step()
    assert engine.started == []
    assert look(run_id)[0] == RunStatus.SCHEDULED


def test_a_run_of_another_data_folder_is_left_to_its_controller(settings, submit, look):
    engine = ScriptedEngine((1, 0))
    run_id = submit()
    RunFolder.of(settings.runs_folder, run_id).path.rename(settings.home / "elsewhere")
    controller = Controller(settings, engine)
    controller.step()
    controller.step()
    assert engine.started == []
    assert look(run_id)[0] == RunStatus.SCHEDULED


def test_a_foreign_run_with_a_priority_of_its_own_stops_no_queue(settings, submit):
    from mlflow.entities import Param

    client = settings.client()
    foreign = client.create_run(settings.experiment_id()).info.run_id
    client.log_batch(foreign, params=[Param("priority", "high")])
    client.update_run(foreign, status="SCHEDULED")
    engine = ScriptedEngine((1, 0))
    mine = submit()
    Controller(settings, engine).step()
    assert [launch.run_id for launch in engine.started] == [mine]


def test_a_spec_that_cannot_be_read_ends_the_run(settings, submit, look):
    run_id = submit()
    RunFolder.of(settings.runs_folder, run_id).spec_path.write_text('{"workload": "gone"}')
    Controller(settings, ScriptedEngine((1, 0))).step()
    status, reason = look(run_id)
    assert status == "FAILED"
    assert "its spec cannot be read" in reason
    assert "gone" in reason


def test_an_engine_that_refuses_a_run_ends_it(settings, submit, look):
    engine = ScriptedEngine((1, 0))
    engine.refuses = "no such interpreter"
    run_id = submit()
    Controller(settings, engine).step()
    assert look(run_id) == ("FAILED", "could not be started: no such interpreter")


def test_while_the_engine_is_away_runs_wait_and_say_so(settings, submit, look):
    engine = ScriptedEngine((1, 0))
    engine.away = True
    run_id = submit()
    controller = Controller(settings, engine)
    controller.step()
    assert look(run_id) == ("SCHEDULED", "waiting: the engine at nowhere does not answer")
    engine.away = False
    controller.step()
    assert engine.running == [run_id]


def test_runs_of_one_group_are_timed_one_at_a_time_and_hold_up_nobody_else(settings, submit, look):
    engine = ScriptedEngine((4, 0))
    controller = Controller(settings, engine)
    first, second, other = (
        submit(cpu_threads=1, group="curve"),
        submit(cpu_threads=1, group="curve"),
        submit(cpu_threads=3),
    )
    controller.step()
    assert engine.running == [first, other]
    assert look(second) == ("SCHEDULED", "waiting for another run of its group: they are timed one at a time")
    # Also for a controller that did not start the first itself.
    again = Controller(settings, engine)
    again.step()
    assert engine.running == [first, other]
    settings.client().set_terminated(first, "FINISHED")
    engine.set(first, EngineStatus.SUCCEEDED)
    again.step()
    again.step()
    assert engine.running == [other, second]
