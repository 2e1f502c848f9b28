"""Throughput against batch: curves, crossings where they are sure, and what a larger batch buys."""

import math
import typing
from collections.abc import Mapping

import pandas as pd
import pytest

from experiments.analysis.batch_curve import BatchCurve, Crossing, members, read, sets
from experiments.analysis.evidence import Evidence, gather
from tests.experiments.analysis import frames

Fields = Mapping[str, typing.Any]
Speeds = Mapping[int, float]
GPU = {"device": "gpu", "gpu_model": "A GPU"}


def evidence_of(*curves: tuple[Fields, Speeds], repeats: int = 3, apart: float = 0.01) -> Evidence:
    """Runs at these batches and throughputs; repeats are so far apart around each."""
    rows, parts = [], []
    for place, (more, speeds) in enumerate(curves):
        for batch, speed in speeds.items():
            for index in range(repeats):
                run_id = f"{place}b{batch}r{index}"
                rows.append({"run_id": run_id, "global_batch_size": batch, **more})
                seconds = 60_000 / (speed * (1 + apart) ** (index - (repeats - 1) / 2))
                parts.append(frames.epochs(run_id, [2 * seconds, *[seconds] * 3], examples=60_000))
    return gather(frames.runs(*rows), pd.concat(parts, ignore_index=True))


def answered(evidence: Evidence) -> BatchCurve:
    (found,) = sets(evidence.runs)
    return read(evidence, found)


CPU_CURVE = {8: 1000.0, 32: 3000.0, 128: 4000.0, 512: 4100.0}
GPU_CURVE = {8: 500.0, 32: 1500.0, 128: 8000.0, 512: 20_000.0, 2048: 30_000.0}


def test_points_of_one_device_with_intervals_between_runs():
    found = answered(evidence_of(({}, CPU_CURVE)))

    assert found.points["curve"].tolist() == ["CPU"] * 4
    assert found.points["batch"].tolist() == [8, 32, 128, 512]
    assert found.points["runs"].tolist() == [3] * 4
    assert found.points["throughput"].tolist() == pytest.approx(list(CPU_CURVE.values()))
    # Three logs that are log(1.01) apart: t of 2 degrees of freedom times the standard error of their mean.
    half = 4.302653 * math.log(1.01) / math.sqrt(3)
    assert found.points["throughput_low"].tolist() == pytest.approx([x * math.exp(-half) for x in CPU_CURVE.values()])
    assert found.points["throughput_high"].tolist() == pytest.approx([x * math.exp(half) for x in CPU_CURVE.values()])
    assert found.title == "Throughput grows 4.1x (4.0x to 4.2x) from batch 8 to 512, and hardly from 128 on"
    assert (found.sentences, found.crossings, len(found.ratios)) == ((), (), 0)
    assert len(found.run_ids) == 12


def test_the_gpu_wins_between_two_measured_batches():
    found = answered(evidence_of((GPU, GPU_CURVE), ({}, CPU_CURVE)))

    assert list(dict.fromkeys(found.points["curve"])) == ["CPU", "GPU"]
    assert found.ratios["batch"].tolist() == [8, 32, 128, 512]
    assert found.ratios["ratio"].tolist() == pytest.approx([0.5, 0.5, 2.0, 20 / 4.1])
    assert found.ratios["called"].tolist() == ["slower", "slower", "faster", "faster"]
    # From half to double: the middle, which is 64 in the log of the batch.
    (crossing,) = found.crossings
    assert (crossing.slower, crossing.faster, crossing.low, crossing.high) == ("CPU", "GPU", 32, 128)
    assert crossing.batch == pytest.approx(64)
    assert found.title == "The GPU is faster than the CPU from a batch of 64 on: the crossing lies between 32 and 128"
    assert found.sentences == (
        "Throughput of the CPU grows 4.1x (4.0x to 4.2x) from batch 8 to 512, and hardly from 128 on",
        "Throughput of the GPU grows 60.0x (58.7x to 61.4x) from batch 8 to 2,048, the largest measured, and had not "
        "stopped growing there",
    )


