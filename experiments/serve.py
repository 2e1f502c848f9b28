"""`make run`: starts MLflow, Ray, the controller and the page, prints the address, and ends them all."""

import contextlib
import dataclasses
import errno
import fcntl
import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from experiments.settings import CHECKOUT, Settings, SettingsError
from experiments.stack import CONTROLLER, MARK, MLFLOW, PAGE, PART, RAY, Stack, end_all, marked, say

READY_DEADLINE_S = 180
RAY_SESSIONS_KEPT = 3  # Ray's logs of the latest starts; it never removes one itself

# A Unix socket's path has at most 107 bytes, and this is the longest that Ray makes.
LONGEST_HOME = 107 - len("/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")


_RAY_OTHER_PORTS = (
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
    "--ray-client-server-port",
)


@dataclasses.dataclass(frozen=True)
class Port:
    """A port that a component will listen on, and the variable that changes it."""

    host: str
    number: int
    use: str
    variable: str


@dataclasses.dataclass(frozen=True)
class Component:
    """One process that honcho starts.

    Attributes:
        health: an address that answers 200 when it is ready; empty for none.
        token: what to show there.
        advertises: prints on stdout how to use it by itself, which goes to a file, as it is not how to use it here.
    """

    name: str
    command: list[str]
    ports: tuple[Port, ...] = ()
    health: str = ""
    token: str = ""
    advertises: bool = False

    def answers(self) -> bool:
        """Whether it is ready."""
        if not self.health:
            return True
        request = urllib.request.Request(self.health)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            # A proxy of the environment has no place between this machine and itself.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to start for these settings, and the environment of it all."""

    components: tuple[Component, ...]
    environment: dict[str, str]

    @property
    def ports(self) -> list[Port]:
        """Every port that is going to be listened on."""
        return [port for component in self.components for port in component.ports]


def plan(settings: Settings, environ: Mapping[str, str], short_home: Path, token: str) -> Plan:
    """Decides what to start: MLflow and Ray only where no address of another one is set.

    Args:
        settings: as read from `environ`.
        environ: the caller's environment.
        short_home: the data folder, by a path that is short enough for sockets below it.
        token: that Ray will ask for.
    """
    python = settings.python
    environment = {
        **environ,
        MARK: str(settings.home),
        "SPEEDUP_LAB_HOME": str(settings.home),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "TMPDIR": str(short_home / "tmp"),  # nothing is written outside the data folder
        "PYTHONUNBUFFERED": "1",
    }
    components = []
    if not environ.get("MLFLOW_TRACKING_URI", "").strip():
        address = f"http://{_reachable(settings.host)}:{settings.mlflow_port}"
        environment["MLFLOW_TRACKING_URI"] = address
        environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # eight helper processes that nothing here uses
        components.append(
            Component(
                MLFLOW,
                [
                    *(python, "-m", "mlflow", "server", "--workers", "1"),
                    *("--host", settings.host, "--port", str(settings.mlflow_port)),
                    *("--backend-store-uri", settings.tracking_uri),
                    *("--default-artifact-root", settings.artifacts_folder.as_uri(), "--no-serve-artifacts"),
                    *("--uvicorn-opts", "--log-level warning"),
                ],
                (Port(settings.host, settings.mlflow_port, "MLflow", "SPEEDUP_LAB_MLFLOW_PORT"),),
                f"{address}/health",
            )
        )
    if not settings.ray_address:
        dashboard = f"http://127.0.0.1:{settings.ray_dashboard_port}"
        environment |= {
            "RAY_ADDRESS": dashboard,
            # Ray's daemons listen on every address, whatever they are told; without the token they obey nobody.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token_file(settings)),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # the runs have ended before Ray is asked to
            "RAY_raylet_start_wait_time_s": str(READY_DEADLINE_S),
        }
        # Ports that Ray would choose by itself. Its raylet waits 15 s for its agents to say which they chose, and dies
        # then, as on a busy machine; and its own fixed defaults would make two Rays on one machine clash.
        chosen = _free_ports(len(_RAY_OTHER_PORTS))
        components.append(
            Component(
                RAY,
                [
                    *(python, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
                    # Ray replaces 127.0.0.1 by the machine's outer address, which changes as a laptop moves.
                    *("--node-ip-address", "127.0.0.2", "--port", str(settings.ray_port)),
                    *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(settings.ray_dashboard_port)),
                    *(f"{option}={port}" for option, port in zip(_RAY_OTHER_PORTS, chosen, strict=True)),
                    *("--min-worker-port", "0", "--max-worker-port", "0"),
                    *("--temp-dir", str(short_home / "ray"), "--object-store-memory", str(200 * 1024**2)),
                ],
                (
                    Port("0.0.0.0", settings.ray_port, "Ray", "SPEEDUP_LAB_RAY_PORT"),
                    Port("127.0.0.1", settings.ray_dashboard_port, "Ray's dashboard", "SPEEDUP_LAB_RAY_DASHBOARD_PORT"),
                ),
                f"{dashboard}/api/version",
                token,
                advertises=True,
            )
        )
    components.append(Component(CONTROLLER, [python, "-m", "experiments.controller"]))
    components.append(
        Component(
            PAGE,
            [
                *(python, "-m", "streamlit", "run", "dashboard/app.py"),
                *("--server.address", settings.host, "--server.port", str(settings.port)),
                *("--server.headless", "true", "--browser.gatherUsageStats", "false"),
                *("--server.fileWatcherType", "none"),
            ],
            (Port(settings.host, settings.port, "the page", "SPEEDUP_LAB_PORT"),),
            f"http://{_reachable(settings.host)}:{settings.port}/_stcore/health",
            advertises=True,
        )
    )
    return Plan(tuple(components), environment)


