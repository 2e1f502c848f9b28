"""What runs need around them: data sets, the tracking store, Ray, free ports and disk space."""

import importlib.metadata
import os
import shutil
import urllib.parse
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil

from experiments import capacity, components, stack
from experiments.components import is_this_machine
from experiments.doctor.finding import Finding, ok, problem, warning
from experiments.engines.base import EngineError
from experiments.settings import CHECKOUT, ExperimentDeletedError, Settings
from experiments.store_errors import store_errors
from experiments.wording import count
from training import catalog, hardware
from training.datasets.availability import Availability, availability

DATASETS_AREA, TRACKING_AREA, RAY_AREA, PORTS_AREA, DISK_AREA = "Data sets", "Tracking", "Ray", "Ports", "Disk"
ANSWER_S = 3.0
LITTLE_GIB, TOO_LITTLE_GIB = 5.0, 1.0
"""Free space below which a person is warned, or runs are likely to fail."""


# --- data sets ---------------------------------------------------------------------------------------------------


def datasets(settings: Settings) -> Iterator[Finding]:
    """Which data sets are here, and how to get the others."""
    del settings
    for name in catalog.DATASETS:
        yield dataset_finding(availability(name))


def dataset_finding(found: Availability) -> Finding:
    """Judges one data set."""
    title = f"{found.name} ({catalog.DATASETS[found.name].title})"
    if found.here:
        return ok(DATASETS_AREA, f"{title} is here", found.source)
    if found.downloadable:
        return ok(DATASETS_AREA, f"{title} will be downloaded by the first run that needs it", found.how_to_get)
    return warning(DATASETS_AREA, f"{title} is not here, and cannot be downloaded", found.how_to_get)


# --- the tracking store ------------------------------------------------------------------------------------------


def tracking(settings: Settings) -> Iterator[Finding]:
    """Whether the tracking store answers and holds the experiment."""
    yield from mlruns_findings(CHECKOUT)
    shown = without_password(settings.tracking_uri)
    database = settings.database
    if database is not None and not database.exists():
        yield ok(TRACKING_AREA, "no run yet: the store is made at the first start", shown)
        return
    if (database is not None or is_this_machine(settings.tracking_uri)) and not is_this_machine(settings.ray_address):
        yield warning(
            TRACKING_AREA,
            "other machines of the Ray cluster cannot record to a store that only this one reaches",
            "set MLFLOW_TRACKING_URI to a tracking server that all machines of the cluster reach",
            shown,
        )
    if database is None and settings.tracking_uri.startswith(("http://", "https://")):
        trouble = list(_server_trouble(settings.tracking_uri))
        yield from trouble
        if any(finding.level == "problem" for finding in trouble):
            return
    try:
        experiment = settings.experiment_id(create=False)
    except ExperimentDeletedError as error:
        yield problem(TRACKING_AREA, str(error).partition(":")[0], "`python -m experiments restore`", shown)
        return
    except store_errors() as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        yield problem(
            TRACKING_AREA,
            "the tracking store does not answer",
            "set MLFLOW_TRACKING_URI to a store that works; one of an older MLflow needs `mlflow db upgrade`",
            f"{shown}\n{lines[0][:500]}",
        )
        return
    state = "answers" if experiment else "answers; the experiment is made at the first start"
    yield ok(TRACKING_AREA, f"the tracking store {state}", shown)


def _server_trouble(uri: str) -> Iterator[Finding]:
    """What is wrong with a tracking server, asked briefly: MLflow's own client tries for minutes."""
    import requests

    shown = without_password(uri)
    base = uri.rstrip("/")
    try:
        health = requests.get(f"{base}/health", timeout=ANSWER_S)
        version = requests.get(f"{base}/version", timeout=ANSWER_S)
    except requests.RequestException as error:
        yield problem(
            TRACKING_AREA,
            "the tracking server does not answer",
            "start it (`make run` starts one), or set MLFLOW_TRACKING_URI to one that runs",
            f"{shown}\n{type(error).__name__}",
        )
        return
    if health.status_code == 403 and "host" in health.text.lower():
        host = urllib.parse.urlsplit(uri).hostname
        yield problem(
            TRACKING_AREA,
            "the tracking server refuses this name for itself",
            f"start it with --allowed-hosts {host}, or use a name that it allows",
            f"{shown}\n{health.text.strip()[:200]}",
        )
    elif not health.ok:
        yield problem(
            TRACKING_AREA,
            f"the tracking server answers {health.status_code}",
            "look into its log, or set MLFLOW_TRACKING_URI to one that works",
            shown,
        )
    elif version.ok:
        here = importlib.metadata.version("mlflow")
        theirs = version.text.strip()[:40]
        if theirs.split(".")[:2] != here.split(".")[:2]:
            yield warning(
                TRACKING_AREA,
                f"the tracking server is MLflow {theirs}, and this side has {here}",
                "use the same version on both sides",
                shown,
            )


def mlruns_findings(checkout: Path) -> Iterator[Finding]:
    """Whether a folder of MLflow's old file store lies in the checkout; nothing here reads or writes it."""
    if (checkout / "mlruns").is_dir():
        yield warning(
            TRACKING_AREA,
            "there is an ./mlruns folder, whose runs are not shown",
            "import its runs into the tracking store, or move it away; MLflow makes one when MLFLOW_TRACKING_URI is "
            "not set in a script of yours",
            str(checkout / "mlruns"),
        )


