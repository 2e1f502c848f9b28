"""How a run's end is judged, and which deadlines apply when."""

import pytest

from training.names import Metric, Phase, RunStatus
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.watch import Verdict, Watch, watch_of, with_memory_cause


def event(kind, **content):
    return {"type": kind, "t": 1.0, **content}


def watch(workers=1, epochs=5):
    return Watch(workers, epochs, join_deadline_s=120, stall_deadline_s=600, started=0.0)


def in_epoch(two, number):
    """Brings a run into an epoch, counted from 1."""
    for index in range(two.workers):
        two.heard(index, event("joined"), 1.0)
    two.heard(0, event("phase", phase=str(Phase.TRAINING)), 2.0)
    for done in range(number - 1):
        two.heard(0, event("metrics", values={Metric.LOSS: 1.0}, step=done), 3.0)
    return two


def end(two, worker, reason, status=RunStatus.FAILED, at=5.0):
    two.heard(worker, event("end", status=str(status), reason=reason) | {"t": at}, at)


def test_all_finished():
    two = in_epoch(watch(2), 1)
    for worker in range(2):
        end(two, worker, "", RunStatus.FINISHED)
    assert not two.any_failed
    two.exited([0, 0])
    assert two.all_exited
    assert two.verdict() == Verdict(RunStatus.FINISHED)


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ([None, -9], "worker 1 exited -9 in epoch 2"),
        ([-6, -9], "worker 1 exited -9 in epoch 2"),
        ([-6, -11], "worker 1 exited -11 in epoch 2"),
        ([-6, 1], "worker 1 exited 1 in epoch 2"),
        ([0, None], "worker 0 ended without a word in epoch 2"),
    ],
)
def test_worker_that_dies(codes, reason):
    two = in_epoch(watch(2), 2)
    two.exited(codes)
    assert two.verdict() == Verdict(RunStatus.FAILED, reason)


def test_cause_is_named_not_its_consequences():
    two = in_epoch(watch(2), 2)
    # Worker 0 aborts because its peer is leaving; the peer has said why, and takes its time to exit.
    end(two, 1, "ValueError: bad batch")
    two.exited([-6, None])
    assert two.verdict().reason == "worker 1: ValueError: bad batch"

    two = in_epoch(watch(2), 2)
    end(two, 0, "UnavailableError: Socket closed", at=4.0)
    two.exited([1, -9])
    assert two.verdict().reason == "worker 1 exited -9 in epoch 2"

    two = in_epoch(watch(2), 2)
    two.exited([None, -9])
    two.exited([-11, -9])
    assert two.verdict().reason == "worker 1 exited -9 in epoch 2"


def test_process_that_says_it_was_stopped():
    one = in_epoch(watch(), 2)
    end(one, 0, "stopped by request", RunStatus.KILLED)
    one.exited([143])
    assert one.asked_to_stop
    assert one.verdict() == Verdict(RunStatus.KILLED, "stopped by request")


def test_where_it_happened():
    one = watch(epochs=2)
    one.heard(0, event("phase", phase=str(Phase.LOADING_DATA)), 1.0)
    assert one.where == "phase 'loading data'"
    one.heard(0, event("phase", phase=str(Phase.TRAINING)), 1.0)
    assert one.where == "epoch 1"
    for epoch in range(2):
        one.heard(0, event("metrics", values={Metric.LOSS: 1.0}, step=epoch), 1.0)
    one.heard(0, event("phase", phase=str(Phase.SAVING)), 1.0)
    assert one.where == "phase 'saving' after the last epoch"


def test_worker_that_never_joins():
    two = watch(2)
    two.heard(0, event("phase", phase=str(Phase.STARTING)), 1.0)
    assert two.deadline_passed(119.0) == ""
    assert two.deadline_passed(121.0) == "worker 1 of 2 never joined"
    two.heard(1, event("phase", phase=str(Phase.STARTING)), 122.0)
    assert two.deadline_passed(123.0) == "workers 0, 1 of 2 never joined"
    two.heard(0, event("joined"), 124.0)
    two.heard(1, event("phase", phase=str(Phase.LOADING_DATA)), 124.0)
    assert two.deadline_passed(125.0) == ""
    assert watch().deadline_passed(121.0) == "the training process was not ready within 120 s"


def test_compiling_takes_as_long_as_it_takes():
    one = watch()
    one.heard(0, event("joined"), 1.0)
    one.heard(0, event("phase", phase=str(Phase.COMPILING)), 5.0)
    assert one.deadline_passed(3_600.0) == ""
    one.heard(0, event("metrics", values={Metric.TIME_BUILD: 1.0}, step=0), 3_600.0)
    assert one.deadline_passed(7_200.0) == ""


