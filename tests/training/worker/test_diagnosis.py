"""What a step is made of is measured after the run, in real training processes, and changes nothing of it.

Of one replica, see test_process.py, and of several replicas and workers test_strategies.py, which have such runs.
"""

import sys
import time

import pytest

from tests.support.forked import run_python_forked
from tests.support.training_run import TINY, phases, train
from training.names import Metric
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker.gang import SubprocessGang
from training.worker.journal import JournalReader

pytestmark = pytest.mark.slow


def test_the_saved_model_is_one_that_mlflow_can_load_and_the_one_that_was_validated():
    """The diagnosis trains on: were the model saved after it, it would have another loss."""
    run = train(epochs=2, save_model=True, learning_rate=0.01)
    assert phases(run)[-3:] == ["saving", "measuring", "ended"]
    assert run.metric(Metric.TIME_STEP_ONE_EXAMPLE)
    loss, shape = run_python_forked(
        "import json, mlflow.tensorflow, numpy as np\n"
        "from training.datasets import synthetic\n"
        f"model = mlflow.tensorflow.load_model({str(run.folder.model)!r})\n"
        f"data = synthetic.load({TINY['dataset_options']!r})\n"
        "images = data.validation.features.astype('float32') * data.scale\n"
        "loss = model.evaluate(images, data.validation.labels, verbose=0)[0]\n"
        "print(json.dumps([loss, model.predict(images[:3], verbose=0).shape]))"
    )
    assert loss == pytest.approx(run.metric(Metric.VAL_LOSS)[-1], rel=1e-4)
    assert shape == [3, 10]


@pytest.fixture(scope="module")
def without_a_run():
    """What is measured with XLA and without, and the median of ten calls."""
    return run_python_forked(
        "import itertools, json\n"
        "from types import SimpleNamespace\n"
        "from training.worker import diagnosis\n"
        "calls, ticks = itertools.count(), [0.0]\n"
        "lasts = [100, 50, 1, 1, 1, 1, 2, 2, 9, 9, 9, 9]\n"
        "def call(): ticks[0] += lasts[next(calls)]\n"
        "diagnosis.time.perf_counter = lambda: ticks[0]\n"
        "median = [diagnosis.median_seconds(call, lambda: None), next(calls)]\n"
        "diagnosis.all_reduce_seconds = diagnosis.step_seconds = lambda *rest: 1.0\n"
        "def names(jit_compile, replicas):\n"
        "    spec = SimpleNamespace(jit_compile=jit_compile, device='cpu', steps_per_execution=8)\n"
        "    plan = SimpleNamespace(replicas=replicas, steps=8)\n"
        "    loop = SimpleNamespace(spec=spec, plan=plan, strategy=None, model=None)\n"
        "    return [name for name, _ in diagnosis.measured(loop, None, None)]\n"
        "measured = [names(True, 2), names(False, 2), names(True, 1)]\n"
        "print(json.dumps({'median': median, 'measured': measured}))"
    )


def test_with_xla_no_step_is_compiled_for_it(without_a_run):
    several = [Metric.TIME_ALL_REDUCE, Metric.TIME_STEP_ONE_EXAMPLE]
    assert without_a_run["measured"] == [[Metric.TIME_ALL_REDUCE], several, []]


def test_the_median_of_ten_calls_after_two_to_warm_up(without_a_run):
    assert without_a_run["median"] == [2, 12]


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
