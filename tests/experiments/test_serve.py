"""What `make run` decides before it starts anything. That it all starts and ends is tests/e2e/test_make_run.py."""

import dataclasses
import os
import shlex
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import serve
from experiments.settings import Settings, SettingsError

CHECKOUT = Path(__file__).resolve().parents[2]


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"SPEEDUP_LAB_HOME": str(home), **environ})


def planned(home: Path, **environ: str) -> serve.Plan:
    return serve.plan(settings(home, **environ), environ, home, "secret")


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


def test_a_taken_port_is_named_with_the_variable_that_changes_it(taken_port: int) -> None:
    port = serve.Port("127.0.0.1", taken_port, "MLflow", "SPEEDUP_LAB_MLFLOW_PORT")
    assert serve.taken_ports([port]) == [
        f"port {taken_port} for MLflow is taken: set SPEEDUP_LAB_MLFLOW_PORT to a free one"
    ]


def test_a_free_port_is_fine(taken_port: int) -> None:
    port = serve.Port("127.0.0.1", serve._free_port(), "MLflow", "SPEEDUP_LAB_MLFLOW_PORT")
    assert serve.taken_ports([port]) == []


def test_rays_port_is_taken_also_by_who_listens_on_loopback_only(taken_port: int, tmp_path: Path) -> None:
    plan = planned(tmp_path, SPEEDUP_LAB_RAY_PORT=str(taken_port))
    (ray,) = [port for port in plan.ports if port.variable == "SPEEDUP_LAB_RAY_PORT"]
    assert serve.taken_ports([ray]) == [f"port {taken_port} for Ray is taken: set SPEEDUP_LAB_RAY_PORT to a free one"]


def test_two_uses_of_one_port_are_named(tmp_path: Path) -> None:
    free = str(serve._free_port())
    plan = planned(tmp_path, SPEEDUP_LAB_PORT=free, SPEEDUP_LAB_MLFLOW_PORT=free)
    problems = serve.taken_ports([port for port in plan.ports if port.variable.endswith(("LAB_PORT", "MLFLOW_PORT"))])
    assert problems == [f"SPEEDUP_LAB_MLFLOW_PORT and SPEEDUP_LAB_PORT are both {free}: give each its own port"]


def test_a_host_that_is_not_this_machine_is_named() -> None:
    port = serve.Port("192.0.2.77", serve._free_port(), "the page", "SPEEDUP_LAB_PORT")
    (problem,) = serve.taken_ports([port])
    assert problem.startswith("SPEEDUP_LAB_HOST=192.0.2.77 is no address of this machine")


