"""Two runs beside each other: what they compare by, which field is in the way, and which other runs come nearest."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from experiments.analysis.baselines import matching, naturalness, row_of
from experiments.analysis.comparable import (
    FIELDS,
    QUESTIONS,
    BatchRule,
    Check,
    Questions,
    Thing,
    cells,
    checks,
    fields,
    may_differ,
    numbered,
    own,
)

MOST_NEAREST = 3
SAME = "all fields are the same in both runs, so there is nothing to compare"


@dataclass(frozen=True)
class Pair:
    """Two runs and what may be said of them.

    Attributes:
        baseline, candidate: run ids.
        thing, rule: what they are compared by; where they cannot be, what they come nearest to.
        check: whether they may be compared, what differs, and what is in the way.
    """

    baseline: str
    candidate: str
    thing: Thing
    rule: BatchRule
    check: Check


def pair(runs: pd.DataFrame, baseline: str, candidate: str, questions: Questions = QUESTIONS) -> Pair:
    """What two runs may be compared by, found by looking: the first question that fits.

    Args:
        runs: rows of RUN_COLUMNS.
        baseline, candidate: run ids.
        questions: what may be asked.

    Returns:
        Where nothing fits, the question with the fewest fields in the way.

    Raises:
        KeyError: an unknown run.
    """
    answers = checks(runs, baseline, candidate, questions)
    if cells(runs[runs["run_id"].isin([baseline, candidate])]).nunique() == 1:
        return Pair(baseline, candidate, *questions[0], Check(False, (SAME,), ()))
    tried = [Pair(baseline, candidate, *each, answer) for each, answer in zip(questions, answers, strict=True)]
    return min(tried, key=lambda each: (not each.check.possible, len(each.check.in_the_way)))


def repeats(runs: pd.DataFrame, baseline: str, candidate: str) -> list[str]:
    """The two runs with all that repeat one of them, in the order of `runs`.

    Raises:
        KeyError: an unknown run.
    """
    numbers = cells(runs)
    return numbers.index[numbers.isin([numbers[baseline], numbers[candidate]])].tolist()


def others(runs: pd.DataFrame, run_id: str, questions: Questions = QUESTIONS) -> pd.DataFrame:
    """Every other configuration beside one run, those with the fewest fields in the way first.

    Args:
        runs: rows of RUN_COLUMNS, newest first.
        run_id: the run.
        questions: what may be asked.

    Returns:
        [run_ids, in_the_way, differs], of those alike the newest first: `run_ids` is the tuple of equal runs,
        `in_the_way` how many fields forbid the nearest question, `differs` maps the fields that differ to their
        values.

    Raises:
        KeyError: an unknown run.
    """
    table = fields(runs)
    chosen = row_of(table, run_id)
    alike: dict[int, list[str]] = {}
    for other, number in numbered(table).items():
        alike.setdefault(number, []).append(str(other))
    rows = []
    for run_ids in alike.values():
        one = table.loc[run_ids[0]]
        differs = {name: str(one[name]) for name in FIELDS if one[name] != chosen[name]}
        if differs:
            rows.append({"run_ids": tuple(run_ids), "in_the_way": _distance(differs, questions), "differs": differs})
    found = pd.DataFrame(rows, columns=["run_ids", "in_the_way", "differs"])
    return found.sort_values("in_the_way", kind="stable", ignore_index=True)


def _distance(differs: Iterable[str], questions: Questions) -> int:
    """How many fields forbid the nearest question; that the thing itself is the same counts as one."""
    names = set(differs)
    return min(len(names - may_differ(*each)) + names.isdisjoint(own(each[0])) for each in questions)


def nearest(runs: pd.DataFrame, run_id: str, questions: Questions = QUESTIONS, most: int = MOST_NEAREST) -> list[Pair]:
    """The configurations that come nearest to a comparison with one run, which is the baseline: a run of each.

    Raises:
        KeyError: an unknown run.
    """
    return [pair(runs, run_id, each[0], questions) for each in others(runs, run_id, questions)["run_ids"].head(most)]


def natural(runs: pd.DataFrame, run_id: str) -> tuple[str, str]:
    """One run with its natural baseline.

    Args:
        runs: rows of RUN_COLUMNS, newest first.
        run_id: the run.

    Returns:
        Baseline and candidate. The candidate is empty where no run is a more natural baseline than the run itself, or
        where none matches it: it is then the baseline of all that match.

    Raises:
        KeyError: an unknown run.
    """
    table = fields(runs)
    chosen = row_of(table, run_id)
    for thing, rule in QUESTIONS:
        order = naturalness(table, thing)
        better = order[matching(table, chosen, thing, rule) & (order < order[run_id])]
        if len(better):
            return str(better.idxmin()), run_id
    return run_id, ""


def ordered(runs: pd.DataFrame) -> tuple[str, str]:
    """Two runs as baseline and candidate: the more natural baseline first, else the older one.

    Args:
        runs: two rows of RUN_COLUMNS, the newer first.
    """
    newer, older = runs["run_id"]
    return natural(runs, older) if natural(runs, older)[1] else (older, newer)
