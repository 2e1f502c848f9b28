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
from pathlib import Path
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

# A server looks for components once, not for every page.
found = manifest_scanner.scan_component_manifests()
manifest_scanner.scan_component_manifests = lambda: found
pages = sorted(path.stem for path in Path(sys.argv[1]).parent.joinpath("app_pages").glob("[!_]*.py"))
assert {"launch", "run", "placement"} <= set(pages)
pages.sort(key=lambda page: page == "environment")
for page in pages:
    if page == "environment":  # the app itself has seen to the path by now
        import json, subprocess, types
        from experiments.doctor import devices

        answer = types.SimpleNamespace(stdout=json.dumps({"error": "not asked", "reasons": []}))
        devices.subprocess = types.SimpleNamespace(
            run=lambda *arguments, **rest: answer, TimeoutExpired=subprocess.TimeoutExpired
        )
    for tab in ("Times", "Devices", "Spec", "Environment", "Log") if page == "run" else ("",):
        app = AppTest.from_file(sys.argv[1], default_timeout=120)
        if page in ("run", "placement"):
            app.query_params["run"] = sys.argv[2]
        if page == "run":
            app.query_params["run_tab"] = tab
        app.switch_page(f"app_pages/{page}.py").run()
        assert not app.exception, app.exception
        assert page == "environment" or not app.error, app.error  # that one tells what is wrong with this machine
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
