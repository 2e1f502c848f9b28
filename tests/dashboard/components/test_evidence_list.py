"""The runs behind a figure: what is counted is named."""

from dashboard.components import evidence_list
from tests.experiments.analysis import frames


def test_what_the_steady_state_was_found_among_is_named() -> None:
    steady = frames.steady(windows=100.0, epochs=100.0, one=100.0, none=0.0)
    steady["basis"] = ["windows", "epochs", "windows", ""]
    steady["windows"] = [1_028, 3, 28, 0]
    steady["warmup_windows"] = [12, 1, 1, 0]

    assert evidence_list.in_its_unit(steady, "windows") == ["1,028 windows", "3 epochs", "28 windows", "–"]
    assert evidence_list.in_its_unit(steady, "warmup_windows") == ["12 windows", "1 epoch", "1 window", "–"]
