"""The speedup table that pages, command line and files show: every configuration against one baseline."""

import pandas as pd

from experiments.analysis.comparable import BatchRule, Thing, cells, check, fields
from experiments.analysis.speedup import end_to_end_speedup, steady_speedup

SPEEDUP_COLUMNS = {
    "cell": "int64",
    "run_ids": "object",
    "refusal": "str",
    "differs": "str",
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "called": "str",
    "basis": "str",
    "end_to_end": "float64",
    "end_to_end_low": "float64",
    "end_to_end_high": "float64",
    "sentence": "str",
}
"""`run_ids` is a tuple of equal runs; `refusal` says which field is in the way, and then there is no number."""


def speedups(
    runs: pd.DataFrame,
    steady: pd.DataFrame,
    cost: pd.DataFrame,
    baseline: str,
    thing: Thing,
    rule: BatchRule = BatchRule.FIXED_GLOBAL,
) -> pd.DataFrame:
    """Speedup of every other configuration over that of a baseline run.

    Equal runs are taken together on both sides: the repeats of the baseline are found and used as well.

    Args:
        runs: rows of RUN_COLUMNS, those to be used (see `validity.included`).
        steady: frame of `timing.steady_states` for them.
        cost: frame of `speedup.costs` for them.
        baseline: a run of the baseline's configuration.
        thing: what the comparison is about.
        rule: for replicas and workers, which batch must agree.

    Returns:
        SPEEDUP_COLUMNS, one row for each other configuration in the order of `runs`; those that cannot be compared
        last, with the field in the way.

    Raises:
        KeyError: an unknown baseline.
    """
    numbers = cells(runs)
    if baseline not in numbers.index:
        raise KeyError(f"no run {baseline}")
    members = {int(cell): list(group.index) for cell, group in numbers.groupby(numbers, sort=False)}
    base = members.pop(int(numbers[baseline]))
    rows = []
    for cell, run_ids in members.items():
        verdict = check(runs, base[0], run_ids[0], thing, rule)
        row = {"cell": cell, "run_ids": tuple(run_ids), "differs": "; ".join(verdict.differs), "refusal": ""}
        if not verdict.possible:
            rows.append(row | {"refusal": "; ".join(verdict.in_the_way), "sentence": verdict.sentence()})
            continue
        found = steady_speedup(steady, base, run_ids)
        whole = end_to_end_speedup(cost, base, run_ids)
        rows.append(
            row
            | {"ratio": found.ratio, "low": found.low, "high": found.high, "called": str(found.called)}
            | {"basis": str(found.basis), "sentence": found.sentence()}
            | {"end_to_end": whole.ratio, "end_to_end_low": whole.low, "end_to_end_high": whole.high}
        )
    rows.sort(key=lambda row: bool(row["refusal"]))
    table = pd.DataFrame(rows, columns=list(SPEEDUP_COLUMNS))
    texts = [name for name, dtype in SPEEDUP_COLUMNS.items() if dtype == "str"]
    table[texts] = table[texts].fillna("")
    return table.astype(SPEEDUP_COLUMNS)


def configurations(runs: pd.DataFrame) -> pd.DataFrame:
    """What tells configurations apart, in few words: [cell, runs, label].

    The label holds only the fields in which the given runs differ, such as "device=gpu, replicas=2".
    """
    table = fields(runs)
    varying = [name for name in table if table[name].nunique() > 1]
    labels = [", ".join(f"{name}={row[name]}" for name in varying) for row in table.to_dict("records")]
    frame = pd.DataFrame({"cell": cells(runs).to_numpy(), "label": labels})
    grouped = frame.groupby("cell", sort=True)["label"].agg(["first", "size"]).reset_index()
    return grouped.rename(columns={"first": "label", "size": "runs"})[["cell", "runs", "label"]]
