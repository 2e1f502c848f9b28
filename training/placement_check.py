"""What a run asked for against where its ops were placed. Imports no TensorFlow."""

from collections.abc import Mapping

import pandas as pd

FORWARD = "forward"
GRADIENT = "gradient"

ASKED_COLUMNS = ("layer", "part", "asked", "actual", "ops")


def asked_against_actual(placement_table: pd.DataFrame, mapping: Mapping[str, str]) -> pd.DataFrame:
    """Compares a manual placement with the placement table of the run.

    Args:
        placement_table: columns `names.PLACEMENT_COLUMNS`.
        mapping: layer name -> device as the run asked for it, such as `/CPU:1`.

    Returns:
        Columns `ASKED_COLUMNS`, in the mapping's order: a row per layer, part (`forward`; `gradient`, which `tf.device`
        does not cover) and device on which ops of that layer were placed. `ops` counts distinct ops. A layer without
        any op in the table has one row with `actual` empty and no ops.
    """
    compute = placement_table[placement_table["role"] == "compute"]
    rows: list[tuple[str, str, str, str, int]] = []
    for layer, device in mapping.items():
        asked = device.lstrip("/")
        own = compute[compute["layer"] == layer]
        backward = own["name"].str.contains("gradient_tape/", regex=False)
        for part, ops in ((FORWARD, own[~backward]), (GRADIENT, own[backward])):
            rows += [(layer, part, asked, str(actual), len(placed)) for actual, placed in ops.groupby("device")]
        if own.empty:
            rows.append((layer, FORWARD, asked, "", 0))
    frame = pd.DataFrame(rows, columns=list(ASKED_COLUMNS))
    return frame.astype({column: "int64" if column == "ops" else "str" for column in ASKED_COLUMNS})
