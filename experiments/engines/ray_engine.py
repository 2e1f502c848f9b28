"""RayEngine: each run is one Ray job, whose entrypoint is the run's supervisor."""

import os
import platform
import re
import shlex
import socket
import typing
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient
from ray.util.state import list_nodes
from ray.util.state.exception import RayStateApiException

from experiments import capacity
from experiments.capacity import Capacity, Request
from experiments.engines.base import (
    STOP_WAIT_S,
    EngineError,
    EngineState,
    EngineStatus,
    EngineUnavailableError,
    SupervisorCommand,
    supervisor_environment,
)
from experiments.settings import Settings
from training.run_folder import Launch
from training.spec import RunSpec
from training.worker.supervisor import RECORD_VARIABLE, TELEMETRY_VARIABLE

_PREFIX = "ray:"
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_CONNECT_S = 5.0
_ANSWER_S = 20.0  # the head itself waits 10 s for its job agent before it says that there is none
_NO_AGENT = ("No available agent", "Failed to get head node agent", "Agent info not found")
_STATUS = {
    JobStatus.PENDING: EngineStatus.PENDING,
    JobStatus.RUNNING: EngineStatus.RUNNING,
    JobStatus.SUCCEEDED: EngineStatus.SUCCEEDED,
    JobStatus.FAILED: EngineStatus.FAILED,
    JobStatus.STOPPED: EngineStatus.STOPPED,
}


class _Client(JobSubmissionClient):
    """Ray's client, which waits for ever when the head hangs, with a limit on every request."""

    def _do_request(self, method: str, endpoint: str, **options: typing.Any) -> requests.Response:
        options.setdefault("timeout", (_CONNECT_S, _ANSWER_S))
        return super()._do_request(method, endpoint, **options)

    def ray_version(self) -> str:
        """The cluster's."""
        return str(self._do_request("GET", "/api/version").json()["ray_version"])


