"""What a step is made of is measured after the run, in real training processes, and changes nothing of it."""

import sys
import time

import pytest

from tests.support.fresh_process import run_python
from tests.support.training_run import TINY, train
from training.names import Metric
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import SubprocessGang
from training.worker.journal import JournalReader
from training.worker.placement import table

pytestmark = pytest.mark.slow

MIRRORED = {"strategy": "mirrored", "replicas": 2, "logical_devices": 2}
WORKERS = {"strategy": "multi_worker_mirrored", "workers": 2, "cpu_threads": 1}


def phases(run, worker=0):
    return [event["phase"] for event in run.events(worker) if event["type"] == "phase"]


def slowest_step(run):
    """Seconds of a step in the first epoch, which traced and warmed up: no steady step of this run takes as long."""
    return 32 / run.metric(Metric.EXAMPLES_PER_SECOND)[0]


@pytest.mark.parametrize("where", [MIRRORED, WORKERS], ids=["2 replicas", "2 workers"])
def test_several_replicas_measure_their_all_reduce_and_a_step_of_one_example(where):
    run = train(epochs=2, **where)
    for worker in range(len(run.exit_codes)):
        assert run.end(worker) == ("FINISHED", "")
        assert phases(run, worker)[-2:] == ["measuring", "ended"]
        (reduction,), (step,) = (
            run.metric(name, worker) for name in (Metric.TIME_ALL_REDUCE, Metric.TIME_STEP_ONE_EXAMPLE)
        )
        assert 0 <= reduction < slowest_step(run)
        assert 0 < step < slowest_step(run)
        assert "warning: what a step is made of" not in run.stdout(worker)


def test_one_replica_has_no_all_reduce():
    run = train(epochs=2, steps_per_execution=4)
    assert run.metric(Metric.TIME_ALL_REDUCE) == []
    (step,) = run.metric(Metric.TIME_STEP_ONE_EXAMPLE)
    assert 0 < step < slowest_step(run)


def test_it_comes_last_and_is_no_part_of_the_runs_times_and_placement():
    run, single = train(epochs=2, steps_per_execution=4), train()
    names = [name for event in run.events() if event["type"] == "metrics" for name in event["values"]]
    assert names[-2:] == [Metric.TIME_TOTAL, Metric.TIME_STEP_ONE_EXAMPLE]
    placed, expected = (table(each.folder.worker(0).stderr) for each in (run, single))
    of_graphs = [each[each.source == "graph"].set_index(["name", "op_type"])["count"] for each in (placed, expected)]
    assert of_graphs[0].to_dict() == of_graphs[1].to_dict()


def test_a_single_epoch_has_no_steady_step_to_compare_with():
    run = train()
    assert "measuring" not in phases(run)
    assert run.metric(Metric.TIME_STEP_ONE_EXAMPLE) == []


def test_the_saved_model_is_the_one_that_was_validated():
    """The diagnosis trains on: were the model saved after it, it would have another loss."""
    run = train(epochs=2, save_model=True, learning_rate=0.01)
    assert phases(run)[-3:] == ["saving", "measuring", "ended"]
    assert run.metric(Metric.TIME_STEP_ONE_EXAMPLE)
    loss = run_python(
        "import json, mlflow.tensorflow, numpy as np\n"
        "from training.datasets import synthetic\n"
        f"model = mlflow.tensorflow.load_model({str(run.folder.model)!r})\n"
        f"data = synthetic.load({TINY['dataset_options']!r})\n"
        "images = data.validation.features.astype('float32') * data.scale\n"
        "print(json.dumps(model.evaluate(images, data.validation.labels, verbose=0)[0]))"
    )
    assert loss == pytest.approx(run.metric(Metric.VAL_LOSS)[-1], rel=1e-4)


def test_with_xla_no_step_is_compiled_for_it():
    found = run_python(
        "import json\n"
        "from types import SimpleNamespace\n"
        "from training.worker import diagnosis\n"
        "diagnosis.all_reduce_seconds = diagnosis.step_seconds = lambda *rest: 1.0\n"
        "def names(jit_compile, replicas):\n"
        "    spec = SimpleNamespace(jit_compile=jit_compile, device='cpu', steps_per_execution=8)\n"
        "    plan = SimpleNamespace(replicas=replicas, steps=8)\n"
        "    loop = SimpleNamespace(spec=spec, plan=plan, strategy=None, model=None)\n"
        "    return [name for name, _ in diagnosis.measured(loop, None, None)]\n"
        "print(json.dumps([names(True, 2), names(False, 2), names(True, 1)]))"
    )
    assert found == [[Metric.TIME_ALL_REDUCE], [Metric.TIME_ALL_REDUCE, Metric.TIME_STEP_ONE_EXAMPLE], []]


def test_the_median_of_ten_calls_after_two_to_warm_up():
    found = run_python(
        "import itertools, json\n"
        "from training.worker import diagnosis\n"
        "calls, ticks = itertools.count(), [0.0]\n"
        "lasts = [100, 50, 1, 1, 1, 1, 2, 2, 9, 9, 9, 9]\n"
        "def call(): ticks[0] += lasts[next(calls)]\n"
        "diagnosis.time.perf_counter = lambda: ticks[0]\n"
        "print(json.dumps([diagnosis.median_seconds(call, lambda: None), next(calls)]))"
    )
    assert found == [2, 12]


def test_a_diagnosis_that_fails_does_not_fail_the_run(tmp_path):
    script = (
        "import sys\n"
        "from training.worker import diagnosis, process\n"
        "def fail(*rest): raise ValueError('no such luck')\n"
        "diagnosis.step_seconds = fail\n"
        "sys.exit(process.main(sys.argv[1:]))"
    )
    spec = RunSpec.from_dict(TINY | {"epochs": 2, "log_device_placement": False})
    folder = RunFolder.create(spec, Launch("test", "unused", str(tmp_path), cpus=2))
    gang = SubprocessGang(folder, lambda index: [sys.executable, "-c", script, str(folder.path), str(index)])
    gang.start()
    deadline = time.monotonic() + 240
    while None in gang.poll() and time.monotonic() < deadline:
        time.sleep(0.1)
    gang.end(1.0)
    assert list(gang.poll()) == [0]
    assert JournalReader(folder.worker(0).journal).new_events()[-1]["status"] == "FINISHED"
    printed = folder.worker(0).stdout.read_text()
    assert "warning: what a step is made of could not be measured: ValueError: no such luck" in printed
