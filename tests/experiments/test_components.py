"""What `make run` would start, where, and how it tells that it is ready."""

import dataclasses
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from experiments import components
from experiments.settings import Settings

CHECKOUT = Path(__file__).resolve().parents[2]


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"SPEEDUP_LAB_HOME": str(home), **environ})


def planned(home: Path, **environ: str) -> components.Plan:
    return components.plan(settings(home, **environ), environ, home, "secret")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_everything_is_started_here_when_no_address_is_set(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert [component.name for component in plan.components] == ["mlflow", "ray", "controller", "page"]
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    assert plan.environment["RAY_ADDRESS"] == "http://127.0.0.1:8265"
    assert [(port.number, port.variable) for port in plan.ports] == [
        (5000, "SPEEDUP_LAB_MLFLOW_PORT"),
        (6379, "SPEEDUP_LAB_RAY_PORT"),
        (8265, "SPEEDUP_LAB_RAY_DASHBOARD_PORT"),
        (8501, "SPEEDUP_LAB_PORT"),
    ]


def test_a_tracking_server_that_is_set_is_used_and_none_is_started(tmp_path: Path) -> None:
    plan = planned(tmp_path, MLFLOW_TRACKING_URI="https://mlflow.example.org")
    assert [component.name for component in plan.components] == ["ray", "controller", "page"]
    assert plan.environment["MLFLOW_TRACKING_URI"] == "https://mlflow.example.org"


def test_a_ray_cluster_that_is_set_is_used_with_its_own_token(tmp_path: Path) -> None:
    plan = planned(tmp_path, RAY_ADDRESS="https://ray.example.org", RAY_AUTH_TOKEN_PATH="/etc/theirs")
    assert [component.name for component in plan.components] == ["mlflow", "controller", "page"]
    assert plan.environment["RAY_ADDRESS"] == "https://ray.example.org"
    assert plan.environment["RAY_AUTH_TOKEN_PATH"] == "/etc/theirs"
    assert "RAY_AUTH_MODE" not in plan.environment


def test_the_host_is_for_the_page_and_mlflow_and_ray_stays_on_loopback(tmp_path: Path) -> None:
    plan = planned(tmp_path, SPEEDUP_LAB_HOST="0.0.0.0")
    assert {port.use: port.host for port in plan.ports if port.use != "Ray"} == {
        "MLflow": "0.0.0.0",
        "Ray's dashboard": "127.0.0.1",
        "the page": "0.0.0.0",
    }
    # From here it is still reached by an address that leads here.
    assert plan.environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    (page,) = [component for component in plan.components if component.name == "page"]
    assert page.health.startswith("http://127.0.0.1:8501/")


def test_no_proxy_stands_between_this_machine_and_itself(tmp_path: Path) -> None:
    environment = planned(tmp_path, https_proxy="http://proxy.example.org:3128", no_proxy="example.org").environment
    assert environment["no_proxy"].split(",") == ["example.org", *components.LOOPBACK, "127.0.0.2"]
    assert environment["NO_PROXY"].split(",") == [*components.LOOPBACK, "127.0.0.2"]
    assert environment["https_proxy"] == "http://proxy.example.org:3128"  # a download may need it


def test_others_are_let_in_by_this_machines_names_only(tmp_path: Path) -> None:
    alone = planned(tmp_path)
    assert "STREAMLIT_SERVER_ALLOWED_HOSTS" not in alone.environment
    shared = planned(tmp_path, SPEEDUP_LAB_HOST="0.0.0.0").environment
    page_hosts = shared["STREAMLIT_SERVER_ALLOWED_HOSTS"].split()
    assert {"localhost", "127.0.0.1", "::1", socket.gethostname()} <= set(page_hosts)
    assert "*" not in shared["STREAMLIT_SERVER_ALLOWED_HOSTS"] + shared["MLFLOW_SERVER_ALLOWED_HOSTS"]
    assert f"{socket.gethostname()}:5000" in shared["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert f"http://{socket.gethostname()}:5000" in shared["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"].split(",")
    assert shared["SPEEDUP_LAB_MLFLOW_UI"] == f"http://{socket.gethostname()}:5000"
    with_own = planned(tmp_path, SPEEDUP_LAB_HOST="0.0.0.0", MLFLOW_TRACKING_URI="https://mlflow.example").environment
    assert "SPEEDUP_LAB_MLFLOW_UI" not in with_own, "no MLflow is started here that a link could lead to"
    named = planned(
        tmp_path, SPEEDUP_LAB_HOST="192.0.2.7", MLFLOW_SERVER_ALLOWED_HOSTS="mlflow.example.org"
    ).environment
    assert "192.0.2.7" in named["STREAMLIT_SERVER_ALLOWED_HOSTS"].split()
    assert named["MLFLOW_SERVER_ALLOWED_HOSTS"] == "mlflow.example.org"  # what a person set stays


def test_a_taken_port_is_named_with_the_variable_that_changes_it(taken_port: int) -> None:
    port = components.Port("127.0.0.1", taken_port, "MLflow", "SPEEDUP_LAB_MLFLOW_PORT")
    assert components.taken_ports([port]) == [
        f"port {taken_port} for MLflow is taken: set SPEEDUP_LAB_MLFLOW_PORT to a free one"
    ]


def test_a_free_port_is_fine(taken_port: int) -> None:
    port = components.Port("127.0.0.1", components.free_port(), "MLflow", "SPEEDUP_LAB_MLFLOW_PORT")
    assert components.taken_ports([port]) == []


def test_rays_port_is_taken_also_by_who_listens_on_loopback_only(taken_port: int, tmp_path: Path) -> None:
    plan = planned(tmp_path, SPEEDUP_LAB_RAY_PORT=str(taken_port))
    (ray,) = [port for port in plan.ports if port.variable == "SPEEDUP_LAB_RAY_PORT"]
    assert components.taken_ports([ray]) == [
        f"port {taken_port} for Ray is taken: set SPEEDUP_LAB_RAY_PORT to a free one"
    ]


def test_two_uses_of_one_port_are_named(tmp_path: Path) -> None:
    free = str(components.free_port())
    plan = planned(tmp_path, SPEEDUP_LAB_PORT=free, SPEEDUP_LAB_MLFLOW_PORT=free)
    problems = components.taken_ports(
        [port for port in plan.ports if port.variable.endswith(("LAB_PORT", "MLFLOW_PORT"))]
    )
    assert problems == [f"SPEEDUP_LAB_MLFLOW_PORT and SPEEDUP_LAB_PORT are both {free}: give each its own port"]


def test_a_host_that_is_not_this_machine_is_named() -> None:
    port = components.Port("192.0.2.77", components.free_port(), "the page", "SPEEDUP_LAB_PORT")
    (problem,) = components.taken_ports([port])
    assert problem.startswith("SPEEDUP_LAB_HOST=192.0.2.77 is no address of this machine")


def test_the_shell_gets_odd_paths_quoted(tmp_path: Path) -> None:
    odd = tmp_path / "it's; a $(touch pwned) folder"
    odd.mkdir()
    component = components.Component("page", ["echo", str(odd)], hidden="stdout")
    result = subprocess.run(
        component.shell_command(sys.executable, odd / "page.log"), shell=True, cwd=tmp_path, check=True
    )
    assert result.returncode == 0
    assert (odd / "page.log").read_text() == f"{odd}\n"
    assert not (tmp_path / "pwned").exists()


def test_a_component_that_fails_is_started_again_and_not_for_ever(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    component = components.Component("controller", ["sh", "-c", f"echo tried >> {shlex.quote(str(tries))}; exit 3"])
    command = component.shell_command(sys.executable, tmp_path / "log")
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert result.returncode == 3
    assert tries.read_text().splitlines() == ["tried"] * components.STARTS
    assert result.stderr.splitlines() == ["failed, and is started again"] * (components.STARTS - 1)


def test_a_component_that_was_asked_to_end_is_not_started_again(tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    component = components.Component("controller", ["sh", "-c", f"echo tried >> {shlex.quote(str(tries))}; exit 0"])
    command = component.shell_command(sys.executable, tmp_path / "log")
    assert subprocess.run(command, shell=True, check=False).returncode == 0
    assert tries.read_text() == "tried\n"


@pytest.mark.parametrize(
    ("hidden", "shown", "logged"), [("", "out err", ""), ("stdout", "err", "out"), ("all", "", "out err")]
)
def test_what_is_hidden_is_in_the_log_file(
    hidden: Literal["", "stdout", "all"], shown: str, logged: str, tmp_path: Path
) -> None:
    log = tmp_path / "ray.log"
    component = components.Component("ray", ["sh", "-c", "echo out; echo err >&2; exit 1"], hidden=hidden)
    command = component.shell_command(sys.executable, log)
    result = subprocess.run(
        command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    notice = "failed, and is started again" + (f". Its log file is {log}" if hidden else "")
    said = [line for line in result.stdout.splitlines() if line != notice]
    assert result.stdout.splitlines().count(notice) == components.STARTS - 1
    assert said == shown.split() * components.STARTS
    assert (log.read_text() if log.exists() else "").split() == logged.split() * components.STARTS


@pytest.mark.parametrize(
    ("host", "for_people", "expected"),
    [
        ("127.0.0.1", True, "127.0.0.1"),
        ("0.0.0.0", False, "127.0.0.1"),
        ("0.0.0.0", True, socket.gethostname()),
        ("::1", True, "[::1]"),
        ("::", False, "[::1]"),
        ("lab.example.org", True, "lab.example.org"),
    ],
)
def test_addresses_lead_to_where_it_listens(host: str, for_people: bool, expected: str) -> None:
    assert components.reachable(host, for_people) == expected


def test_ready_means_the_right_answer(tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == "Bearer secret"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(b'{"state": "ALIVE"}')

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        component = components.Component(
            "ray", [], health=f"http://127.0.0.1:{server.server_port}/", token="secret", says='"ALIVE"'
        )
        assert component.is_ready
        assert not dataclasses.replace(component, token="wrong").is_ready
        assert not dataclasses.replace(component, says="DEAD").is_ready
        server.shutdown()
    assert not component.is_ready
    assert components.Component("controller", []).is_ready
