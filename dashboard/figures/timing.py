"""Where a run's time went: its phases, its epochs, its windows of steps. Times in seconds of wall clock."""

import math
import typing
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard.figures import theme
from experiments.wording import duration
from training.names import Metric

PHASE_COLUMNS = ("phase", "seconds", "share", "warm_up")
EPOCH_COLUMNS = ("epoch", "train", "input_wait", "validation", "examples_per_second", "warm_up")
WINDOW_COLUMNS = ("step", "examples_per_second", "part")
MOST_WINDOWS = 2_000
WARM_UP, STEADY, NOT_STEADY = "warm-up", "steady", "not steady"

_FIRST_STEP = "first step (tracing, compiling)"
_QUEUE = "waiting in the queue"
_ONCE = (
    (Metric.TIME_QUEUE, _QUEUE),
    (Metric.TIME_STARTUP, "start-up and imports"),
    (Metric.TIME_DATA, "loading data"),
    (Metric.TIME_BUILD, "building the model"),
    (Metric.TIME_FIRST_STEP, _FIRST_STEP),
)


def _values(history: pd.DataFrame, metric: str) -> pd.Series:
    """A metric's finite values by step, the last one of each."""
    rows = history[history["metric"] == metric].drop_duplicates("step", keep="last").sort_values("step")
    values = pd.Series(rows["value"].astype("float64").to_numpy(), index=rows["step"].astype("int64").to_numpy())
    return values[np.isfinite(values)]


def epoch_table(history: pd.DataFrame) -> pd.DataFrame:
    """Times of each epoch.

    Returns:
        EPOCH_COLUMNS: epoch from 1; train, input_wait and validation in seconds (input_wait is part of train);
        examples_per_second; warm_up for the first epoch, which belongs to no steady state.
    """
    train = _values(history, Metric.TIME_EPOCH_TRAIN)
    table = pd.DataFrame(
        {
            "epoch": train.index.astype("int64") + 1,
            "train": train.to_numpy(),
            "input_wait": _values(history, Metric.TIME_INPUT_WAIT).reindex(train.index).to_numpy(),
            "validation": _values(history, Metric.TIME_EPOCH_VALIDATION).reindex(train.index).to_numpy(),
            "examples_per_second": _values(history, Metric.EXAMPLES_PER_SECOND).reindex(train.index).to_numpy(),
        }
    )
    table["warm_up"] = table["epoch"] == 1
    return table


def phase_table(history: pd.DataFrame) -> pd.DataFrame:
    """Seconds by phase in the order they happen, and their share of the run's own time; NaN for the queue.

    Returns:
        PHASE_COLUMNS; phases that were not measured are left out, and none overlaps another. The first epoch of
        training stands apart (warm_up), as does everything before it: neither belongs to a steady state.
    """
    rows: list[tuple[str, float, bool]] = []
    for metric, label in _ONCE:
        values = _values(history, metric)
        if len(values):
            rows.append((label, float(values.iloc[-1]), True))
    epochs = epoch_table(history)
    if len(epochs):
        first, later = epochs[epochs["warm_up"]], epochs[~epochs["warm_up"]]
        if len(first):
            # The first step is the first epoch's first window, and has its own bar.
            first_step = sum(seconds for label, seconds, _ in rows if label == _FIRST_STEP)
            rest = max(float(first["train"].sum()) - first_step, 0.0)
            rows.append(("training, first epoch (warm-up)", rest, True))
        if len(later):
            rows.append(("training, later epochs", float(later["train"].sum()), False))
        validation = float(epochs["validation"].sum(min_count=1))
        if math.isfinite(validation):
            rows.append(("validation", validation, False))
    table = pd.DataFrame(rows, columns=["phase", "seconds", "warm_up"]).astype({"seconds": "float64"})
    total = table.loc[~_is_queue(table), "seconds"].sum()
    table["share"] = (table["seconds"] / total if total > 0 else table["seconds"] * 0.0).where(~_is_queue(table))
    return table[list(PHASE_COLUMNS)]


