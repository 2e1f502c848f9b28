"""Nothing that a browser talks to imports TensorFlow, Keras or Ray: asked of a process that drew every page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.settings import Settings
from tests.dashboard.seed import PLACEMENT, add_run, history_of
from training.spec import RunSpec

CHECKOUT = Path(__file__).parents[2]
SCRIPT = """
import sys
from streamlit.testing.v1 import AppTest

for page in ("launch", "runs", "run"):
    for tab in ("Times", "Devices", "Spec", "Environment", "Log") if page == "run" else ("",):
        app = AppTest.from_file(sys.argv[1], default_timeout=120)
        if page == "run":
            app.query_params["run"] = sys.argv[2]
            app.query_params["run_tab"] = tab
        app.switch_page(f"app_pages/{page}.py").run()
        assert not app.exception, app.exception
        assert not app.error, app.error
        if page == "launch":
            next(button for button in app.button if button.label == "Start").click().run()
heavy = {"tensorflow", "keras", "ray", "torch"} & set(sys.modules)
print("imported:", sorted(heavy))
"""


@pytest.mark.slow
def test_no_page_imports_tensorflow_keras_or_ray(settings: Settings, tmp_path: Path) -> None:
    run_id = add_run(settings, RunSpec(dataset="synthetic"), points=history_of(2), placement=PLACEMENT, log="a line")
    # From another folder, with nothing but the app's own path: as `streamlit run` does it.
    environment = {**os.environ, "SPEEDUP_LAB_HOME": str(settings.home)}
    environment.pop("PYTHONPATH", None)

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(CHECKOUT / "dashboard" / "app.py"), run_id],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.strip().splitlines()[-1] == "imported: []"