def test_the_command_ends_with_code_2_and_one_line_a_taken_port(taken_port: int, tmp_path: Path) -> None:
    free = str(serve._free_port())
    environ = {
        **os.environ,
        "SPEEDUP_LAB_HOME": str(tmp_path),
        "SPEEDUP_LAB_PORT": str(taken_port),
        "SPEEDUP_LAB_MLFLOW_PORT": str(taken_port),
        "SPEEDUP_LAB_RAY_PORT": str(taken_port),
        "SPEEDUP_LAB_RAY_DASHBOARD_PORT": free,
    }
    result = subprocess.run(
        [sys.executable, "-m", "experiments.serve"],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert f"port {taken_port} for MLflow is taken: set SPEEDUP_LAB_MLFLOW_PORT to a free one" in lines
    assert all("Traceback" not in line for line in lines)
    assert {
        variable for line in lines for variable in environ if variable.startswith("SPEEDUP") and variable in line
    } == {
        "SPEEDUP_LAB_PORT",
        "SPEEDUP_LAB_MLFLOW_PORT",
        "SPEEDUP_LAB_RAY_PORT",
    }


def test_a_port_that_is_no_number_ends_with_code_2_and_names_the_variable(tmp_path: Path) -> None:
    environ = {**os.environ, "SPEEDUP_LAB_HOME": str(tmp_path), "SPEEDUP_LAB_PORT": "eighty"}
    result = subprocess.run(
        [sys.executable, "-m", "experiments.serve"],
        cwd=CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("SPEEDUP_LAB_PORT='eighty' is no port")
    assert len(result.stderr.splitlines()) == 1


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refusal = pytest.raises(SettingsError, match=r"SPEEDUP_LAB_HOME=.* cannot be used \(Not a directory\)")
    with refusal, serve._hold(settings(tmp_path / "file")):
        raise AssertionError("a file was taken for a folder")


def test_a_data_folder_in_use_is_named_with_the_process_that_uses_it(tmp_path: Path) -> None:
    here = settings(tmp_path)
    holder = (
        "import sys; from experiments import serve; from experiments.settings import Settings\n"
        "with serve._hold(Settings.from_environment()):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder],
        cwd=CHECKOUT,
        env={**os.environ, "SPEEDUP_LAB_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(SettingsError, match=rf"is in use by another `make run` \(process {process.pid}\)"),
            serve._hold(here),
        ):
            raise AssertionError("the second one got in")
        process.communicate()
    with serve._hold(here):  # and free again once it has ended
        assert (tmp_path / "locks" / "stack.lock").read_text() == str(os.getpid())


def test_the_token_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    here = settings(tmp_path)
    token = serve._token(here)
    assert len(token) == 64
    assert serve._token(here) == token
    assert stat.S_IMODE(serve.token_file(here).stat().st_mode) == 0o600
    assert token not in shlex.join(
        argument for c in serve.plan(here, {}, tmp_path, token).components for argument in c.command
    )


def test_a_short_data_folder_is_used_by_its_own_path() -> None:
    home = Path("/" + "h" * (serve.LONGEST_HOME - 1))
    with serve._short_name(home) as short:
        assert short == home


def test_a_long_data_folder_gets_a_short_link_that_goes_away(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 20)
    home.mkdir()
    with serve._short_name(home) as short:
        assert len(str(short)) <= serve.LONGEST_HOME
        (short / "there").touch()
        assert (home / "there").exists()
    assert not short.parent.exists()
    assert (home / "there").exists()


def test_the_longest_home_leaves_room_for_rays_longest_socket(tmp_path: Path) -> None:
    # Linux takes 107 bytes and no more.
    deepest = (
        "/" + "h" * (serve.LONGEST_HOME - 1) + "/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
    )
    assert len(deepest) == 107


def test_old_ray_sessions_make_room_and_the_latest_stay(tmp_path: Path) -> None:
    sessions = [tmp_path / "ray" / f"session_2026-01-0{day}_00-00-00_000000_1" for day in range(1, 7)]
    for session in sessions:
        session.mkdir(parents=True)
    serve._make_room(settings(tmp_path))
    assert sorted((tmp_path / "ray").glob("session_*")) == sessions[-serve.RAY_SESSIONS_KEPT :]


def test_the_shell_gets_odd_paths_quoted(tmp_path: Path) -> None:
    odd = tmp_path / "it's; a $(touch pwned) folder"
    odd.mkdir()
    component = serve.Component("page", ["echo", str(odd)], advertises=True)
    result = subprocess.run(
        component.shell_command(sys.executable, odd / "page.log"), shell=True, cwd=tmp_path, check=True
    )
    assert result.returncode == 0
    assert (odd / "page.log").read_text() == f"{odd}\n"
    assert not (tmp_path / "pwned").exists()


def test_a_component_that_may_start_thrice_does_so_and_no_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    component = serve.Component("ray", ["sh", "-c", f"echo tried >> {shlex.quote(str(log))}; exit 3"], starts=3)
    result = subprocess.run(component.shell_command(sys.executable, log), shell=True, capture_output=True, text=True)
    assert result.returncode == 3
    assert log.read_text().splitlines() == ["tried"] * 3
    assert result.stderr.splitlines() == ["ray ended; starting it again"] * 2


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
    assert serve._reachable(host, for_people) == expected


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
        component = serve.Component(
            "ray", [], health=f"http://127.0.0.1:{server.server_port}/", token="secret", says='"ALIVE"'
        )
        assert component.is_ready
        assert not dataclasses.replace(component, token="wrong").is_ready
        assert not dataclasses.replace(component, says="DEAD").is_ready
        server.shutdown()
    assert not component.is_ready
    assert serve.Component("controller", []).is_ready
