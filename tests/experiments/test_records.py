"""One run read from MLflow: curves, record, ids, placement, environment."""

import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from mlflow.entities import Metric as Point

from experiments.results import (
    MOST_POINTS,
    DamagedArtifactError,
    UnknownRun,
    environment,
    find,
    history,
    log_lines,
    placement,
    record,
    records,
    spec,
)
from experiments.settings import Settings
from tests.support.stored_runs import TINY, new_run
from training.names import PLACEMENT_COLUMNS, Artifact, Metric, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec


def test_a_long_curve_is_sampled_and_says_so_but_windows_are_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = new_run(settings)
    client = settings.client()
    for start in range(0, 10_000, 1_000):
        for name in (Metric.WINDOW, Metric.OTHERS_CPU):
            points = [Point(name, float(step), 1_000_000 + step, step) for step in range(start, start + 1_000)]
            client.log_batch(run_id, metrics=points)
    client.log_metric(run_id, Metric.LOSS, 1.0)
    began = time.process_time()
    table = history(settings, run_id)
    assert time.process_time() - began < 3
    sampled = table[table.metric == Metric.OTHERS_CPU]
    assert len(sampled) <= MOST_POINTS
    assert (sampled.step.iloc[0], sampled.step.iloc[-1]) == (0, 9_999), "first and last are kept"
    assert table.attrs["notice"].startswith(f"{Metric.OTHERS_CPU}: {MOST_POINTS:,}")
    # What timing is made of is there in full.
    assert table.loc[table.metric == Metric.WINDOW, "step"].tolist() == list(range(10_000))
    monkeypatch.setattr(records, "MOST_WINDOWS", 9_999)
    assert len(history(settings, run_id, [Metric.WINDOW])) <= MOST_POINTS
    assert Metric.WINDOW in history(settings, run_id, [Metric.WINDOW]).attrs["notice"]


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


@pytest.mark.parametrize("content", [b"", b"garbage", b"missing columns", b"no texts"])
def test_a_damaged_placement_is_named_with_its_run(settings: Settings, tmp_path: Path, content: bytes) -> None:
    run_id, file = new_run(settings), tmp_path / Path(Artifact.PLACEMENT_TABLE).name
    if content == b"missing columns":
        pd.DataFrame({"name": ["op"]}).to_parquet(file)
    elif content == b"no texts":
        pd.DataFrame({name: [1, 2] if name == "count" else ["op", None] for name in PLACEMENT_COLUMNS}).to_parquet(file)
    else:
        file.write_bytes(content)
    settings.client().log_artifact(run_id, str(file), Artifact.PLACEMENT_DIR)
    with pytest.raises(DamagedArtifactError, match=f"{Artifact.PLACEMENT_TABLE} of run {run_id} cannot be read"):
        placement(settings, run_id)


def test_the_environment_is_live_first_and_the_artifact_later(settings: Settings) -> None:
    run_id = new_run(settings)
    assert environment(settings, run_id) == {}
    folder = RunFolder.of(settings.runs_folder, run_id)
    folder.path.mkdir()
    folder.environment.write_text('{"from": "folder"}')
    assert environment(settings, run_id) == {"from": "folder"}
    settings.client().log_text(run_id, '{"from": "artifact"}', Artifact.ENVIRONMENT)
    assert environment(settings, run_id) == {"from": "artifact"}