_PHASE_COLORS = {
    _QUEUE: theme.GREY,
    "start-up and imports": theme.AMBER,
    "loading data": theme.GREEN,
    "building the model": theme.TEAL,
    _FIRST_STEP: theme.PURPLE,
    "training, first epoch (warm-up)": theme.BLUE,
    "training, later epochs": theme.BLUE,
    "validation": theme.VERMILION,
}


def phase_figure(table: pd.DataFrame) -> go.Figure:
    """Draws a `phase_table` as one bar; warm-up is hatched, so that it differs in more than colour."""
    figure = go.Figure()
    for phase, seconds, share in zip(table["phase"], table["seconds"], table["share"], strict=True):
        hatched = phase == "training, first epoch (warm-up)"
        of_the_run = f" ({share:.1%})" if math.isfinite(share) else ""
        figure.add_bar(
            y=[""],
            x=[seconds],
            orientation="h",
            name=phase,
            marker={
                "color": _PHASE_COLORS[phase],
                "pattern": theme.pattern("/" if hatched else ""),
                "line": {"width": 0},
            },
            text=f"{share:.0%}" if share >= 0.04 else "",
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": "white"},
            hovertemplate=f"{phase}: {duration(seconds)}{of_the_run}<extra></extra>",
        )
    theme.style(figure, phase_title(table), height=190)
    figure.update_layout(barmode="stack", hovermode="closest", bargap=0.25)
    # Under the bar, where eight entries may wrap without pushing the title around.
    figure.update_layout(legend={"y": -0.4, "yanchor": "top"}, margin={"t": 40})
    figure.update_xaxes(rangemode="tozero", ticksuffix=" s", tickformat=",")
    figure.update_yaxes(showticklabels=False, showgrid=False)
    return figure


def _is_queue(table: pd.DataFrame) -> pd.Series:
    """Waiting in the queue is no part of the run's own time: it has no share of it."""
    return table["phase"] == _QUEUE


def phase_title(table: pd.DataFrame) -> str:
    """The finding in a sentence. Waiting in the queue is no part of the run's own time."""
    queue, total = (float(table.loc[mine, "seconds"].sum()) for mine in (_is_queue(table), ~_is_queue(table)))
    if total <= 0:
        return f"{duration(queue)} in the queue so far" if queue > 0 else "Nothing has been timed yet"
    waited = f", after {duration(queue)} in the queue" if queue >= 1 else ""
    training = float(table.loc[table["phase"].str.startswith("training"), "seconds"].sum())
    if training <= 0:
        return f"{duration(total)} so far{waited}; no epoch has ended yet"
    return f"Training took {training / total:.0%} of the run's {duration(total)}{waited}"


def warm_up_count(history: pd.DataFrame, steady: Mapping[str, typing.Any], global_batch_size: float) -> int | None:
    """How many windows at the start are warm-up.

    Where the steady state was found among epochs, its warm-up is a number of epochs: the windows of these epochs are
    those that end no later, in training steps.

    Args:
        history: columns metric, step (training steps done at the window's end), value.
        steady: the run's row of `experiments.analysis.timing.steady_states`.
        global_batch_size: examples in one step; NaN or 0 when unknown.

    Returns:
        None where there is no steady state, or where it starts among the windows is not known.
    """
    if not steady["steady"]:
        return None
    if steady["basis"] == "windows":
        return int(steady["warmup_windows"])
    if not global_batch_size > 0:
        return None
    steps = round(steady["warmup_windows"] * steady["examples_per_epoch"] / global_batch_size)
    return int((_values(history, Metric.WINDOW).index <= steps).sum())


def window_table(history: pd.DataFrame, warm_up_windows: int | None) -> pd.DataFrame:
    """Throughput over short windows of steps.

    Args:
        history: columns metric, step (training steps done at the window's end), value.
        warm_up_windows: how many at the start are warm-up (see `warm_up_count`); None where no steady state is known.

    Returns:
        WINDOW_COLUMNS; part is `warm-up`, `steady`, or `not steady` where there is no steady state.
    """
    values = _values(history, Metric.WINDOW)
    if warm_up_windows is None:
        parts = [NOT_STEADY] * len(values)
    else:
        parts = [WARM_UP if place < warm_up_windows else STEADY for place in range(len(values))]
    return pd.DataFrame(
        {
            "step": values.index.to_numpy(dtype="int64"),
            "examples_per_second": values.to_numpy(),
            "part": pd.Series(parts, dtype="str"),
        }
    )


