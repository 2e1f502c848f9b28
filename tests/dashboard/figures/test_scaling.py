"""Throughput and efficiency of a curve: ideal line, points, fit, and predictions only where they are allowed."""

import pandas as pd
import pytest

from dashboard.figures import scaling
from experiments.analysis.curve import ScalingCurve, read
from experiments.analysis.evidence import Evidence, gather
from experiments.analysis.scaling import curves
from tests.experiments.analysis import frames


def answered(speeds: dict[int, float], repeats: int = 3) -> tuple[ScalingCurve, Evidence]:
    """Strong scaling over replicas of GPUs; repeats are 1% apart."""
    rows, parts = [], []
    for count, speed in speeds.items():
        for index in range(repeats):
            run_id = f"n{count}r{index}"
            strategy = "mirrored" if count > 1 else "one_device"
            rows.append({"run_id": run_id, "device": "gpu", "replicas": count, "strategy": strategy})
            seconds = 60_000 / (speed * (1 + 0.01 * (index - (repeats - 1) / 2)))
            parts.append(frames.epochs(run_id, [2 * seconds, *[seconds] * 3], examples=60_000))
    evidence = gather(frames.runs(*rows), pd.concat(parts, ignore_index=True))
    (key,) = curves(evidence.runs)["key"].unique()
    return read(evidence, key), evidence


def runs_of(evidence: Evidence) -> pd.DataFrame:
    table = evidence.runs[["run_id"]].assign(count=evidence.runs["total_replicas"].astype("int64"))
    return scaling.run_table(table, evidence.steady)


AMDAHL = {n: 1000 * n / (1 + 0.1 * (n - 1)) for n in (1, 2, 4, 8)}


def test_throughput_with_runs_points_ideal_fit_and_prediction() -> None:
    curve, evidence = answered(AMDAHL)
    figure = scaling.throughput_figure(curve, runs_of(evidence))

    traces = {trace.name: trace for trace in figure.data if trace.name}
    assert list(traces) == [
        "ideal",
        "Amdahl's law",
        "predicted by Amdahl's law",
        "runs",
        "measured, with 95% interval",
    ]
    assert list(traces["ideal"].x) == [1, 16]
    assert list(traces["ideal"].y) == pytest.approx([1000, 16_000], rel=0.01)
    assert traces["Amdahl's law"].line.dash == "solid"
    assert max(traces["Amdahl's law"].x) == 8
    assert traces["predicted by Amdahl's law"].line.dash == "dash"
    assert (min(traces["predicted by Amdahl's law"].x), max(traces["predicted by Amdahl's law"].x)) == (8, 16)
    assert len(traces["runs"].x) == 12
    points = traces["measured, with 95% interval"]
    assert list(points.x) == [1, 2, 4, 8]
    assert all(value > 0 for value in points.error_y.array)
    assert set(points.marker.symbol) == {"circle"}
    # Throughput of each device is in the hover.
    assert points.customdata[1][1] == "909"
    assert points.customdata[1][2:4] == ["1.82x", "91%"]
    assert figure.layout.title.text == curve.title
    # Two bands: of the curve, and of what is predicted.
    assert sum(trace.fill == "toself" for trace in figure.data) == 2


def test_two_numbers_are_not_carried_on() -> None:
    curve, evidence = answered({1: 1000, 2: 1800})
    names = [trace.name for trace in scaling.throughput_figure(curve, runs_of(evidence)).data]
    assert "Amdahl's law" in names
    assert "predicted by Amdahl's law" not in names


def test_one_run_each_is_hollow_and_has_no_whisker() -> None:
    curve, evidence = answered({1: 1000, 2: 1800}, repeats=1)
    points = scaling.throughput_figure(curve, runs_of(evidence)).data[-1]
    assert set(points.marker.symbol) == {"circle-open"}
    assert list(points.error_y.array) == [0.0, 0.0]
    assert "spread between runs unknown" in points.customdata[0][4]


def test_efficiency_below_and_above_the_chosen_one() -> None:
    curve, _ = answered(AMDAHL)
    figure = scaling.efficiency_figure(curve, 0.8)

    points = figure.data[-1]
    assert list(points.y) == pytest.approx([1, 1 / 1.1, 1 / 1.3, 1 / 1.7], rel=0.01)
    assert [line.y0 for line in figure.layout.shapes] == [1.0, 0.8]
    assert "chosen: 80%" in [each.text for each in figure.layout.annotations]
    assert figure.layout.title.text.startswith("3 replicas work at 80% efficiency or better")
    assert [trace.line.dash for trace in figure.data[:-1]] == ["solid", "dash"]


def test_efficiency_of_the_law_is_against_the_fewest_measured_like_the_points() -> None:
    curve, _ = answered({n: AMDAHL[n] for n in (2, 4, 8)})
    law, beyond, points = scaling.efficiency_figure(curve, 0.8).data

    assert list(law.x) == list(range(2, 9))
    assert law.y[0] == points.y[0] == 1.0
    assert list(law.y) == pytest.approx([1.1 / (1 + 0.1 * (n - 1)) for n in range(2, 9)], rel=0.01)
    assert beyond.y[0] == law.y[-1]


def test_retrograde_scaling_is_drawn_as_it_is() -> None:
    curve, evidence = answered({1: 1000, 2: 700})
    points = scaling.throughput_figure(curve, runs_of(evidence)).data[-1]
    assert list(points.y) == pytest.approx([1000, 700], rel=0.01)
    assert scaling.efficiency_figure(curve, 0.8).data[-1].y[1] == pytest.approx(0.35, rel=0.01)
