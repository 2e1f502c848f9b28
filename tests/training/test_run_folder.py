"""A run's folder on disk."""

import os

import pytest

from training.run_folder import Launch, RunFolder, write_atomically
from training.spec import RunSpec


def test_spec_and_launch_come_back(tmp_path):
    launch = Launch("abc", "sqlite:///x.db", str(tmp_path / "abc"), gpu_ids=[5, 6], cpus=2, submitted_at=1.5)
    folder = RunFolder.create(RunSpec(epochs=7), launch)
    assert folder.spec() == RunSpec(epochs=7)
    assert folder.launch() == launch
    assert sorted(path.name for path in folder.path.iterdir()) == ["launch.json", "spec.json"]


@pytest.mark.parametrize("text", ["../other", "a/b", "", ".", "a\0b", "x" * 65])
def test_id_that_leads_elsewhere_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="is not a run id"):
        RunFolder.of(tmp_path, text)


def test_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RunFolder("runs/a").path == tmp_path / "runs" / "a"
    assert RunFolder.of("runs", "a").worker(1).journal == tmp_path / "runs" / "a" / "worker-1" / "journal.jsonl"


def test_file_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "file"
    write_atomically(target, "old")
    with open(target) as open_before:
        write_atomically(target, b"new")
        assert open_before.read() == "old"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("text", ["", "[]", '{"unknown": 1}', '{"run_id": "a"}'])
def test_launch_that_is_none(text):
    with pytest.raises((ValueError, TypeError)):
        Launch.from_json(text)