def window_title(table: pd.DataFrame, throughput: float, reason: str) -> str:
    """The finding in a sentence: the steady throughput (examples/s), or why there is none."""
    if table.empty:
        return "No window of steps has been timed yet"
    if not math.isfinite(throughput):
        return f"{reason[:1].upper()}{reason[1:]}" if reason else "No steady state yet"
    return f"Steady throughput is {throughput:,.0f} examples/s"


def window_figure(table: pd.DataFrame, throughput: float, reason: str) -> go.Figure:
    """Draws a `window_table`: the warm-up in grey, the steady state in colour, its throughput as a line.

    Of more than MOST_WINDOWS windows every n-th is drawn; `windows_notice` says so.
    """
    figure = go.Figure()
    drawn = table.iloc[:: _stride(table)]
    for part, color, symbol in (
        (WARM_UP, theme.GREY, "circle-open"),
        (NOT_STEADY, theme.AMBER, "diamond-open"),
        (STEADY, theme.TRAINING, "circle"),
    ):
        rows = drawn[drawn["part"] == part]
        if len(rows):
            figure.add_scatter(
                x=rows["step"].tolist(),
                y=rows["examples_per_second"].tolist(),
                name=part,
                mode="lines+markers" if len(drawn) <= 200 else "lines",
                line={"color": color, "width": 1.5},
                marker={"symbol": symbol, "size": 5},
                hovertemplate="%{y:,.0f} examples/s",
            )
    if math.isfinite(throughput):
        figure.add_hline(y=throughput, line={"color": theme.LINE, "dash": "dot", "width": 1.5})
    theme.style(figure, window_title(table, throughput, reason), height=300)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title="training steps done")
    figure.update_yaxes(title="examples/s", rangemode="tozero", tickformat=",")
    return figure


def windows_notice(table: pd.DataFrame) -> str:
    """What the drawing leaves out; empty when nothing."""
    stride = _stride(table)
    return f"One in {stride} of {len(table):,} windows is drawn." if stride > 1 else ""


def _stride(table: pd.DataFrame) -> int:
    return max(1, math.ceil(len(table) / MOST_WINDOWS))


def input_wait_title(table: pd.DataFrame) -> str:
    """The finding in a sentence, over the steady epochs where there are any."""
    measured = table[table["input_wait"].notna() & (table["train"] > 0)]
    steady = measured[~measured["warm_up"]]
    rows = steady if len(steady) else measured
    if rows.empty:
        return "Waiting for input has not been measured yet"
    share = rows["input_wait"].sum() / rows["train"].sum()
    which = "later epochs" if len(steady) else "the first epoch"
    return f"Waiting for input took {share:.1%} of the training time of {which}"


def input_wait_figure(table: pd.DataFrame) -> go.Figure:
    """Draws an `epoch_table`: each epoch's training, cut into waiting for input and the rest, and its validation."""
    figure = go.Figure()
    epochs = table["epoch"].tolist()
    waited = table["input_wait"].fillna(0.0).clip(upper=table["train"])
    parts = (
        ("training, computing", table["train"] - waited, theme.TRAINING, ""),
        ("training, waiting for input", waited, theme.AMBER, "x"),
        ("validation", table["validation"].fillna(0.0), theme.VALIDATION, ""),
    )
    for name, seconds, color, pattern in parts:
        figure.add_bar(
            x=epochs,
            y=seconds.tolist(),
            name=name,
            marker={
                "color": color,
                "pattern": theme.pattern(pattern),
                "line": {"width": 0},
            },
            customdata=[duration(each) for each in seconds],
            hovertemplate="%{customdata}",
        )
    theme.style(figure, input_wait_title(table), height=300)
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title="epoch (the first is warm-up)", dtick=1 if 0 < len(table) <= 12 else None)
    figure.update_yaxes(title="seconds", rangemode="tozero")
    return figure
