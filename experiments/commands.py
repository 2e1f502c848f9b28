"""What each command does. Reads options, calls the queue or the results, writes the answer."""

import argparse
import json
import math
import os
import sys
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from experiments import admission, foreground, queue, results, waiting
from experiments.answers import frame_text, print_json, say, user
from experiments.cli import DONE, RUN_FAILED, Command, UsageError
from experiments.settings import Settings
from experiments.terminal import safe, table
from experiments.wording import count, duration
from training.names import Metric, RunStatus, Tag
from training.spec import RunSpec
from training.spec_rules import Problem, Severity

if typing.TYPE_CHECKING:
    import pandas as pd

NEWEST = 50  # runs that `list` shows a person


def run(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Submits and waits: here with --inline, else until the controller has had it carried out."""
    if _is_plan(options):
        from experiments import plan_commands

        return plan_commands.run(settings, options, answer)
    spec = _spec(options)
    if not options.inline:
        require_controller(settings)
    warn(admission.check(foreground.here(settings) if options.inline else settings, spec))
    carry_out = waiting.here if options.inline else waiting.elsewhere
    ended = carry_out(settings, spec, options.submission or "")
    print_record(settings, ended.run_id, options, answer)
    return DONE if ended.status is RunStatus.FINISHED else RUN_FAILED


def require_controller(settings: Settings) -> None:
    """Raises UsageError while nothing would carry out what is queued."""
    if not queue.is_driven(settings):
        raise UsageError(
            f"no controller drives the queue of {settings.home}: start one with `make run`, "
            "or run it here and now with --inline"
        )


def submit(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Queues a run and leaves."""
    if _is_plan(options):
        from experiments import plan_commands

        return plan_commands.submit(settings, options, answer)
    spec = _spec(options)
    warn(admission.check(settings, spec))
    run_id = queue.submit(settings, spec, options.submission or "")
    _tell_other_fields(settings, run_id, spec)
    if not queue.is_driven(settings):
        say("no controller drives this queue now: the run waits for `make run`")
    if options.json:
        print_json({"run_id": run_id, "status": queue.get_run(settings, run_id).info.status}, answer)
    else:
        answer.write(f"{run_id}\n")
    return DONE


def _tell_other_fields(settings: Settings, run_id: str, spec: RunSpec) -> None:
    """Says when a submission token had made its run before, with another spec: that one stands."""
    there = results.record(settings, run_id)["spec"] or {}  # as written: another version's may have other fields
    others = [name for name, value in spec.to_dict().items() if there.get(name) != value and name != "user"]
    if others:
        say(f"run {run_id} was submitted with this token before, and stays as it is: it differs in {', '.join(others)}")


def list_runs(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """The newest runs, or all."""
    rows = results.Results(settings).rows()
    if options.status:
        rows = [each for each in rows if each["status"] == options.status]
    limit = options.limit if options.limit is not None else 0 if options.json else NEWEST
    shown = rows[:limit] if limit else rows
    if options.json:
        print_json([_json_row(each) for each in shown], answer)
        return DONE
    if not rows:
        say("no runs yet: `python -m experiments run` makes one; without `make run`, `run --inline` does")
        return DONE
    headings = ("RUN", "STATUS", "NAME", "DEVICE", "STRATEGY", "EPOCH", "LOSS", "EXAMPLES/S", "SUBMITTED", "REASON")
    answer.write(table(headings, (_cells(each) for each in shown)) + "\n")
    if len(shown) < len(rows):
        say(f"the newest {len(shown):,} of {len(rows):,} runs: --limit 0 lists all")
    return DONE


def _cells(row: results.Row) -> tuple[str, ...]:
    size = row["total_replicas"]
    submitted = row["submitted"] and datetime.fromtimestamp(row["submitted"] / 1000).astimezone()
    return (
        row["run_id"][:8],
        row["status"],
        row["name"],
        f"{size} x {row['device']}" if size else row["device"],
        row["strategy"] + (" (simulated)" if row["simulated"] else ""),
        f"{row['epoch']}/{row['epochs']}" if row["epochs"] else "",
        f"{row['loss']:.4f}" if not math.isnan(row["loss"]) else "",
        f"{row['examples_per_second']:,.0f}" if math.isfinite(row["examples_per_second"]) else "",
        f"{submitted:%Y-%m-%d %H:%M}" if submitted else "",
        row["reason"],
    )


def show(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """A run's record."""
    print_record(settings, results.find(settings, options.run), options, answer)
    return DONE


def log(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """The end of a run's log, and what follows."""
    if options.follow and options.json:
        raise UsageError("--follow has no end to put into one JSON document: leave out one of the two")
    run_id = results.find(settings, options.run)
    told = results.record(settings, run_id)["params"].get("workers", "")
    # Another tool's run may call anything its workers.
    workers = int(told) if told.isascii() and told.isdecimal() else 1
    if options.worker >= workers:
        raise UsageError(f"--worker {options.worker}: this run has {count(workers, 'worker')}, counted from 0")
    if options.follow:
        for line in results.follow(settings, run_id, options.worker, options.last):
            answer.write(safe(line) + "\n")
            answer.flush()
        return DONE
    lines = results.log_lines(settings, run_id, options.worker, options.last)
    if options.json:
        print_json({"run_id": run_id, "worker": options.worker, "lines": lines}, answer)
    else:
        answer.writelines(safe(line) + "\n" for line in lines)
        if not lines:
            say(f"worker {options.worker} of this run has printed nothing that is on this machine")
    return DONE


def cancel(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Stops a run. One that has ended is left as it is."""
    run_id = results.find(settings, options.run)
    if RunStatus(queue.get_run(settings, run_id).info.status).is_terminal:
        say(f"run {run_id} had ended already: nothing to stop")
    status = foreground.cancel(settings, run_id)
    if options.json:
        print_json({"run_id": run_id, "status": status}, answer)
    else:
        answer.write(f"{run_id} {status if status.is_terminal else 'is being stopped'}\n")
    return DONE


MOST_SURPRISES = 50


def placement(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Where a run's ops ran, where they were asked to, and which are on the CPU as a surprise."""
    run_id = results.find(settings, options.run)
    if options.against:
        from experiments.analysis_commands import placement_diff

        return placement_diff(settings, run_id, options, answer)
    from experiments.analysis.placement import asked_and_actual, asked_of, summary
    from experiments.analysis.placement_surprises import surprises

    record, ops = results.record(settings, run_id), results.placement(settings, run_id)
    by_hand, device = asked_of(record), record["params"].get("device", "")
    counts, layers, surprising = summary(ops), asked_and_actual(ops, by_hand), surprises(ops, device, by_hand)
    asked, seen = (record["tags"].get(tag, "") for tag in (Tag.DEVICES_ASKED, Tag.DEVICES_SEEN))
    if options.json:
        found = {"run_id": run_id, "devices_asked": asked, "devices_seen": seen, "layers": layers.to_dict("records")}
        found |= {"counts": counts.to_dict("records"), "surprises": surprising.to_dict("records")}
        if options.ops:
            found["ops"] = ops.to_dict("records")
        print_json(found, answer)
        return DONE
    answer.write(f"devices asked: {safe(asked)}\ndevices seen:  {safe(seen)}\n")
    if len(layers):
        rows = [
            (each["layer"], each["asked"], each["actual"] or "not in the log", str(each["elsewhere"]), str(each["ops"]))
            for each in layers.to_dict("records")
        ]
        answer.write("\n" + table(("LAYER", "ASKED", "ACTUAL", "ELSEWHERE", "OPS"), rows) + "\n")
    if ops.empty:
        say("no placement is recorded: it is there once a run with log_device_placement=true has ended")
    elif options.ops:
        columns = ["device", "role", "source", "op_type", "count", "layer", "name"]
        answer.write("\n" + frame_text(ops[columns]) + "\n")
    else:
        answer.write("\n" + frame_text(counts) + "\n")
    if len(ops) and device == "gpu":
        answer.write(f"\nsurprises, on the CPU in a GPU run: {len(surprising):,}\n")
    if len(surprising):
        columns = ["why", "layer", "op_type", "device", "on_gpu", "of", "name"]
        answer.write("\n" + frame_text(surprising[columns].head(MOST_SURPRISES)) + "\n")
    if len(surprising) > MOST_SURPRISES:
        say(f"the first {MOST_SURPRISES} surprises of {len(surprising):,} are shown; --json holds all")
    return DONE


def doctor(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """What this machine has and what is wrong with it."""
    from experiments import doctor as doctor_module
    from experiments import stack

    # What a `make run` started is what its runs use. Ray's client reads its token from the environment.
    for name, value in stack.addresses(settings.home).items():
        os.environ.setdefault(name, value)
    findings = doctor_module.findings(Settings.from_environment())
    if options.json:
        keys = ("area", "level", "title", "detail", "remedy")
        print_json([{key: getattr(each, key) for key in keys} for each in findings], answer)
        return DONE
    for each in findings:
        answer.write(f"{each.level:8} {safe(each.area)}: {safe(each.title)}\n")
        for label, text in (("", each.detail), ("remedy: ", each.remedy)):
            answer.writelines(f"         {label}{safe(line)}\n" for line in text.splitlines())
    return DONE


def restore(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Brings the deleted experiment back."""
    restored = settings.restore_experiment()
    if options.json:
        print_json({"experiment": settings.experiment, "restored": restored}, answer)
    else:
        what = "is restored, with its runs" if restored else "was not deleted: nothing to do"
        answer.write(f"experiment {settings.experiment} {what}\n")
    return DONE


COMMANDS: Mapping[str, Command] = {
    "run": run,
    "submit": submit,
    "list": list_runs,
    "show": show,
    "log": log,
    "cancel": cancel,
    "placement": placement,
    "doctor": doctor,
    "restore": restore,
}


def _is_plan(options: argparse.Namespace) -> bool:
    if options.plan is None and (options.repeats is not None or options.group):
        raise UsageError("--repeats and --group go with --plan NAME: `python -m experiments plans` lists them")
    return options.plan is not None


def _spec(options: argparse.Namespace) -> RunSpec:
    base: dict[str, typing.Any] = {"user": user()}
    if options.spec is not None:
        base |= _spec_file(options.spec)
    return RunSpec.from_assignments(options.set, base)


def _spec_file(name: str) -> dict[str, typing.Any]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        values = json.loads(text)
    except OSError as error:
        raise UsageError(f"--spec {name} cannot be read ({error.strerror}): name a JSON file") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--spec {name} is not JSON ({error}): write an object of fields") from None
    if not isinstance(values, dict):
        raise UsageError(f"--spec {name} is not a JSON object: write an object of fields")
    return values


def warn(problems: typing.Iterable[Problem]) -> None:
    """Says what does not refuse a run and should be known."""
    for problem in problems:
        if problem.severity is Severity.WARNING:
            say(f"warning: {safe(str(problem))}")


def _json_row(row: results.Row) -> dict[str, typing.Any]:
    """A row of `list`: times as ISO 8601 in UTC, and null where nothing is known."""
    found: dict[str, typing.Any] = {}
    for name, value in row.items():
        if value is not None and results.RUN_COLUMNS[name].startswith("datetime"):
            value = datetime.fromtimestamp(value / 1000, UTC).isoformat()
        elif isinstance(value, float) and math.isnan(value):
            value = None
        found[name] = value
    return found


def record_fields(settings: Settings, run_id: str, runs: "pd.DataFrame | None" = None) -> dict[str, typing.Any]:
    """A run's record as JSON has it: with where its time went, what makes its timing doubtful, and what might have.

    Args:
        settings: where runs are recorded.
        run_id: the run.
        runs: RUN_COLUMNS of all runs, if they have been read already.
    """
    from experiments import questions

    judged = questions.judgement(settings, run_id, runs)
    judgement = {
        "verdict": judged.verdict_fields(),
        "flags": judged.flags.to_dict("records"),
        "unchecked": list(judged.unchecked),
    }
    return results.record(settings, run_id) | judgement


def print_record(
    settings: Settings,
    run_id: str,
    options: argparse.Namespace,
    answer: typing.TextIO,
    runs: "pd.DataFrame | None" = None,
) -> None:
    """A run's record, as text or as the one JSON document; `runs` as in `record_fields`."""
    from experiments import questions

    if options.json:
        print_json(record_fields(settings, run_id, runs), answer)
        return
    record, judged = results.record(settings, run_id), questions.judgement(settings, run_id, runs)
    answer.write(f"run      {run_id}\nname     {safe(record['name'])}\nstatus   {record['status']}\n")
    if record["reason"]:
        answer.write(f"reason   {safe(record['reason'])}\n")
    answer.writelines(f"notice   {safe(each)}\n" for each in record["tags"].get(Tag.NOTICE, "").splitlines())
    if judged.verdict is not None:
        answer.write(f"verdict  {safe(judged.sentence())}\n")
    for flag in judged.flags[judged.flags["flag"] != "notice"].to_dict("records"):  # said above
        effect = "stays out of figures" if flag["excludes"] else "stays in figures"
        answer.write(f"flag     {safe(flag['detail'])} ({effect})\n")
    answer.writelines(f"unknown  {safe(each)}: not recorded, so not checked\n" for each in judged.unchecked)
    shown: dict[str, Callable[[float], str]] = {"time/": duration, "throughput/": "{:,.0f}".format}
    groups: dict[str, Mapping[str, str]] = {
        "params": record["params"],
        "metrics": {
            name: next((show for start, show in shown.items() if name.startswith(start)), "{:.6g}".format)(value)
            for name, value in record["metrics"].items()
            if not name.startswith(Metric.SYSTEM_PREFIX)
        },
        "tags": {name: value for name, value in record["tags"].items() if not name.startswith("mlflow.")},
    }
    for title, values in groups.items():
        if values:
            rows = sorted((f"  {name}", value) for name, value in values.items() if value)
            answer.write("\n" + table((title.upper(), ""), rows) + "\n")
