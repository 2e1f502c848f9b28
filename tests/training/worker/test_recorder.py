"""From journals to MLflow: nothing lost, nothing twice, within MLflow's limits."""

import json
import math
import time
from pathlib import Path

import pytest
from mlflow.utils import validation

from training import mlflow_limits
from training.names import Artifact, Metric, RunStatus, Tag
from training.worker.journal import Journal
from training.worker.recorder import Recorder, RecorderBusyError, RunGoneError, files_below, is_concluded
from training.worker.recording import replay


@pytest.fixture
def recorder(request):
    """Opens a run's recorder, connected; closed with the test."""

    def open_(folder):
        recorder = Recorder(folder)
        request.addfinalizer(recorder.close)
        recorder.connect(start=True)
        return recorder

    return open_


def flush(recorder):
    while recorder.flush():
        pass


def points(client, folder, name):
    history = client.get_metric_history(folder.launch().run_id, name)
    return sorted((point.step, point.value) for point in history)


def test_limits_are_those_of_the_installed_mlflow():
    assert mlflow_limits.LONGEST_PARAM == validation.MAX_PARAM_VAL_LENGTH
    assert mlflow_limits.LONGEST_TAG == validation.MAX_TAG_VAL_LENGTH
    assert mlflow_limits.LONGEST_DIGEST == validation.MAX_DATASET_DIGEST_SIZE
    assert mlflow_limits.LONGEST_DATASET_NAME == validation.MAX_DATASET_NAME_SIZE
    assert mlflow_limits.MOST_ITEMS == validation.MAX_ENTITIES_PER_BATCH == validation.MAX_METRICS_PER_BATCH
    assert mlflow_limits.MOST_PARAMS == mlflow_limits.MOST_TAGS == validation.MAX_PARAMS_TAGS_PER_BATCH
    assert mlflow_limits.MOST_BYTES < validation.MAX_BATCH_LOG_REQUEST_SIZE


def test_many_and_long_params(new_run, client, recorder):
    folder = new_run()
    long = "x" * 7_000
    client.log_param(folder.launch().run_id, "submitted", "before")
    Journal(folder.worker(0).journal).params({f"p{i}": i for i in range(150)} | {"long": long, "k" * 300: "v"})
    used = recorder(folder)
    flush(used)
    used.upload()
    run = client.get_run(folder.launch().run_id)
    assert {name: run.data.params[name] for name in ("p0", "p149", "submitted")} == {
        "p0": "0",
        "p149": "149",
        "submitted": "before",
    }
    assert len(run.data.params) == 152
    assert run.data.params["long"] == long[:6_000]
    full = json.loads(Path(client.download_artifacts(run.info.run_id, Artifact.PARAMS)).read_text())
    assert full["long"] == long
    assert full["submitted"] == "before"
    assert "param long has 7,000 characters" in run.data.tags[Tag.NOTICE]

    Journal(folder.supervisor_journal).end(RunStatus.FINISHED)
    flush(used)
    assert used.conclude()
    run = client.get_run(folder.launch().run_id)
    assert run.info.status == "FINISHED"
    assert f"MLflow refused {'k' * 80}" in run.data.tags[Tag.NOTICE]


def test_param_that_changes_is_refused_and_said(new_run, client, recorder):
    folder = new_run()
    journal = Journal(folder.worker(0).journal)
    used = recorder(folder)
    journal.params({"learning_rate": "0.1"})
    flush(used)
    journal.params({"learning_rate": "0.2", "other": "1"})
    journal.metrics({Metric.LOSS: 1.0}, 0)
    flush(used)
    run = client.get_run(folder.launch().run_id)
    assert run.data.params == {"learning_rate": "0.1", "other": "1"}
    assert points(client, folder, Metric.LOSS) == [(0, 1.0)]
    assert any("MLflow refused learning_rate" in notice for notice in used.state.notices)


def test_of_another_worker_only_its_own_throughput(new_run, client, recorder):
    folder = new_run(workers=2, strategy="multi_worker_mirrored")
    for index in range(2):
        values = {Metric.LOSS: 1.0 + index, Metric.WORKER_THROUGHPUT.format(index=index): 10.0 + index}
        Journal(folder.worker(index).journal).metrics(values, 3)
    flush(recorder(folder))
    names = (Metric.LOSS, "throughput/worker_0", "throughput/worker_1")
    assert [points(client, folder, name) for name in names] == [[(3, 1.0)], [(3, 10.0)], [(3, 11.0)]]


