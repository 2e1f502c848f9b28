"""Where things are: tracking URI, Ray address, data folder, ports. Read once from the environment, then passed on."""

import math
import os
import sqlite3
import sys
import typing
import urllib.parse
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from experiments.locks import file_lock
from training import names

if typing.TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

CHECKOUT = Path(__file__).resolve().parent.parent
_LOOPBACK = "127.0.0.1"
_OURS = "speedup_lab"
"""Tag of the experiment: its value is the name that it had, whatever people call it since."""
_STORE_TIMEOUT_S = 120.0  # making the store takes 4 s alone on two cores; others may be starting too


class SettingsError(ValueError):
    """Something about the set-up cannot work. The message names the variable or thing, and the remedy."""


class ExperimentDeletedError(SettingsError):
    """The MLflow experiment that holds every run was deleted (its runs with it), and can be restored."""

    def __init__(self, name: str, experiment_id: str):
        self.experiment_id = experiment_id
        super().__init__(
            f"the MLflow experiment {name!r} was deleted, and its runs with it: "
            "bring all of it back with `python -m experiments restore`"
        )


@dataclass(frozen=True)
class Settings:
    """Everything that depends on where the product runs. Immutable.

    Nothing else reads these variables, but for a run's supervisor, a process that may be on another machine: the engine
    gives it the two times in its environment.
    """

    home: Path
    tracking_uri: str
    ray_address: str = ""
    experiment: str = names.EXPERIMENT
    python: str = sys.executable
    host: str = _LOOPBACK
    port: int = 8501
    mlflow_port: int = 5000
    ray_port: int = 6379
    ray_dashboard_port: int = 8265
    mlflow_ui: str = ""
    telemetry_s: float = 5.0
    record_deadline_s: float = 600.0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Reads the environment.

        Args:
            environ: variables; the process's own if None.

        Raises:
            SettingsError: a port that is no port, or seconds that are no seconds.
        """
        environ = os.environ if environ is None else environ

        def text(name: str, default: str) -> str:
            return environ.get(name, "").strip() or default

        home = Path(text("SPEEDUP_LAB_HOME", str(CHECKOUT / ".speedup-lab"))).expanduser().absolute()
        tracking_uri = _tracking_uri(text("MLFLOW_TRACKING_URI", sqlite_uri(home / "mlflow.db")))
        is_server = tracking_uri.startswith(("http://", "https://"))
        return cls(
            home=home,
            tracking_uri=tracking_uri,
            ray_address=text("RAY_ADDRESS", ""),
            host=text("SPEEDUP_LAB_HOST", _LOOPBACK),
            port=_port(environ, "SPEEDUP_LAB_PORT", 8501),
            mlflow_port=_port(environ, "SPEEDUP_LAB_MLFLOW_PORT", 5000),
            ray_port=_port(environ, "SPEEDUP_LAB_RAY_PORT", 6379),
            ray_dashboard_port=_port(environ, "SPEEDUP_LAB_RAY_DASHBOARD_PORT", 8265),
            mlflow_ui=text("SPEEDUP_LAB_MLFLOW_UI", without_login(tracking_uri) if is_server else ""),
            telemetry_s=_seconds(environ, "SPEEDUP_LAB_TELEMETRY_S", 5.0),
            record_deadline_s=_seconds(environ, "SPEEDUP_LAB_RECORD_DEADLINE_S", 600.0),
        )

    @property
    def runs_folder(self) -> Path:
        """Holds one folder a run, named by its run id."""
        return self.home / "runs"

    @property
    def artifacts_folder(self) -> Path:
        """Holds MLflow's artifacts when the store is our own SQLite file."""
        return self.home / "artifacts"

    @property
    def locks_folder(self) -> Path:
        """Holds lock files between processes."""
        return self.home / "locks"

    @property
    def database(self) -> Path | None:
        """The SQLite file of the tracking store; None when the store is something else."""
        return sqlite_path(self.tracking_uri)

    def prepare(self) -> "Settings":
        """Makes what must exist before anything else: folders and, once, the SQLite store with its experiment.

        A store that was there is put into WAL mode.

        Safe to call from many processes at the same time and cheap when all is there. Two first starts would otherwise
        both migrate an empty database and one would fail.

        Returns:
            These settings, so that calls chain.

        Raises:
            SettingsError: the data folder cannot be written.
        """
        try:
            for folder in (self.home, self.runs_folder, self.artifacts_folder, self.locks_folder):
                folder.mkdir(parents=True, exist_ok=True)
            if self.database is not None:
                self.database.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(
                f"SPEEDUP_LAB_HOME={self.home} cannot be used ({error.strerror}): set it to a folder you can write"
            ) from None
        if self.database is not None and not _uses_wal(self.database):
            with file_lock(self.locks_folder / "store.lock", _STORE_TIMEOUT_S):
                if not self.database.exists():
                    self._make_database(self.database)
                elif not _uses_wal(self.database):
                    # Someone else's, or at work just now: it serves as it is, and the next start tries again.
                    with suppress(sqlite3.Error):
                        _use_wal(self.database)
        return self

    def _make_database(self, database: Path) -> None:
        """Makes the store beside its place and renames it, so that a database that is there is always whole."""
        draft = database.with_name(f".{database.name}.{os.getpid()}.draft")
        draft.unlink(missing_ok=True)
        client = _client(sqlite_uri(draft))
        self._create_experiment(client)
        _forget_connections(client)
        _use_wal(draft)
        for leftover in ("-wal", "-shm"):
            draft.with_name(draft.name + leftover).unlink(missing_ok=True)
        draft.replace(database)

    def _artifact_location(self) -> str | None:
        # A server hands out its own location; only our own file has none yet.
        return self.artifacts_folder.as_uri() if self.database is not None else None

    def client(self) -> "MlflowClient":
        """A client of the tracking store; one per URI in a process."""
        return _client(self.tracking_uri)

    def experiment_id(self, create: bool = True) -> str:
        """MLflow's id of the experiment that holds every run.

        Args:
            create: make it when it is missing; otherwise answer "" then.

        Raises:
            ExperimentDeletedError: it was deleted.
        """
        found = self._experiment()
        if found is None and create:
            with file_lock(self.locks_folder / "store.lock", _STORE_TIMEOUT_S):
                found = self._experiment()
                if found is None:
                    return self._create_experiment(self.client())
        if found is None:
            return ""
        if found.lifecycle_stage == "deleted":
            raise ExperimentDeletedError(found.name, found.experiment_id)
        if create and _OURS not in found.tags:
            self.client().set_experiment_tag(found.experiment_id, _OURS, self.experiment)  # an older version made it
        return str(found.experiment_id)

    def _experiment(self) -> "Experiment | None":
        """The experiment by its name, or by its mark where somebody gave it another name: its runs are the same."""
        from mlflow.entities import ViewType

        if (found := self.client().get_experiment_by_name(self.experiment)) is not None:
            return found
        marked = self.client().search_experiments(
            view_type=ViewType.ALL, filter_string=f"tags.{_OURS} = '{self.experiment}'", max_results=100
        )
        return min(marked, key=lambda each: (each.lifecycle_stage == "deleted", each.creation_time), default=None)

    def _create_experiment(self, client: "MlflowClient") -> str:
        location = self._artifact_location()
        return str(client.create_experiment(self.experiment, artifact_location=location, tags={_OURS: self.experiment}))

    def restore_experiment(self) -> bool:
        """Brings a deleted experiment back, with its runs. Returns whether there was anything to restore."""
        try:
            self.experiment_id()
        except ExperimentDeletedError as error:
            self.client().restore_experiment(error.experiment_id)
            return True
        return False