def without_password(uri: str) -> str:
    """An address for people to read, its password left out."""
    try:
        parts = urllib.parse.urlsplit(uri)
        if not parts.password:
            return uri
        user_and_host = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{parts.username or ''}:***@{user_and_host[2]}").geturl()
    except ValueError:  # no address that can be taken apart, so none whose password can be told from the rest
        return uri.partition("://")[0] + "://..."


# --- Ray ---------------------------------------------------------------------------------------------------------


def ray(settings: Settings) -> Iterator[Finding]:
    """Whether the Ray cluster answers, and does not count cores that a container may not use."""
    if not settings.ray_address:
        yield ok(RAY_AREA, "no cluster is set: `make run` starts Ray on this machine")
        return
    shown = without_password(settings.ray_address)
    try:
        found = capacity.of(settings)
    except EngineError as error:
        yield problem(RAY_AREA, "the Ray cluster cannot be used", "start it, or unset RAY_ADDRESS", f"{shown}\n{error}")
        return
    yield from ray_findings(found, shown, hardware.usable_cpus() if is_this_machine(settings.ray_address) else None)


def ray_findings(found: capacity.Capacity, address: str, usable_cpus: int | None) -> Iterator[Finding]:
    """Judges a cluster that answers.

    Args:
        found: what it has.
        address: to show.
        usable_cpus: cores that may be used on this machine; None when the cluster is elsewhere.
    """
    nodes = "\n".join(f"{cpus} cores, {gpus} GPUs" for cpus, gpus in found.nodes)
    has = f"{count(found.cpus, 'core')} and {count(found.gpus, 'GPU')} on {count(len(found.nodes), 'machine')}"
    yield ok(RAY_AREA, f"Ray has {has}", nodes)
    if usable_cpus is not None and len(found.nodes) == 1 and found.cpus > usable_cpus:
        yield warning(
            RAY_AREA,
            f"Ray counts {found.cpus} cores, and only {usable_cpus} may be used here",
            f"start Ray with --num-cpus {usable_cpus}",
            f"{address}: a container's CPU limit or an affinity mask keeps the others back",
        )


# --- ports -------------------------------------------------------------------------------------------------------


def ports(settings: Settings) -> Iterator[Finding]:
    """Whether `make run` could listen on its ports, or already does."""
    wanted = components.plan(settings, os.environ, settings.home, "").ports
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    own |= {found.process.pid for found in stack.marked(settings.home)}
    yield from port_findings(wanted, listeners(), own)


def listeners() -> dict[int, int | None]:
    """Port -> the process that listens on it; None for a process of somebody else."""
    found: dict[int, int | None] = {}
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr:
            found[connection.laddr.port] = found.get(connection.laddr.port) or connection.pid
    return found


def port_findings(
    wanted: Sequence[components.Port], listening: dict[int, int | None], own: Collection[int]
) -> Iterator[Finding]:
    """Judges the ports.

    Args:
        wanted: those that `make run` listens on.
        listening: port -> process, see `listeners`.
        own: processes of the product itself, of this data folder.
    """
    seen: dict[int, str] = {}
    for port in wanted:
        title = f"port {port.number} for {port.use}"
        if port.number in seen:
            both = f"{seen[port.number]} and {port.variable} are both {port.number}"
            yield problem(PORTS_AREA, both, "give each a port of its own")
            continue
        seen[port.number] = port.variable
        taken = components.taken_ports([port])
        if not taken:
            yield ok(PORTS_AREA, f"{title} is free")
        elif listening.get(port.number) in own:
            yield ok(PORTS_AREA, f"{title} is in use by the running product")
        else:
            what, _, remedy = taken[0].partition(": ")
            yield problem(PORTS_AREA, what, remedy, _owner(listening, port.number))


def _owner(listening: dict[int, int | None], port: int) -> str:
    if port not in listening:
        return ""
    pid = listening[port]
    if pid is None:
        return "a process of another user listens on it"
    try:
        return f"{psutil.Process(pid).name()} (process {pid}) listens on it"
    except psutil.Error:  # ended since
        return ""


# --- disk --------------------------------------------------------------------------------------------------------


def disk(settings: Settings) -> Iterator[Finding]:
    """Whether the data folder can be written and has room."""
    yield disk_finding(settings.home)


def disk_finding(home: Path) -> Finding:
    """Judges the data folder, or what of its path is already there."""
    folder = next(each for each in (home, *home.parents) if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return problem(
            DISK_AREA,
            "the data folder cannot be written",
            "set SPEEDUP_LAB_HOME to a folder that you can write",
            f"{home} ({folder} refuses)",
        )
    return space_finding(home, shutil.disk_usage(folder).free / 2**30)


def space_finding(home: Path, free_gib: float) -> Finding:
    """Judges the free space, in GiB."""
    title = f"{free_gib:,.1f} GiB free for the data folder"
    remedy = "free some space, or set SPEEDUP_LAB_HOME to a folder on another disk"
    if free_gib < TOO_LITTLE_GIB:
        return problem(DISK_AREA, title, remedy, str(home))
    if free_gib < LITTLE_GIB:
        return warning(DISK_AREA, title, remedy, str(home))
    return ok(DISK_AREA, title, str(home))
