"""A real run on a real GPU: its ops are there, its record says which GPU it was, and the memory comes back."""

import time

import pytest

from tests.support.training_run import train
from training import hardware
from training.names import Metric, Tag
from training.worker.placement import table

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

GIVEN_BACK_S = 10.0


def first_gpu():
    """TensorFlow's GPU:0 as the driver sees it now; the test skips where CUDA is shown none."""
    shown = hardware.visible(hardware.gpus().found)
    if not shown:
        pytest.skip("CUDA_VISIBLE_DEVICES hides every GPU")
    return shown[0]


def test_a_run_trains_on_the_gpu_and_gives_it_back():
    before = first_gpu()
    run = train(device="gpu")
    deadline = time.monotonic() + GIVEN_BACK_S
    assert run.end() == ("FINISHED", "")
    placed = table(run.folder.worker(0).stderr)
    assert set(placed.loc[placed.op_type == "Conv2D", "device"]) == {"GPU:0"}
    assert run.tags()[Tag.GPU_IDS] == f"GPU:0 = physical {before.index} ({before.uuid})"
    (peak,) = run.metric(Metric.GPU_PEAK_MEMORY.format(index=0))
    assert peak > 0
    while first_gpu().free_mib < before.free_mib - 16 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert first_gpu().free_mib >= before.free_mib - 16
