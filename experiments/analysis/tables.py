"""The speedup table that pages, command line and files show: every configuration against one baseline."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from experiments.analysis.baselines import matching, naturalness, row_of
from experiments.analysis.comparable import (
    FIELDS,
    QUESTIONS,
    BatchRule,
    Thing,
    cells,
    check,
    fields,
    may_differ,
    notes_of,
    numbered,
    own,
)
from experiments.analysis.evidence import Evidence
from experiments.analysis.field_words import in_words
from experiments.analysis.intervals import corrected
from experiments.analysis.speedup import Called, break_even, end_to_end_speedup, steady_speedup

SPEEDUP_COLUMNS = {
    "cell": "int64",
    "label": "str",
    "run_ids": "object",
    "runs": "int64",
    "throughput": "float64",
    "differs": "str",
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "called": "str",
    "basis": "str",
    "sentence": "str",
    "end_to_end": "float64",
    "end_to_end_low": "float64",
    "end_to_end_high": "float64",
    "end_to_end_sentence": "str",
    "break_even_epochs": "float64",
    "break_even_low": "float64",
    "break_even_high": "float64",
    "break_even": "str",
}
"""`run_ids` is a tuple of equal runs. `throughput` is their geometric mean in examples per second. `break_even_low`
and `break_even_high` are in epochs, before rounding."""


@dataclass(frozen=True)
class Speedups:
    """Configurations against one baseline.

    Attributes:
        baseline: label of the baseline's configuration.
        baseline_run_ids: its runs that are used.
        baseline_throughput: examples per second, the geometric mean of these runs.
        thing, rule: what is compared, and which batch must agree.
        table: SPEEDUP_COLUMNS, the fastest first.
        left_out: frame of `Evidence.left_out`.
        title: the finding in one sentence.
        notes: what does not forbid the comparison and should be known.
    """

    baseline: str
    baseline_run_ids: tuple[str, ...]
    baseline_throughput: float
    thing: Thing
    rule: BatchRule
    table: pd.DataFrame
    left_out: pd.DataFrame
    title: str
    notes: tuple[str, ...] = ()


def to_compare(runs: pd.DataFrame, baseline: str, thing: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL) -> list[str]:
    """The runs that a comparison with a baseline is made of: the baseline, its repeats, and all that match it.

    Raises:
        KeyError: an unknown baseline.
    """
    table = fields(runs)
    chosen = row_of(table, baseline)
    wanted = _repeats(table, baseline) | matching(table, chosen, thing, rule)
    return [str(run_id) for run_id in table.index[wanted]]


def _repeats(table: pd.DataFrame, run_id: str) -> pd.Series:
    """Which runs agree with one in all fields, itself among them; `table` is a frame of `fields`."""
    numbers = numbered(table)
    found: pd.Series = numbers == numbers[run_id]
    return found


def speedups(evidence: Evidence, baseline: str, thing: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL) -> Speedups:
    """Speedup of every other configuration over that of a baseline run.

    Equal runs are taken together on both sides: the repeats of the baseline are found and used as well, also when
    the named baseline run itself is left out.

    Args:
        evidence: of the runs of `to_compare`; runs that do not match are passed over.
        baseline: a run of the baseline's configuration.
        thing: what the comparison is about.
        rule: for replicas and workers, which batch must agree.

    Raises:
        KeyError: an unknown baseline.
    """
    everything = evidence.runs[evidence.runs["run_id"].isin(to_compare(evidence.runs, baseline, thing, rule))]
    labels = labels_of(everything)
    numbers = cells(everything)
    used = [run_id for run_id in everything["run_id"] if evidence.used[run_id]]
    base = [run_id for run_id in used if numbers[run_id] == numbers[baseline]]
    steady, rows = evidence.steady, []
    for cell in dict.fromkeys(int(numbers[run_id]) for run_id in used):
        run_ids = [run_id for run_id in used if numbers[run_id] == cell]
        if cell == numbers[baseline]:
            continue
        found = steady_speedup(steady, base, run_ids)
        whole = end_to_end_speedup(evidence.cost, base, run_ids)
        paid = break_even(evidence.cost, base, run_ids)
        differs = check(everything, baseline, run_ids[0], thing, rule).differs
        row = {"cell": cell, "label": labels[run_ids[0]], "run_ids": tuple(run_ids), "runs": len(run_ids)}
        row |= {"throughput": _mean_throughput(steady, run_ids), "differs": "; ".join(differs)}
        row |= {"ratio": found.ratio, "low": found.low, "high": found.high, "called": str(found.called)}
        row |= {"basis": str(found.basis), "sentence": found.sentence(), "end_to_end": whole.ratio}
        row |= {"end_to_end_low": whole.low, "end_to_end_high": whole.high, "end_to_end_sentence": whole.sentence()}
        row |= {"break_even_epochs": paid.epochs, "break_even_low": paid.low, "break_even_high": paid.high}
        row |= {"break_even": paid.sentence()}
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(SPEEDUP_COLUMNS)).astype(SPEEDUP_COLUMNS)
    table = table.sort_values("ratio", ascending=False, kind="stable", ignore_index=True)
    left_out = evidence.left_out()
    left_out = left_out[left_out["run_id"].isin(everything["run_id"])].reset_index(drop=True)
    return Speedups(
        baseline=labels[baseline],
        baseline_run_ids=tuple(base),
        baseline_throughput=_mean_throughput(steady, base),
        thing=thing,
        rule=rule,
        table=table,
        left_out=left_out,
        title=title(table, labels[baseline], base, steady),
        notes=notes_of(everything.set_index("run_id", drop=False).loc[[*base, *(i for i in used if i not in base)]]),
    )


def _mean_throughput(steady: pd.DataFrame, run_ids: Iterable[str]) -> float:
    speeds = steady.loc[steady["run_id"].isin(list(run_ids)) & steady["steady"], "throughput"]
    return math.exp(sum(map(math.log, speeds)) / len(speeds)) if len(speeds) else math.nan


def title(table: pd.DataFrame, baseline: str, base: list[str], steady: pd.DataFrame) -> str:
    """The finding: the fastest configuration, by what the intervals allow to say.

    Who names the fastest of many picks by their noise, too: with eight equal configurations one is called faster in
    every tenth table. The title's own interval therefore holds for all comparisons together
    (`intervals.corrected`); the table's rows answer one question each and keep theirs. That everything is slower needs
    no correction, as each single comparison has to say so. Source: R. L. Berger, "Multiparameter hypothesis testing
    and acceptance sampling", Technometrics 24 (1982).
    """
    if not base:
        return f"No run of the baseline ({baseline}) can be used"
    if table.empty:
        return "Nothing to compare with the baseline yet"
    called = table[table["called"] != Called.UNKNOWN]
    for row in called[called["called"] == Called.FASTER].to_dict("records"):
        sure = steady_speedup(steady, base, row["run_ids"], corrected(len(called)))
        if sure.called is Called.FASTER:
            return f"{row['label']} is {sure.sentence().partition(',')[0]} as fast as {baseline}{_allowance(called)}"
    best = table.iloc[0]
    if best["called"] == Called.UNKNOWN:
        return f"{best['label']} ran at {best['ratio']:.2f}x of {baseline}: too few runs to call it a difference"
    if (table["called"] == Called.SLOWER).all():
        return f"{baseline} is the fastest: everything else is slower"
    return f"No configuration is surely faster than {baseline}{_allowance(called)}"


def _allowance(called: pd.DataFrame) -> str:
    """Says why the title's interval is wider than the row's, and may claim less."""
    return f", {len(called)} comparisons allowed for" if len(called) > 1 else ""


def labels_of(runs: pd.DataFrame) -> pd.Series:
    """What tells runs apart, in few words, indexed by run_id.

    Only the fields in which the given runs differ, such as "device=gpu, replicas=2"; the replicas' number and the
    strategy go together, and so do the two batch sizes, so only the first that tells is named.
    """
    table = fields(runs)
    varying = [str(name) for name in table if table[name].nunique() > 1]
    told = [name for position, name in enumerate(varying) if not _told(table, name, varying[:position])]
    texts = [", ".join(in_words(name, str(row[name])) for name in told) for row in table.to_dict("records")]
    return pd.Series(texts, index=table.index, dtype="str").replace("", "all runs alike")


def _told(table: pd.DataFrame, name: str, before: list[str]) -> bool:
    """Whether the fields named before already tell this one: each of their combinations has one value of it."""
    return bool(before) and bool((table.groupby(before, sort=False)[name].nunique() == 1).all())


_THINGS = {
    Thing.DEVICE: "device",
    Thing.REPLICAS: "number of replicas",
    Thing.WORKERS: "number of workers",
    Thing.STRATEGY: "strategy",
    Thing.PRECISION: "precision",
    Thing.XLA: "XLA",
    Thing.STEPS_PER_EXECUTION: "steps per execution",
    Thing.BATCH: "batch size",
    Thing.DETERMINISM: "deterministic ops",
    Thing.VERSIONS: "versions",
    Thing.CPU_THREADS: "CPU threads",
    Thing.DATA_OPTIONS: "data set options",
    Thing.MACHINE: "machine",
    Thing.PLACEMENT: "layers placed by hand",
}


def about(thing: Thing, rule: BatchRule) -> str:
    """What a comparison is about, the batch's rule included where it decides."""
    named = _THINGS[thing]
    return f"{named}, at a {rule}" if thing in (Thing.REPLICAS, Thing.WORKERS) else named


