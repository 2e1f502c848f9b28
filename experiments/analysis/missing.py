"""Complete this curve: the runs that are missing to draw it, or to halve its intervals."""

import math

import pandas as pd

from experiments.analysis.comparable import Thing
from experiments.analysis.intervals import t_quantile
from experiments.analysis.scaling_laws import Scaling
from training.names import RunStatus

REPEATS = 3
"""Runs a point should have: the spread between runs needs at least two, and three give a usable interval."""
MOST_REPEATS = 100

MISSING_COLUMNS = {
    "template": "str",
    "count": "int64",
    "strategy": "str",
    "replicas": "int64",
    "workers": "int64",
    "logical_devices": "int64",
    "global_batch_size": "int64",
    "repeats": "int64",
    "reason": "str",
    "refusal": "str",
}
"""`template` is the run whose spec to take; strategy to global_batch_size are the fields to change in it; `repeats` is
how many such runs to queue. A row with a `refusal` cannot be queued, and says why."""


def sensible_counts(most: int) -> list[int]:
    """Numbers of devices that show a curve's shape: 1, 2, 3, 4, then powers of two, and the most there are."""
    return sorted({count for count in (1, 2, 3, 4, *(2**power for power in range(3, 11)), most) if 1 <= count <= most})


def repeats_to_halve(runs: int, baseline_runs: int) -> int:
    """Runs each side needs in all so that the interval of their ratio becomes half as wide.

    By the width of Student's t interval at the present spread, t(n1 + n2 - 2) * sqrt(1/n1 + 1/n2).

    Args:
        runs, baseline_runs: what each side has, at least 2.
    """

    def width(first: int, second: int) -> float:
        return t_quantile(first + second - 2) * math.sqrt(1 / first + 1 / second)

    target = width(runs, baseline_runs) / 2
    needed = max(runs, baseline_runs)
    while width(needed, needed) > target and needed < MOST_REPEATS:
        needed += 1
    return needed


def _changes(template: dict, scaling: Scaling, axis: Thing, batch: int, count: int) -> dict:
    """The spec of one point, and why it cannot be run where it cannot."""
    refusal = ""
    if axis is Thing.WORKERS:
        replicas, workers = int(template["replicas"]), count
    else:
        workers = int(template["workers"])
        replicas = count // workers
        refusal = "" if count % workers == 0 else f"{count} replicas do not divide by {workers} workers"
    in_all = max(replicas * workers, 1)
    strategy = template["strategy"]
    if workers == 1:
        strategy = "mirrored" if replicas > 1 else "one_device"
    elif strategy in ("one_device", "mirrored"):
        strategy = "multi_worker_mirrored"
    global_batch = batch if scaling is Scaling.STRONG else batch * in_all
    if global_batch % in_all:
        refusal = refusal or f"a global batch of {global_batch} does not divide by {in_all} replicas"
    simulated = bool(template["simulated"])
    return {
        "count": count,
        "strategy": strategy,
        "replicas": replicas,
        "workers": workers,
        "logical_devices": max(int(template["logical_devices"]), replicas) if simulated else 0,
        "global_batch_size": global_batch,
        "refusal": refusal,
    }


def _template(curve: pd.DataFrame, runs: pd.DataFrame) -> dict:
    """The newest run of several devices on the curve: `runs` is newest first."""
    counts = curve.set_index("run_id")["count"]
    mine = runs[runs["run_id"].isin(counts.index)]
    several = mine[mine["run_id"].map(counts) > 1]
    return dict((several if len(several) else mine).iloc[0])


def _frame(rows: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(MISSING_COLUMNS)).astype(MISSING_COLUMNS)


_ASKED = (
    "workload",
    "dataset",
    "dataset_options",
    "device",
    "cpu_threads",
    "epochs",
    "max_steps_per_epoch",
    "precision",
    "jit_compile",
    "steps_per_execution",
    "deterministic",
)
_CHANGED = ("strategy", "replicas", "workers", "logical_devices", "global_batch_size")


