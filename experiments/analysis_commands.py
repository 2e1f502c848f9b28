"""What the commands that compare runs do: `speedup`, `scaling`, `compare`, `report`, and the diff of `placement`."""

import argparse
import subprocess
import sys
import typing
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from experiments import completing, questions, results
from experiments.analysis import batch_curve, pairs, tables
from experiments.analysis.comparable import QUESTIONS, BatchRule, Thing
from experiments.analysis.placement import diff, moves
from experiments.analysis.scaling import begun, devices
from experiments.analysis.workers import workers
from experiments.analysis_text import (
    RULES,
    batch_document,
    batch_text,
    curve_document,
    curve_text,
    records,
    speedups_document,
    speedups_text,
)
from experiments.answers import frame_text, print_json, say, user
from experiments.cli import DONE, Command, UsageError
from experiments.settings import CHECKOUT, Settings
from experiments.terminal import safe
from training.names import RunStatus

REPORT_FILE = "speedup-lab-report.html"
_SCALING = (Thing.REPLICAS, Thing.WORKERS)


def speedup(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """What can be compared; answered when that is one thing."""
    runs, back = questions.runs_of(settings, options.group), _put_back(settings, options)
    thing = _thing(options.by) if options.by else None
    baseline = _among(settings, runs, options.baseline, "--baseline") if options.baseline else ""
    everything = tables.suggestions_for(runs, baseline) if baseline else tables.suggestions(runs)
    offered = everything
    if thing is not None:
        offered = offered[offered["thing"] == thing]
    if options.rule:
        offered = offered[~offered["thing"].isin(_SCALING) | (offered["rule"] == RULES[options.rule])]
    chosen = [(row["baseline"], Thing(row["thing"]), BatchRule(row["rule"])) for row in offered.to_dict("records")]
    if baseline and thing is not None and (options.rule or thing not in _SCALING):
        # Asked in full: that nothing matches is an answer too.
        chosen = [(baseline, thing, RULES[options.rule or "global"])]
    found, batches, near = None, None, []
    if len(chosen) == 1:
        found = questions.speedups(settings, runs, *chosen[0], back)
        batches = _batches(settings, runs, chosen[0][0], chosen[0][1], back)
    if baseline and offered.empty:
        near = _nearest(runs, baseline, thing, options.rule)
    if options.json:
        document = found and speedups_document(found)
        curve = batches and batch_document(batches)
        listed = records(offered.drop(columns="run_ids"))
        said = [{"run_id": each.candidate, "in_the_way": list(each.check.in_the_way)} for each in near]
        print_json({"suggestions": listed, "speedup": document, "batch_curve": curve, "nearest": said}, answer)
        return DONE
    if found is not None:
        answer.write(speedups_text(found))
        answer.write(f"\n{batch_text(batches)}" if batches is not None else "")
    elif chosen:
        answer.write(_offers_text(offered) + "\n")
        say("several things can be compared: choose one with --baseline, --by and --rule")
    elif len(everything):
        say(_otherwise(everything, thing, options.rule))
    else:
        say("nothing can be compared yet: it takes finished runs that differ in one thing, such as the device")
    answer.writelines(f"nearest  {each.candidate[:8]}  {safe(each.check.sentence())}\n" for each in near)
    return DONE


def _otherwise(everything: pd.DataFrame, thing: Thing | None, rule: str | None) -> str:
    """What can be compared once the options that leave nothing are not given."""
    by, held = [f"by {thing}"] if thing else [], [f"with --rule {rule}"] if rule else []
    options = " and ".join([*(["--by"] if thing else []), *(["--rule"] if rule else [])])
    return f"nothing {' '.join([*by, *held])}; without {options}: {', '.join(dict.fromkeys(everything['thing']))}"


def _nearest(runs: pd.DataFrame, baseline: str, thing: Thing | None, rule: str | None) -> list[pairs.Pair]:
    """The finished runs that come nearest to a comparison with a baseline that nothing matches."""
    asked = [
        (each, batch)
        for each, batch in QUESTIONS
        if thing in (None, each) and (not rule or each not in _SCALING or batch == RULES[rule])
    ]
    finished = runs[(runs["status"] == RunStatus.FINISHED) | (runs["run_id"] == baseline)]
    return pairs.nearest(finished, baseline, asked)


def _batches(
    settings: Settings, runs: pd.DataFrame, baseline: str, thing: Thing, put_back: frozenset[str]
) -> batch_curve.BatchCurve | None:
    """The curves against the batch that a comparison's runs belong to, where there are such."""
    members = batch_curve.members(runs, baseline) if thing in batch_curve.THINGS else []
    return batch_curve.read(questions.of(settings, runs, members, put_back), members) if members else None


def _offers_text(offered: pd.DataFrame) -> str:
    rules = {str(rule): name for name, rule in RULES.items()}
    shown = pd.DataFrame(
        {
            "by": offered["thing"],
            "rule": offered["rule"].map(rules).where(offered["thing"].isin(_SCALING), ""),
            "baseline": offered["baseline"].str[:8],
            "configurations": offered["configurations"],
            "runs": offered["runs"],
            "what": offered["label"],
        }
    )
    return frame_text(shown)


def _thing(text: str) -> Thing:
    """A thing by its value or name, with `-` and `_` as good as a space."""

    def spaced(name: str) -> str:
        return name.lower().replace("_", " ").replace("-", " ").strip()

    for thing in Thing:
        if spaced(text) in (spaced(thing.value), spaced(thing.name)):
            return thing
    raise UsageError(f"--by {text!r} is none of the things to compare by: choose one of {', '.join(Thing)}")


def _among(settings: Settings, runs: pd.DataFrame, run: str, option: str) -> str:
    """The id of a run that a person named, which must be among the runs looked at."""
    run_id = results.find(settings, run)
    if run_id not in set(runs["run_id"]):
        raise UsageError(f"{option} {run[:80]!r} is not in that group: leave out --group, or name a run of it")
    return run_id


def _put_back(settings: Settings, options: argparse.Namespace) -> frozenset[str]:
    return frozenset(results.find(settings, run) for run in options.put_back)


def scaling(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Scaling curves; answered when there is one, or one is chosen. Completes it where that is asked for."""
    completes = options.complete or options.halve
    if options.queue and not completes:
        raise UsageError("--queue says nothing about which runs: add --complete or --halve")
    runs, back = questions.runs_of(settings, options.group), _put_back(settings, options)
    offered = begun(runs)
    listed = offered.groupby(["key", "label"], sort=False).agg(runs=("run_id", "size"), counts=("count", _counts))
    listed = listed.reset_index()
    keys = list(listed["key"])
    if options.curve and options.curve not in keys:
        raise UsageError(f"--curve {options.curve[:80]!r} is unknown: `python -m experiments scaling` lists the curves")
    key = options.curve or (keys[0] if len(keys) == 1 else "")
    if completes and not key:
        raise UsageError(f"which curve to complete is not clear, there are {len(keys)}: choose one with --curve KEY")
    document: dict[str, typing.Any] = {"curves": records(listed), "curve": None}
    if key:
        evidence, found = questions.scaling(settings, runs, key, options.efficiency, back)
        each = _devices(evidence.history, found.largest_run)
        document["curve"] = curve_document(found, options.efficiency) | {
            name: records(table) for name, table in each.items()
        }
        text = curve_text(found, options.efficiency)
        text += "".join(f"\n{frame_text(table)}\n" for table in each.values() if len(table))
        if completes:
            lacking = completing.lacking(settings, results.Results(settings).runs(), evidence, found, options.halve)
            document["missing"] = records(lacking)
            text += f"\n{_missing_text(lacking)}\n"
            queued, refused = completing.submit(settings, lacking, key, user()) if options.queue else ([], [])
            document["queued"] = queued
            text += "".join(f"queued {run_id}\n" for run_id in queued)
            for reason in refused:
                say(f"refused at the last moment: {safe(reason)}")
    if options.json:
        print_json(document, answer)
    elif key:
        answer.write(text)
    elif keys:
        answer.write(frame_text(listed) + "\n")
        say("several curves were measured: choose one with --curve KEY")
    else:
        say("no scaling curve yet: it takes finished runs at two numbers of replicas or workers, alike in all else")
    return DONE


def _counts(counts: pd.Series) -> str:
    return ", ".join(map(str, sorted(set(counts))))


def _devices(history: pd.DataFrame, run_id: str) -> dict[str, pd.DataFrame]:
    """What each device and each worker did in a run."""
    return {"devices": devices(history, run_id), "workers": workers(history, run_id)}


def _missing_text(lacking: pd.DataFrame) -> str:
    if lacking.empty:
        return "no run is missing"
    columns = ["count", "repeats", "strategy", "replicas", "workers", "global_batch_size", "reason", "refusal"]
    return frame_text(lacking[columns].rename(columns={"count": "devices", "repeats": "runs"}), 60)


def compare(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """Two runs: whether they may be compared and what came out, where their time went, what moved."""
    named = (results.find(settings, options.baseline), results.find(settings, options.candidate))
    if named[0] == named[1]:
        raise UsageError(f"{options.candidate[:80]!r} is the same run as the first: name another one")
    runs = questions.runs_of(settings)
    pair = pairs.pair(runs, *named)
    thing, rule, check = pair.thing, pair.rule, pair.check
    found = None
    if check.possible:
        evidence = questions.of(settings, runs, pairs.repeats(runs, *named), _put_back(settings, options))
        found = tables.speedups(evidence, pair.baseline, thing, rule)
    judged = {run_id: questions.judgement(settings, run_id, runs) for run_id in named}
    placements = [_placement(settings, run_id) for run_id in named]
    moved = moves(diff(*placements)) if all(map(len, placements)) else None
    if options.json:
        document = {
            "baseline": pair.baseline,
            "candidate": pair.candidate,
            "possible": check.possible,
            "by": str(thing) if check.possible else None,
            "rule": str(rule) if check.possible else None,
            "in_the_way": list(check.in_the_way),
            "differs": list(check.differs),
            "notes": list(check.notes),
            "speedup": found and speedups_document(found),
            "verdicts": {run_id: each.verdict_fields() for run_id, each in judged.items()},
            "flags": {run_id: records(each.flags) for run_id, each in judged.items()},
            "placement": None if moved is None else records(moved),
        }
        print_json(document, answer)
        return DONE
    answer.write(f"{safe(check.sentence())}\n")
    if found is not None:
        answer.write(f"\n{speedups_text(found)}")
    else:
        answer.writelines(f"note: {safe(note)}\n" for note in check.notes)
    answer.write("\n")
    for run_id, each in judged.items():
        answer.write(f"{run_id[:8]}  {safe(each.sentence())}\n")
        answer.writelines(f"          {row['flag']}: {safe(row['detail'])}\n" for row in records(each.flags))
    if moved is not None:
        answer.write(f"\n{frame_text(moved)}\n")
    return DONE


def _placement(settings: Settings, run_id: str) -> pd.DataFrame:
    """Its ops; none, aloud, where they cannot be read: a comparison says the rest all the same."""
    try:
        return results.placement(settings, run_id)
    except results.DamagedArtifactError as error:
        say(safe(str(error)))
        return pd.DataFrame()


def placement_diff(settings: Settings, run_id: str, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """What moved from the run of --against to this one, op by op with --ops."""
    other = results.find(settings, options.against)
    first, second = results.placement(settings, other), results.placement(settings, run_id)
    bare = [name for name, table in ((other, first), (run_id, second)) if table.empty]
    differences = diff(first.iloc[:0], second.iloc[:0]) if bare else diff(first, second)
    if options.json:
        document: dict[str, typing.Any] = {"run_id": run_id, "against": other, "moves": records(moves(differences))}
        if options.ops:
            document["ops"] = records(differences)
        print_json(document, answer)
    elif not bare:
        answer.write(f"from {other} to {run_id}\n\n")
        answer.write(frame_text(differences if options.ops else moves(differences), 60) + "\n")
    for name in bare:
        say(f"no placement is recorded for {name}: it is there once a run with log_device_placement=true has ended")
    return DONE


def report(settings: Settings, options: argparse.Namespace, answer: typing.TextIO) -> int:
    """One HTML file about a group. Drawn by the dashboard's own process: nothing here knows Plotly."""
    runs = questions.runs_of(settings, options.group_name)
    file = Path(options.output or REPORT_FILE).absolute()
    if file.is_dir():
        raise UsageError(f"--output {options.output!r} is a folder: name a file in it")
    if not file.parent.is_dir():
        raise UsageError(f"--output {options.output!r} is in no folder that is there: make the folder first")
    command = [sys.executable, "-m", "dashboard.report", f"--group={options.group_name}", f"--output={file}"]
    command += [f"--put-back={run_id}" for run_id in sorted(_put_back(settings, options))]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise UsageError(f"the report was not written: {last}")
    if options.json:
        print_json({"group": options.group_name, "file": str(file), "runs": len(runs)}, answer)
    else:
        answer.write(f"{safe(str(file))}\n")
    return DONE


COMMANDS: Mapping[str, Command] = {"speedup": speedup, "scaling": scaling, "compare": compare, "report": report}