SUGGESTION_COLUMNS = {
    "thing": "str",
    "rule": "str",
    "baseline": "str",
    "label": "str",
    "configurations": "int64",
    "runs": "int64",
    "run_ids": "object",
}
"""`run_ids` is the tuple of the finished runs of the set, newest first."""


def suggestions(runs: pd.DataFrame) -> pd.DataFrame:
    """What can be compared among some runs.

    Args:
        runs: rows of RUN_COLUMNS, newest first; those that have not finished are passed over.

    Returns:
        SUGGESTION_COLUMNS, one row for each thing and set of runs that differ in nothing else, the one with the newest
        run first; `baseline` is the natural baseline's run, `label` what all of the set have in common.
    """
    table = fields(runs[runs["status"] == "FINISHED"])
    order = {run_id: position for position, run_id in enumerate(table.index)}
    rows = []
    for thing, rule in QUESTIONS:
        sets = numbered(table, ignoring=may_differ(thing, rule))
        # Most runs of a team stand alone: only a set that differs in the thing itself is looked at closer.
        values = numbered(table, ignoring=set(FIELDS) - set(own(thing)))
        sets = sets[values.groupby(sets).transform("nunique") > 1]
        for run_ids in sets.groupby(sets, sort=False).groups.values():
            group = table.loc[run_ids]
            baseline = _natural(group, thing)
            rows.append(_suggestion(group, thing, rule, baseline) | {"newest": order[group.index[0]]})
    found = pd.DataFrame(rows, columns=[*SUGGESTION_COLUMNS, "newest"])
    found = found.sort_values(["newest"], kind="stable", ignore_index=True)
    return found[list(SUGGESTION_COLUMNS)].astype(SUGGESTION_COLUMNS)


