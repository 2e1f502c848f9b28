"""Phases, epochs, windows: what is warm-up is never mixed into what is steady."""

import math

import pandas as pd

from dashboard.figures import timing
from experiments.analysis.timing import steady_states
from training.names import Metric


def history(*points: tuple[str, int, float]) -> pd.DataFrame:
    frame = pd.DataFrame(points, columns=["metric", "step", "value"])
    return frame.astype({"metric": "str", "step": "int64", "value": "float64"})


THREE_EPOCHS = history(
    (Metric.TIME_QUEUE, 0, 2.0),
    (Metric.TIME_STARTUP, 0, 4.0),
    (Metric.TIME_FIRST_STEP, 0, 4.0),
    *[(Metric.TIME_EPOCH_TRAIN, step, seconds) for step, seconds in enumerate([12.0, 2.0, 2.0])],
    *[(Metric.TIME_EPOCH_VALIDATION, step, 1.0) for step in range(3)],
    *[(Metric.TIME_INPUT_WAIT, step, 0.5) for step in range(3)],
    *[(Metric.EXAMPLES_PER_SECOND, step, rate) for step, rate in enumerate([100.0, 600.0, 600.0])],
)


def test_phases_in_order_with_the_first_epoch_apart_and_no_second_counted_twice() -> None:
    table = timing.phase_table(THREE_EPOCHS)

    assert list(zip(table["phase"], table["seconds"], table["warm_up"], strict=True)) == [
        ("waiting in the queue", 2.0, True),
        ("start-up and imports", 4.0, True),
        ("first step (tracing, compiling)", 4.0, True),
        ("training, first epoch (warm-up)", 8.0, True),
        ("training, later epochs", 4.0, False),
        ("validation", 3.0, False),
    ]
    assert table["share"].sum() == 1.0
    assert timing.phase_title(table) == "Training took 52% of the run's 23 s, after 2 s in the queue"


def test_every_phase_of_the_table_can_be_drawn() -> None:
    table = timing.phase_table(THREE_EPOCHS)

    figure = timing.phase_figure(table)

    assert [bar.name for bar in figure.data] == table["phase"].tolist()
    assert [bar.x[0] for bar in figure.data] == table["seconds"].tolist()
    # The two training bars share their colour: the hatching tells them apart.
    shapes = {bar.name: bar.marker.pattern.shape for bar in figure.data}
    assert shapes["training, first epoch (warm-up)"] != shapes["training, later epochs"]


def test_long_times_are_said_as_people_say_them() -> None:
    table = timing.phase_table(
        history(
            (Metric.TIME_STARTUP, 0, 900.0),
            (Metric.TIME_EPOCH_TRAIN, 0, 1_000.0),
            (Metric.TIME_EPOCH_TRAIN, 1, 400.0),
        )
    )

    assert timing.phase_title(table) == "Training took 61% of the run's 38 min 20 s"
    assert [bar.hovertemplate for bar in timing.phase_figure(table).data] == [
        "start-up and imports: 15 min 00 s (39.1%)<extra></extra>",
        "training, first epoch (warm-up): 16 min 40 s (43.5%)<extra></extra>",
        "training, later epochs: 6 min 40 s (17.4%)<extra></extra>",
    ]
    waiting = history((Metric.TIME_QUEUE, 0, 5_000.0))
    assert timing.phase_title(timing.phase_table(waiting)) == "1 h 23 min in the queue so far"


def test_long_epochs_are_said_as_people_say_them() -> None:
    epochs = history((Metric.TIME_EPOCH_TRAIN, 0, 1_500.0), (Metric.TIME_INPUT_WAIT, 0, 60.0))

    bars = timing.input_wait_figure(timing.epoch_table(epochs)).data

    assert [list(bar.customdata) for bar in bars] == [["24 min 00 s"], ["1 min 00 s"], ["0 s"]]
    assert {bar.hovertemplate for bar in bars} == {"%{customdata}"}


def test_nothing_timed_yet() -> None:
    table = timing.phase_table(history())

    assert table.empty
    assert list(table.columns) == list(timing.PHASE_COLUMNS)
    assert timing.phase_title(table) == "Nothing has been timed yet"
    assert timing.epoch_table(history()).empty
    assert timing.input_wait_title(timing.epoch_table(history())) == "Waiting for input has not been measured yet"


def test_not_yet_training() -> None:
    table = timing.phase_table(history((Metric.TIME_QUEUE, 0, 9.0), (Metric.TIME_STARTUP, 0, 1.5)))

    assert timing.phase_title(table) == "1.5 s so far, after 9 s in the queue; no epoch has ended yet"


