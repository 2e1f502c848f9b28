"""The choice of a group of runs, which stands in the address."""

from collections.abc import Iterable

import pandas as pd

from dashboard.components import address


def choose(runs: pd.DataFrame, key: str, drops: Iterable[str]) -> pd.DataFrame:
    """Draws the choice where there are groups, and returns the runs of the chosen one; all when none is.

    Args:
        runs: rows of RUN_COLUMNS.
        key: the widget's.
        drops: parts of the address that mean nothing in another group.
    """
    groups = sorted({name for name in runs["group"] if name})
    if not groups:
        return runs
    group = address.select("Group", groups, "group", key, optional="every group", drops=drops, width=220)
    return runs[runs["group"] == group].reset_index(drop=True) if group else runs
