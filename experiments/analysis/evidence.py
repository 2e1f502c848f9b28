"""Runs with what was measured in them, brought together once for every table and curve: timing, costs, flags."""

from dataclasses import dataclass

import pandas as pd

from experiments.analysis.speedup import costs
from experiments.analysis.timing import steady_states
from experiments.analysis.validity import flags, included

LEFT_OUT_COLUMNS = {"run_id": "str", "name": "str", "flag": "str", "detail": "str", "can_be_put_back": "bool"}


@dataclass(frozen=True)
class Evidence:
    """What is known of some runs.

    Attributes:
        runs: rows of RUN_COLUMNS, all that were asked for.
        history: long frame [run_id, metric, step, value, timestamp] of these runs.
        steady: frame of `timing.steady_states`.
        cost: frame of `speedup.costs`.
        flags: frame of `validity.flags`.
        used: bool series indexed by run_id: which runs may stand in a figure.
    """

    runs: pd.DataFrame
    history: pd.DataFrame
    steady: pd.DataFrame
    cost: pd.DataFrame
    flags: pd.DataFrame
    used: pd.Series

    @property
    def used_runs(self) -> pd.DataFrame:
        """Rows of the runs that may stand in a figure."""
        return self.runs[self.used.loc[self.runs["run_id"]].to_numpy()].reset_index(drop=True)

    def left_out(self) -> pd.DataFrame:
        """The runs that stay out of figures, one row for each excluding flag: LEFT_OUT_COLUMNS."""
        out = self.used.index[~self.used]
        rows = self.flags[self.flags["excludes"] & self.flags["run_id"].isin(out)]
        without_number = set(self.flags.loc[self.flags["flag"] == "no_steady_state", "run_id"])
        names = self.runs.set_index("run_id")["name"]
        table = pd.DataFrame(
            {
                "run_id": rows["run_id"],
                "name": rows["run_id"].map(names),
                "flag": rows["flag"],
                "detail": rows["detail"],
                "can_be_put_back": ~rows["run_id"].isin(without_number),
            }
        )
        return table.astype(LEFT_OUT_COLUMNS).reset_index(drop=True)


def gather(runs: pd.DataFrame, history: pd.DataFrame, put_back: frozenset[str] = frozenset()) -> Evidence:
    """Times every run, weighs it, and decides which may stand in a figure.

    Args:
        runs: rows of RUN_COLUMNS, newest first.
        history: long frame [run_id, metric, step, value, timestamp] of these runs; what lacks was not recorded.
        put_back: doubtful runs that a person puts back by hand.
    """
    steady = steady_states(runs, history)
    flagged = flags(runs, steady, history)
    return Evidence(runs, history, steady, costs(runs, steady), flagged, included(runs, flagged, put_back))