def test_epochs_mark_the_first_as_warm_up_and_keep_validation_apart() -> None:
    table = timing.epoch_table(THREE_EPOCHS)

    assert table["epoch"].tolist() == [1, 2, 3]
    assert table["train"].tolist() == [12.0, 2.0, 2.0]
    assert table["validation"].tolist() == [1.0, 1.0, 1.0]
    assert table["warm_up"].tolist() == [True, False, False]
    assert timing.input_wait_title(table) == "Waiting for input took 25.0% of the training time of later epochs"


def test_input_wait_cuts_the_training_time_and_adds_nothing_to_it() -> None:
    computing, waiting, validation = timing.input_wait_figure(timing.epoch_table(THREE_EPOCHS)).data

    assert [a + b for a, b in zip(computing.y, waiting.y, strict=True)] == [12.0, 2.0, 2.0]
    assert list(validation.y) == [1.0, 1.0, 1.0]


def test_an_epoch_without_validation_yet_is_a_gap_in_the_table() -> None:
    table = timing.epoch_table(history((Metric.TIME_EPOCH_TRAIN, 0, 3.0)))

    assert table["validation"].isna().tolist() == [True]
    assert timing.input_wait_title(table) == "Waiting for input has not been measured yet"


WINDOWS = history(*[(Metric.WINDOW, 32 * (n + 1), rate) for n, rate in enumerate([50.0, 90.0, 100.0, math.nan, 102.0])])


def test_windows_are_warm_up_as_far_as_the_analysis_says() -> None:
    table = timing.window_table(WINDOWS, warm_up_windows=2)

    assert table["step"].tolist() == [32, 64, 96, 160]  # the NaN is left out
    assert table["part"].tolist() == ["warm-up", "warm-up", "steady", "steady"]
    figure = timing.window_figure(table, 101.0, "")
    assert [trace.name for trace in figure.data] == ["warm-up", "steady"]
    assert figure.layout.title.text == "Steady throughput is 101 examples/s"


ONE_CALL_AN_EPOCH = history(
    *[(Metric.WINDOW, step, rate) for step, rate in ((1, 5.0), (100, 90.0), (200, 100.0), (300, 101.0), (400, 102.0))],
    *[(Metric.TIME_EPOCH_TRAIN, epoch, 6_400 / rate) for epoch, rate in enumerate((60.0, 100.0, 101.0, 102.0))],
    *[(Metric.EXAMPLES_PER_SECOND, epoch, rate) for epoch, rate in enumerate((60.0, 100.0, 101.0, 102.0))],
)


def test_epochs_of_warm_up_are_all_their_windows() -> None:
    run = {"run_id": "a", "global_batch_size": 64, "steps_per_execution": 100}
    points = ONE_CALL_AN_EPOCH.assign(run_id="a", timestamp=pd.Timestamp("2026-01-01", tz="UTC"))
    steady = {str(name): value for name, value in steady_states(pd.DataFrame([run]), points).iloc[0].items()}
    assert (steady["basis"], steady["warmup_windows"], steady["windows"]) == ("epochs", 1, 3)

    warm_up = timing.warm_up_count(ONE_CALL_AN_EPOCH, steady, 64)

    assert warm_up == 2
    assert timing.window_table(ONE_CALL_AN_EPOCH, warm_up)["part"].tolist() == ["warm-up"] * 2 + ["steady"] * 3
    assert timing.warm_up_count(ONE_CALL_AN_EPOCH, {**steady, "basis": "windows", "warmup_windows": 3}, 64) == 3
    assert timing.warm_up_count(ONE_CALL_AN_EPOCH, {**steady, "steady": False}, 64) is None
    assert timing.warm_up_count(ONE_CALL_AN_EPOCH, steady, math.nan) is None
    assert timing.warm_up_count(ONE_CALL_AN_EPOCH, steady, 0) is None


def test_without_a_steady_state_the_title_says_why_and_nothing_is_called_steady() -> None:
    table = timing.window_table(WINDOWS, warm_up_windows=None)

    figure = timing.window_figure(table, math.nan, "no steady-state epoch: 1 of at least 2 epochs finished")

    assert [trace.name for trace in figure.data] == ["not steady"]
    assert figure.layout.title.text == "No steady-state epoch: 1 of at least 2 epochs finished"


def test_a_million_windows_are_thinned_and_it_is_said() -> None:
    steps = range(1, 5_001)
    table = timing.window_table(history(*[(Metric.WINDOW, step, 100.0) for step in steps]), warm_up_windows=1)

    figure = timing.window_figure(table, 100.0, "")

    assert sum(len(trace.x) for trace in figure.data) <= timing.MOST_WINDOWS
    assert timing.windows_notice(table) == "One in 3 of 5,000 windows is drawn."
    assert timing.windows_notice(table.head(10)) == ""