class RayEngine:
    """Runs supervisors as Ray jobs. Making one connects to nothing; the first call does.

    Args:
        settings: `ray_address` as Ray itself takes RAY_ADDRESS: the dashboard's URL, host:port of the head, ray://...;
            empty for the cluster that runs on this machine.
        command: the supervisor's command, instead of the real one.
    """

    def __init__(self, settings: Settings, command: SupervisorCommand | None = None):
        self._settings = settings
        self._command = command or self._supervisor
        self._connected: _Client | None = None

    def start(self, launch: Launch, spec: RunSpec, request: Request) -> str:
        """Submits the job. The same run twice is the same job: a start whose answer got lost may be repeated."""
        # The entrypoint is a shell command line. It holds the interpreter's path and the run folder's, nothing typed.
        entrypoint = "exec " + shlex.join(self._command(launch, spec))
        submission = launch.run_id
        # The workers of a gang are Ray actors with resources of their own; the driver beside them takes none, or two
        # workers of one core each would never fit on two cores.
        alone = spec.workers == 1
        with self._asking():
            try:
                self._client().submit_job(
                    entrypoint=entrypoint,
                    submission_id=submission,
                    runtime_env={"env_vars": self._environment(spec)},
                    entrypoint_num_cpus=request.cpus_total if alone else 0,
                    entrypoint_num_gpus=request.gpus_total if alone else 0,
                )
            except RuntimeError as error:
                if "already exists" not in str(error):
                    raise
        return _PREFIX + submission

    def find(self, launch: Launch, spec: RunSpec) -> str:
        """A job is named by its run."""
        handle = _PREFIX + launch.run_id
        return handle if self.state(handle).status is not EngineStatus.UNKNOWN else ""

    def state(self, handle: str) -> EngineState:
        """How it stands with a job. Jobs live in the head's memory: a restarted head answers UNKNOWN."""
        if not (submission := _submission(handle)):
            return EngineState(EngineStatus.UNKNOWN)
        with self._asking():
            try:
                info = self._client().get_job_info(submission)
            except RuntimeError as error:
                if "status code 404" in str(error):
                    return EngineState(EngineStatus.UNKNOWN)
                raise
        status = _STATUS[JobStatus(info.status)]
        detail = ""
        if status is EngineStatus.FAILED:
            lines = (info.message or "").strip().splitlines()
            detail = lines[0][:500] if lines else "no reason given"
            if info.driver_exit_code is not None:
                # A shell reports a signal as 128 + its number, a process that exec replaced it with as a negative one.
                code = info.driver_exit_code
                how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
                detail = f"the supervisor {how}"
        return EngineState(status, detail)

    def stop(self, handle: str) -> None:
        """SIGTERM to the job's processes now; Ray sends SIGKILL STOP_WAIT_S later."""
        if not (submission := _submission(handle)):
            return
        with self._asking():
            try:
                self._client().stop_job(submission)
            except RuntimeError as error:
                if "status code 404" not in str(error):
                    raise

    def capacity(self) -> Capacity:
        """What the cluster's living nodes have."""
        with self._asking():
            address = self._client().get_address()
            nodes = list_nodes(address=address, filters=[("state", "=", "ALIVE")], timeout=int(_ANSWER_S), limit=1000)
        resources = [node.resources_total or {} for node in nodes]
        counts = tuple((int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in resources)
        gpus = sum(count for _, count in counts)
        gpu_ids = _gpu_ids(gpus) if len(counts) == 1 else ()
        return Capacity(sum(count for count, _ in counts), gpus, counts, "ray", gpu_ids)

    def close(self) -> None:
        """Forgets the connection. Jobs go on."""
        self._connected = None

    @property
    def _address(self) -> str:
        return self._settings.ray_address or "on this machine (RAY_ADDRESS is not set)"

    def _supervisor(self, launch: Launch, spec: RunSpec) -> list[str]:
        module = "training.worker" if spec.workers == 1 else "experiments.engines.ray_job"
        return [self._settings.python, "-m", module, launch.folder]

    def _environment(self, spec: RunSpec) -> dict[str, str]:
        # No address of MLflow, which may hold a password: whoever may look at the cluster's jobs would read it.
        # Ray reads the waiting time in the job's own environment; a cluster may have been started without it.
        return {
            **supervisor_environment(spec),
            "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S),
            TELEMETRY_VARIABLE: str(self._settings.telemetry_s),
            RECORD_VARIABLE: str(self._settings.record_deadline_s),
        }

    def _client(self) -> _Client:
        if self._connected is None:
            _check_port(self._settings.ray_address)
            client = _Client(self._settings.ray_address or None)
            version = client.ray_version()
            if version != ray.__version__:
                raise EngineError(
                    f"the Ray cluster at {self._address} runs Ray {version}, and this side has Ray {ray.__version__} "
                    f"(Python {platform.python_version()}): use the same versions of Ray and Python on both"
                )
            self._connected = client
        return self._connected

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turns what Ray's client may raise into what callers of an engine know."""
        try:
            yield
        except EngineError:
            raise
        except AuthenticationError:
            raise EngineUnavailableError(
                f"Ray at {self._address} wants a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as for its start"
            ) from None
        except (OSError, requests.RequestException, RayStateApiException, ValueError) as error:
            # requests' errors are OSErrors; a missing local cluster is a ConnectionError; the head away, a ValueError.
            self._connected = None
            raise EngineUnavailableError(f"Ray at {self._address} does not answer ({_first_line(error)})") from None
        except RuntimeError as error:
            message = str(error)
            if any(words in message for words in _NO_AGENT):
                raise EngineUnavailableError(
                    f"Ray at {self._address} has no agent that takes jobs: port 52365 (--dashboard-agent-listen-port) "
                    f"of its head may be taken ({_first_line(error)})"
                ) from None
            if "status code 5" in message:
                raise EngineUnavailableError(f"Ray at {self._address} failed ({_first_line(error)})") from None
            raise EngineError(f"Ray at {self._address} refused: {_first_line(error)}") from None


def _submission(handle: str) -> str:
    """Ray's id of a job; empty for a handle that is none of ours. It becomes a part of a URL's path."""
    submission = handle.removeprefix(_PREFIX)
    return submission if handle.startswith(_PREFIX) and _RUN_ID.fullmatch(submission) else ""


def _check_port(address: str) -> None:
    """Tries host:port of a head before Ray does: Ray's own attempt blocks for minutes when nothing answers."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()


def _gpu_ids(count: int) -> tuple[int, ...]:
    """Physical indices of a lone node's GPUs: those visible here if they are as many; counted from 0 where none is.

    Empty where they are not known: Ray, which tells each process which it has, was given a part of those that are
    visible here, or a slice of one, which has no index.
    """
    if capacity.visible_slice():
        return ()
    here = capacity.visible_gpus(os.environ)
    if here and len(here) != count:
        return ()
    return here or tuple(range(count))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
