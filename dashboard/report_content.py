"""What a report about a group says: everything from one reading of the group's runs, as plain tables and texts."""

import json
import shlex
import typing
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from dashboard.components import spec_values
from dashboard.figures import batch
from dashboard.figures import scaling as scaling_figures
from dashboard.figures import speedup as speedup_figures
from experiments import plan_runs, questions, results
from experiments.analysis import batch_curve, curve, tables
from experiments.analysis.comparable import BatchRule, Thing, fields
from experiments.analysis.evidence import Evidence
from experiments.analysis.scaling import begun
from experiments.analysis_text import RULES, batch_table, fit_lines, left_out_table, points_table, speedups_table
from experiments.settings import Settings
from training.spec import SpecError

COMMAND = "python -m experiments"
ENVIRONMENT = ("host", "cpu_model", "cpu_count", "gpu_model", "tensorflow", "keras", "devices_seen")


@dataclass(frozen=True)
class Section:
    """One comparison or curve.

    Attributes:
        heading: what was measured, in words.
        title: the finding in a sentence.
        figures: drawings of it; none where nothing can be drawn.
        tables: the figures behind it.
        lines: what else is to be said, refusals included.
        command: the command that prints the same.
    """

    heading: str
    title: str
    figures: tuple[go.Figure, ...]
    tables: tuple[pd.DataFrame, ...]
    lines: tuple[str, ...]
    command: str


@dataclass(frozen=True)
class Content:
    """A report about one group. Texts are as people typed them: whoever draws them escapes them."""

    group: str
    common: pd.DataFrame
    runs: pd.DataFrame
    verdicts: pd.DataFrame
    speedups: tuple[Section, ...]
    scaling: tuple[Section, ...]
    doubtful: pd.DataFrame
    unchecked: pd.DataFrame
    environments: pd.DataFrame
    details: tuple[tuple[str, str], ...]
    commands: pd.DataFrame


def content(settings: Settings, group: str, put_back: frozenset[str] = frozenset()) -> Content:
    """Reads a group and asks everything that can be asked of it.

    Args:
        settings: where runs are recorded.
        group: the group's name, as typed.
        put_back: doubtful runs that are used all the same.

    Raises:
        UnknownGroupError: no run is in the group.
    """
    runs = questions.runs_of(settings, group)
    evidence = questions.of(settings, runs, runs["run_id"], put_back)
    judged = _judged(settings, list(runs["run_id"]))
    table = fields(runs)
    alike = [name for name in table if table[name].nunique() == 1]
    environments, details = _environments(settings, runs)
    again = [f"--group={shlex.quote(group)}", *(f"--put-back={run_id}" for run_id in sorted(put_back))]
    return Content(
        group=group,
        common=pd.DataFrame({"field": alike, "value": [table[name].iloc[0] for name in alike]}),
        runs=_runs(evidence),
        verdicts=_verdicts(judged),
        speedups=(*_speedups(evidence, again), *_batches(evidence, again)),
        scaling=tuple(_curves(evidence, again)),
        doubtful=_doubtful(evidence),
        unchecked=_unchecked(judged),
        environments=environments,
        details=details,
        commands=_commands(settings, runs),
    )


def _judged(settings: Settings, run_ids: list[str]) -> dict[str, questions.Judgement]:
    """What may be said of each run, as its page says it: against comparable runs, whatever their group."""
    everything, histories = questions.runs_of(settings), questions.Histories(settings)
    return {run_id: questions.judgement(settings, run_id, everything, histories.of) for run_id in run_ids}


def _verdicts(judged: dict[str, questions.Judgement]) -> pd.DataFrame:
    rows = [(run_id[:8], each.sentence()) for run_id, each in judged.items() if each.verdict is not None]
    return pd.DataFrame(rows, columns=["run", "where the time went"])


def _unchecked(judged: dict[str, questions.Judgement]) -> pd.DataFrame:
    """What could have disturbed runs and was not recorded, each once with its runs."""
    found: dict[str, list[str]] = {}
    for run_id, each in judged.items():
        for what in each.unchecked:
            found.setdefault(what, []).append(run_id[:8])
    rows = [(what, "all" if len(ids) == len(judged) else ", ".join(ids)) for what, ids in found.items()]
    return pd.DataFrame(rows, columns=["not recorded, so not checked", "runs"])


def _runs(evidence: Evidence) -> pd.DataFrame:
    runs, steady = evidence.runs, evidence.steady
    return pd.DataFrame(
        {
            "run": runs["run_id"].str[:8],
            "name": runs["name"],
            "status": runs["status"],
            "what differs": tables.labels_of(runs).to_numpy(),
            "epochs": runs["epochs"].astype("str").replace("<NA>", ""),
            "examples/s": [f"{value:,.0f}" if value == value else "" for value in steady["throughput"]],
            "remarks": [
                " ".join(filter(None, texts)) for texts in zip(runs["reason"], steady["reason"].fillna(""), strict=True)
            ],
        }
    )


