"""What `make run` starts: for each component its command, its ports, and how to tell that it is ready."""

import dataclasses
import errno
import http.client
import shlex
import socket
import typing
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import psutil

from experiments.settings import Settings
from experiments.stack import CONTROLLER, MARK, MLFLOW, PAGE, RAY

# A component that fails is started again, so that its failure does not end everybody's runs. Ray needs it at its start
# already: its raylet gives its agents 15 s, and dies when they need longer, as on a busy machine (ray-project/ray issue
# 65983; the limit cannot be set).
STARTS = 3

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WILDCARD = ("0.0.0.0", "::")


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
        says: what its answer must contain.
        after: an address that must answer before it is started; empty for none.
        hidden: what of its output goes to its log file only: "" for none, "stdout" (how to use it by itself, which is
            not how to use it here), or "all".
    """

    name: str
    command: list[str]
    ports: tuple[Port, ...] = ()
    health: str = ""
    token: str = ""
    says: str = ""
    after: str = ""
    hidden: typing.Literal["", "stdout", "all"] = ""

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return not self.health or answers(self.health, self.token, self.says)

    def shell_command(self, python: str, log: Path) -> str:
        """What honcho hands to the shell.

        Args:
            python: the interpreter.
            log: its log file.
        """
        command = shlex.join(self.command)
        if self.after:
            command = f"{shlex.join([python, '-m', 'experiments.serve', '--wait-for', self.after])} && {command}"
        notice = "failed, and is started again" + (f". Its log file is {log}" if self.hidden else "")
        tries = " || ".join(
            [f"{{ {command}; }}"] + [f"{{ echo {shlex.quote(notice)} >&3; {command}; }}"] * (STARTS - 1)
        )
        redirection = {"": "", "stdout": f"> {shlex.quote(str(log))}", "all": f"> {shlex.quote(str(log))} 2>&1"}
        return f"{{ {tries}; }} 3>&2 {redirection[self.hidden]}"


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
        # Nothing is written outside the data folder, but for Keras's cache of data sets.
        "TMPDIR": str(short_home / "tmp"),
        "MPLCONFIGDIR": str(short_home / "tmp"),
        "PYTHONUNBUFFERED": "1",
    }
    # A proxy of the environment has no place between this machine and itself; requests and gRPC would both ask it.
    here = ",".join(LOOPBACK) + ",127.0.0.2"
    for name in ("no_proxy", "NO_PROXY"):
        environment[name] = ",".join(filter(None, [environ.get(name, ""), here]))
    for name, value in _opened_to_others(settings).items():
        environment.setdefault(name, value)
    components = []
    store = ""
    if not environ.get("MLFLOW_TRACKING_URI", "").strip():
        address = f"http://{reachable(settings.host)}:{settings.mlflow_port}"
        store = f"{address}/health"
        environment["MLFLOW_TRACKING_URI"] = address
        if settings.host not in LOOPBACK:
            outside = f"http://{reachable(settings.host, for_people=True)}:{settings.mlflow_port}"
            environment.setdefault("SPEEDUP_LAB_MLFLOW_UI", outside)
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
                store,
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
            "RAY_raylet_start_wait_time_s": "60",
        }
        components.append(
            Component(
                RAY,
                [
                    *(python, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
                    # Ray replaces 127.0.0.1 by the machine's outer address, which changes as a laptop moves.
                    *("--node-ip-address", "127.0.0.2", "--port", str(settings.ray_port)),
                    *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(settings.ray_dashboard_port)),
                    # By default fixed, or from a range that may hold a port above: two Rays would clash.
                    *("--dashboard-agent-listen-port", "0", "--ray-client-server-port", str(free_port())),
                    *("--min-worker-port", "0", "--max-worker-port", "0"),
                    *("--temp-dir", str(short_home / "ray"), "--object-store-memory", str(200 * 1024**2)),
                ],
                (
                    Port("0.0.0.0", settings.ray_port, "Ray", "SPEEDUP_LAB_RAY_PORT"),
                    Port("127.0.0.1", settings.ray_dashboard_port, "Ray's dashboard", "SPEEDUP_LAB_RAY_DASHBOARD_PORT"),
                ),
                # Its dashboard answers before there is a node to run anything on.
                f"{dashboard}/api/v0/nodes?limit=1&timeout=5&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE",
                token,
                says='"ALIVE"',
                hidden="all",
            )
        )
    components.append(Component(CONTROLLER, [python, "-m", "experiments.controller"], after=store))
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
            f"http://{reachable(settings.host)}:{settings.port}/_stcore/health",
            hidden="stdout",
        )
    )
    return Plan(tuple(components), environment)


def _opened_to_others(settings: Settings) -> dict[str, str]:
    """What lets browsers on other machines in, under this machine's own names: nothing while all stays on loopback.

    Both servers refuse a name that they do not know, as a page of another site could point its own name here.
    """
    if settings.host in LOOPBACK:
        return {}
    names = [settings.host]
    if settings.host in WILDCARD:
        addresses = [address for found in psutil.net_if_addrs().values() for address in found]
        internet = [each.address for each in addresses if each.family in (socket.AF_INET, socket.AF_INET6)]
        names = [socket.gethostname(), *(address.partition("%")[0] for address in internet)]
    names = list(dict.fromkeys([*LOOPBACK, *names]))
    written = [f"[{name}]" if ":" in name else name for name in names]
    return {
        "STREAMLIT_SERVER_ALLOWED_HOSTS": " ".join(names),
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join([*written, *(f"{name}:{settings.mlflow_port}" for name in written)]),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{name}:{settings.mlflow_port}" for name in written),
    }


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


def answers(address: str, token: str = "", says: str = "") -> bool:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        # A proxy of the environment has no place between this machine and itself.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
            return answer.status == 200 and says.encode() in answer.read()
    except (OSError, http.client.HTTPException):
        return False


def reachable(host: str, for_people: bool = False) -> str:
    """A name under which what listens on a host can be reached: from here, or by people on the network."""
    if host in WILDCARD:
        return socket.gethostname() if for_people else "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host


def is_this_machine(address: str) -> bool:
    """Whether an address (URL, host:port, Ray's `auto`, empty for the default) is a loopback one of this machine."""
    try:
        host = urllib.parse.urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:  # no address at all: whoever uses it says so
        return False
    return not address or host in ("localhost", "auto", "local", "::1") or host.startswith("127.")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
