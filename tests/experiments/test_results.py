"""MLflow -> tables. Real runs in a real store, also thousands of them and those that others logged."""

import itertools
import json
import math
import sqlite3
import time
import typing
import uuid
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric as Point
from mlflow.entities import ViewType

from experiments import queue
from experiments.results import (
    MOST_POINTS,
    RUN_COLUMNS,
    Results,
    UnknownRun,
    environment,
    find,
    follow,
    history,
    log_lines,
    placement,
    record,
    spec,
)
from experiments.settings import ExperimentDeletedError, Settings
from training.names import PLACEMENT_COLUMNS, Artifact, Metric, Phase, RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec

TINY = RunSpec(
    dataset="synthetic",
    dataset_options={"examples": 640},
    global_batch_size=64,
    epochs=4,
    steps_per_execution=5,
    name="tiny",
)


def new_run(settings: Settings, run_spec: RunSpec | None = TINY, status: str = RunStatus.RUNNING) -> str:
    """A run in MLflow as the queue and a supervisor leave it, without either."""
    client = settings.client()
    run_id = client.create_run(
        settings.experiment_id(), run_name=run_spec.display_name if run_spec else None
    ).info.run_id
    if run_spec:
        for name, value in queue.params(run_spec).items():
            client.log_param(run_id, name, value)
        client.log_text(run_id, run_spec.to_json(), Artifact.SPEC)
    client.update_run(run_id, status=status)
    return str(run_id)


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


def test_a_long_curve_is_sampled_and_says_so(settings: Settings) -> None:
    run_id = new_run(settings)
    client = settings.client()
    for start in range(0, 10_000, 1_000):
        points = [Point(Metric.WINDOW, float(step), 1_000_000 + step, step) for step in range(start, start + 1_000)]
        client.log_batch(run_id, metrics=points)
    client.log_metric(run_id, Metric.LOSS, 1.0)
    began = time.process_time()
    table = history(settings, run_id)
    assert time.process_time() - began < 3
    windows = table[table.metric == Metric.WINDOW]
    assert len(windows) <= MOST_POINTS
    assert (windows.step.iloc[0], windows.step.iloc[-1]) == (0, 9_999), "first and last are kept"
    assert Metric.WINDOW in table.attrs["notice"]
    assert f"{MOST_POINTS:,}" in table.attrs["notice"]
    assert Metric.LOSS not in table.attrs["notice"]


def test_no_points_have_the_same_columns_and_types(settings: Settings) -> None:
    run_id = new_run(settings)
    empty = history(settings, run_id)
    settings.client().log_metric(run_id, Metric.LOSS, 1.0)
    one = history(settings, run_id)
    assert (len(empty), len(one)) == (0, 1)
    assert empty.dtypes.equals(one.dtypes)
    assert empty.attrs["notice"] == ""


def test_a_record_is_what_design_says(settings: Settings) -> None:
    run_id = new_run(settings)
    settings.client().set_tag(run_id, Tag.REASON, "waiting for 1 CPU")
    found = record(settings, run_id)
    assert list(found) == ["run_id", "name", "status", "reason", "spec", "params", "metrics", "tags"]
    assert (found["run_id"], found["name"], found["status"]) == (run_id, "tiny", "RUNNING")
    assert found["reason"] == "waiting for 1 CPU"
    assert RunSpec.from_dict(found["spec"]) == spec(settings, run_id) == TINY
    assert found["params"]["dataset_options"] == '{"examples": 640}'


@pytest.mark.parametrize("run_id", ["", "x", "0" * 32, "../../etc/passwd", "A" * 32, "0" * 31 + "\n", "%"])
def test_an_unknown_run_is_named(settings: Settings, run_id: str) -> None:
    for read in (record, history, placement, log_lines, environment, spec, find):
        with pytest.raises(UnknownRun, match="is unknown"):
            read(settings, run_id)


def test_a_run_of_another_experiment_is_unknown(settings: Settings) -> None:
    other = settings.client().create_experiment("other")
    run_id = settings.client().create_run(other).info.run_id
    with pytest.raises(UnknownRun):
        record(settings, run_id)


def test_the_beginning_of_an_id_finds_its_run(settings: Settings) -> None:
    run_id = new_run(settings)
    assert find(settings, run_id[:6]) == find(settings, run_id.upper()) == find(settings, f" {run_id} ") == run_id
    with pytest.raises(UnknownRun):
        find(settings, run_id[:5])
    with closing(sqlite3.connect(str(settings.database))) as connection, connection:
        connection.execute(
            "INSERT INTO runs SELECT ?, name, source_type, source_name, entry_point_name, user_id, status, start_time, "
            "end_time, source_version, lifecycle_stage, artifact_uri, experiment_id, deleted_time FROM runs",
            (run_id[:10] + uuid.uuid4().hex[10:],),
        )
    with pytest.raises(UnknownRun, match="several"):
        find(settings, run_id[:10])
    assert find(settings, run_id) == run_id


def placement_table() -> pd.DataFrame:
    rows = [
        ("while/dense/MatMul", "MatMul", "CPU:0", "graph", "compute", "dense", 2),
        ("while/dense_1/MatMul", "MatMul", "CPU:0", "graph", "compute", "dense_1", 1),
        ("VarHandleOp", "VarHandleOp", "CPU:0", "eager", "compute", "", 9),
        ("map/Cast", "Cast", "CPU:0", "graph", "input", "", 4),
    ]
    return pd.DataFrame(rows, columns=list(PLACEMENT_COLUMNS))


