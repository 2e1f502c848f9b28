"""The training process by itself, with real TensorFlow: every field of a spec shows its effect in what it reports."""

import json
import math
from types import SimpleNamespace

import pytest

from tests.support.training_run import TINY, phases, slowest_step, train, train_fresh
from training import hardware
from training.names import Metric, Tag
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.journal import Journal, JournalReader
from training.worker.placement import table
from training.worker.process import Reporter, cpu_count, reason_of

pytestmark = pytest.mark.slow


def test_a_run_reports_its_phases_epochs_windows_and_environment():
    run = train_fresh(epochs=2, steps_per_execution=4)
    assert run.exit_codes == (0,)
    assert run.end() == ("FINISHED", "")
    phases = [event["phase"] for event in run.events() if event["type"] == "phase"]
    assert phases == [
        "starting",
        "loading data",
        "building the model",
        "first step (tracing and compiling)",
        "training",
        "validating",
        "training",
        "validating",
        "measuring",
        "ended",
    ]
    for name in (Metric.TIME_STARTUP, Metric.TIME_DATA, Metric.TIME_BUILD, Metric.TIME_FIRST_STEP, Metric.TIME_TOTAL):
        (seconds,) = run.metric(name)
        assert 0 <= seconds < 200, name
    # 200 examples in batches of 32 are 6 steps: one by itself, then windows of four.
    assert [point[0] for point in run.points(Metric.WINDOW)] == [1, 5, 6, 10, 12]
    assert len(run.metric("loss")) == len(run.metric("val_accuracy")) == 2
    for seconds, rate in zip(run.metric(Metric.TIME_EPOCH_TRAIN), run.metric(Metric.EXAMPLES_PER_SECOND), strict=True):
        assert rate == pytest.approx(192 / seconds)
    assert not run.folder.model.exists()
    tags = run.tags()
    assert tags[Tag.PARAMETERS] == "93322"
    assert tags[Tag.STEPS_PER_EPOCH] == "6"
    assert tags[Tag.EXAMPLES_PER_EPOCH] == "192"
    assert tags[Tag.VALIDATION_EXAMPLES] == "50"
    assert tags[Tag.DEVICES_ASKED] == "CPU:0"
    assert tags[Tag.DEVICES_SEEN] == "CPU:0"
    assert tags[Tag.REPLICAS_IN_SYNC] == "1"
    assert tags[Tag.JIT_COMPILE] == "false"
    assert tags[Tag.PROFILER] == "false"
    assert tags[Tag.ONEDNN] == "true"
    assert tags[Tag.TENSORFLOW] == json.loads(run.folder.environment.read_text())["tensorflow"]["version"]


def test_an_epochs_training_time_is_the_sum_of_its_windows():
    run = train(epochs=2, steps_per_execution=4)
    seconds = {}
    before = 0.0
    for step, rate, _ in run.points(Metric.WINDOW):
        seconds[step] = (step - before) * 32 / rate
        before = step
    first, second = run.metric(Metric.TIME_EPOCH_TRAIN)
    assert first == pytest.approx(seconds[1] + seconds[5] + seconds[6])
    assert second == pytest.approx(seconds[10] + seconds[12])
    assert run.metric(Metric.TIME_FIRST_STEP) == [pytest.approx(seconds[1])]


def test_one_replica_measures_a_step_of_one_example_and_no_all_reduce():
    run = train(epochs=2, steps_per_execution=4)
    assert run.metric(Metric.TIME_ALL_REDUCE) == []
    (step,) = run.metric(Metric.TIME_STEP_ONE_EXAMPLE)
    assert 0 < step < slowest_step(run)


def test_the_diagnosis_comes_last_and_is_no_part_of_the_runs_times_and_placement():
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


def test_the_seed_decides_weights_and_order():
    assert train(seed=1).metric("loss") != train().metric("loss")


def test_the_learning_rate_reaches_the_optimizer():
    still, moving = (train(epochs=2, steps_per_execution=4, **rate) for rate in ({"learning_rate": 1e-12}, {}))
    assert still.metric("val_loss")[1] == pytest.approx(still.metric("val_loss")[0], abs=1e-6)
    assert abs(moving.metric("val_loss")[1] - moving.metric("val_loss")[0]) > 1e-5


