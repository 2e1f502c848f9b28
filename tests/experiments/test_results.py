"""MLflow -> the table of runs. Real runs in a real store, also thousands of them and those that others logged."""

import errno
import json
import math
import sqlite3
import time
import typing
import uuid
from contextlib import closing

import pandas as pd
import pytest
import sqlalchemy.exc
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from experiments import queue
from experiments.results import (
    RUN_COLUMNS,
    Results,
    UnknownRun,
    environment,
    history,
    record,
    spec,
)
from experiments.settings import ExperimentDeletedError, Settings
from experiments.store_errors import is_of_this_machine
from tests.support.stored_runs import TINY, new_run
from training.names import Artifact, Metric, Phase, RunStatus, Tag
from training.spec import RunSpec


def insert_runs(settings: Settings, count: int, newest_ms: int) -> None:
    """Many finished runs of 30 params, 12 tags and 15 metrics, a minute apart, straight into the database."""
    experiment_id = int(settings.experiment_id())
    params = queue.params(TINY)
    metrics = [Metric.LOSS, Metric.ACCURACY, Metric.VAL_LOSS, Metric.WINDOW, Metric.TIME_QUEUE]
    metrics += [f"system/metric_{index}" for index in range(10)]
    runs = [(uuid.uuid4().hex, newest_ms - index * 60_000) for index in range(count)]
    assert settings.database is not None
    with closing(sqlite3.connect(settings.database)) as connection, connection:
        connection.executemany(
            "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, "
            "start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id) "
            "VALUES (?, 'many', 'UNKNOWN', '', '', '', 'FINISHED', ?, ?, '', 'active', ?, ?)",
            [(run, start, start + 30_000, f"{settings.artifacts_folder}/{run}", experiment_id) for run, start in runs],
        )
        connection.executemany(
            "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)",
            [(key, value, run) for run, _ in runs for key, value in params.items()],
        )
        connection.executemany(
            "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)",
            [(f"tag.{index}", "value", run) for run, _ in runs for index in range(12)],
        )
        connection.executemany(
            "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, 0.5, ?, 3, 0, ?)",
            [(key, start, run) for run, start in runs for key in metrics],
        )


