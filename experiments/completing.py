"""Complete this curve: which runs are missing on these machines, and queuing exactly those."""

import dataclasses

import pandas as pd

from experiments import admission, capacity, queue, results
from experiments.analysis import curve
from experiments.analysis.curve import ScalingCurve
from experiments.analysis.evidence import Evidence
from experiments.analysis.missing import not_under_way
from experiments.settings import Settings
from training.spec import RunSpec, SpecError
from training.spec_rules import Severity

CHANGES = ("strategy", "replicas", "workers", "logical_devices", "global_batch_size")


def lacking(
    settings: Settings, runs: pd.DataFrame, evidence: Evidence, found: ScalingCurve, halve: bool = False
) -> pd.DataFrame:
    """The runs that a curve lacks, without those under way, and with a refusal where this machine cannot run one.

    Args:
        settings: where runs are recorded and carried out.
        runs: RUN_COLUMNS of all runs, those that wait among them.
        evidence, found: what `questions.scaling` gave.
        halve: repeats that halve the intervals, instead of points that are not there.

    Returns:
        MISSING_COLUMNS.

    Raises:
        EngineUnavailableError: the cluster does not answer.
    """
    most = most_devices(evidence.runs, capacity.of(settings))
    table = not_under_way(curve.missing(evidence, found, most, halve), runs)
    table["refusal"] = [row["refusal"] or _refusal(settings, row) for row in table.to_dict("records")]
    return table.astype({"refusal": "str"})


def most_devices(runs: pd.DataFrame, machines: capacity.Capacity) -> int:
    """The most devices that the runs of one curve can be measured on, never fewer than were.

    Simulated devices share their hardware, so more of them than were measured show nothing new.
    """
    first, measured = runs.iloc[0], int(runs["total_replicas"].max())
    if first["simulated"]:
        return measured
    if first["device"] == "gpu":
        return max(machines.gpus, measured)
    threads = 1 if pd.isna(first["cpu_threads"]) else int(first["cpu_threads"])
    return max(machines.cpus // threads, measured)


def spec_of(settings: Settings, row: dict) -> RunSpec:
    """The run that one row of MISSING_COLUMNS asks for.

    The name would tell the template's number of devices, and its GPUs would be too few or too many: both are left to
    be made anew.
    """
    changes = {name: row[name] for name in CHANGES}
    return dataclasses.replace(results.spec(settings, row["template"]), **changes, name="", gpus=None)


def _refusal(settings: Settings, row: dict) -> str:
    try:
        problems = admission.check(settings, spec_of(settings, row))
    except (results.UnknownRun, SpecError) as error:
        return str(error)
    return "; ".join(str(problem) for problem in problems if problem.severity is Severity.ERROR)


def submit(settings: Settings, table: pd.DataFrame, user: str = "") -> list[str]:
    """Queues every run of the table that is not refused.

    Args:
        settings: where to.
        table: what `lacking` gave.
        user: who asks; empty: the template's.

    Returns:
        The run ids.
    """
    run_ids = []
    for row in table[table["refusal"] == ""].to_dict("records"):
        spec = spec_of(settings, row)
        spec = dataclasses.replace(spec, user=user or spec.user)
        run_ids += [queue.submit(settings, spec) for _ in range(row["repeats"])]
    return run_ids