def _doubtful(evidence: Evidence) -> pd.DataFrame:
    flags, used = evidence.flags, evidence.used
    effects = [
        "informs only" if not excludes else "put back by hand" if used[run_id] else "left out of the figures"
        for run_id, excludes in zip(flags["run_id"], flags["excludes"], strict=True)
    ]
    return pd.DataFrame(
        {
            "run": flags["run_id"].str[:8],
            "flag": flags["flag"].str.replace("_", " "),
            "why": flags["detail"],
            "effect": effects,
        }
    )


def _speedups(evidence: Evidence, again: list[str]) -> typing.Iterator[Section]:
    names = {rule: name for name, rule in RULES.items()}
    for row in tables.suggestions(evidence.runs).to_dict("records"):
        thing, rule = Thing(row["thing"]), BatchRule(row["rule"])
        found = tables.speedups(evidence, row["baseline"], thing, rule)
        drawn = len(speedup_figures.drawn(found.table)) > 0
        claim = plan_runs.claimed(found, evidence.runs)
        figure = speedup_figures.speedup_figure(found.table, found.title, found.baseline, claim) if drawn else None
        command = [COMMAND, "speedup", f"--baseline={row['baseline']}", f"--by={shlex.quote(str(thing))}"]
        yield Section(
            heading=f"By {tables.about(thing, rule)}: {row['label']}",
            title=found.title,
            figures=(figure,) if figure is not None else (),
            tables=tuple(each for each in (speedups_table(found), left_out_table(found.left_out)) if len(each)),
            lines=tuple(filter(None, [speedup_figures.notice(found.table), *found.notes])),
            command=" ".join([*command, f"--rule={names[rule]}", *again]),
        )


def _batches(evidence: Evidence, again: list[str]) -> typing.Iterator[Section]:
    for members in batch_curve.sets(evidence.runs):
        found = batch_curve.read(evidence, members)
        if found.points.empty:
            continue
        thing = shlex.quote(str(Thing.BATCH))
        yield Section(
            heading=f"Batch size against throughput: {', '.join(found.points['curve'].unique())}",
            title=found.title,
            figures=(batch.batch_figure(found),),
            tables=(batch_table(found),),
            lines=found.sentences,
            command=" ".join([COMMAND, "speedup", f"--baseline={found.run_ids[0]}", f"--by={thing}", *again]),
        )


def _curves(evidence: Evidence, again: list[str]) -> typing.Iterator[Section]:
    everything = begun(evidence.runs)
    for key in everything["key"].unique():
        found = curve.read(evidence, key)
        figures: tuple[go.Figure, ...] = ()
        if len(found.points):
            dots = scaling_figures.run_table(found.drawn, evidence.steady)
            figures = (
                scaling_figures.throughput_figure(found, dots),
                scaling_figures.efficiency_figure(found, curve.EFFICIENCY),
            )
        lines = fit_lines(found)
        if found.worth is not None:
            lines.append(f"worth using: {found.worth.sentence(curve.EFFICIENCY, str(found.axis))}")
        yield Section(
            heading=f"{found.label}, {found.scaling}",
            title=found.title,
            figures=figures,
            tables=tuple(each for each in (points_table(found), left_out_table(found.left_out)) if len(each)),
            lines=tuple(lines),
            command=" ".join([COMMAND, "scaling", f"--curve={key}", *again]),
        )


def _environments(settings: Settings, runs: pd.DataFrame) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """Where the runs ran, each place once, and everything recorded of the newest run at each."""
    table = runs[["run_id", *ENVIRONMENT]].astype("str").replace("<NA>", "")
    grouped = table.groupby(list(ENVIRONMENT), sort=False)
    counted = grouped.agg(runs=("run_id", "size"), newest=("run_id", "first")).reset_index()
    details = []
    for run_id in counted["newest"]:
        recorded = results.environment(settings, run_id)
        if recorded:
            details.append((run_id[:8], json.dumps(recorded, indent=2, ensure_ascii=False, sort_keys=True)))
    shown = counted.drop(columns="newest").rename(columns=lambda name: str(name).replace("_", " "))
    return shown, tuple(details)


def _commands(settings: Settings, runs: pd.DataFrame) -> pd.DataFrame:
    """The command that starts each run again, equal ones once."""
    rows = []
    for run_id in runs["run_id"]:
        try:
            rows.append(spec_values.command(results.spec(settings, run_id)))
        except (results.UnknownRun, SpecError) as error:
            rows.append(str(error))
    counted = pd.DataFrame({"command": rows}).groupby("command", sort=False).size().rename("runs").reset_index()
    return counted[["runs", "command"]]
