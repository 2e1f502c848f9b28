"""Complete this curve: which runs are missing on these machines, and queuing exactly those."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from experiments import admission, capacity, queue, results
from experiments.analysis import curve
from experiments.analysis.comparable import Thing
from experiments.analysis.curve import ScalingCurve
from experiments.analysis.evidence import Evidence
from experiments.analysis.missing import not_under_way
from experiments.settings import Settings
from training.spec import RunSpec, SpecError
from training.spec_rules import Severity

CHANGES = ("strategy", "replicas", "workers", "logical_devices", "global_batch_size")

Specs = Callable[[str], RunSpec]
"""Run id -> what that run was asked to do, as `experiments.results.spec` reads it."""


def lacking(
    settings: Settings,
    runs: pd.DataFrame,
    evidence: Evidence,
    found: ScalingCurve,
    halve: bool = False,
    *,
    machines: capacity.Capacity | None = None,
    specs: Specs | None = None,
) -> pd.DataFrame:
    """The runs that a curve lacks, without those under way, and with a refusal where this machine cannot run one.

    Args:
        settings: where runs are recorded and carried out.
        runs: RUN_COLUMNS of all runs, those that wait among them.
        evidence, found: what `questions.scaling` gave.
        halve: repeats that halve the intervals, instead of points that are not there.
        machines: what there is to run on, if it is known already.
        specs: how to read a run's spec; a caller that is asked again and again keeps what it read.

    Returns:
        MISSING_COLUMNS.

    Raises:
        EngineUnavailableError: the cluster does not answer.
    """
    machines = machines or capacity.of(settings)
    specs = specs or _read_once(settings)
    most = most_devices(evidence.runs, machines, found.axis)
    table = not_under_way(curve.missing(evidence, found, most, halve), runs)
    table["refusal"] = [row["refusal"] or _refusal(machines, specs, row) for row in table.to_dict("records")]
    return table.astype({"refusal": "str"})


def _read_once(settings: Settings) -> Specs:
    """Reads each spec once: all rows of a curve have one template."""
    return functools.cache(lambda run_id: results.spec(settings, run_id))


def most_devices(runs: pd.DataFrame, machines: capacity.Capacity, axis: Thing = Thing.REPLICAS) -> int:
    """The most replicas, or workers, that the runs of one curve can be measured on, never fewer than were.

    Simulated devices share their hardware, so more of them than were measured show nothing new.
    """
    of_workers = axis is Thing.WORKERS
    first, measured = runs.iloc[0], int(runs["workers" if of_workers else "total_replicas"].max())
    if first["simulated"]:
        return measured
    if first["device"] == "gpu":
        there = machines.gpus // (int(first["replicas"]) if of_workers else 1)
    else:
        there = machines.cpus // (1 if pd.isna(first["cpu_threads"]) else int(first["cpu_threads"]))
    return max(there, measured)


def point_spec(template: RunSpec, row: Mapping[Any, Any]) -> RunSpec:
    """The run that one row of MISSING_COLUMNS asks for.

    The name would tell the template's number of devices, and its GPUs would be too few or too many: both are left to
    be made anew.
    """
    return dataclasses.replace(template, **{name: row[name] for name in CHANGES}, name="", gpus=None)


def _refusal(machines: capacity.Capacity, specs: Specs, row: Mapping[Any, Any]) -> str:
    try:
        problems = admission.check_on(machines, point_spec(specs(row["template"]), row))
    except (results.UnknownRun, SpecError) as error:
        return str(error)
    return "; ".join(str(problem) for problem in problems if problem.severity is Severity.ERROR)


def submit(
    settings: Settings,
    table: pd.DataFrame,
    key: str,
    user: str = "",
    token: str = "",
    *,
    specs: Specs | None = None,
) -> tuple[list[str], list[str]]:
    """Queues every run of the table that is not refused.

    They get the template's group, or one of their own: runs of one group are carried out one at a time, so that they
    do not disturb each other's timing.

    Args:
        settings: where to.
        table: what `lacking` gave.
        key: of the curve.
        user: who asks for them, and whose they are; where nobody is known, they are the template's user's.
        token: of the button that was pressed: the same token never queues a run twice. Empty: each call queues anew.
        specs: as for `lacking`.

    Returns:
        The run ids, and what refused others at the last moment.
    """
    specs = specs or _read_once(settings)
    run_ids: list[str] = []
    refused: list[str] = []
    for row in table[table["refusal"] == ""].to_dict("records"):
        template = specs(row["template"])
        group = template.group or f"complete {key}"
        spec = dataclasses.replace(point_spec(template, row), user=user or template.user, group=group)
        for repeat in range(row["repeats"]):
            try:
                run_ids.append(queue.submit(settings, spec, token and f"{token}-{row['count']}-{repeat}"))
            except SpecError as error:
                refused += map(str, error.problems)
    return run_ids, list(dict.fromkeys(refused))
