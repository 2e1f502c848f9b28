"""The commands about ready-made experiments: `plans`, and `run` and `submit` with `--plan`."""

import argparse
import contextlib
import typing
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from experiments import admission, capacity, foreground, plan_runs, queue, waiting
from experiments.answers import print_json, say, user
from experiments.cli import DONE, RUN_FAILED, UsageError
from experiments.commands import print_record, record_fields, require_controller, warn
from experiments.interruption import uninterrupted
from experiments.plan_runs import Offer
from experiments.plans import PlanError, find
from experiments.plans import plans as all_plans
from experiments.settings import Settings
from experiments.terminal import safe
from experiments.wording import count
from training.names import RunStatus
from training.spec import RunSpec, assigned


def plans(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Lists the plans, with what each can measure here."""
    machines = capacity.of(settings)
    with _refusing():
        offers = [plan_runs.offer(plan, machines) for plan in all_plans().values()]
    if options.json:
        print_json([_as_json(each) for each in offers], answer)
        return DONE
    for each in offers:
        plan, runs = each.plan, len(each.cases) * each.plan.repeats
        answer.write(f"{plan.name}\n  {safe(plan.title)}\n  {safe(each.summary)}\n")
        how = f"{count(runs, 'run')}: python -m experiments run --plan {plan.name}" if runs else "nothing to run here"
        answer.write(f"  {how}\n\n")
    return DONE


def _as_json(offered: Offer) -> dict[str, typing.Any]:
    plan = offered.plan
    return {
        "name": plan.name,
        "title": plan.title,
        "description": plan.description,
        "compares": list(plan.compares),
        "claim": plan.claim,
        "repeats": plan.repeats,
        "summary": offered.summary,
        "simulated": offered.simulated,
        "cases": [{"case": case.label, "spec": case.spec.to_dict()} for case in offered.cases],
        "not_measured": _not_measured(offered),
    }


def _not_measured(offered: Offer) -> list[dict[str, str]]:
    return [{"case": each.label, "reason": each.reason} for each in offered.not_measured]


def run(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Submits all runs of a plan, waits for their end and prints each one's record."""
    if not options.inline:
        require_controller(settings)
    launch = _launch(foreground.here(settings) if options.inline else settings, options)
    carry_out = waiting.all_here if options.inline else waiting.all_elsewhere
    try:
        ended = carry_out(settings, launch.runs, launch.token)
    except Exception:
        _say_how_to_go_on(launch)
        raise
    from experiments import questions

    everything = questions.runs_of(settings)
    if options.json:
        records = [record_fields(settings, each.run_id, everything) for each in ended]
        print_json({"group": launch.group, "runs": records, "not_measured": _not_measured(launch.offered)}, answer)
    else:
        answer.write(f"group    {safe(launch.group)}\n")
        for each in ended:
            answer.write("\n")
            print_record(settings, each.run_id, options, answer, everything)
    is_done = len(ended) == len(launch.runs) and all(each.status is RunStatus.FINISHED for each in ended)
    return DONE if is_done else RUN_FAILED


def submit(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Queues all runs of a plan and leaves."""
    launch = _launch(settings, options)
    run_ids = []
    try:
        for spec in launch.runs:
            with uninterrupted():
                run_ids.append(queue.submit(settings, spec, launch.token(spec)))
    except (Exception, KeyboardInterrupt):
        say(f"{len(run_ids)} of {len(launch.runs)} runs are queued")
        _say_how_to_go_on(launch)
        raise
    if not queue.is_driven(settings):
        say("no controller drives this queue now: the runs wait for `make run`")
    if options.json:
        queued = [
            {"run_id": run_id, "name": spec.name, "status": queue.get_run(settings, run_id).info.status}
            for run_id, spec in zip(run_ids, launch.runs, strict=True)
        ]
        print_json({"group": launch.group, "runs": queued, "not_measured": _not_measured(launch.offered)}, answer)
    else:
        answer.writelines(f"{run_id}\n" for run_id in run_ids)
    return DONE


@dataclass(frozen=True)
class _Launch:
    offered: Offer
    group: str
    submission: str
    runs: list[RunSpec]

    def token(self, spec: RunSpec) -> str:
        return plan_runs.submission(self.submission, spec)


def _launch(settings: Settings, options: argparse.Namespace) -> _Launch:
    """What the options ask for, with what is to be known about it said."""
    if options.spec:
        raise UsageError("--spec describes one run and --plan many: leave out one of the two, --set goes with both")
    overrides = assigned(options.set, {"user": user()})
    with _refusing():
        plan = find(options.plan)
        offered = plan_runs.offer(plan, capacity.of(settings), overrides)
        group = options.group or str(overrides.get("group", ""))
        group = group or plan_runs.default_group(settings, plan, options.submission or "")
        runs = plan_runs.expand(offered, group, options.repeats)
    say(f"{safe(plan.title)}\n{plan.name} {safe(offered.summary)}")
    counted = f"{count(len(offered.cases), 'case')}, {count(len(runs), 'run')}"
    say(f"group {safe(group)}: {counted}, in random order within each repeat")
    # A warning about a field is the same for every run that has it.
    found = [problem for case in offered.cases for problem in admission.check_on(capacity.of(settings), case.spec)]
    warn({str(problem): problem for problem in found}.values())
    return _Launch(offered, group, options.submission or uuid.uuid4().hex, runs)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except PlanError as error:
        raise UsageError(str(error)) from None


def _say_how_to_go_on(launch: _Launch) -> None:
    say(f"the same command with --group '{safe(launch.group)}' --submission {safe(launch.submission)} queues the rest")