def test_a_batch_that_is_not_sure_widens_the_bracket_and_nothing_is_interpolated():
    found = answered(
        evidence_of(({}, {8: 1000, 32: 3000, 128: 4000}), (GPU, {8: 500, 32: 3010, 128: 8000}), apart=0.02)
    )

    assert found.ratios["called"].tolist() == ["slower", "no difference found", "faster"]
    (crossing,) = found.crossings
    assert (crossing.low, crossing.high, math.isnan(crossing.batch), crossing.sure) == (8, 128, True, True)
    assert found.title == (
        "The GPU overtakes the CPU at about a batch between 8 and 128: the runs are too few or too far apart to say "
        "where"
    )


def test_one_run_each_is_never_sure():
    found = answered(evidence_of(({}, {8: 1000, 32: 3000}), (GPU, {8: 500, 32: 6000}), repeats=1))

    (crossing,) = found.crossings
    assert (crossing.low, crossing.high, math.isnan(crossing.batch), crossing.sure) == (8, 32, True, False)
    assert found.title == (
        "The GPU may overtake the CPU at a batch between 8 and 32: the runs are too few or too far apart to be sure"
    )
    assert found.sentences[:2] == (
        "Throughput of the CPU was highest at batch 32, 3.0x that at 8, but with one run each that may be chance",
        "Throughput of the GPU was highest at batch 32, 12.0x that at 8, but with one run each that may be chance",
    )
    assert found.points["note"].tolist() == ["one run: spread between runs unknown"] * 4
    assert found.points["throughput_low"].isna().all()
    assert found.sentences[-2:] == (
        "CPU at one run a batch: spread between runs unknown",
        "GPU at one run a batch: spread between runs unknown",
    )


@pytest.mark.parametrize(
    ("gpu", "title"),
    [
        ({8: 2000, 32: 6000}, "The GPU is faster than the CPU at every batch measured (from 8 on)"),
        (
            {8: 1001, 32: 6000},
            "The GPU is faster than the CPU at every batch measured (from 8 on), though not surely at 8",
        ),
        ({8: 500, 32: 1500}, "The GPU is never faster than the CPU within what was measured (from 8 to 32)"),
        (
            {8: 999, 32: 1500},
            "The GPU is never faster than the CPU within what was measured (from 8 to 32), though not surely at 8",
        ),
        ({8: 1001, 32: 3003}, "Whether the CPU or the GPU is faster is not sure at any batch measured"),
        (
            {16: 500, 64: 1500},
            "The CPU and the GPU were measured at no batch in common: no crossing can be said",
        ),
    ],
)
def test_curves_that_do_not_cross(gpu: dict[int, float], title: str):
    found = answered(evidence_of(({}, {8: 1000, 32: 3000}), (GPU, gpu)))
    assert (found.title, found.crossings) == (title, ())


def test_curves_may_cross_twice_and_either_way():
    found = answered(evidence_of(({}, {8: 1000, 32: 1000, 128: 1000}), (GPU, {8: 500, 32: 2000, 128: 500})))
    assert [(each.faster, each.low, each.high) for each in found.crossings] == [("GPU", 8, 32), ("CPU", 32, 128)]
    assert [each.batch for each in found.crossings] == pytest.approx([16, 64])
    assert found.title.startswith("The GPU is faster than the CPU from a batch of 16 on")
    assert found.sentences[0].startswith("The CPU is faster than the GPU from a batch of 64 on")


