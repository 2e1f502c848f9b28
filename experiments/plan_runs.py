"""What a plan can measure on given machines, and its runs in the order in which they are to be queued."""

import dataclasses
import itertools
import math
import random
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pandas as pd

from experiments import admission
from experiments.analysis.comparable import Thing
from experiments.analysis.missing import sensible_counts
from experiments.analysis.tables import Speedups
from experiments.capacity import Capacity, request, shortage
from experiments.plans import LEAST_STEPS, MOST_REPEATS, PER_REPLICA_BATCH, Fields, Plan, PlanError, find, up_to
from experiments.settings import Settings
from experiments.wording import count
from training import catalog
from training.names import Tag
from training.spec import RunSpec, SpecError
from training.spec_rules import Severity

PLAN_TAG = Tag.PLAN.removeprefix(Tag.USER_TAG_PREFIX)
MOST_RUNS = 1_000  # of one launch
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Case:
    """One case that can be measured: its name, and its run without name, group and seed."""

    label: str
    spec: RunSpec


@dataclass(frozen=True)
class NotMeasured:
    """One case, or a range of them, that cannot be measured, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class Offer:
    """What a plan can measure on some machines.

    Attributes:
        plan: the plan.
        cases: what can be measured, in the plan's order.
        not_measured: what cannot.
        otherwise: whether `cases` are those the plan offers where its own cannot be compared.
        where: "this machine" or "this cluster".
    """

    plan: Plan
    cases: tuple[Case, ...]
    not_measured: tuple[NotMeasured, ...]
    otherwise: bool
    where: str

    @property
    def simulated(self) -> bool:
        """Whether its devices are simulated ones, so that the analyses leave its runs out of figures."""
        return any(case.spec.simulated for case in self.cases)

    @property
    def summary(self) -> str:
        """What it can measure here, in one sentence."""
        labels = ", ".join(case.label for case in self.cases)
        by_reason: dict[str, list[str]] = {}
        for each in self.not_measured:
            by_reason.setdefault(each.reason, []).append(each.label)
        reasons = "; ".join(f"{', '.join(missing)}: {reason}" for reason, missing in by_reason.items())
        if not self.cases:
            return f"can measure nothing on {self.where} ({reasons})"
        if self.simulated:
            return (
                f"only a rehearsal on {self.where}, with simulated devices that share its hardware: its runs are "
                f"marked, and left out of figures ({reasons})"
            )
        if self.otherwise:
            return f"measures {labels} on the {self.cases[0].spec.device.upper()} instead ({reasons})"
        if not self.not_measured:
            return f"measures all of it on {self.where}: {labels}"
        return f"measures a part of it on {self.where}: {labels} ({reasons})"


def offer(plan: Plan, machines: Capacity, overrides: Fields | None = None) -> Offer:
    """What a plan can measure.

    Args:
        plan: the plan.
        machines: where its runs would go.
        overrides: fields of RunSpec that every run gets, as plain JSON values (see `training.spec.assigned`). Cases
            that become equal by them are one.

    Returns:
        Every case of the plan is in `cases` or in `not_measured`.

    Raises:
        PlanError: two cases differ in nothing that the plan compares, so that nothing tells their runs apart.
    """
    overrides = dict(overrides or {})
    cases, missing = _tried(plan, plan.cases, machines, overrides)
    if len(cases) < 2 and plan.otherwise:
        others, refused = _tried(plan, plan.otherwise, machines, overrides)
        if others:
            alone = [NotMeasured(case.label, "has nothing to be compared with") for case in cases]
            return Offer(plan, tuple(others), (*missing, *alone, *refused), True, machines.where)
    return Offer(plan, tuple(cases), tuple(missing), False, machines.where)


def expand(offered: Offer, group: str, repeats: int | None = None) -> list[RunSpec]:
    """The runs of one launch, in the order in which they are to be carried out.

    Each repeat is a block that holds every case once, in a random order of its own, so that a machine that becomes
    slower or faster favours no case. A seed has no effect on time: the first repeat has the seed of the overrides, the
    next ones the numbers after it, so that the losses show a spread too. The same group and seed give the same order,
    another launch has another. A name in the overrides is what every run's name begins with.

    Args:
        offered: what to run.
        group: of all the runs.
        repeats: how often each case is run; the plan's own number if None.

    Raises:
        PlanError: nothing can be measured, or the numbers make no sense.
        SpecError: a group or a name that no run may have.
    """
    repeats = offered.plan.repeats if repeats is None else repeats
    if not offered.cases:
        raise PlanError(f"plan {offered.plan.name} {offered.summary}")
    if not 1 <= repeats <= MOST_REPEATS:
        raise PlanError(f"{repeats} repeats make no sense: give 1 to {MOST_REPEATS}")
    if repeats * len(offered.cases) > MOST_RUNS:
        raise PlanError(f"{repeats * len(offered.cases):,} runs are more than {MOST_RUNS:,}: give fewer repeats")
    order = random.Random(f"{offered.plan.name} {offered.cases[0].spec.seed} {group}")
    runs = []
    for repeat in range(repeats):
        block = list(offered.cases)
        order.shuffle(block)
        for case in block:
            values = case.spec.to_dict() | {"group": group, "seed": case.spec.seed + repeat}
            values["name"] = " ".join(filter(None, (case.spec.name, case.label, f"#{repeat + 1}")))
            values["tags"] = {PLAN_TAG: offered.plan.name, **case.spec.tags}
            runs.append(RunSpec.from_dict(values))
    return runs


_CLAIMED_OF = ("workload", "global_batch_size", "precision")
"""Fields that all cases of a plan share, and of which a speedup that somebody claims speaks."""


def claimed(found: Speedups, runs: pd.DataFrame) -> float | None:
    """The speedup that the plan of some compared runs claims, where this is the comparison that it is about.

    Args:
        found: a comparison.
        runs: RUN_COLUMNS, its runs among them.

    Returns:
        None unless all runs were made by one plan that claims something, compares this thing, and has as its first
        case what the others are compared with; a plan may be run with other fields than its own.
    """
    ids = {*found.baseline_run_ids, *(run_id for run_ids in found.table["run_ids"] for run_id in run_ids)}
    names = set(runs.loc[runs["run_id"].isin(ids), "plan"])
    if len(names) != 1 or names == {""} or not found.baseline_run_ids:
        return None
    try:
        plan = find(names.pop())
    except PlanError:  # it was renamed or taken away since
        return None
    baseline = runs.loc[runs["run_id"] == found.baseline_run_ids[0]].iloc[0]
    usual = {**RunSpec().to_dict(), **plan.base}
    fields = {name: usual[name] for name in _CLAIMED_OF} | dict(plan.cases[0])
    first = {name: value[0] if isinstance(value, list) else value for name, value in fields.items()}
    alike = all(str(baseline[name]) == str(value) for name, value in first.items() if name in baseline)
    return plan.claim if alike and found.thing in plan.compares else None


def submission(token: str, spec: RunSpec) -> str:
    """The token of one run of a launch: a launch that is repeated with its token starts no run twice."""
    return f"{token} {spec.name}"


def default_group(settings: Settings, plan: Plan, token: str = "", now: datetime | None = None) -> str:
    """A readable name for the runs of one launch.

    Args:
        settings: whose runs must not have that name yet.
        plan: what is launched.
        token: the launch's submission token, if the person gave one: then the name is the same each time.
        now: when; the present if None.

    Returns:
        Such as `workers-2026-11-30-1412`, with `-2` after it for a second one in that minute; or `workers-TOKEN`.
    """
    if token:
        return f"{plan.name}-{_UNSAFE.sub('-', token)[:100]}"
    wanted = f"{plan.name}-{now or datetime.now():%Y-%m-%d-%H%M}"
    client, experiment = settings.client(), settings.experiment_id()
    name, number = wanted, 1
    while client.search_runs([experiment], f"tags.`{Tag.GROUP}` = '{name}'", max_results=1):
        number += 1
        name = f"{wanted}-{number}"
    return name


# --- cases -------------------------------------------------------------------------------------------------------


def _tried(
    plan: Plan, rows: typing.Iterable[Fields], machines: Capacity, overrides: Fields
) -> tuple[list[Case], list[NotMeasured]]:
    cases: dict[str, Case] = {}
    missing: dict[tuple[str, str], NotMeasured] = {}
    for row in rows:
        for values, reason in _grid(_merged(plan.base, row), machines):
            label, spec, refusal = _case(plan, _merged(values, overrides), machines, "epochs" in overrides)
            reason = reason or refusal
            if spec is None or reason:
                missing.setdefault((label, reason), NotMeasured(label, reason))
            else:
                cases.setdefault(spec.to_json(), Case(label, spec))
    labels = [case.label for case in cases.values()]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        things = ", ".join(plan.compares)
        raise PlanError(
            f"plan {plan.name} has several cases called {twice[0]!r}: they are equal in {things}, which it compares; "
            "name what they differ in under `compares`, or leave one out"
        )
    return list(cases.values()), list(missing.values())


def _merged(first: Fields, second: Fields) -> dict[str, typing.Any]:
    """The second on top of the first; objects are merged by key, and one form of the batch replaces the other."""
    merged = dict(first)
    for one, other in ((PER_REPLICA_BATCH, "global_batch_size"), ("global_batch_size", PER_REPLICA_BATCH)):
        if one in second:
            merged.pop(other, None)
    for name, value in second.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = {**merged[name], **value} if both else value
    return merged


def _grid(fields: Fields, machines: Capacity) -> Iterator[tuple[dict[str, typing.Any], str]]:
    """Every combination of the fields' values, each with why the machines cannot have it (empty if they can)."""
    choices: list[list[typing.Any]] = []
    reason = ""
    for name, value in fields.items():
        counted = up_to(value)
        if counted is None:
            choices.append(value if isinstance(value, list) else [value])
            continue
        first, unit = counted
        most = _most(name, unit, machines)
        choices.append([count for count in sensible_counts(most) if count >= first] or [first])
        if most < first:
            noun = unit[:-1].upper() if first == 1 else unit[:-1].upper() + "s"
            reason = f"needs {first} {noun}, {machines.where} has {most}"
    for combination in itertools.product(*choices):
        yield dict(zip(fields, combination, strict=True)), reason


