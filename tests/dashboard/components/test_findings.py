"""The doctor's findings and the data sets, as tables before they are drawn."""

from dashboard.components import findings
from experiments.doctor import Finding, Level
from training.datasets.availability import Availability

FOUND = [
    Finding("Disk", Level.OK, "41 GB free"),
    Finding("GPU", Level.WARNING, "no GPU", remedy="install the driver"),
    Finding("GPU", Level.PROBLEM, "driver too old", remedy="update it"),
    Finding("GPU", Level.OK, "NVML answers"),
]


def test_the_worst_comes_first() -> None:
    areas = findings.by_area(FOUND)

    assert list(areas) == ["GPU", "Disk"]
    assert [one.level for one in areas["GPU"]] == [Level.PROBLEM, Level.WARNING, Level.OK]


def test_the_headline_counts() -> None:
    assert findings.headline(FOUND) == "1 problem to mend, and 1 warning"
    assert findings.headline(FOUND[:2]) == "No problem, 1 warning"
    assert findings.headline(FOUND[:1]) == "Nothing is wrong here"


def test_data_sets_with_the_way_to_get_them() -> None:
    table = findings.dataset_table(
        {
            "mnist": Availability("mnist", False, "", "put mnist.npz there", False),
            "fashion_mnist": Availability("fashion_mnist", False, "", "wait", True),
            "digits": Availability("digits", True, "scikit-learn", "", False),
        }
    )

    assert table["state"].tolist() == ["✕ missing", "↓ downloaded at first use", "✓ here"]
    assert table["where"].tolist() == ["put mnist.npz there", "wait", "scikit-learn"]
    assert table["shape"].tolist() == ["28x28x1"] * 3
