"""What the Ray engine says when something is wrong with the cluster, and what only Ray does."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import ray

from experiments.capacity import Request
from experiments.engines import ray_engine
from experiments.engines.base import EngineError, EngineStatus, EngineUnavailableError
from experiments.engines.ray_engine import RayEngine
from tests.experiments.engines.conftest import is_alive, python, wait_for_end, wait_for_text
from tests.support.stores import settings_in
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec

CHECKOUT = Path(__file__).parents[3]


@contextmanager
def server(answers: dict[str, tuple[int, str]]) -> Iterator[str]:
    """An HTTP server in the place of a head's dashboard: path -> status and text. Gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, (404, "nothing here"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def version(of: str) -> tuple[int, str]:
    return 200, json.dumps({"version": "4", "ray_version": of, "ray_commit": "", "session_name": ""})


@pytest.fixture
def engine_at(tmp_path):
    """An engine of a cluster address."""
    return lambda address: RayEngine(settings_in(tmp_path, RAY_ADDRESS=address))


@pytest.fixture
def launch(tmp_path):
    """The launch of a run that no other test of the same head has started."""
    made = Launch(uuid.uuid4().hex, "", str(tmp_path / "run"), gpu_ids=[])
    RunFolder.create(RunSpec(), made)
    return made


def test_versions_that_differ_are_both_named(engine_at):
    with server({"/api/version": version("2.9.0")}) as address, pytest.raises(EngineError) as raised:
        engine_at(address).capacity()
    for text in (address, "Ray 2.9.0", f"Ray {ray.__version__}", "Python 3."):
        assert text in str(raised.value)


def test_head_without_an_agent_names_the_port(engine_at, launch):
    answers = {
        "/api/version": version(ray.__version__),
        "/api/jobs/": (500, "No available agent to submit job, please try again later."),
    }
    with server(answers) as address, pytest.raises(EngineUnavailableError, match="port 52365"):
        engine_at(address).start(launch, RunSpec(), Request(1, 1, 0))


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "http://127.0.0.1:{port}"])
def test_address_where_nothing_listens_is_named(engine_at, form):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = form.format(port=unused.getsockname()[1])
        began = time.monotonic()
        with pytest.raises(EngineUnavailableError) as raised:
            engine_at(address).capacity()
        assert time.monotonic() - began < 30
    assert address in str(raised.value)
    assert "does not answer" in str(raised.value)


def test_head_that_hangs_is_not_waited_for(engine_at, monkeypatch):
    monkeypatch.setattr(ray_engine, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EngineUnavailableError, match="does not answer"):
            engine_at(address).state("ray:whatever")


def test_handle_of_another_engine_asks_nobody(engine_at):
    assert engine_at("http://127.0.0.1:9").state("inline:1:2.00").status is EngineStatus.UNKNOWN


@pytest.mark.slow
def test_missing_token_is_named(ray_head, tmp_path):
    ask = (
        "import sys; from experiments.settings import Settings; from experiments.engines.ray_engine import RayEngine\n"
    )
    ask += "RayEngine(Settings.from_environment()).capacity()"
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT),
        "SPEEDUP_LAB_HOME": str(tmp_path),
        "RAY_ADDRESS": ray_head.address,
        "RAY_AUTH_MODE": "disabled",
    }
    asked = subprocess.run(
        [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in asked.stderr


@pytest.mark.slow
def test_the_same_run_is_never_started_twice(ray_head, tmp_path, launch):
    source = "(folder / 'starts').open('a').write('x')\nwhile not (folder / 'go').exists(): time.sleep(0.02)"
    engines = [RayEngine(ray_head.settings(tmp_path), python(source)) for _ in range(2)]
    handles = {engine.start(launch, RunSpec(), Request(1, 1, 0)) for engine in engines}
    [handle] = handles
    wait_for_text(Path(launch.folder, "starts"))
    Path(launch.folder, "go").touch()
    wait_for_end(engines[0], handle)
    assert Path(launch.folder, "starts").read_text() == "x"


@pytest.mark.slow
def test_head_address_means_the_same_as_the_dashboards(ray_head, tmp_path):
    by_head = RayEngine(settings_in(tmp_path, RAY_ADDRESS=f"127.0.0.1:{ray_head.port}"))
    assert by_head.capacity() == RayEngine(ray_head.settings(tmp_path)).capacity()


@pytest.mark.slow
def test_restarted_head_has_forgotten_its_jobs_and_ended_them(ray_head, tmp_path, launch):
    # The head of all tests: it is as good as new afterwards, and a head of its own would have to start twice.
    engine = RayEngine(
        ray_head.settings(tmp_path), python("(folder / 'pid').write_text(str(os.getpid()))\ntime.sleep(600)")
    )
    handle = engine.start(launch, RunSpec(), Request(1, 1, 0))
    pid = int(wait_for_text(Path(launch.folder, "pid")))
    ray_head.kill()
    try:
        with pytest.raises(EngineUnavailableError, match=ray_head.address):
            engine.state(handle)
    finally:
        ray_head.start()
    assert engine.state(handle).status is EngineStatus.UNKNOWN
    assert not is_alive(pid)