def _suggestion(table: pd.DataFrame, thing: Thing, rule: BatchRule, baseline: str) -> dict:
    """A row of `suggestions` for the runs of a frame of `fields`."""
    return {
        "thing": str(thing),
        "rule": str(rule),
        "baseline": baseline,
        "label": _common(table, thing),
        "configurations": int(numbered(table).nunique()),
        "runs": len(table),
        "run_ids": tuple(table.index),
    }


def suggestions_for(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """By what one run may be compared with others, that run being the baseline.

    Args:
        runs: rows of RUN_COLUMNS; others that have not finished are passed over.
        baseline: a run among them.

    Returns:
        SUGGESTION_COLUMNS, one row for each thing and rule by which another run matches.

    Raises:
        KeyError: an unknown baseline.
    """
    table = fields(runs[(runs["status"] == "FINISHED") | (runs["run_id"] == baseline)])
    chosen, repeats = row_of(table, baseline), _repeats(table, baseline)
    rows = []
    for thing, rule in QUESTIONS:
        others = matching(table, chosen, thing, rule)
        if others.any():
            rows.append(_suggestion(table[others | repeats], thing, rule, baseline))
    return pd.DataFrame(rows, columns=list(SUGGESTION_COLUMNS)).astype(SUGGESTION_COLUMNS)


def _natural(table: pd.DataFrame, thing: Thing) -> str:
    """The most natural baseline of a set: the plain one or the smallest, and of those alike the most measured."""
    order = pd.DataFrame({"natural": naturalness(table, thing).to_numpy(), "run_id": table.index})
    alike = numbered(table)
    order["repeats"] = alike.map(alike.value_counts()).to_numpy()
    order = order.sort_values(["natural", "repeats"], ascending=[True, False], kind="stable")
    return str(order["run_id"].iloc[0])


def _common(group: pd.DataFrame, thing: Thing) -> str:
    first = group.iloc[0]
    shown = [f"{first['workload']} on {first['dataset']}"]
    if group["device"].nunique() == 1:
        shown.append(str(first["device"]))
    if group["global_batch_size"].nunique() == 1:
        shown.append(f"batch {first['global_batch_size']}")
    return ", ".join(shown)
