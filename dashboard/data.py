"""What the pages know of the rooms below: reads the record, queues and cancels. Answers are kept for a moment.

A cache here is shared by every session of the server, so nothing in it may depend on who looks; each is bounded, and
what can change while a run is alive is read again after a second, so that a page that redraws every two seconds never
shows a status older than five.
"""

import json
import typing
from collections.abc import Callable, Iterable
from functools import wraps

import pandas as pd
import streamlit as st

from experiments import admission, capacity, foreground, plan_runs, queue, results
from experiments.analysis import timing
from experiments.engines.base import EngineError, EngineUnavailableError
from experiments.plans import Plan, PlanError
from experiments.plans import plans as all_plans
from experiments.settings import Settings, SettingsError, bound_store_requests
from experiments.store_errors import is_of_this_machine, store_errors
from training import catalog
from training.datasets import availability
from training.names import Metric, Tag
from training.spec import RunSpec, SpecError
from training.spec_rules import Problem

if typing.TYPE_CHECKING:
    from experiments import doctor

LIVE_TTL_S = 1.0
MACHINE_TTL_S = 10.0
DRAWN = (
    *(f"{prefix}{metric}" for metric in (Metric.LOSS, Metric.ACCURACY) for prefix in ("", Metric.VAL_PREFIX)),
    *(Metric.TIME_QUEUE, Metric.TIME_STARTUP, Metric.TIME_DATA, Metric.TIME_BUILD, Metric.TIME_FIRST_STEP),
    *(Metric.TIME_EPOCH_TRAIN, Metric.TIME_EPOCH_VALIDATION, Metric.TIME_INPUT_WAIT),
    *(Metric.EXAMPLES_PER_SECOND, Metric.WINDOW),
)
"""What a run's page draws. A run logs several times as many metrics, and each is a read of its own."""
LOG_LINES_SHOWN = 300
LOG_LINES_DOWNLOADED = 200_000

UnknownRun = queue.UnknownRun


class Unavailable(RuntimeError):  # noqa: N818 - reads as what happened, like TimeoutError
    """What a page needs cannot be read now. `str()` says what, `remedy` how to mend it, `detail` the cause's words."""

    def __init__(self, message: str, remedy: str, detail: str = ""):
        self.remedy = remedy
        self.detail = detail
        super().__init__(message)


Answer = typing.TypeVar("Answer")
Arguments = typing.ParamSpec("Arguments")


