"""Curves against the batch: both axes logarithmic, every measured batch a tick, crossings where they are known."""

import math

import pytest

from dashboard.figures import batch, theme
from experiments.analysis.batch_curve import BatchCurve
from tests.experiments.analysis.test_batch_curve import CPU_CURVE, GPU, GPU_CURVE, answered, evidence_of


def both(repeats: int = 3) -> BatchCurve:
    return answered(evidence_of(({}, CPU_CURVE), (GPU, GPU_CURVE), repeats=repeats))


def test_a_curve_for_each_device_with_whiskers_and_ticks_at_measured_batches() -> None:
    found = both()
    figure = batch.batch_figure(found)

    cpu, gpu = figure.data
    assert (cpu.name, cpu.mode, list(cpu.x)) == ("CPU", "lines+markers", [8, 32, 128, 512])
    assert (gpu.name, gpu.mode, list(gpu.x)) == ("GPU", "lines+markers", [8, 32, 128, 512, 2048])
    assert list(gpu.y) == pytest.approx(list(GPU_CURVE.values()))
    assert (cpu.line.color, gpu.line.color) == (theme.device_style("CPU:0")[0], theme.device_style("GPU:0")[0])
    highs = found.points["throughput_high"] - found.points["throughput"]
    assert [*cpu.error_y.array, *gpu.error_y.array] == pytest.approx(highs.tolist())
    assert all(down < up for down, up in zip(cpu.error_y.arrayminus, cpu.error_y.array, strict=True))
    assert (set(cpu.marker.symbol), set(gpu.marker.symbol)) == ({"circle"}, {"diamond"})
    assert cpu.customdata[0][1] == "3 runs"
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    assert list(figure.layout.xaxis.tickvals) == [8, 32, 128, 512, 2048]
    assert list(figure.layout.xaxis.ticktext)[-1] == "2,048"
    assert list(figure.layout.yaxis.tickvals)[:4] == [100, 200, 500, 1000]
    assert figure.layout.title.text == found.title


def test_a_crossing_is_a_line_at_its_batch_with_its_label_at_the_same_place() -> None:
    figure = batch.batch_figure(both())

    (line,) = figure.layout.shapes
    assert (line.type, line.x0, line.x1) == ("line", pytest.approx(64), pytest.approx(64))
    (label,) = figure.layout.annotations
    assert (label.x, label.text) == (pytest.approx(math.log10(64)), "GPU faster from about 64")


def test_a_crossing_that_is_not_sure_is_a_band_over_its_bracket() -> None:
    figure = batch.batch_figure(both(repeats=1))

    (band,) = figure.layout.shapes
    assert (band.type, band.x0, band.x1) == ("rect", 32, 128)
    (label,) = figure.layout.annotations
    assert (label.x, label.text) == (pytest.approx(math.log10(64)), "GPU perhaps faster from between 32 and 128")
    assert set(figure.data[0].marker.symbol) == {"circle-open"}
    assert list(figure.data[0].error_y.array) == [0.0] * 4
    assert figure.data[0].customdata[0] == [", interval unknown", "1 run"]


def test_curves_of_one_kind_differ_and_nothing_typed_becomes_markup() -> None:
    curves = (GPU, {8: 100, 32: 200}), ({**GPU, "gpu_model": "<b>B</b>"}, {8: 300, 32: 700})
    figure = batch.batch_figure(answered(evidence_of(*curves)))

    first, second = figure.data
    assert {first.name, second.name} == {"GPU, A GPU", "GPU, &lt;b&gt;B&lt;/b&gt;"}
    assert first.line.color != second.line.color
    assert "<b>B" not in figure.layout.title.text
    assert not figure.layout.shapes


@pytest.mark.parametrize(
    ("speeds", "seen"),
    [
        ({8: 1100, 32: 1900}, [1200, 1400, 1600, 1800]),
        ({8: 900, 32: 3500}, [1000, 1500, 2000, 3000]),
        ({8: 90, 32: 1100}, [100, 200, 500, 1000]),
    ],
)
def test_at_least_three_round_throughputs_can_be_seen(speeds: dict[int, float], seen: list[float]) -> None:
    figure = batch.batch_figure(answered(evidence_of(({}, speeds))))
    least, most = min(speeds.values()), max(speeds.values())
    assert [tick for tick in figure.layout.yaxis.tickvals if least <= tick <= most] == pytest.approx(seen)