def test_long_series_and_texts_no_store_can_hold(new_run, client, recorder):
    folder = new_run()
    journal = Journal(folder.worker(0).journal)
    journal.series(Metric.WINDOW, [(step, float(step), 1e9 + step) for step in range(2_500)])
    journal.tags({f"t{i}": "é" * 8_500 for i in range(120)} | {"nul": "a\0b", "half": "\ud800"})
    flush(recorder(folder))
    assert points(client, folder, Metric.WINDOW) == [(step, float(step)) for step in range(2_500)]
    tags = client.get_run(folder.launch().run_id).data.tags
    assert len(tags["t119"]) == 8_000
    assert (tags["nul"], tags["half"]) == ("a\N{REPLACEMENT CHARACTER}b", "?")


def test_restarted_recorder_repeats_nothing(new_run, client):
    folder = new_run()
    journal = Journal(folder.worker(0).journal)
    for epoch in range(3):
        journal.metrics({Metric.LOSS: float(epoch), "val_loss": math.nan if epoch == 1 else 2.0}, epoch)
    for _ in range(2):
        recorder = Recorder(folder)
        recorder.connect(start=True)
        flush(recorder)
        recorder.close()
        # As if it had died after MLflow took the points and before it had noted so.
        folder.recorder_state.unlink()
    journal.metrics({Metric.LOSS: 3.0}, 3)
    recorder = Recorder(folder)
    recorder.connect(start=True)
    flush(recorder)
    recorder.close()
    assert points(client, folder, Metric.LOSS) == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]
    assert len(points(client, folder, "val_loss")) == 3
    assert client.get_run(folder.launch().run_id).data.tags[Tag.NOTICE] == "NaN at epoch 2 (val_loss)"


def test_numbers_that_are_none_come_back_as_such(new_run, client, recorder):
    folder = new_run()
    journal = Journal(folder.worker(0).journal)
    for step, value in enumerate((math.nan, math.inf, -math.inf)):
        journal.metrics({Metric.LOSS: value}, step)
    flush(recorder(folder))
    history = client.get_metric_history(folder.launch().run_id, Metric.LOSS)
    values = {point.step: point.value for point in history}
    assert math.isnan(values[0])
    assert values[1] >= 1.797e308, "MLflow stores infinities as the largest numbers"
    assert values[2] <= -1.797e308


def test_notices_add_up(new_run, client, recorder):
    folder = new_run()
    client.set_tag(folder.launch().run_id, Tag.NOTICE, "from the queue")
    journal = Journal(folder.worker(0).journal)
    journal.tags({Tag.NOTICE: "from the process"})
    used = recorder(folder)
    flush(used)
    journal.tags({Tag.NOTICE: "from the process\nanother"})
    flush(used)
    notice = client.get_run(folder.launch().run_id).data.tags[Tag.NOTICE]
    assert notice.splitlines() == ["from the queue", "from the process", "another"]


def test_dataset_becomes_an_input(new_run, client, recorder):
    folder = new_run()
    facts = {
        "name": "digits",
        "digest": "d" * 64,
        "source": "scikit-learn",
        "examples": 1437,
        "validation_examples": 360,
        "shape": (28, 28, 1),
        "classes": 10,
    }
    journal = Journal(folder.worker(0).journal)
    journal.dataset(facts)
    journal.dataset(facts)
    flush(recorder(folder))
    (used,) = client.get_run(folder.launch().run_id).inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("digits", "d" * 36)
    assert json.loads(used.dataset.profile)["shape"] == [28, 28, 1]
    assert [(tag.key, tag.value) for tag in used.tags] == [("mlflow.data.context", "training")]


def test_broken_line_is_said_and_passed_over(new_run, client, recorder):
    folder = new_run()
    journal = Journal(folder.worker(0).journal)
    with open(folder.worker(0).journal, "ab") as file:
        file.write(b'{"type":"metrics","t":1.0,"values":"none"}\n{"type":"en\n')
    journal.metrics({Metric.LOSS: 1.0}, 0)
    flush(recorder(folder))
    assert points(client, folder, Metric.LOSS) == [(0, 1.0)]
    assert "could not be read" in client.get_run(folder.launch().run_id).data.tags[Tag.NOTICE]


def test_one_recorder_at_a_time(new_run, recorder):
    folder = new_run()
    recorder(folder)
    with pytest.raises(RecorderBusyError):
        Recorder(folder)
    assert not replay(folder)