def test_batch_size_and_most_steps_decide_the_number_of_steps():
    tags = train(global_batch_size=50, max_steps_per_epoch=3).tags()
    assert (tags[Tag.STEPS_PER_EPOCH], tags[Tag.EXAMPLES_PER_EPOCH]) == ("3", "150")


def test_the_workload_and_the_data_set_are_the_named_ones():
    run = train(workload="vae", dataset="digits", dataset_options={"examples": 200, "validation_examples": 50})
    assert run.end() == ("FINISHED", "")
    assert run.metric("kl_loss")
    (facts,) = [event["facts"] for event in run.events() if event["type"] == "dataset"]
    assert (facts["name"], facts["examples"], facts["validation_examples"]) == ("digits", 200, 50)
    assert facts["digest"] == run.tags()[Tag.DATASET_DIGEST] != train().tags()[Tag.DATASET_DIGEST]


def test_the_placement_log_holds_the_convolutions_and_can_be_switched_off():
    found = table(train().folder.worker(0).stderr)
    assert set(found.loc[found.op_type == "Conv2D", "device"]) == {"CPU:0"}
    assert found.loc[found.op_type == "GatherV2", "role"].eq("input").any()
    assert table(train(log_device_placement=False).folder.worker(0).stderr).empty


def test_a_pinned_layer_runs_where_it_was_pinned_and_the_others_do_not():
    run = train(logical_devices=2, manual_placement={"conv2d_1": "/CPU:1"})
    assert run.end() == ("FINISHED", "")
    found = table(run.folder.worker(0).stderr)
    convolutions = found[(found.op_type == "Conv2D") & (found.layer != "")]
    assert set(convolutions.layer) == {"conv2d", "conv2d_1", "conv2d_2"}
    assert set(convolutions.loc[convolutions.layer == "conv2d_1", "device"]) == {"CPU:1"}
    assert set(convolutions.loc[convolutions.layer != "conv2d_1", "device"]) == {"CPU:0"}


def test_xla_compiles_the_step_and_trains_to_the_same_loss():
    compiled, plain = train(jit_compile=True), train()
    assert compiled.tags()[Tag.JIT_COMPILE] == "true"
    assert "Compiled cluster using XLA" in compiled.stderr()
    assert "Compiled cluster using XLA" not in plain.stderr()
    assert compiled.metric("loss") == pytest.approx(plain.metric("loss"), rel=1e-4)


@pytest.mark.alone
def test_waiting_for_a_slow_pipeline_is_measured_and_a_fast_one_waits_next_to_nothing():
    options = {"examples": 320, "validation_examples": 50, "pipeline": "tf_data"}
    slow = train(dataset_options={**options, "delay_ms": 400.0}, epochs=2)
    fast = train(dataset_options=options, epochs=2)
    assert slow.end() == fast.end() == ("FINISHED", "")
    # Ten batches, of which the pipeline has made a few ahead, during validation. The rest is waited for.
    waited, seconds = slow.metric(Metric.TIME_INPUT_WAIT)[1], slow.metric(Metric.TIME_EPOCH_TRAIN)[1]
    assert 1.0 < waited < seconds
    assert fast.metric(Metric.TIME_INPUT_WAIT)[1] < 0.3 * waited


def test_both_pipelines_train_on_the_same_batches():
    streamed = train(
        dataset_options={**TINY["dataset_options"], "pipeline": "tf_data"}, epochs=2, steps_per_execution=4
    )
    held = train(epochs=2, steps_per_execution=4)
    assert streamed.metric("loss") == pytest.approx(held.metric("loss"), rel=1e-5)


def test_gpus_that_are_not_there_fail_the_run_with_tensorflows_own_line():
    run = train(device="gpu")
    assert run.exit_codes == (1,)
    status, reason = run.end()
    assert status == "FAILED"
    assert reason.startswith("asked 1 GPU, TensorFlow sees 0; TensorFlow says: ")
    assert run.metric("loss") == []


def test_a_nan_loss_is_reported_as_nan():
    run = train(learning_rate=1e30)
    assert run.end() == ("FINISHED", "")
    assert not math.isfinite(run.metric("loss")[-1])


