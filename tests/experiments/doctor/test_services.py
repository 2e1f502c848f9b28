"""The doctor on data sets, the tracking store, Ray, ports and disk."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from experiments import capacity, components
from experiments.doctor import CHECKS, Level, findings, services
from experiments.doctor.finding import Finding
from experiments.engines.base import EngineUnavailableError
from experiments.settings import Settings
from training.datasets.availability import Availability


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings.from_environment({"SPEEDUP_LAB_HOME": str(tmp_path / "home")})


@pytest.fixture
def prepared(new_settings) -> Settings:
    """With a store."""
    return new_settings("home")


class TestDataSets:
    def test_one_that_is_here_one_that_can_come_and_one_that_cannot(self):
        here = services.dataset_finding(Availability("digits", True, "scikit-learn", "", False))
        later = services.dataset_finding(Availability("mnist", False, "", "put mnist.npz there", True))
        never = services.dataset_finding(Availability("mnist", False, "", "put mnist.npz there", False))
        assert [here.level, later.level, never.level] == [Level.OK, Level.OK, Level.WARNING]
        assert never.remedy == "put mnist.npz there"


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """A server that answers what the dictionary says, and its address."""
    answers: dict[str, tuple[int, str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = answers.get(self.path, (404, ""))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", answers
        http.shutdown()


class TestTracking:
    def test_before_the_first_start_there_is_no_store_and_no_fault(self, settings):
        assert [each.level for each in services.tracking(settings)] == [Level.OK]
        assert not settings.home.exists()

    def test_our_own_store_answers(self, prepared):
        (found,) = services.tracking(prepared)
        assert (found.level, found.title) == (Level.OK, "the tracking store answers")

    def test_a_deleted_experiment_names_the_command_that_restores_it(self, prepared):
        prepared.client().delete_experiment(prepared.experiment_id())
        (found,) = services.tracking(prepared)
        assert found.level is Level.PROBLEM
        assert "python -m experiments restore" in found.remedy

    def test_a_store_that_is_none_is_a_problem(self, settings):
        settings.home.mkdir()
        (settings.home / "mlflow.db").write_text("no database")
        (found,) = services.tracking(settings)
        assert (found.level, found.title) == (Level.PROBLEM, "the tracking store does not answer")

    def test_a_server_that_is_away_is_told_at_once(self, settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            uri = f"http://127.0.0.1:{free.getsockname()[1]}"
        (found,) = services.tracking(Settings(settings.home, uri))
        assert (found.level, found.title) == (Level.PROBLEM, "the tracking server does not answer")
        assert "MLFLOW_TRACKING_URI" in found.remedy

    def test_a_server_of_another_version_is_a_warning(self, server):
        uri, answers = server
        answers |= {"/health": (200, "OK"), "/version": (200, "2.9.1")}
        (found,) = services._server_trouble(uri)
        assert found.level is Level.WARNING
        assert "MLflow 2.9.1" in found.title

    def test_a_server_that_refuses_its_name_tells_of_allowed_hosts(self, server):
        """E18."""
        uri, answers = server
        answers |= {"/health": (403, "Invalid Host header - possible DNS rebinding attack detected")}
        (found,) = services._server_trouble(uri)
        assert found.remedy.startswith("start it with --allowed-hosts 127.0.0.1")

    def test_a_server_that_fails_is_a_problem(self, server):
        uri, answers = server
        answers |= {"/health": (500, "")}
        (found,) = services._server_trouble(uri)
        assert found.title == "the tracking server answers 500"

    def test_a_file_store_and_a_cluster_do_not_go_together(self, prepared):
        remote = Settings(prepared.home, prepared.tracking_uri, ray_address="http://head.example.org:8265")
        assert [each.level for each in services.tracking(remote)] == [Level.WARNING, Level.OK]

    def test_a_loopback_address_and_a_cluster_elsewhere_do_not_go_together(self, server):
        uri, answers = server
        answers |= {"/health": (500, "")}
        settings = Settings(Path("/nowhere"), uri, ray_address="http://head.example.org:8265")
        first, _ = services.tracking(settings)
        assert (first.level, "other machines of the Ray cluster" in first.title) == (Level.WARNING, True)
        assert [each.level for each in services.tracking(Settings(Path("/nowhere"), uri))] == [Level.PROBLEM]

    def test_an_old_mlruns_folder_is_named(self, tmp_path):
        """E19."""
        assert list(services.mlruns_findings(tmp_path)) == []
        (tmp_path / "mlruns").mkdir()
        (found,) = services.mlruns_findings(tmp_path)
        assert found.level is Level.WARNING
        assert str(tmp_path / "mlruns") in found.detail

    @pytest.mark.parametrize(
        ("uri", "shown"),
        [
            ("postgresql://team:s3cret@db.example.org:5432/mlflow", "postgresql://team:***@db.example.org:5432/mlflow"),
            ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
            ("sqlite:////a/b.db", "sqlite:////a/b.db"),
            ("http://[secret", "http://..."),
        ],
    )
    def test_a_password_is_not_shown(self, uri, shown):
        assert services.without_password(uri) == shown


class TestRay:
    CLUSTER = capacity.Capacity(192, 0, ((192, 0),), "ray")

    def test_none_set_is_no_fault(self, settings):
        assert [each.level for each in services.ray(settings)] == [Level.OK]

    def test_one_that_does_not_answer_is_a_problem(self, settings, monkeypatch):
        def refuse(settings: Settings) -> capacity.Capacity:
            raise EngineUnavailableError("Ray at http://127.0.0.1:1 does not answer")

        monkeypatch.setattr(capacity, "of", refuse)
        (found,) = services.ray(Settings(settings.home, "sqlite:////x.db", ray_address="http://u:pw@127.0.0.1:1"))
        assert found.level is Level.PROBLEM
        assert "does not answer" in found.detail
        assert "pw" not in found.detail

    def test_one_that_counts_more_cores_than_the_container_has_is_a_warning(self):
        """F13."""
        good, bad = services.ray_findings(self.CLUSTER, "auto", usable_cpus=2)
        assert (good.level, bad.level) == (Level.OK, Level.WARNING)
        assert bad.remedy == "start Ray with --num-cpus 2"

    def test_a_cluster_elsewhere_is_taken_at_its_word(self):
        assert [each.level for each in services.ray_findings(self.CLUSTER, "ray://head:10001", None)] == [Level.OK]

    @pytest.mark.parametrize(
        ("address", "here"),
        [
            ("http://127.0.0.1:8265", True),
            ("localhost:6379", True),
            ("127.0.0.2:6379", True),
            ("auto", True),
            ("", True),
            ("http://[::1]:8265", True),
            ("ray://head.example.org:10001", False),
            ("10.0.0.5:6379", False),
        ],
    )
    def test_this_machine_is_told_from_others(self, address, here):
        assert components.is_this_machine(address) is here


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


class TestPorts:
    def judge(self, port: int, own: set[int]) -> Finding:
        wanted = components.Port("127.0.0.1", port, "MLflow", "SPEEDUP_LAB_MLFLOW_PORT")
        (found,) = services.port_findings([wanted], services.listeners(), own)
        return found

    def test_a_taken_port_is_named_with_its_variable_and_its_owner(self, listener):
        port = listener.getsockname()[1]
        found = self.judge(port, own=set())
        assert found.level is Level.PROBLEM
        assert found.title == f"port {port} for MLflow is taken"
        assert found.remedy == "set SPEEDUP_LAB_MLFLOW_PORT to a free one"
        assert f"(process {os.getpid()}) listens on it" in found.detail

    def test_the_running_product_is_no_fault(self, listener):
        assert self.judge(listener.getsockname()[1], own={os.getpid()}).level is Level.OK

    def test_a_free_port_is_fine(self, listener):
        port = listener.getsockname()[1]
        listener.close()
        assert self.judge(port, own=set()).title == f"port {port} for MLflow is free"

    def test_one_port_for_two_things_is_a_problem(self):
        ports = [components.Port("127.0.0.1", 8501, use, f"VARIABLE_{use}") for use in ("A", "B")]
        *_, found = services.port_findings(ports, {}, set())
        assert (found.level, found.title) == (Level.PROBLEM, "VARIABLE_A and VARIABLE_B are both 8501")

    def test_all_ports_of_make_run_are_looked_at(self, settings):
        text = "\n".join(each.title for each in services.ports(settings))
        for number in (settings.port, settings.mlflow_port, settings.ray_port, settings.ray_dashboard_port):
            assert str(number) in text


class TestDisk:
    @pytest.mark.parametrize(("free", "level"), [(0.5, Level.PROBLEM), (3.0, Level.WARNING), (50.0, Level.OK)])
    def test_little_space_is_told_before_a_run_fails(self, tmp_path, free, level):
        assert services.space_finding(tmp_path, free).level is level

    def test_a_folder_that_is_not_there_yet_is_judged_by_its_place(self, tmp_path):
        found = services.disk_finding(tmp_path / "a/b/c")
        assert found.title == f"{shutil.disk_usage(tmp_path).free / 2**30:,.1f} GiB free for the data folder"

    def test_a_place_that_cannot_be_written_is_a_problem(self, tmp_path):
        (tmp_path / "file").write_text("")
        found = services.disk_finding(tmp_path / "file/home")
        assert (found.level, found.title) == (Level.PROBLEM, "the data folder cannot be written")


def test_a_check_that_fails_is_a_finding_and_the_others_are_told(settings, monkeypatch):
    def fail(settings: Settings) -> Iterator[Finding]:
        raise RuntimeError("no such thing")

    for area in CHECKS:
        monkeypatch.setitem(CHECKS, area, services.disk)
    monkeypatch.setitem(CHECKS, "GPU", fail)
    found = findings(settings)
    assert len(found) == len(CHECKS)
    (bad,) = [each for each in found if each.level is Level.PROBLEM]
    assert bad.area == "GPU"
    assert bad.detail.startswith("RuntimeError: no such thing\nat ")


def test_a_finding_that_is_not_ok_has_a_remedy():
    with pytest.raises(ValueError, match="has no remedy"):
        Finding("GPU", Level.PROBLEM, "broken")


@pytest.mark.slow
def test_all_of_this_machine_without_tensorflow(settings, tmp_path):
    """Every area is told, each fault has its remedy, and the process has imported no TensorFlow, Keras or Streamlit."""
    script = (
        "import sys\n"
        "from experiments.doctor import CHECKS, findings\n"
        "from experiments.settings import Settings\n"
        "found = findings(Settings.from_environment())\n"
        "assert {each.area for each in found} == set(CHECKS), found\n"
        "assert all(each.remedy for each in found if each.level != 'ok')\n"
        "assert not [each for each in found if each.title == 'this could not be checked'], found\n"
        "assert [each.level for each in found if each.area in ('TensorFlow', 'Processor')] == ['ok', 'ok'], found\n"
        "print(sorted({'tensorflow', 'keras', 'streamlit', 'ray'} & set(sys.modules)))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"SPEEDUP_LAB_HOME": str(tmp_path / "home")},
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "[]"
