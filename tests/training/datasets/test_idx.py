import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from training.datasets import idx
from training.datasets.base import DataFileError

CONTENT = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
RAW = bytes((0, 0, 8, 3)) + struct.pack(">III", 3, 2, 2) + CONTENT.tobytes()


def refusal(path: Path, packed: bytes) -> str:
    path.write_bytes(packed)
    with pytest.raises(DataFileError) as caught:
        idx.read(path, (3, 2, 2))
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(RAW))
    read = idx.read(path, (3, 2, 2))
    assert read.dtype == np.uint8
    assert np.array_equal(read, CONTENT)


def test_a_damaged_file_is_named_and_not_used(tmp_path: Path) -> None:
    packed = gzip.compress(RAW)
    flipped = packed[:-8] + bytes((packed[-8] ^ 1,)) + packed[-7:]
    path = tmp_path / "a.gz"
    assert "is damaged" in refusal(path, flipped), "the checksum in the trailer is wrong"
    assert "is damaged" in refusal(path, packed[:-9]), "cut off"
    assert "is damaged" in refusal(path, b"<html>not found</html>")
    assert "is damaged" in refusal(path, b"")


def test_another_content_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    assert "is no IDX file" in refusal(path, gzip.compress(b"hello, this is text"))
    assert "is no IDX file" in refusal(path, gzip.compress(bytes((0, 0, 13, 3)) + RAW[4:])), "floats"
    assert "is no IDX file" in refusal(path, gzip.compress(b""))
    assert "holds 4x2x2, not 3x2x2" in refusal(path, gzip.compress(RAW[:4] + struct.pack(">III", 4, 2, 2) + RAW[16:]))
    assert "holds 11 bytes of data, not those of 3x2x2" in refusal(path, gzip.compress(RAW[:-1]))
    assert "not 3x2x2" in refusal(path, gzip.compress(RAW[:7])), "the header is cut off"


def test_a_trailer_that_claims_gigabytes_allocates_none(tmp_path: Path) -> None:
    packed = gzip.compress(RAW)
    assert "is damaged" in refusal(tmp_path / "a.gz", packed[:-4] + b"\xff\xff\xff\xff")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"nowhere\.gz cannot be read \(No such file or directory\)"):
        idx.read(tmp_path / "nowhere.gz", (3, 2, 2))
