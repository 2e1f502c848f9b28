"""The queue: a run is submitted and cancelled here. What is in MLflow is the queue; nothing else holds it.

A submission writes, in this order: the MLflow run (which MLflow makes RUNNING, with an unfinished submission tag),
params, `spec.json`, the run's folder, the finished submission tag, and last the status SCHEDULED. Only a SCHEDULED run
is ever started, so a submission that dies in the middle starts nothing: `is_unfinished` tells such a run apart, the
results leave it out, and the controller closes it as FAILED.
"""

import hashlib
import json
import re
import socket
import typing
import uuid

from experiments.locks import file_lock
from experiments.settings import Settings
from training import mlflow_limits
from training.names import Artifact, RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec, SpecError
from training.spec_rules import Severity

if typing.TYPE_CHECKING:
    from mlflow.entities import Run

_UNFINISHED = "unfinished:"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,100}")
RUN_ID = re.compile(r"[0-9a-f]{32}")
QUEUED_REASON = "waiting for the controller"


class UnknownRun(LookupError):  # noqa: N818 - part of the interface that pages and commands read
    """No run with this id, or not just one. The message names it and says what is wrong."""

    def __init__(self, run_id: str, problem: str = "is unknown"):
        super().__init__(f"run {run_id[:80]!r} {problem}: `python -m experiments list` shows the runs there are")


def submit(
    settings: Settings,
    spec: RunSpec,
    submission: str = "",
    *,
    tags: typing.Mapping[str, str] | None = None,
) -> str:
    """Queues one run.

    Args:
        settings: where to.
        spec: what to run.
        submission: a token of the form or command that submits; the same token never makes two runs. Empty: a new one.
        tags: further tags by `names.Tag`, such as the run this one restarts.

    Returns:
        The run id. Of the run that the same token made before, if there is one.

    Raises:
        SpecError: the spec, its data set or the machines refuse it; nothing was queued.
        SettingsError: the experiment was deleted, or the data folder cannot be written.
    """
    from experiments import admission

    settings.prepare()
    refusals = [problem for problem in admission.check(settings, spec) if problem.severity is Severity.ERROR]
    if refusals:
        raise SpecError(refusals)
    experiment_id = settings.experiment_id()
    if not submission:
        return _create(settings, experiment_id, spec, uuid.uuid4().hex, tags or {})
    token = submission if _TOKEN.fullmatch(submission) else hashlib.sha256(submission.encode()).hexdigest()
    bucket = hashlib.sha256(token.encode()).hexdigest()[0]
    # The lock makes search-then-create one step on this machine; sixteen of them, so that submissions seldom wait.
    with file_lock(settings.locks_folder / f"submit-{bucket}.lock"):
        return _submitted(settings, experiment_id, token) or _create(settings, experiment_id, spec, token, tags or {})


def _submitted(settings: Settings, experiment_id: str, token: str) -> str:
    """The run that a submission token made; empty if none did. Call it with the token's lock held."""
    client = settings.client()
    found = client.search_runs([experiment_id], f"tags.{Tag.SUBMISSION} = '{token}'", max_results=1)
    if not found:
        return ""
    run_id: str = found[0].info.run_id
    launched = RunFolder.of(settings.runs_folder, run_id).launch_path.exists()
    if found[0].info.status == RunStatus.RUNNING and not launched:
        # Its submission died between its last two steps: this is the missing one.
        client.update_run(run_id, status=RunStatus.SCHEDULED)
    return run_id


def is_unfinished(run: "Run") -> bool:
    """Whether the submission of this MLflow run has not come to its end: it is not in the queue (yet)."""
    tags = run.data.tags
    return run.info.status == RunStatus.RUNNING and tags.get(Tag.SUBMISSION, "").startswith(_UNFINISHED)


