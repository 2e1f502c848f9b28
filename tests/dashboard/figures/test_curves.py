"""Learning curves: the table by equality, the drawing by what a reader depends on."""

import math

import pandas as pd
import pytest

from dashboard.figures import curves


def history(*points: tuple[str, int, float]) -> pd.DataFrame:
    frame = pd.DataFrame(points, columns=["metric", "step", "value"])
    return frame.astype({"metric": "str", "step": "int64", "value": "float64"})


def test_table_has_both_series_by_epoch_from_one_and_the_last_value_written() -> None:
    table = curves.curve_table(
        history(("val_loss", 0, 0.9), ("loss", 1, 0.5), ("loss", 0, 1.0), ("loss", 1, 0.4), ("accuracy", 0, 0.1)),
        "loss",
    )

    expected = pd.DataFrame(
        [("training", 1, 1.0), ("training", 2, 0.4), ("validation", 1, 0.9)], columns=["series", "epoch", "value"]
    )
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)


def test_no_history_gives_an_empty_table_and_a_drawing_that_says_so() -> None:
    table = curves.curve_table(history(), "loss")

    assert list(table.columns) == list(curves.CURVE_COLUMNS)
    assert table.empty
    figure = curves.curve_figure(table, "loss")
    assert len(figure.data) == 0
    assert figure.layout.title.text == "Loss: no finite value yet"


def test_nan_and_infinity_are_gaps_and_are_named() -> None:
    table = curves.curve_table(
        history(
            ("loss", 0, 2.0), ("loss", 1, math.nan), ("loss", 2, math.inf), ("loss", 3, 1.0), ("val_loss", 0, math.inf)
        ),
        "loss",
    )

    assert curves.not_finite(table, "loss") == ("loss is NaN at epoch 2 and at 1 more; val_loss is infinite at epoch 1")
    training = curves.curve_figure(table, "loss").data[0]
    assert list(training.y) == [2.0, None, None, 1.0]
    assert training.connectgaps is False
    assert curves.best(table, "loss") == ("training", 4, 1.0)


def test_finite_values_need_no_note() -> None:
    assert curves.not_finite(curves.curve_table(history(("loss", 0, 2.0)), "loss"), "loss") == ""


@pytest.mark.parametrize(("log_scale", "drawn"), [(False, [1.0, 0.0, -1.0]), (True, [1.0, None, None])])
def test_log_scale_survives_values_that_have_no_logarithm(log_scale: bool, drawn: list[float | None]) -> None:
    table = curves.curve_table(history(("loss", 0, 1.0), ("loss", 1, 0.0), ("loss", 2, -1.0)), "loss")

    figure = curves.curve_figure(table, "loss", log_scale)

    assert list(figure.data[0].y) == drawn
    assert figure.layout.yaxis.type == ("log" if log_scale else "linear")


def test_title_states_the_best_of_validation() -> None:
    points = history(
        ("accuracy", 0, 0.99), ("val_accuracy", 0, 0.80), ("val_accuracy", 1, 0.91), ("val_accuracy", 2, 0.90)
    )

    table = curves.curve_table(points, "accuracy")

    assert curves.curve_title(table, "accuracy") == "Best validation accuracy is 91.00%, at epoch 2"


def test_the_two_series_differ_in_more_than_colour() -> None:
    table = curves.curve_table(history(("loss", 0, 1.0), ("val_loss", 0, 1.1)), "loss")

    training, validation = curves.curve_figure(table, "loss").data

    assert training.line.dash != validation.line.dash
    assert training.marker.symbol != validation.marker.symbol