@pytest.mark.parametrize(
    ("speeds", "title"),
    [
        ({8: 100, 32: 200, 128: 300}, "Throughput grows 3.0x (2.9x to 3.1x) from batch 8 to 128, the largest measured"),
        ({8: 100, 32: 300, 128: 200}, "Throughput grows 3.0x (2.9x to 3.1x) from batch 8 to 32, and is 33% lower"),
        ({8: 100, 32: 101, 128: 99}, "Throughput hardly grows from batch 8 to 128"),
        ({8: 100, 32: 80}, "Throughput is highest at batch 8, and is 20% lower at 32"),
        # Its interval ends within 5% of the best, and just not.
        (
            {8: 100, 32: 980, 128: 1000},
            "Throughput grows 10.0x (9.8x to 10.2x) from batch 8 to 128, and hardly from 32",
        ),
        ({8: 100, 32: 950, 128: 1000}, "Throughput grows 10.0x (9.8x to 10.2x) from batch 8 to 128, the largest"),
    ],
)
def test_what_a_larger_batch_buys(speeds: dict[int, float], title: str):
    assert answered(evidence_of(({}, speeds))).title.startswith(title)


def test_runs_too_far_apart_say_nothing_of_growth():
    found = answered(evidence_of(({}, {8: 1000, 32: 1100, 128: 1050}), apart=0.2))
    assert found.title == "Throughput at batch 8 to 128: no difference found"
    wide = answered(evidence_of(({}, {8: 1000, 32: 4000, 128: 4010}), apart=0.05))
    assert wide.title == "Throughput grows 4.0x (3.6x to 4.5x) from batch 8 to 128"


def test_like_with_like_and_no_set_without_two_batches_on_a_device():
    runs = frames.runs(
        {"run_id": "a", "global_batch_size": 8},
        {"run_id": "b", "global_batch_size": 32},
        {"run_id": "c", "global_batch_size": 32, "cpu_threads": 2},
        {"run_id": "half", "global_batch_size": 32, "precision": "mixed_float16"},
        {"run_id": "gpu", "global_batch_size": 8, **GPU},
        {"run_id": "vae8", "global_batch_size": 8, "workload": "vae"},
        {"run_id": "vae8gpu", "global_batch_size": 16, "workload": "vae", **GPU},
    )
    assert sets(runs) == [["a", "b", "c", "gpu"]]
    assert members(runs, "gpu") == ["a", "b", "c", "gpu"]
    assert members(runs, "half") == []
    assert sets(frames.runs()) == []


def test_several_of_a_kind_are_curves_of_their_own_and_named():
    curves: list[tuple[Fields, Speeds]] = [
        ({}, {8: 100, 32: 200}),
        ({"cpu_threads": 2}, {8: 200, 32: 300}),
        (GPU, {8: 50, 32: 900}),
    ]
    found = answered(evidence_of(*curves))
    names = ["CPU, 1 CPU thread", "CPU, 2 CPU threads", "GPU"]
    assert list(dict.fromkeys(found.points["curve"])) == names
    assert [(each.slower, each.faster) for each in found.crossings] == [(names[0], "GPU"), (names[1], "GPU")]


def test_runs_left_out_are_no_points():
    evidence = evidence_of(({}, {8: 100, 32: 200}), repeats=1)
    stopped = evidence.runs.assign(status=["FINISHED", "KILLED"])
    found = answered(gather(stopped, evidence.history))
    assert found.points["batch"].tolist() == [8]
    assert found.title == "Throughput was measured at one batch only, 8"
    none = answered(gather(evidence.runs.assign(status="KILLED"), evidence.history))
    assert (none.title, len(none.points), none.run_ids) == ("No run at any batch can be used", 0, ())


def test_the_batch_of_a_replica_counts():
    two = {**GPU, "strategy": "mirrored", "replicas": 2}
    assert answered(evidence_of((two, {16: 1000, 64: 1500}))).points["batch"].tolist() == [8, 32]


def test_sentence_of_a_crossing():
    assert Crossing("CPU", "GPU", 1024, 4096, 2000.4).sentence() == (
        "The GPU is faster than the CPU from a batch of 2,000 on: the crossing lies between 1,024 and 4,096"
    )
