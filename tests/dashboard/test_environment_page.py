"""Environment: what is wrong, with its remedy; looked at again on request."""

import pytest

from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import table, words

pytestmark = pytest.mark.slow  # the doctor asks TensorFlow, in a process of its own


def test_findings_devices_and_data_sets(home: Settings, open_page: OpenPage) -> None:
    app = open_page("environment")

    said = words(app)
    assert "TensorFlow 2.21" in said
    assert str(home.home) in said
    assert {metric.label for metric in app.metric} == {"Processor cores", "GPUs", "Machines", "Runs go to"}
    sets = table(app, "Data sets").set_index("name")
    assert sets.loc["synthetic", "state"] == "✓ here"
    assert (sets["where"] != "").all()

    next(button for button in app.button if button.label == "Look again").click().run()

    assert not app.exception
    assert "TensorFlow 2.21" in words(app)


def test_an_impossible_set_up_is_told_on_every_page(
    home: Settings, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")

    for page in ("runs", "launch", "environment", "run"):
        app = open_page(page, run="f" * 32)

        assert "MLFLOW_TRACKING_URI='./mlruns' is a folder" in words(app)


def test_a_tracking_server_that_is_away_is_told_on_every_page(
    home: Settings, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    for page in ("runs", "run"):
        app = open_page(page, run="f" * 32)

        assert "**The tracking store does not answer**" in words(app)
        assert "make run" in words(app)