def test_deleted_and_unknown_runs_are_gone(new_run, client, recorder):
    folder = new_run()
    used = recorder(folder)
    Journal(folder.worker(0).journal).metrics({Metric.LOSS: 1.0}, 0)
    client.delete_run(folder.launch().run_id)
    with pytest.raises(RunGoneError, match="was deleted in MLflow"):
        used.flush()
    other = new_run({"run_id": "0" * 32})
    with pytest.raises(RunGoneError, match="is not known to MLflow"):
        recorder(other)


def test_replay_finishes_what_a_killed_supervisor_left(new_run, client):
    folder = new_run(epochs=2)
    journal = Journal(folder.worker(0).journal)
    journal.metrics({Metric.LOSS: 1.0}, 0)
    folder.worker(0).stdout.write_text("hello\n")
    folder.model.mkdir()
    (folder.model / "weights").write_bytes(b"w")
    (folder.model / "link").symlink_to("/etc/passwd")
    assert not replay(folder), "nobody has said how it ended"
    assert client.get_run(folder.launch().run_id).info.status == "SCHEDULED"
    assert replay(folder, (RunStatus.FAILED, "the supervisor was killed"))
    run = client.get_run(folder.launch().run_id)
    assert (run.info.status, run.data.tags[Tag.REASON]) == ("FAILED", "the supervisor was killed")
    assert run.info.end_time <= time.time() * 1000
    assert points(client, folder, Metric.LOSS) == [(0, 1.0)]
    assert {file.path for file in client.list_artifacts(run.info.run_id, "model")} == {"model/weights"}
    assert replay(folder)


def test_a_run_that_is_opened_again_ends_as_it_did(new_run, client):
    """As by a notebook that logs an evaluation into it, and dies."""
    folder = new_run()
    Journal(folder.supervisor_journal).end(RunStatus.FINISHED)
    assert replay(folder)
    assert is_concluded(folder)
    run_id = folder.launch().run_id
    client.update_run(run_id, status="RUNNING")
    client.log_metric(run_id, "my_eval", 0.9)
    assert replay(folder, (RunStatus.FAILED, "its supervisor ended without a word"))
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags[Tag.REASON], run.data.metrics["my_eval"]) == ("FINISHED", "", 0.9)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"offsets": 3}', '{"end": 1}', '{"offsets": {"worker-0": 0}, "of_a_later_version": 1}', "\0" * 50],
)
def test_a_damaged_state_begins_anew(new_run, client, content):
    folder = new_run(epochs=2)
    journal = Journal(folder.worker(0).journal)
    journal.metrics({Metric.LOSS: 1.0}, 0)
    Journal(folder.supervisor_journal).end(RunStatus.FINISHED)
    first = Recorder(folder)
    first.connect(start=True)
    flush(first)
    first.close()
    journal.metrics({Metric.LOSS: 0.5}, 1)
    folder.recorder_state.write_text(content)
    assert not is_concluded(folder)
    assert replay(folder)
    assert client.get_run(folder.launch().run_id).info.status == "FINISHED"
    assert points(client, folder, Metric.LOSS) == [(0, 1.0), (1, 0.5)]


def test_decided_end_wins_over_a_guess(new_run, client):
    folder = new_run()
    Journal(folder.supervisor_journal).end(RunStatus.FINISHED)
    client.set_terminated(folder.launch().run_id, "FAILED")
    assert replay(folder, (RunStatus.FAILED, "lost"))
    assert client.get_run(folder.launch().run_id).info.status == "FINISHED"


def test_links_and_unfinished_files_stay_here(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").write_text("1")
    (tmp_path / "folder" / ".half").write_text("1")
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    (tmp_path / "folder" / "file-link").symlink_to("/etc/passwd")
    assert [target for _, target in files_below(tmp_path / "folder", "model")] == ["model/inner/file"]
    assert files_below(tmp_path / "missing", "") == []


def test_requests_fit():
    items: list[mlflow_limits.Item] = [mlflow_limits.ParamItem(f"p{i}", "é" * 6_000) for i in range(250)]
    items += [mlflow_limits.TagItem(f"t{i}", "x") for i in range(250)]
    items += [mlflow_limits.MetricPoint("m", 1.0, 0, step) for step in range(2_500)]
    batches = list(mlflow_limits.requests(items))
    assert [item for batch in batches for item in batch] == items
    for batch in batches:
        assert len(batch) <= 1_000
        assert sum(isinstance(item, mlflow_limits.ParamItem) for item in batch) <= 100
        assert sum(isinstance(item, mlflow_limits.TagItem) for item in batch) <= 100
        assert len(json.dumps([vars(item) for item in batch])) < 1_000_000
    assert list(mlflow_limits.requests([])) == []