def test_placement_is_read_from_the_artifact(settings: Settings, tmp_path: Path) -> None:
    run_id = new_run(settings)
    empty = placement(settings, run_id)
    assert list(empty.columns) == list(PLACEMENT_COLUMNS)
    file = tmp_path / "placement.parquet"
    placement_table().to_parquet(file)
    settings.client().log_artifact(run_id, str(file), Artifact.PLACEMENT_DIR)
    table = placement(settings, run_id)
    assert len(table) == 4
    assert table["count"].dtype == empty["count"].dtype


def test_the_environment_is_live_first_and_the_artifact_later(settings: Settings) -> None:
    run_id = new_run(settings)
    assert environment(settings, run_id) == {}
    folder = RunFolder.of(settings.runs_folder, run_id)
    folder.path.mkdir()
    folder.environment.write_text('{"from": "folder"}')
    assert environment(settings, run_id) == {"from": "folder"}
    settings.client().log_text(run_id, '{"from": "artifact"}', Artifact.ENVIRONMENT)
    assert environment(settings, run_id) == {"from": "artifact"}


PLACED = "I0000 00:00:1.2 98 placer.cc:162] dense/MatMul: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0\n"


def live_log(settings: Settings, run_id: str, worker: int = 0) -> Path:
    """The standard error file of a training process, its folder made."""
    files = RunFolder.of(settings.runs_folder, run_id).worker(worker)
    files.path.mkdir(parents=True, exist_ok=True)
    return files.stderr


def test_a_live_log_leaves_out_placement_lines_and_says_what_it_cut(settings: Settings) -> None:
    run_id = new_run(settings)
    assert log_lines(settings, run_id) == []
    live_log(settings, run_id).write_text(PLACED + "a warning\n" + PLACED + "x" * 5_000 + "\nhalf a li")
    lines = log_lines(settings, run_id)
    assert lines[0] == "a warning"
    assert len(lines[1]) < 2_100
    assert lines[2] == "half a li"
    assert log_lines(settings, run_id, last=1) == ["... earlier lines are left out", "half a li"]
    assert log_lines(settings, run_id, worker=1) == []
    assert log_lines(settings, run_id, worker=-1) == []


def test_the_end_of_300_mb_comes_at_once(settings: Settings) -> None:
    run_id = new_run(settings)
    with live_log(settings, run_id).open("wb") as file:
        file.truncate(300 * 2**20)
        file.seek(0, 2)
        file.write(b"\nfirst\n" + b"line\n" * 2_000 + b"last\n")
    began = time.process_time()
    lines = log_lines(settings, run_id)
    assert time.process_time() - began < 1
    assert (len(lines), lines[-1]) == (301, "last")
    assert "left out" in lines[0]


def test_the_log_of_an_ended_run_is_the_artifact(settings: Settings) -> None:
    run_id = new_run(settings)
    live_log(settings, run_id).write_text("live\n")
    settings.client().log_text(run_id, "kept\n", f"{Artifact.LOG_DIR}/worker-0.log")
    assert log_lines(settings, run_id) == ["live"]
    settings.client().set_terminated(run_id, RunStatus.FINISHED)
    assert log_lines(settings, run_id) == ["kept"]


def test_links_lead_nowhere(settings: Settings, tmp_path: Path) -> None:
    """A training process, or someone with access to the folder, must not turn a log into any file."""
    secret = tmp_path / "secret"
    secret.write_text('{"secret": 1}\n')
    run_id = new_run(settings)
    live_log(settings, run_id).symlink_to(secret)
    RunFolder.of(settings.runs_folder, run_id).environment.symlink_to(secret)
    assert log_lines(settings, run_id) == []
    assert environment(settings, run_id) == {}
    root = next(settings.artifacts_folder.glob(run_id)) / "artifacts"
    (root / Artifact.LOG_DIR).mkdir()
    (root / Artifact.LOG_DIR / "worker-0.log").symlink_to(secret)
    (root / Artifact.ENVIRONMENT).symlink_to(secret)
    (root / Artifact.SPEC).unlink()
    (root / Artifact.SPEC).symlink_to(secret)
    settings.client().set_terminated(run_id, RunStatus.FINISHED)
    assert log_lines(settings, run_id) == []
    assert environment(settings, run_id) == {}
    assert record(settings, run_id)["spec"] is None


def test_following_gives_each_line_once_until_the_run_ends(settings: Settings) -> None:
    run_id = new_run(settings)
    file = live_log(settings, run_id)
    file.write_text("one\ntwo\n")
    looks = itertools.count(1)

    def meanwhile(_: float) -> None:
        look = next(looks)
        with file.open("a") as log:
            log.write(f"line {look}\n{PLACED}half of ")
        if look == 2:
            settings.client().set_terminated(run_id, RunStatus.FINISHED)
            with file.open("a") as log:
                log.write("the end\n")

    assert list(follow(settings, run_id, last=1, sleep=meanwhile)) == [
        "two",
        "line 1",
        "half of line 2",
        "half of the end",
    ]


def test_a_run_deleted_while_it_is_followed_ends_the_following(settings: Settings) -> None:
    run_id = new_run(settings)
    live_log(settings, run_id).write_text("one\n")
    with pytest.raises(UnknownRun):
        list(follow(settings, run_id, sleep=lambda _: settings.client().delete_run(run_id)))
    deleted = settings.client().search_runs([settings.experiment_id()], run_view_type=ViewType.DELETED_ONLY)
    assert [run.info.run_id for run in deleted] == [run_id]


def test_params_of_every_kind_have_one_text() -> None:
    texts = queue.params(
        RunSpec(gpus=(0, 2), device="gpu", cpu_threads=None, tags={"b": "2", "a": "1"}, jit_compile=True)
    )
    assert texts["gpus"] == "[0, 2]"
    assert texts["tags"] == json.dumps({"a": "1", "b": "2"})
    assert (texts["cpu_threads"], texts["jit_compile"], texts["epochs"]) == ("", "true", "5")