def bound_store_requests(retries: int, timeout_s: int) -> None:
    """Limits how long MLflow's client tries to reach a server that is away, unless the environment does already.

    Of itself it tries seven times, for two minutes each: whoever waits for it looks as if it had hung.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", str(retries))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(timeout_s))


def without_login(address: str) -> str:
    """An address without user and password: to be opened by people, each of whom has a login of their own."""
    try:
        parts = urllib.parse.urlsplit(address)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    except ValueError:  # no address that can be taken apart
        return ""


def sqlite_uri(path: Path) -> str:
    """The tracking URI of an SQLite file, always absolute: a relative one means another file in every folder."""
    return f"sqlite:///{urllib.parse.quote(str(path.absolute()))}"


def sqlite_path(uri: str) -> Path | None:
    """The file behind an SQLite URI; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(urllib.parse.unquote(uri.removeprefix("sqlite:///").partition("?")[0])).absolute()


def _uses_wal(database: Path) -> bool:
    """Whether an SQLite file is in WAL mode, from its header alone: asked at every start, it must not wait."""
    try:
        with open(database, "rb") as file:
            return file.read(20)[18:] == b"\2\2"
    except OSError:
        return False


def _use_wal(database: Path) -> None:
    """Readers do not wait for a writer and the other way round.

    Without it writes of eight runs get lost ("database is locked"). The mode is stored in the file itself.
    """
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _tracking_uri(uri: str) -> str:
    """The URI with an SQLite path made absolute, so that all processes mean the same file."""
    if "://" not in uri or uri.startswith("file:"):
        raise SettingsError(
            f"MLFLOW_TRACKING_URI={uri!r} is a folder, which cannot be searched or shared safely: "
            "set it to sqlite:////absolute/path.db or to the address of a tracking server, or leave it unset"
        )
    scheme = uri.partition("://")[0].partition("+")[0].lower()
    if scheme in ("postgresql", "postgres", "mysql", "mssql"):
        raise SettingsError(
            f"MLFLOW_TRACKING_URI is a {scheme} database, which is not used directly: start `mlflow server "
            "--backend-store-uri` on it, and set the variable to that server's address"
        )
    path = sqlite_path(uri)
    return uri if path is None else sqlite_uri(path)


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    # isdecimal alone takes digits of every script; a port is written in ASCII.
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise SettingsError(f"{name}={text!r} is no port: set a number from 1 to 65535")
    return int(text)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    with suppress(ValueError):
        if 0.0 < (seconds := float(text)) < math.inf:
            return seconds
    raise SettingsError(f"{name}={text!r} is no time: give seconds, such as {default:g}")


@cache
def _client(tracking_uri: str) -> "MlflowClient":
    import logging

    # Alembic narrates every migration of a new database on stderr, where a command prints its progress.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent anywhere unless someone wants it
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri)


def _forget_connections(client: "MlflowClient") -> None:
    """Closes a draft database's connections; an open one would keep writing to the renamed file's journal."""
    client._tracking_client.store.engine.dispose()
    _client.cache_clear()