class Spy:
    """Notes the filter and the number of runs of every search that MLflow answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.searches: list[tuple[str, int]] = []
        real = MlflowClient.search_runs

        def search_runs(client: MlflowClient, *arguments: typing.Any, **options: typing.Any) -> typing.Any:
            found = real(client, *arguments, **options)
            self.searches.append((arguments[1], len(found)))
            return found

        monkeypatch.setattr(MlflowClient, "search_runs", search_runs)


def test_no_runs_have_the_same_columns_and_types_as_one(settings: Settings) -> None:
    results = Results(settings, max_age_s=0)
    empty = results.runs()
    new_run(settings)
    one = results.runs()
    assert (len(empty), len(one)) == (0, 1)
    for table in (empty, one):
        assert {name: str(dtype) for name, dtype in table.dtypes.items()} == RUN_COLUMNS


def test_a_row_holds_what_was_asked_and_what_came_out(settings: Settings) -> None:
    run_spec = RunSpec(
        dataset="synthetic",
        dataset_options={"examples": 640},
        strategy="mirrored",
        replicas=2,
        logical_devices=2,
        global_batch_size=64,
        epochs=4,
        learning_rate=0.01,
        seed=2**32 - 1,
        deterministic=True,
    )
    run_id = new_run(settings, run_spec)
    client = settings.client()
    client.log_metric(run_id, Metric.TIME_QUEUE, 2.5)
    client.log_metric(run_id, Metric.TIME_EPOCH_TRAIN, 3.0, step=0)
    client.log_metric(run_id, Metric.TIME_EPOCH_VALIDATION, 0.5, step=0)
    client.log_metric(run_id, Metric.LOSS, 0.25, step=0)
    client.log_metric(run_id, Metric.WINDOW, 64.0, step=15)
    for tag, value in {
        Tag.USER: "ada",
        Tag.PHASE: Phase.TRAINING,
        Tag.REASON: "waiting for 2 CPUs",
        Tag.REPLICAS_IN_SYNC: "2",
        Tag.HOST: "box",
        Tag.CPU_COUNT: "8",
        Tag.PROFILER: "false",
    }.items():
        client.set_tag(run_id, tag, value)
    row = Results(settings).runs().iloc[0]
    assert (row.run_id, row.status, row.phase, row.user, row.host) == (run_id, "RUNNING", "training", "ada", "box")
    assert row.reason == "", "a running run waits for nothing any more"
    assert (row.dataset_options, row.strategy, row.seed) == ('{"examples": 640}', "mirrored", 2**32 - 1)
    assert (row.deterministic, row.jit_compile, row.learning_rate) == (True, False, 0.01)
    assert row.cpu_threads is pd.NA
    assert (row.cpu_count, row.profiler) == (8, False)
    assert (row.total_replicas, row.per_replica_batch_size, row.replicas_in_sync, row.simulated) == (2, 32, 2, True)
    assert (row.loss, row.time_queue) == (0.25, 2.5)
    assert math.isnan(row.val_loss)
    assert row.started - row.submitted == pd.Timedelta(seconds=2.5)
    assert row.ended is pd.NaT
    # 15 of 40 steps done, 25 steps of 64 examples at 64 a second left, and three validations of half a second.
    assert (row.epoch, row.progress, row.seconds_left) == (1, 15 / 40, 25 + 1.5)


def test_progress_follows_what_the_training_process_reports(settings: Settings) -> None:
    run_id = new_run(settings)
    client = settings.client()
    client.set_tag(run_id, Tag.STEPS_PER_EPOCH, "20")
    results = Results(settings, max_age_s=0)
    assert results.rows()[0]["progress"] == 0
    client.log_metric(run_id, Metric.TIME_EPOCH_TRAIN, 1.0, step=1)
    assert results.rows()[0]["progress"] == 40 / 80
    client.set_terminated(run_id, RunStatus.FAILED)
    failed = results.rows()[0]
    assert failed["progress"] == 0.5
    assert math.isnan(failed["seconds_left"])
    client.update_run(run_id, status=RunStatus.FINISHED)
    results.reload()
    assert results.rows()[0]["progress"] == 1


def test_nan_and_infinity_stay_what_they_are(settings: Settings) -> None:
    """MLflow stores NaN as 0 with a flag and infinities as the largest float."""
    run_id = new_run(settings)
    client = settings.client()
    client.log_metric(run_id, Metric.LOSS, 0.5, step=0)
    client.log_metric(run_id, Metric.LOSS, math.nan, step=1)
    client.log_metric(run_id, Metric.LOSS, math.inf, step=2)
    client.log_metric(run_id, Metric.VAL_LOSS, -math.inf, step=0)
    client.log_metric(run_id, Metric.VAL_ACCURACY, math.nan, step=0)
    row = Results(settings).runs().iloc[0]
    assert (row.loss, row.val_loss) == (math.inf, -math.inf)
    assert math.isnan(row.val_accuracy)
    curve = history(settings, run_id, [Metric.LOSS])
    assert list(curve.step) == [0, 1, 2]
    assert (curve.value[0], curve.value[2]) == (0.5, math.inf)
    assert math.isnan(curve.value[1])
    metrics = record(settings, run_id)["metrics"]
    assert metrics[Metric.LOSS] == math.inf
    assert math.isnan(metrics[Metric.VAL_ACCURACY])


@pytest.mark.parametrize("odd", ["time/queue", "end", "start"])
def test_a_time_that_is_none_breaks_no_reader(settings: Settings, odd: str) -> None:
    client, good = settings.client(), new_run(settings)
    run_id = client.create_run(settings.experiment_id(), start_time=2**53 if odd == "start" else None).info.run_id
    client.log_metric(run_id, "time/queue", 1e300 if odd == "time/queue" else 1.0)
    client.set_terminated(run_id, end_time=2**60 if odd == "end" else None)
    table = Results(settings).runs().set_index("run_id")
    assert set(table.index) == {good, run_id}
    gaps = {"time/queue": ["started"], "end": ["ended"], "start": ["submitted", "started"]}[odd]
    assert [name for name in ("submitted", "started", "ended") if pd.isna(table.loc[run_id, name])] == gaps


def test_runs_of_others_leave_gaps_and_break_nothing(settings: Settings) -> None:
    client = settings.client()
    bare = new_run(settings, None)
    strange = client.create_run(settings.experiment_id(), run_name="<b>x</b>").info.run_id
    strange_params = {
        "replicas": "many",
        "workers": "99999999999999999999",
        "global_batch_size": "-3",
        "epochs": "2",
        "dataset": "synthetic",
        "dataset_options": "{broken",
        "jit_compile": "auto",
        "learning_rate": "fast",
        "seed": "1" * 30,
    }
    for name, value in strange_params.items():
        client.log_param(strange, name, value)
    client.log_metric(strange, Metric.WINDOW, math.nan, step=5)
    client.log_metric(strange, Metric.TIME_QUEUE, math.inf)
    client.log_text(strange, "[1, 2", Artifact.SPEC)
    client.log_text(strange, "no JSON", Artifact.ENVIRONMENT)
    table = Results(settings).runs().set_index("run_id")
    assert {name: str(dtype) for name, dtype in table.reset_index().dtypes.items()} == RUN_COLUMNS
    row = table.loc[strange]
    assert row["name"] == "<b>x</b>"
    assert (row.replicas, row.workers, row.total_replicas, row.seed, row.jit_compile) == (pd.NA,) * 5
    assert (row.cpu_count, row.profiler) == (pd.NA, pd.NA)
    assert math.isnan(row.learning_rate)
    assert row.started is pd.NaT
    assert (row.progress, table.loc[bare].progress) == (0, 0)
    assert record(settings, strange)["spec"] is None
    assert environment(settings, strange) == {}
    with pytest.raises(UnknownRun, match="no spec"):
        spec(settings, bare)


def test_all_of_1500_runs_are_there_within_three_seconds_and_the_next_read_asks_for_few(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.results.frames._DELETIONS_EVERY_S", 3_600)  # a busy machine takes half a minute
    now_ms = round(time.time() * 1000)
    insert_runs(settings, 1_500, newest_ms=now_ms - 3_600_000)
    live = new_run(settings)
    results = Results(settings, max_age_s=0)
    spy = Spy(monkeypatch)
    began = time.process_time()  # of this process: other work on the machine is not this code's
    table = results.runs()
    taken = time.process_time() - began
    began = time.process_time()
    first = settings.client().search_runs([settings.experiment_id()], "")
    settings.client().search_runs([settings.experiment_id()], "", page_token=first.token)
    mlflow_alone = time.process_time() - began
    assert len(table) == 1_501
    assert table.run_id.is_unique
    assert table.submitted.is_monotonic_decreasing
    assert table.submitted.iloc[-1] == pd.Timestamp(now_ms - 3_600_000 - 1_499 * 60_000, unit="ms", tz="UTC")
    # On a machine that is busy with other things, three seconds may be more than MLflow itself can do.
    assert taken < max(3.0, mlflow_alone), f"{taken:.2f} s, MLflow alone {mlflow_alone:.2f} s"
    assert len(spy.searches) == 5, "two pages, one of deleted runs, and this test's own two"

    spy.searches.clear()
    new = new_run(settings, status=RunStatus.SCHEDULED)
    settings.client().log_metric(live, Metric.LOSS, 0.125)
    table = results.runs().set_index("run_id")
    assert len(table) == 1_502
    assert table.loc[live].loss == 0.125
    assert table.loc[new].status == "SCHEDULED"
    assert len(spy.searches) == 2
    assert sum(count for _, count in spy.searches) <= 4, "only the live run and the new one, by two filters"


def test_a_run_that_ended_is_read_once_more_and_then_no_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(settings)
    client = settings.client()
    # Long before the newest run, so that only its having been live can bring it back.
    with closing(sqlite3.connect(str(settings.database))) as connection, connection:
        connection.execute("UPDATE runs SET start_time = start_time - 3600000")
    new_run(settings, status=RunStatus.FINISHED)
    results = Results(settings, max_age_s=0)
    results.runs()
    client.set_tag(run_id, Tag.REASON, "asked 1 GPU, TensorFlow sees 0")
    client.set_terminated(run_id, RunStatus.FAILED)
    ended = results.runs().set_index("run_id").loc[run_id]
    assert (ended.status, ended.reason) == ("FAILED", "asked 1 GPU, TensorFlow sees 0")
    assert ended.ended is not pd.NaT
    spy = Spy(monkeypatch)
    results.runs()
    assert not any(run_id in filter_text for filter_text, _ in spy.searches)


def test_a_status_is_never_older_than_five_seconds(settings: Settings) -> None:
    run_id = new_run(settings, status=RunStatus.SCHEDULED)
    results = Results(settings)
    assert results.rows()[0]["status"] == "SCHEDULED"
    settings.client().update_run(run_id, status=RunStatus.RUNNING)
    deadline = time.monotonic() + 5
    while results.rows()[0]["status"] == "SCHEDULED" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert results.rows()[0]["status"] == "RUNNING"


def test_reads_in_quick_succession_ask_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results(settings, max_age_s=60)
    results.runs()
    spy = Spy(monkeypatch)
    for _ in range(10):
        results.runs()
    assert spy.searches == []


def test_a_table_may_be_changed_by_who_gets_it(settings: Settings) -> None:
    new_run(settings)
    results = Results(settings, max_age_s=60)
    table = results.runs()
    table.loc[0, "name"] = "changed"
    results.rows()[0]["name"] = "changed"
    assert results.runs().name[0] == results.rows()[0]["name"] == "tiny"


def test_runs_deleted_while_live_or_later_disappear_and_come_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = settings.client()
    live, finished, other = new_run(settings), new_run(settings, status=RunStatus.FINISHED), new_run(settings)
    results = Results(settings, max_age_s=0)
    assert len(results.runs()) == 3
    client.delete_run(live)
    assert set(results.runs().run_id) == {finished, other}
    with pytest.raises(UnknownRun, match=live):
        record(settings, live)
    client.delete_run(finished)
    monkeypatch.setattr("experiments.results.frames._DELETIONS_EVERY_S", 0)
    assert set(results.runs().run_id) == {other}
    client.restore_run(finished)
    assert set(results.runs().run_id) == {finished, other}


def test_a_deleted_experiment_is_said_and_a_restored_one_is_whole(settings: Settings) -> None:
    run_id = new_run(settings)
    results = Results(settings, max_age_s=0)
    results.runs()
    settings.client().delete_experiment(settings.experiment_id())
    assert len(results.runs()) == 0
    results.reload()
    with pytest.raises(ExperimentDeletedError):
        results.runs()
    settings.restore_experiment()
    assert list(results.runs().run_id) == [run_id]


def test_a_run_dated_in_the_future_hides_no_new_run(settings: Settings) -> None:
    client = settings.client()
    future = client.create_run(settings.experiment_id(), start_time=4_102_444_800_000).info.run_id
    client.set_terminated(future, RunStatus.FINISHED)
    results = Results(settings, max_age_s=0)
    results.runs()
    new = new_run(settings, status=RunStatus.FINISHED)
    assert set(results.runs().run_id) == {future, new}


def test_params_of_every_kind_have_one_text() -> None:
    texts = queue.params(
        RunSpec(gpus=(0, 2), device="gpu", cpu_threads=None, tags={"b": "2", "a": "1"}, jit_compile=True)
    )
    assert texts["gpus"] == "[0, 2]"
    assert texts["tags"] == json.dumps({"a": "1", "b": "2"})
    assert (texts["cpu_threads"], texts["jit_compile"], texts["epochs"]) == ("", "true", "5")


def test_extreme_numbers_of_another_tool_leave_a_gap_and_hide_no_run(settings: Settings) -> None:
    client = settings.client()
    ours, far, odd = new_run(settings), new_run(settings, None), new_run(settings, None)
    client.log_metric(far, Metric.TIME_EPOCH_TRAIN, 1.0, step=2**63 - 1)
    params = {"dataset": "digits", "global_batch_size": "64", "dataset_options": '{"examples": 1e999}', "epochs": "3"}
    for name, value in params.items():
        client.log_param(odd, name, value)
    table = Results(settings).runs().set_index("run_id")
    assert set(table.index) == {ours, far, odd}
    assert {row["run_id"] for row in Results(settings).rows()} == {ours, far, odd}


@pytest.mark.parametrize(
    ("error", "of_this_machine"),
    [
        (sqlalchemy.exc.OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full")), True),
        (MlflowException("(sqlite3.OperationalError) disk I/O error"), True),
        (MlflowException("(sqlite3.OperationalError) database is locked"), False),
        (MlflowException("API request to http://127.0.0.1:5000 failed"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False),
    ],
)
def test_what_is_of_this_machine_and_what_of_the_store(error: Exception, of_this_machine: bool) -> None:
    assert is_of_this_machine(error) is of_this_machine