def _most(name: str, unit: str, machines: Capacity) -> int:
    """Replicas are devices of one machine; workers may be on several."""
    if name == "replicas":
        return max((gpus for _, gpus in machines.nodes), default=0)
    return machines.gpus if unit == "gpus" else machines.cpus


def _case(
    plan: Plan, values: dict[str, typing.Any], machines: Capacity, fixed_epochs: bool
) -> tuple[str, RunSpec | None, str]:
    """One case's label, its spec if it makes one, and what refuses it (empty if nothing does)."""
    per_replica, least_steps = values.pop(PER_REPLICA_BATCH, None), values.pop(LEAST_STEPS, None)
    if per_replica is not None:
        values["global_batch_size"] = per_replica * values.get("replicas", 1) * values.get("workers", 1)
    label = _label(plan.compares, values)
    try:
        spec = RunSpec.from_dict(values)
    except SpecError as error:
        return label, None, str(error)
    if least_steps is not None and not fixed_epochs:
        spec = dataclasses.replace(spec, epochs=max(spec.epochs, _epochs(spec, least_steps)))
    # Admission's remedy is for one run; a plan's is to leave the case out.
    if message := shortage(request(spec, machines), machines):
        return label, spec, message
    problems = admission.check_on(machines, spec)
    return label, spec, "; ".join(str(problem) for problem in problems if problem.severity is Severity.ERROR)


