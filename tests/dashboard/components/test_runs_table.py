"""The table of runs before it is drawn."""

import pandas as pd

from dashboard.components import runs_table
from experiments.results.columns import RUN_COLUMNS, frame


def runs(*rows: dict[str, object]) -> pd.DataFrame:
    missing = {"str": "", "bool": False, "int64": 0}
    empty = {name: missing.get(kind) for name, kind in RUN_COLUMNS.items()}
    return frame([empty | {"status": "FINISHED"} | row for row in rows])


def test_no_run_is_an_empty_table_with_all_columns() -> None:
    shown = runs_table.table(runs())

    assert list(shown.columns) == list(runs_table.SHOWN)
    assert shown.empty
    assert set(runs_table.SHOWN) == set(runs_table.column_config(None))


def test_simulated_devices_are_marked() -> None:
    shown = runs_table.table(
        runs({"device": "cpu"}, {"device": "cpu", "simulated": True, "logical_devices": 4}, {"device": "tpu"})
    )

    assert shown["device"].tolist() == ["CPU", "CPU (4 simulated)", "tpu"]


def test_filters_are_plain_texts_and_go_together() -> None:
    table = runs(
        {"name": "a.b", "status": "FAILED", "group": "g"},
        {"name": "axb", "status": "FAILED"},
        {"name": "A.B", "user": "mei"},
    )

    def names(statuses: list[str], text: str, group: str | None) -> list[str]:
        return runs_table.filtered(table, statuses, text, group)["name"].tolist()

    assert names([], "", None) == ["a.b", "axb", "A.B"]
    assert names([], "a.b", None) == ["a.b", "A.B"]  # a dot is a dot, and case does not matter
    assert names(["Failed"], " a.b ", None) == ["a.b"]
    assert names([], "MEI", None) == ["A.B"]
    assert names([], "", "g") == ["a.b"]
    assert names([], "[(", None) == []