def taken_ports(ports: list[Port]) -> list[str]:
    """One line for each port that cannot be listened on, with the variable that changes it."""
    found = []
    seen: dict[int, str] = {}
    for port in ports:
        if port.number in seen:
            found.append(f"{seen[port.number]} and {port.variable} are both {port.number}: give each its own port")
            continue
        seen[port.number] = port.variable
        try:
            family, _, _, _, address = socket.getaddrinfo(port.host, port.number, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            what = f"port {port.number} for {port.use}"
            if error.errno == errno.EADDRINUSE:
                found.append(f"{what} is taken: set {port.variable} to a free one")
            elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                found.append(f"SPEEDUP_LAB_HOST={port.host} is no address of this machine: set one, or leave it unset")
            else:
                found.append(f"{what} cannot be used ({error.strerror}): set {port.variable} to another")
    return list(dict.fromkeys(found))


def token_file(settings: Settings) -> Path:
    """Holds the secret that Ray asks for; readable by its owner only."""
    return settings.home / "ray-token"


def _token(settings: Settings) -> str:
    """The secret, made on first use."""
    path = token_file(settings)
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    return path.read_text().strip()


@contextlib.contextmanager
def _hold(settings: Settings) -> Iterator[None]:
    """Keeps a second stack away from this data folder, and ends what an earlier one left when it was killed.

    Raises:
        SettingsError: a stack with this data folder is running.
    """
    path = settings.locks_folder / "stack.lock"
    with open(path, "a+") as file:
        try:
            # Unlike flock's, this lock is not passed on to the processes that honcho forks.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise SettingsError(
                f"SPEEDUP_LAB_HOME={settings.home} is in use by another `make run` (process {file.read().strip()}): "
                "stop that one, or set SPEEDUP_LAB_HOME to another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        if leftovers := marked(settings.home):
            say(f"Ending {len(leftovers)} processes that an earlier `make run` left when it was killed ...")
            end_all(leftovers, 5)
        yield


@contextlib.contextmanager
def _short_name(home: Path) -> Iterator[Path]:
    """The data folder under a path that is short enough for Ray's sockets: its own, or a link in a private folder."""
    if len(os.fsencode(home)) <= LONGEST_HOME:
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="lab-") as private:
        link = Path(private, "home")
        link.symlink_to(home)
        yield link


def _make_room(settings: Settings) -> None:
    """Makes the folders of this start, and removes what earlier ones left for nobody."""
    shutil.rmtree(settings.home / "tmp", ignore_errors=True)
    for name in ("tmp", "logs", "ray"):
        (settings.home / name).mkdir(exist_ok=True)
    for old in sorted((settings.home / "ray").glob("session_2*"))[:-RAY_SESSIONS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _announce(settings: Settings, components: tuple[Component, ...], stack: Stack) -> None:
    """Prints the address once everything answers, or what does not."""
    deadline = time.monotonic() + READY_DEADLINE_S
    waiting = list(components)
    while waiting and not stack.is_ending:
        waiting = [component for component in waiting if not component.answers()]
        if waiting and time.monotonic() > deadline:
            names = ", ".join(component.name for component in waiting)
            say(f"Still no answer from {names} after {READY_DEADLINE_S} s: see the lines above that start with it.")
            deadline = float("inf")
        time.sleep(0.2)
    if not stack.is_ending:
        address = f"http://{_reachable(settings.host, for_people=True)}:{settings.port}"
        bold, plain = ("\033[1;32m", "\033[0m") if sys.stdout.isatty() else ("", "")
        say(f"\n{bold}  Speedup Lab is ready: {address}   (Ctrl-C ends it){plain}\n")


def _reachable(host: str, for_people: bool = False) -> str:
    """A name under which what listens on a host can be reached: from here, or by people on the network."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname() if for_people else "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host


def _free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on now."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def serve(settings: Settings, environ: Mapping[str, str]) -> int:
    """Runs the stack until it is ended.

    Returns:
        0 when a signal ended it, 1 when a component ended by itself.

    Raises:
        SettingsError: the data folder or a port is taken, or cannot be used.
    """
    settings.prepare()
    with _hold(settings), _short_name(settings.home) as short:
        planned = plan(settings, environ, short, _token(settings))
        if problems := taken_ports(planned.ports):
            raise SettingsError("\n".join(problems))
        say(f"Starting {', '.join(component.name for component in planned.components)}; data in {settings.home}")
        _make_room(settings)
        stack = Stack(settings.home, lambda stack: _announce(settings, planned.components, stack))
        for component in planned.components:
            command = f"exec {shlex.join(component.command)}"
            if component.advertises:
                command += f" > {shlex.quote(str(settings.home / 'logs' / component.name))}.log"
            stack.add_process(
                component.name, command, env={**planned.environment, PART: component.name}, cwd=str(CHECKOUT)
            )
        stack.loop()
    if stack.failure:
        say(f"Everything was ended because a component stopped by itself: {stack.failure}. Its last lines are above.")
        return 1
    say("Everything has ended. The data stay.")
    return 0


def main() -> int:
    """Entry point. Exit code 2 and one line a problem when it cannot start."""
    try:
        return serve(Settings.from_environment(), os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:  # before anything was started
        return 130


if __name__ == "__main__":
    sys.exit(main())
