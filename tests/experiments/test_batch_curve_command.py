"""`speedup` of runs at several batches also says where one device overtakes the other."""

import pytest

from experiments.settings import Settings
from tests.support.command_line import Run
from tests.support.timed_runs import GPU, TAGS, repeats
from training.spec import RunSpec

SPEEDS = {"cpu": {8: 1000.0, 32: 3000.0, 128: 4000.0}, "gpu": {8: 500.0, 32: 1500.0, 128: 8000.0}}
TITLE = "The GPU is faster than the CPU from a batch of 64 on: the crossing lies between 32 and 128"


@pytest.fixture
def sweep(settings: Settings) -> dict[tuple[str, int], str]:
    """Three runs of each batch on each device; gives one of them."""
    return {
        (device, batch): repeats(
            settings,
            RunSpec(dataset="synthetic", cpu_threads=1, epochs=4, device=device, global_batch_size=batch),
            speed,
            GPU if device == "gpu" else TAGS,
        )[0]
        for device, speeds in SPEEDS.items()
        for batch, speed in speeds.items()
    }


@pytest.mark.parametrize("thing", ["batch size", "device"])
def test_the_crossing_is_printed_below_the_speedups(
    cli_run: Run, sweep: dict[tuple[str, int], str], thing: str
) -> None:
    arguments = ("speedup", "--by", thing, "--baseline", sweep["cpu", 8])
    assert TITLE in cli_run(*arguments).out.splitlines()

    found = cli_run(*arguments, "--json").json["batch_curve"]
    assert found["title"] == TITLE
    assert [(row["curve"], row["batch"], row["runs"]) for row in found["points"]] == [
        (device.upper(), batch, 3) for device, speeds in SPEEDS.items() for batch in speeds
    ]
    (crossing,) = found["crossings"]
    assert (crossing["faster"], crossing["low"], crossing["high"], crossing["sentence"]) == ("GPU", 32, 128, TITLE)
    assert crossing["batch"] == pytest.approx(64)
    assert [row["ratio"] for row in found["ratios"]] == pytest.approx([0.5, 0.5, 2.0])
    assert len(found["run_ids"]) == 18


def test_without_such_runs_there_is_no_curve(cli_run: Run) -> None:
    assert cli_run("speedup", "--json").json["batch_curve"] is None