def test_hang_after_the_first_steps():
    progress = event("series", name=Metric.WINDOW, points=[[64, 1.0, 1.0]])
    one = watch()
    one.heard(0, event("joined"), 1.0)
    one.heard(0, progress, 10.0)
    assert one.deadline_passed(609.0) == ""
    assert one.deadline_passed(611.0) == "no progress since step 64 for 600 s, in epoch 1"
    one.heard(0, progress, 612.0)
    assert one.deadline_passed(613.0) == ""


def windows(*points):
    """Windows of a run, as (step, seconds that a step took)."""
    return event("series", name=Metric.WINDOW, points=[[step, 64 / seconds, 1.0] for step, seconds in points])


LONG = {"steps_per_execution": 1_000, "dataset": "synthetic", "dataset_options": {"examples": 128_000}}


def long_watch(**fields):
    one = watch_of(RunSpec.from_dict(LONG | fields), Launch("run", "", ""), 0.0)
    one.heard(0, event("joined"), 1.0)
    return one


def test_a_window_may_take_as_long_as_its_steps_do():
    """1,000 steps of 3 s in one call: nothing is heard for 50 minutes of a healthy run."""
    one = long_watch()
    one.heard(0, windows((1, 20.0)), 20.0)
    assert one.deadline_passed(20.0 + 3_000) == "", "nothing but the first step, which was compiled, is known yet"
    assert one.deadline_passed(20.0 + 21_000).startswith("no progress since step 1 for 20020 s")
    one.heard(0, windows((1001, 3.0), (2000, 3.0)), 3_020.0)
    assert one.deadline_passed(3_020.0 + 15_000) == ""
    assert one.deadline_passed(3_020.0 + 15_100) == "no progress since step 2000 for 15020 s, in epoch 1"


def test_quick_windows_leave_the_deadline_as_it_is():
    one = long_watch()
    one.heard(0, windows((1, 20.0), (1001, 0.01)), 30.0)
    assert one.deadline_passed(631.0) == "no progress since step 1001 for 600 s, in epoch 1"


def test_input_that_is_delayed_and_long_validation_are_waited_for():
    delayed = long_watch(dataset_options={"examples": 128_000, "pipeline": "tf_data", "delay_ms": 2_000})
    delayed.heard(0, windows((1, 0.1)), 1.0)
    assert delayed.deadline_passed(2_000.0) == "", "the pipeline had made the first batch ahead"
    validating = long_watch(steps_per_execution=1, dataset_options={"examples": 128, "validation_examples": 64_000})
    validating.heard(0, windows((1, 20.0), (2, 3.0)), 23.0)
    validating.heard(0, event("phase", phase=str(Phase.VALIDATING)), 23.0)
    assert validating.deadline_passed(3_023.0) == ""
    assert validating.deadline_passed(16_000.0) != ""


def test_process_that_does_not_leave_after_its_end():
    one = in_epoch(watch(), 1)
    assert one.finished_for(100.0) == 0.0
    end(one, 0, "", RunStatus.FINISHED, at=10.0)
    assert one.finished_for(100.0) == 90.0


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ResourceExhaustedError: OOM when allocating tensor with shape[64,28,28,1] and type float",
         "OOM (tensor of shape [64,28,28,1]): ResourceExhaustedError: OOM when allocating tensor with "
         "shape[64,28,28,1] and type float"),
        ("numpy.MemoryError: Unable to allocate 3.5 GiB for an array with shape (60000, 28, 28)",
         "OOM (tensor of shape [60000, 28, 28]): numpy.MemoryError: Unable to allocate 3.5 GiB for an array with shape "
         "(60000, 28, 28)"),
        ("InternalError: Failed copying input tensor to GPU:0: Dst tensor is not initialized.",
         "OOM: InternalError: Failed copying input tensor to GPU:0: Dst tensor is not initialized."),
        ("OOM: said already", "OOM: said already"),
        ("ValueError: no room", "ValueError: no room"),
    ],
)  # fmt: skip
def test_memory_that_ran_out(reason, expected):
    assert with_memory_cause(Verdict(RunStatus.FAILED, reason), False, False).reason == expected


def test_memory_that_ran_out_on_the_host():
    killed = Verdict(RunStatus.FAILED, "the training process was killed by signal 9 in epoch 2")
    assert with_memory_cause(killed, True, True).reason.startswith("OOM: the host ran out of memory; the training")
    assert with_memory_cause(killed, False, True) == killed
    assert with_memory_cause(killed, True, False) == killed


def test_reason_is_one_line_of_bounded_length():
    one = in_epoch(watch(), 2)
    end(one, 0, "ValueError: first\nsecond " + "x" * 5_000)
    reason = one.verdict().reason
    assert reason.startswith("ValueError: first second")
    assert "\n" not in reason
    assert len(reason) == 2_000
