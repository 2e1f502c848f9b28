"""What a run leaves for its record."""

import gzip

import pandas as pd
import pytest

from training.names import PLACEMENT_COLUMNS
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec
from training.worker import staging
from training.worker.post_mortem import MemoryKills, end_of, last_words

GRAPH = "I0000 00:00:1.1 1 placer.cc:162] dense/MatMul: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0\n"
EAGER = "I0000 00:00:1.1 1 execute.cc:1775] Executing op AddV2 in device /job:localhost/replica:0/task:0/device:CPU:0\n"


@pytest.fixture
def folder_of(tmp_path):
    def make(**fields):
        folder = RunFolder.create(RunSpec(**fields), Launch("run", "", str(tmp_path / "run")))
        for index in range(folder.spec().workers):
            folder.worker(index).path.mkdir()
        return folder

    return make


def files(folder):
    return sorted(str(path.relative_to(folder.staging)) for path in folder.staging.rglob("*") if path.is_file())


def test_everything_a_run_leaves(folder_of):
    folder = folder_of()
    folder.environment.write_text("{}")
    folder.worker(0).stdout.write_text("said\n" + EAGER)
    folder.worker(0).stderr.write_text("before\n" + GRAPH + EAGER + EAGER + "after\n")
    assert staging.stage(folder) == []
    expected = ["environment.json", "logs/worker-0.log", "placement/placement.log.gz", "placement/placement.parquet"]
    assert files(folder) == expected
    assert (folder.staging / "logs/worker-0.log").read_text() == "before\nafter\nsaid\n"
    table = pd.read_parquet(folder.staging / "placement/placement.parquet")
    assert list(table.columns) == list(PLACEMENT_COLUMNS)
    assert dict(zip(table["op_type"], table["count"], strict=True)) == {"AddV2": 2, "MatMul": 1}
    assert gzip.decompress((folder.staging / "placement/placement.log.gz").read_bytes()).decode().count("\n") == 3
    staging.stage(folder)
    assert files(folder) == expected


def test_every_worker_is_kept(folder_of):
    folder = folder_of(strategy="multi_worker_mirrored", workers=2)
    for index in range(2):
        folder.worker(index).stderr.write_text(EAGER + f"worker {index}\n")
    assert staging.stage(folder) == []
    assert (folder.staging / "logs/worker-1.log").read_text() == "worker 1\n"
    table = pd.read_parquet(folder.staging / "placement/placement.parquet")
    assert set(table["device"]) == {"worker:0/CPU:0", "worker:1/CPU:0"}


def test_run_that_did_not_log_placement(folder_of):
    folder = folder_of(log_device_placement=False)
    folder.worker(0).stderr.write_text("text\n")
    assert staging.stage(folder) == []
    assert files(folder) == ["logs/worker-0.log"]


def test_part_that_fails_is_named_and_the_others_are_made(folder_of):
    folder = folder_of()
    folder.worker(0).stderr.mkdir()
    folder.worker(0).stdout.write_text("said\n")
    folder.environment.write_text("{}")
    notices = staging.stage(folder)
    assert [notice.split(" could not be made")[0] for notice in notices] == [
        "the log of worker 0",
        "the placement table",
    ]
    assert "environment.json" in files(folder)


def test_kernels_that_were_compiled_for_the_gpu_are_noted_once(folder_of):
    folder = folder_of(log_device_placement=False)
    words = "CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer."
    line = f"W0000 00:00:1.1 1 gpu_device.cc:2430] {words}\n"
    folder.worker(0).stderr.write_text(line + "text\n" + line)
    assert staging.stage(folder) == [words]


def test_huge_log_keeps_its_beginning_and_end(folder_of, monkeypatch):
    monkeypatch.setattr(staging, "LARGEST_LOG", 10_000)
    folder = folder_of(log_device_placement=False)
    lines = [f"line {number:06}\n" for number in range(10_000)]
    folder.worker(0).stdout.write_text("".join(lines))
    (notice,) = staging.stage(folder)
    kept = (folder.staging / "logs/worker-0.log").read_text().splitlines(keepends=True)
    assert kept[0] == lines[0]
    assert kept[-1] == lines[-1]
    (gap,) = [line for line in kept if line.startswith("[...")]
    left_out = sum(map(len, lines)) - sum(len(line) for line in kept if line != gap)
    assert f"{left_out:,} bytes" in gap
    assert f"{left_out:,} bytes" in notice
    assert sum(map(len, kept)) < 10_100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Traceback\n  File\nValueError: bad\nbye\n", "ValueError: bad"),
        ("F0000 00:00:1.1 1 tensor.cc:12] Check failed: x\n", "F0000 00:00:1.1 1 tensor.cc:12] Check failed: x"),
        ("terminate called after throwing\n  what():  std::bad_alloc\n", "what():  std::bad_alloc"),
        ("I0000 all is well\n", ""),
    ],
)
def test_last_words(tmp_path, text, words):
    path = tmp_path / "stderr.log"
    path.write_text(text)
    assert last_words(path) == words
    assert last_words(tmp_path / "missing") == ""


def test_only_the_end_of_a_huge_file_is_read(tmp_path):
    path = tmp_path / "stderr.log"
    with open(path, "wb") as file:
        file.truncate(100 * 2**30)  # takes no room on the disk
        file.seek(0, 2)
        file.write(b"\nValueError: bad\n")
    assert len(end_of(path)) < 2**20
    assert last_words(path) == "ValueError: bad"


def test_no_memory_kill_happened_just_now():
    assert not MemoryKills().happened()