@pytest.mark.parametrize(
    ("seen", "workers", "given", "together"),
    [(2, 1, 2, 2), (8, 1, 2, 8), (1, 2, 2, 2), (2, 2, 4, 4), (2, 2, 2, 2), (16, 4, 32, 32)],
    ids=["all", "a share of the host", "two pinned", "a host each", "two on one host", "a share of four hosts"],
)
def test_cpus_of_all_workers(monkeypatch, seen, workers, given, together):
    monkeypatch.setattr(hardware, "usable_cpus", lambda: seen)
    strategy = "multi_worker_mirrored" if workers > 1 else "one_device"
    assert cpu_count(RunSpec(workers=workers, strategy=strategy), Launch("run", "", "", cpus=given)) == together


def epoch_of_100_examples_in_2_seconds(epoch):
    training = SimpleNamespace(seconds=2.0, input_wait=0.0, examples=100, examples_per_second=50.0)
    return SimpleNamespace(epoch=epoch, training=training, logs={}, validation_seconds=1.0)


def test_a_profiler_that_comes_on_later_is_noticed(tmp_path):
    reporter = Reporter(RunSpec(), Journal(tmp_path / "journal"))
    reporter.on_epoch(epoch_of_100_examples_in_2_seconds(0))
    reporter.profiler_is_on = lambda: True
    reporter.on_epoch(epoch_of_100_examples_in_2_seconds(1))
    tags = [event["values"] for event in JournalReader(tmp_path / "journal").new_events() if event["type"] == "tags"]
    assert tags == [{Tag.PROFILER: "true"}]


def test_a_workers_own_throughput_is_of_its_own_examples_and_time(tmp_path):
    spec = RunSpec(strategy="multi_worker_mirrored", workers=4)
    Reporter(spec, Journal(tmp_path / "journal"), index=3).on_epoch(epoch_of_100_examples_in_2_seconds(5))
    (event,) = JournalReader(tmp_path / "journal").new_events()
    assert (event["values"]["throughput/worker_3"], event["step"]) == (12.5, 5)


def test_the_peak_of_each_gpu_is_reported_with_its_epoch(tmp_path):
    reporter = Reporter(RunSpec(), Journal(tmp_path / "journal"))
    reporter.peak_gpu_memory = lambda: {0: 12.5, 1: 3.0}
    reporter.on_epoch(epoch_of_100_examples_in_2_seconds(4))
    (event,) = JournalReader(tmp_path / "journal").new_events()
    assert [event["values"][f"system/gpu_{index}_peak_memory_megabytes"] for index in (0, 1)] == [12.5, 3.0]
    assert event["step"] == 4


def test_reasons_are_one_line_and_name_the_shape_that_did_not_fit():
    class ResourceExhaustedError(Exception):
        """Has the name of TensorFlow's own, which is what counts."""

    error = ResourceExhaustedError(
        "Graph execution error:\nOOM when allocating tensor with shape[65536,32,26,26] and type"
    )
    assert reason_of(error) == "OOM: shape[65536,32,26,26]"
    assert reason_of(ValueError("first\nsecond")) == "ValueError: first"
    assert reason_of(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    "cause",
    [
        "OOM when allocating tensor with shape[60000,60000] and type float on /device:GPU:0 by allocator GPU_0_bfc",
        "Out of memory while trying to allocate 17179869184 bytes.",
        "Failed to allocate: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "Connection reset by peer",
    ],
)
def test_the_cause_of_a_graphs_error_is_found_behind_its_frames(cause):
    frames = """Graph execution error:

Detected at node sequential/conv2d/Conv2D defined at (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
    a line of source

  File "/training/worker/loop.py", line 9, in train

"""
    more = "\n\t [[{{node sequential/conv2d/Conv2D}}]]\nHint: allocations ... [Op:__inference_train_57]"
    several = f"Node: 'sequential/conv2d/Conv2D'\n2 root error(s) found.\n  (0) UNKNOWN:  {cause}{more}"
    assert reason_of(RuntimeError(frames + cause + more)) == f"RuntimeError: {cause}"
    assert reason_of(RuntimeError(frames + several)) == f"RuntimeError: (0) UNKNOWN:  {cause}"