def not_under_way(missing: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Takes off what waits or trains already, so that completing a curve twice queues nothing twice.

    A waiting run belongs to no curve yet, as where it will run is not known: it is known by what it asks for.

    Args:
        missing: MISSING_COLUMNS.
        runs: rows of RUN_COLUMNS, the templates among them.

    Returns:
        MISSING_COLUMNS with fewer `repeats`; a row of which every run is under way is left out.
    """
    live = runs[runs["status"].isin([RunStatus.SCHEDULED, RunStatus.RUNNING])]
    asked = [_asked(run, run) for run in live.to_dict("records")]
    templates = runs.set_index("run_id", drop=False)
    rows = []
    for row in missing.to_dict("records"):
        wanted = _asked(dict(templates.loc[row["template"]]), row)
        there = sum(each == wanted for each in asked)
        if there < row["repeats"]:
            said = f"{row['reason']}, {there} under way" if there else row["reason"]
            rows.append({**row, "repeats": row["repeats"] - there, "reason": said})
    return _frame(rows)


def _asked(common: dict, changed: dict) -> tuple[str, ...]:
    """What a run asks for, as texts: missing values are no values, and none equals itself."""
    values = [*(common[name] for name in _ASKED), *(changed[name] for name in _CHANGED)]
    return tuple("" if pd.isna(value) else str(value) for value in values)


def to_complete(
    curve: pd.DataFrame, measured: pd.DataFrame, runs: pd.DataFrame, most: int, repeats: int = REPEATS
) -> pd.DataFrame:
    """The runs that are missing to draw one curve.

    Args:
        curve: rows of `scaling.curves` for one curve.
        measured: frame of `scaling.points` for it.
        runs: rows of RUN_COLUMNS, newest first.
        most: the most devices there are to measure on.
        repeats: runs that every point should have.

    Returns:
        MISSING_COLUMNS, one row for each number of devices that lacks runs, ascending; empty when nothing does.
    """
    first = curve.iloc[0]
    template = _template(curve, runs)
    have = dict(zip(measured["count"], measured["runs"], strict=True))
    rows = []
    for count in sorted({*sensible_counts(most), *(int(each) for each in curve["count"])}):
        lacking = repeats - int(have.get(count, 0))
        if lacking <= 0:
            continue
        changes = _changes(template, Scaling(first["scaling"]), Thing(first["axis"]), int(first["batch"]), count)
        reason = f"{repeats - lacking} of {repeats} repeats" if count in have else "not measured"
        rows.append({"template": template["run_id"], "repeats": lacking, "reason": reason, **changes})
    return _frame(rows)


def to_halve(curve: pd.DataFrame, measured: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The repeats that are missing to make every interval of one curve half as wide.

    A point with a single run has no spread to halve: it is brought to REPEATS first.

    Args:
        curve, measured, runs: as for `to_complete`.

    Returns:
        MISSING_COLUMNS, one row for each measured number of devices.
    """
    first = curve.iloc[0]
    template = _template(curve, runs)
    have = dict(zip(map(int, measured["count"]), map(int, measured["runs"]), strict=True))
    fewest = min(have)
    single = any(count < 2 for count in have.values())
    wanted = {
        count: REPEATS if single else repeats_to_halve(number, have[fewest])
        for count, number in have.items()
        if count != fewest
    }
    wanted[fewest] = max(wanted.values(), default=REPEATS)
    reason = "to know the spread between runs" if single else "to halve the interval"
    rows = [
        {
            "template": template["run_id"],
            "repeats": wanted[count] - have[count],
            "reason": reason,
            **_changes(template, Scaling(first["scaling"]), Thing(first["axis"]), int(first["batch"]), count),
        }
        for count in sorted(have)
        if wanted[count] > have[count]
    ]
    return _frame(rows)