def from_the_store(read: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Turns a failing tracking store into `Unavailable`, which every page knows how to show."""

    @wraps(read)
    def guarded(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        try:
            return read(*args, **kwargs)
        except SettingsError as error:
            raise Unavailable(
                "The set-up does not work", "Mend what is said below, then reload.", str(error)
            ) from error
        except results.DamagedArtifactError as error:
            raise Unavailable("A part of a run cannot be read", "Choose another run.", str(error)) from error
        except EngineUnavailableError as error:
            raise Unavailable("Ray does not answer", "`make run` starts it; then reload.", str(error)) from error
        except EngineError as error:
            raise Unavailable("Ray refuses", "Mend what is said below, then reload.", str(error)) from error
        except store_errors() as error:
            if is_of_this_machine(error):
                raise Unavailable(
                    "The data folder cannot be used", "Look at its disk (page Environment), then reload.", str(error)
                ) from error
            detail = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise Unavailable(
                "The tracking store does not answer", "`make run` starts the MLflow server; then reload.", detail
            ) from error

    return guarded


@st.cache_resource(max_entries=1, show_spinner="Opening the store …")
def _settings() -> Settings:
    bound_store_requests(retries=1, timeout_s=20)  # every session waits for the one that asks
    return Settings.from_environment().prepare()


@st.cache_resource(max_entries=1, show_spinner="Reading the runs …")
def _results() -> results.Results:
    found = results.Results(_settings())
    found.runs()  # the first read asks for everything; later ones only for what changed
    return found


@from_the_store
def settings() -> Settings:
    """Where things are; the store is made on the first call of a process."""
    return _settings()


# --- runs --------------------------------------------------------------------------------------------------------


@from_the_store
def runs() -> pd.DataFrame:
    """Every run, newest first, with the columns of `experiments.results.RUN_COLUMNS`; at most a second old."""
    return _results().runs()


@from_the_store
def run(run_id: str) -> dict[str, typing.Any]:
    """One run's row of `runs`, with None where nothing is known.

    Raises:
        UnknownRun: there is no such run.
    """
    rows = _of(run_id, _results().runs())
    if rows.empty:
        queue.get_run(_settings(), run_id)  # raises for an unknown id
        # It was submitted within this second, or brought back in MLflow's own page.
        _results().reload()
        rows = _of(run_id, _results().runs())
        if rows.empty:
            raise UnknownRun(run_id)
    row = rows.iloc[0].to_dict()
    return {str(name): None if _missing(value) else value for name, value in row.items()}


def look_again() -> None:
    """Has the next page read every run anew: one that it counted on was deleted."""
    _results().reload()


def _of(run_id: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["run_id"] == run_id]


def _missing(value: object) -> bool:
    # NaN stays: a loss that is NaN is a fact about the run. NaT and pd.NA only mean that nothing was recorded.
    return value is None or value is pd.NA or value is pd.NaT


@st.cache_data(ttl=LIVE_TTL_S, max_entries=16, show_spinner=False)
def _history(run_id: str) -> pd.DataFrame:
    return results.history(_settings(), run_id, DRAWN)


@from_the_store
def history(run_id: str) -> pd.DataFrame:
    """The points of the DRAWN metrics of a run: columns metric, step, value, timestamp."""
    return _history(run_id)


@from_the_store
def steady(run: typing.Mapping[str, typing.Any]) -> dict[str, typing.Any]:
    """The steady state of a run (a row of `runs`): a row of `experiments.analysis.timing.steady_states`."""
    points = _history(run["run_id"]).assign(run_id=run["run_id"])
    one = pd.DataFrame([{name: run[name] for name in ("run_id", "global_batch_size", "steps_per_execution")}])
    row = timing.steady_states(one.fillna(float("nan")), points).iloc[0].to_dict()
    return {str(name): value for name, value in row.items()}


@st.cache_data(ttl=LIVE_TTL_S, max_entries=16, show_spinner=False)
def _record(run_id: str) -> dict[str, typing.Any]:
    return results.record(_settings(), run_id)


@from_the_store
def record(run_id: str) -> dict[str, typing.Any]:
    """The run's record, as `python -m experiments show --json` prints it."""
    return _record(run_id)


@st.cache_data(ttl=MACHINE_TTL_S, max_entries=8, show_spinner=False)
def _placement(run_id: str) -> pd.DataFrame:
    return results.placement(_settings(), run_id)


@from_the_store
def placement(run_id: str) -> pd.DataFrame:
    """The placement table of a run; no rows while there is none."""
    return _placement(run_id)


@st.cache_data(ttl=LIVE_TTL_S, max_entries=16, show_spinner=False)
def _log(run_id: str, worker: int, last: int) -> list[str]:
    return results.log_lines(_settings(), run_id, worker=worker, last=last)


@from_the_store
def log(run_id: str, worker: int, last: int = LOG_LINES_SHOWN) -> list[str]:
    """The last lines that a worker of the run printed."""
    return _log(run_id, worker, last)


@st.cache_data(ttl=MACHINE_TTL_S, max_entries=16, show_spinner=False)
def _environment(run_id: str) -> dict[str, typing.Any]:
    return results.environment(_settings(), run_id)


@from_the_store
def environment(run_id: str) -> dict[str, typing.Any]:
    """Everything that was noted about where the run ran; empty while nothing was."""
    return _environment(run_id)


@st.cache_data(max_entries=64, show_spinner=False)
def _spec(run_id: str) -> RunSpec:
    return results.spec(_settings(), run_id)


@from_the_store
def spec(run_id: str) -> RunSpec:
    """What the run was asked to do, which never changes."""
    return _spec(run_id)


@from_the_store
def mlflow_link(run_id: str) -> str:
    """The address of the run in MLflow's own pages; empty when no server is known."""
    where = settings()
    if not where.mlflow_ui.startswith(("http://", "https://")):
        return ""
    return f"{where.mlflow_ui.rstrip('/')}/#/experiments/{_experiment_id()}/runs/{run_id}"


@st.cache_data(ttl=600, max_entries=1, show_spinner=False)
def _experiment_id() -> str:
    return _settings().experiment_id()


@from_the_store
def submit(spec: RunSpec, token: str, restarted_from: str = "") -> tuple[str, list[Problem]]:
    """Queues a run; the same token never makes two.

    Args:
        spec: what to run.
        token: of the form that submits.
        restarted_from: id of the run whose spec was taken; empty when none was.

    Returns:
        The run id and nothing, or an empty text and what refuses the run.
    """
    try:
        tags = {Tag.RESTARTED_FROM: restarted_from} if restarted_from else {}
        run_id = queue.submit(_settings(), spec, submission=token, tags=tags)
    except SpecError as error:
        return "", error.problems
    return run_id, []


@from_the_store
def cancel(run_id: str) -> None:
    """Asks a run to stop; nothing happens to one that has ended."""
    foreground.cancel(_settings(), run_id)
    _record.clear()


# --- this machine ------------------------------------------------------------------------------------------------


@st.cache_data(ttl=MACHINE_TTL_S, max_entries=1, show_spinner=False)
def _capacity() -> capacity.Capacity:
    return capacity.of(_settings())


@from_the_store
def machines() -> capacity.Capacity:
    """Processors and GPUs that runs can have."""
    return _capacity()


@from_the_store
def asked(spec: RunSpec) -> capacity.Request:
    """The processors and GPUs that a run would take."""
    return capacity.request(spec, _capacity())


@st.cache_data(ttl=LIVE_TTL_S, max_entries=64, show_spinner=False)
def _check(spec_json: str) -> list[Problem]:
    return admission.check(_settings(), RunSpec(**_fields(spec_json)))


def _fields(spec_json: str) -> dict[str, typing.Any]:
    fields = json.loads(spec_json)
    # JSON has no tuples; everything else of a spec is plain JSON.
    return {name: tuple(value) if name == "gpus" and value is not None else value for name, value in fields.items()}


@from_the_store
def check(spec: RunSpec) -> list[Problem]:
    """What refuses a run, and what a person should know before starting it."""
    return _check(spec.to_json())


@st.cache_data(ttl=MACHINE_TTL_S, max_entries=1, show_spinner=False)
def _datasets(names: tuple[str, ...]) -> list[availability.Availability]:
    return [availability.availability(name) for name in names]


def datasets(names: Iterable[str] = tuple(catalog.DATASETS)) -> dict[str, availability.Availability]:
    """Whether each data set is on this machine, and how to get it if not."""
    return {found.name: found for found in _datasets(tuple(names))}


def default_dataset() -> str:
    """The first real data set that is on this machine."""
    return availability.default_dataset()


@st.cache_data(ttl=300, max_entries=1, show_spinner="Looking at this machine …")
def _findings() -> list["doctor.Finding"]:
    from experiments import doctor  # only one page needs what it brings along

    return doctor.findings(_settings())


@from_the_store
def findings() -> list["doctor.Finding"]:
    """What the doctor found; looked at anew after five minutes, or after `forget_machine`."""
    return _findings()


def forget_machine() -> None:
    """Makes the next read of this machine's state a new one."""
    for cached in (_findings, _capacity, _datasets):
        cached.clear()


# --- ready-made experiments --------------------------------------------------------------------------------------


def plans() -> dict[str, Plan]:
    """The ready-made experiments by name."""
    try:
        return all_plans()
    except PlanError as error:
        raise Unavailable(
            "A ready-made experiment cannot be read", "Mend the file, then reload.", str(error)
        ) from error


@from_the_store
def plan_offer(plan: Plan, overrides: typing.Mapping[str, typing.Any]) -> plan_runs.Offer:
    """What a plan can measure on these machines, with these fields on every run."""
    try:
        return plan_runs.offer(plan, _capacity(), overrides)
    except PlanError as error:
        raise Unavailable(
            "This experiment cannot be started so", "Mend the plan's file, or the fields of all runs.", str(error)
        ) from error


@from_the_store
def new_group(plan: Plan) -> str:
    """A readable name for the runs of one launch that no other run has."""
    return plan_runs.default_group(_settings(), plan)


@from_the_store
def submit_plan(offered: plan_runs.Offer, group: str, repeats: int, token: str) -> tuple[list[str], list[Problem]]:
    """Queues all runs of a plan; the same token never makes two sets, and completes one that broke off.

    Returns:
        The ids of the runs that are queued, and what refuses the others; nothing when none was refused.
    """
    queued: list[str] = []
    try:
        for run in plan_runs.expand(offered, group, repeats):
            run_id = queue.submit(_settings(), run, submission=plan_runs.submission(token, run))
            queued.append(run_id)
    except PlanError as error:
        return queued, [Problem("plan", offered.plan.name, "was refused", str(error))]
    except SpecError as error:
        return queued, error.problems
    return queued, []
