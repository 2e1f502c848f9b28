"""Bars of speedup: nothing clamped, slower on the other side, one run each marked, typed labels as typed."""

import math

import pandas as pd
import pytest

from dashboard.figures import speedup, theme
from experiments.analysis.tables import SPEEDUP_COLUMNS


def table(*rows: dict) -> pd.DataFrame:
    base = {
        "cell": 1,
        "label": "GPU",
        "run_ids": ("a",),
        "runs": 3,
        "throughput": 1.0,
        "differs": "",
        "ratio": 2.0,
        "low": 1.8,
        "high": 2.3,
        "called": "faster",
        "basis": "spread between runs",
        "sentence": "2.00x (1.80x to 2.30x), faster",
        "end_to_end": 1.5,
        "end_to_end_low": 1.4,
        "end_to_end_high": 1.6,
        "end_to_end_sentence": "1.50x",
        "break_even_epochs": 2.0,
        "break_even_low": 1.2,
        "break_even_high": 1.9,
        "break_even": "",
    }
    return pd.DataFrame([base | row for row in rows], columns=list(SPEEDUP_COLUMNS)).astype(SPEEDUP_COLUMNS)


SLOWER = {"label": "B", "ratio": 0.5, "low": 0.4, "high": 0.6, "called": "slower", "end_to_end": math.nan}
ALONE = {"label": "C", "ratio": 1.2, "low": 1.1, "high": 1.3, "called": "unknown: too few runs", "runs": 1}


def test_a_bar_goes_from_the_baseline_to_its_ratio_with_its_interval() -> None:
    figure = speedup.speedup_figure(table({}, SLOWER), "A finding", "CPU")

    faster, slower, whole = figure.data
    assert (faster.name, list(faster.base), list(faster.x), list(faster.y)) == ("faster", [1.0], [1.0], [1])
    assert list(faster.error_x.array) == pytest.approx([0.3])
    assert list(faster.error_x.arrayminus) == pytest.approx([0.2])
    assert (slower.name, list(slower.x), list(slower.y)) == ("slower", [-0.5], [0])
    assert slower.marker.color != faster.marker.color
    assert (whole.name, list(whole.x), list(whole.y)) == (speedup.END_TO_END, [1.5], [1])
    assert figure.layout.title.text == "A finding"
    assert figure.layout.xaxis.type is None
    assert [line.x0 for line in figure.layout.shapes] == [1.0]
    assert list(figure.layout.yaxis.ticktext) == ["GPU", "B"]


def test_one_run_each_is_hollow_hatched_and_said() -> None:
    figure = speedup.speedup_figure(table(ALONE), "t", "CPU")

    bar = figure.data[0]
    assert bar.name == "too few runs to call it"
    assert bar.marker.pattern.shape == "/"
    assert bar.marker.line.width > 0
    assert "<b>1.20x</b> (1.10 to 1.30)<br>one run each" in [each.text for each in figure.layout.annotations]


def test_without_an_interval_there_is_no_whisker_and_no_words_of_one() -> None:
    figure = speedup.speedup_figure(table({"low": math.nan, "high": math.nan}), "t", "CPU")

    assert list(figure.data[0].error_x.array) == [0.0]
    assert "<b>2.00x</b>" in [each.text for each in figure.layout.annotations]


def test_a_wide_range_gets_a_logarithmic_axis() -> None:
    narrow, wide = table({}), table({"ratio": 40.0, "low": 39.0, "high": 41.0}, SLOWER)
    assert not speedup.is_wide(narrow)
    assert speedup.is_wide(wide)
    figure = speedup.speedup_figure(wide, "t", "CPU")
    assert figure.layout.xaxis.type == "log"
    assert {0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0} <= set(figure.layout.xaxis.tickvals)
    claimed = speedup.speedup_figure(wide, "t", "CPU", claim=10.0)
    # There an annotation stands at the logarithm of its line.
    assert {each.text: each.x for each in claimed.layout.annotations if each.yref == "paper"} == {
        "baseline": 0.0,
        "claimed: 10x": 1.0,
    }


def test_what_is_claimed_is_a_line_beside_what_was_measured() -> None:
    figure = speedup.speedup_figure(table({}), "t", "CPU", claim=10.0)
    assert [line.x0 for line in figure.layout.shapes] == [1.0, 10.0]
    assert "claimed: 10x" in [each.text for each in figure.layout.annotations]
    assert figure.layout.xaxis.range[1] > 10


def test_what_is_not_drawn_is_counted() -> None:
    many = table(*[{"label": f"c{n}"} for n in range(34)], {"ratio": math.nan})

    assert len(speedup.drawn(many)) == speedup.MOST_BARS
    assert speedup.notice(many) == (
        "The 30 fastest of 34 are drawn; the table holds all. 1 without a speedup: the table says why."
    )
    assert speedup.notice(table({})) == ""


def test_typed_texts_are_drawn_as_typed() -> None:
    name = "<b>x</b>, $a$, <img src=x>"
    figure = speedup.speedup_figure(table({"label": name, "sentence": name}), name, name)

    drawn = figure.to_json()
    assert "<img" not in drawn
    assert "\\u003cimg" not in drawn
    assert theme.plain("<b>x</b>") in figure.layout.yaxis.ticktext[0]
    assert figure.data[0].customdata[0][0] == theme.plain(name)


def test_a_long_label_is_broken_after_its_commas() -> None:
    label = ", ".join(f"field{n} has a long value" for n in range(5))
    shown = speedup.speedup_figure(table({"label": label}), "t", "CPU").layout.yaxis.ticktext[0]

    assert shown.count("<br>") == 2
    assert shown.endswith(" …")