def _epochs(spec: RunSpec, steps: int) -> int:
    """Epochs that hold so many steps."""
    per_epoch = catalog.steps_per_epoch(
        spec.dataset, spec.dataset_options, spec.global_batch_size, spec.max_steps_per_epoch
    )
    return math.ceil(steps / per_epoch)


def _label(things: typing.Iterable[Thing], values: Fields) -> str:
    """Names a case by what the plan compares, such as `batch 32 CPU`."""
    full = {field.name: getattr(RunSpec(), field.name) for field in dataclasses.fields(RunSpec)} | dict(values)
    return " ".join(_LABELS[thing](full) for thing in things)


_LABELS: Mapping[Thing, typing.Callable[[Fields], str]] = {
    Thing.DEVICE: lambda values: str(values["device"]).upper(),
    Thing.REPLICAS: lambda values: count(values["replicas"], "replica"),
    Thing.WORKERS: lambda values: count(values["workers"], "worker"),
    Thing.STRATEGY: lambda values: str(values["strategy"]),
    Thing.PRECISION: lambda values: str(values["precision"]),
    Thing.XLA: lambda values: "XLA on" if values["jit_compile"] else "XLA off",
    Thing.STEPS_PER_EXECUTION: lambda values: f"{count(values['steps_per_execution'], 'step')} at once",
    Thing.BATCH: lambda values: f"batch {values['global_batch_size']}",
    Thing.DETERMINISM: lambda values: "deterministic" if values["deterministic"] else "not deterministic",
    Thing.CPU_THREADS: lambda values: (
        count(values["cpu_threads"], "thread") if values["cpu_threads"] else "all threads"
    ),
    Thing.PLACEMENT: lambda values: (
        "layers placed by hand" if values["manual_placement"] else "no layer placed by hand"
    ),
    Thing.DATA_OPTIONS: lambda values: " ".join(f"{key}={value}" for key, value in values["dataset_options"].items()),
}
