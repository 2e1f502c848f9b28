import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dataset_files import Server
from tests.support.fresh_process import ROOT
from training.datasets import download
from training.datasets.base import DataFileError, DataSetError
from training.datasets.download import Download

CONTENT = bytes(range(256)) * 4096

FETCH = """
import sys
from training.datasets.download import Download, fetch
files = dict.fromkeys(("one.bin", "two.bin"), "")
print(fetch("tiny", Download("tiny", files, lambda path: None, sys.argv[1]), "ask a colleague"))
"""


def tiny(server: Server, sha256: str = "", verify: Callable[[Path], object] = lambda path: None) -> Download:
    return Download("tiny", {"one.bin": sha256}, verify, server.origin)


def left_in(folder: Path) -> list[str]:
    """Names of the files in a folder, the lock aside (it stays, as file locks do)."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_four_processes_at_once_make_one_download_of_each_file(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(CONTENT)
    (folder / "two.bin").write_bytes(CONTENT[::-1])
    server.seconds = 0.5
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", FETCH, server.origin], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, answers
    assert {out.decode().strip() for out, _ in answers} == {str(cache / "tiny")}
    assert server.downloads == {"one.bin": 1, "two.bin": 1}
    assert left_in(cache / "tiny") == ["one.bin", "two.bin"]
    assert (cache / "tiny" / "one.bin").read_bytes() == CONTENT
    assert (cache / "tiny" / "two.bin").read_bytes() == CONTENT[::-1]


def test_threads_at_once_make_one_download(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(CONTENT)
    server.seconds = 0.3
    threads = [threading.Thread(target=download.fetch, args=("tiny", tiny(server), "")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert server.downloads == {"one.bin": 1}
    assert (cache / "tiny" / "one.bin").read_bytes() == CONTENT


def test_the_hash_is_checked_before_the_file_appears(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(CONTENT)
    with pytest.raises(DataSetError, match=r"one\.bin is not the file it should be \(its SHA-256 is "):
        download.fetch("tiny", tiny(server, "0" * 64), "")
    assert left_in(cache / "tiny") == []
    download.fetch("tiny", tiny(server, hashlib.sha256(CONTENT).hexdigest()), "")
    assert left_in(cache / "tiny") == ["one.bin"]


def test_the_content_is_checked_before_the_file_appears(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(b"<html>log in to this network</html>")

    def verify(path: Path) -> None:
        assert path.read_bytes().startswith(b"<html>")
        raise DataFileError(path, "is damaged")

    with pytest.raises(DataSetError, match=r"one\.bin is not the file it should be .*is damaged"):
        download.fetch("tiny", tiny(server, verify=verify), "")
    assert left_in(cache / "tiny") == []


def test_a_download_that_ends_early_leaves_nothing(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(CONTENT)
    server.drop = 1000
    with pytest.raises(DataSetError, match=rf"ended after {len(CONTENT) - 1000} of {len(CONTENT)} bytes"):
        download.fetch("tiny", tiny(server), "")
    assert left_in(cache / "tiny") == []


def test_what_a_killed_download_left_does_not_get_in_the_way(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(CONTENT)
    (cache / "tiny").mkdir()
    (cache / "tiny" / ".one.bin.partial").write_bytes(b"half" * 10_000_000)
    download.fetch("tiny", tiny(server), "")
    assert left_in(cache / "tiny") == ["one.bin"]
    assert (cache / "tiny" / "one.bin").read_bytes() == CONTENT


def test_a_file_that_is_there_is_not_fetched_again(cache: Path, served: tuple[Server, Path]) -> None:
    server, _ = served
    (cache / "tiny").mkdir()
    (cache / "tiny" / "one.bin").write_bytes(b"mine")
    assert download.fetch("tiny", tiny(server), "") == cache / "tiny"
    assert not server.downloads
    assert (cache / "tiny" / "one.bin").read_bytes() == b"mine"


def test_a_failed_download_says_what_else_to_do(cache: Path, served: tuple[Server, Path]) -> None:
    server, _ = served
    with pytest.raises(DataSetError) as caught:
        download.fetch("tiny", tiny(server), "ask a colleague")
    message = str(caught.value)
    assert "could not be downloaded" in message
    assert server.origin in message
    assert str(cache / "tiny") in message
    assert message.endswith("ask a colleague")


def test_a_cache_that_cannot_be_written_is_named(cache: Path, served: tuple[Server, Path]) -> None:
    server, _ = served
    (cache / "tiny").write_text("a file where the folder should be")
    with pytest.raises(DataSetError, match=r"into .*/datasets/tiny"):
        download.fetch("tiny", tiny(server), "")


def test_reachable_asks_once_and_remembers(cache: Path, served: tuple[Server, Path]) -> None:
    server, folder = served
    (folder / "one.bin").write_bytes(CONTENT)
    url = server.origin + "one.bin"
    assert download.reachable(url)
    (folder / "one.bin").unlink()
    server.shutdown()
    assert download.reachable(url)
    assert not server.downloads, "it asked for the head only"


def test_a_server_that_never_answers_costs_no_more_than_the_probe(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert not download.reachable(f"http://127.0.0.1:{silent.getsockname()[1]}/file")
        assert time.monotonic() - began < download.PROBE_SECONDS + 10


def test_a_port_without_a_server_is_not_reachable(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert not download.reachable(f"http://127.0.0.1:{port}/file")


def test_a_keras_cache_elsewhere_is_respected(cache: Path, tmp_path: Path) -> None:
    script = "import json; from training.datasets.base import keras_cache; print(json.dumps(str(keras_cache())))"
    default = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={"HOME": str(tmp_path)}, capture_output=True, check=True
    )
    assert json.loads(default.stdout) == str(tmp_path / ".keras" / "datasets")
    assert download.keras_cache() == cache
