"""Which runs a chosen run may be compared with, and which of them is the natural baseline."""

import pandas as pd

from experiments.analysis.comparable import FIELDS, BatchRule, NotThereError, Thing, fields, may_differ, own

_PLAIN = {
    Thing.DEVICE: ("device", "cpu"),
    Thing.STRATEGY: ("strategy", "one_device"),
    Thing.PRECISION: ("precision", "float32"),
    Thing.XLA: ("jit_compile", "false"),
    Thing.DETERMINISM: ("deterministic", "false"),
    Thing.PLACEMENT: ("manual_placement", "none"),
}
_COUNTED = {
    Thing.REPLICAS: "replicas",
    Thing.WORKERS: "workers",
    Thing.BATCH: "global_batch_size",
    Thing.STEPS_PER_EXECUTION: "steps_per_execution",
    Thing.CPU_THREADS: "cpu_threads",
}


def naturalness(table: pd.DataFrame, thing: Thing) -> pd.Series:
    """How natural each run is as a baseline; the least is the most natural.

    It is the plain one where a thing has one (the CPU, float32, no XLA, ...), else the smallest number.

    Args:
        table: frame of `fields`.
        thing: what the comparison is about.
    """
    if thing in _PLAIN:
        name, plain = _PLAIN[thing]
        return (table[name] != plain).astype(float)
    if thing in _COUNTED:
        return pd.to_numeric(table[_COUNTED[thing]], errors="coerce").fillna(float("inf")).astype(float)
    return pd.Series(0.0, index=table.index)


def row_of(table: pd.DataFrame, run_id: str) -> pd.Series:
    """The fields of one run.

    Args:
        table: frame of `fields`.
        run_id: the run.

    Raises:
        KeyError: an unknown run.
    """
    if run_id not in table.index:
        raise NotThereError(f"no run {run_id}")
    found = table.xs(run_id)
    assert isinstance(found, pd.Series)  # a run id is there once
    return found


def matching(table: pd.DataFrame, chosen: pd.Series, thing: Thing, rule: BatchRule) -> pd.Series:
    """Which runs may be compared with a chosen one by one thing.

    Args:
        table: frame of `fields`.
        chosen: the fields of the chosen run.
        thing: what the comparison is about.
        rule: for replicas and workers, which batch must agree.
    """
    unequal = table != chosen
    in_the_way = unequal[[name for name in FIELDS if name not in may_differ(thing, rule)]]
    found: pd.Series = ~in_the_way.any(axis=1) & unequal[list(own(thing))].any(axis=1)
    return found


def baselines(runs: pd.DataFrame, run_id: str, *things: Thing, rule: BatchRule = BatchRule.FIXED_GLOBAL) -> list[str]:
    """The runs that a chosen run may be compared with by any of some things, in the order of `runs`.

    Args:
        runs: rows of RUN_COLUMNS.
        run_id: the chosen run.
        things: what the comparisons are about.
        rule: for replicas and workers, which batch must agree.

    Raises:
        KeyError: an unknown run.
    """
    table = fields(runs)
    chosen = row_of(table, run_id)
    found = pd.concat([matching(table, chosen, thing, rule) for thing in things], axis=1).any(axis=1)
    return [str(other) for other in table.index[found]]