def cancel(settings: Settings, run_id: str) -> RunStatus:
    """Asks a run to stop. Does nothing to one that has ended, and nothing more the second time.

    A run that no engine has yet is KILLED at once; a live one is stopped by the controller, or by its own supervisor.

    Returns:
        The run's status right after.

    Raises:
        UnknownRun: there is no such run.
    """
    client = settings.client()
    run = get_run(settings, run_id)
    status = RunStatus(run.info.status)
    if status.is_terminal:
        return status
    if not run.data.tags.get(Tag.CANCEL_REQUESTED):
        client.set_tag(run_id, Tag.CANCEL_REQUESTED, "true")
    if status is RunStatus.SCHEDULED and not run.data.tags.get(Tag.ENGINE_HANDLE):
        client.set_tag(run_id, Tag.REASON, "cancelled before it started")
        client.set_terminated(run_id, RunStatus.KILLED)
        return RunStatus.KILLED
    return status


def get_run(settings: Settings, run_id: str) -> "Run":
    """MLflow's record of a run of ours.

    Raises:
        UnknownRun: no such id, a deleted run, or a run of another experiment.
    """
    from mlflow.exceptions import MlflowException

    if not RUN_ID.fullmatch(run_id):
        raise UnknownRun(run_id)
    try:
        run = settings.client().get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise UnknownRun(run_id) from None
    if run.info.lifecycle_stage == "deleted" or run.info.experiment_id != settings.experiment_id(create=False):
        raise UnknownRun(run_id)
    return run


def params(spec: RunSpec) -> dict[str, str]:
    """Every field of the spec as an MLflow param, at full length: objects and lists as JSON, unset as an empty text."""
    return {name: _param(value) for name, value in spec.to_dict().items()}


def _param(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _create(
    settings: Settings, experiment_id: str, spec: RunSpec, token: str, more_tags: typing.Mapping[str, str]
) -> str:
    # A CLI that only prints help must not wait for MLflow's import.
    from mlflow.entities import Param

    client = settings.client()
    full = params(spec)
    short, notices = mlflow_limits.shorten_params(full)
    tags = {**_tags(spec), **more_tags, Tag.SUBMISSION: _UNFINISHED + token}
    if notices:
        tags[Tag.NOTICE] = "\n".join(notices)
    run = client.create_run(
        experiment_id,
        run_name=spec.display_name,
        tags={key: mlflow_limits.shorten_tag(value) for key, value in tags.items()},
    )
    run_id = run.info.run_id
    kept = [Param(name, value) for name, value in short.items()]
    for start in range(0, len(kept), mlflow_limits.MOST_PARAMS):
        client.log_batch(run_id, params=kept[start : start + mlflow_limits.MOST_PARAMS])
    client.log_text(run_id, spec.to_json(), Artifact.SPEC)
    if notices:
        client.log_text(run_id, json.dumps(full, indent=2, sort_keys=True), Artifact.PARAMS)
    RunFolder.of(settings.runs_folder, run_id).write_spec(spec)
    client.set_tag(run_id, Tag.SUBMISSION, token)
    client.update_run(run_id, status=RunStatus.SCHEDULED)
    return run_id


def _tags(spec: RunSpec) -> dict[str, str]:
    tags = {
        Tag.USER: spec.user,
        Tag.NOTE: spec.notes,
        Tag.GROUP: spec.group,
        Tag.SIMULATED: "true" if spec.simulated else "false",
        Tag.PER_REPLICA_BATCH_SIZE: str(spec.per_replica_batch_size),
        Tag.DEVICES_ASKED: spec.devices_asked,
        Tag.REASON: QUEUED_REASON,
    }
    tags |= {Tag.USER_TAG_PREFIX + key: value for key, value in spec.tags.items()}
    return {key: value for key, value in tags.items() if value}


def is_driven(settings: Settings) -> bool:
    """Whether a controller drives the queue of this data folder: the one that wrote its lock file is still alive.

    The lock itself is not tried, since a controller that starts in this moment would find it taken. Of a controller on
    another machine with the same data folder nothing is known, and it is taken to be alive.
    """
    import psutil

    path = settings.locks_folder / "controller.lock"
    try:
        who, written = path.read_text(encoding="utf-8"), path.stat().st_mtime
    except OSError:
        return False
    match = re.fullmatch(r"process (\d+) on (.*)", who)
    if match is None:
        return False
    if match[2] != socket.gethostname():
        return True
    try:
        # A process that began after the file was written has only got its number again.
        return psutil.Process(int(match[1])).create_time() <= written + 1.0
    except psutil.NoSuchProcess:
        return False
