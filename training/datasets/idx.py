"""Reader of gzip-compressed IDX files, the format MNIST and Fashion-MNIST come in.

Format: two zero bytes, a type code (8 = unsigned byte), the number of dimensions, each dimension as a big-endian
uint32, then the data in C order.
"""

import zlib
from pathlib import Path

import numpy as np

from training.datasets.base import DataFileError

_UNSIGNED_BYTE = 8
_LARGEST_RATIO = 1032  # deflate cannot compress further, so a size that claims more is a lie
_GZIP = 31  # zlib's window bits for a gzip header and trailer, checksum included


def read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Reads one file.

    Args:
        path: a gzip-compressed IDX file of unsigned bytes.
        shape: what its dimensions must be.

    Returns:
        Read-only uint8 array of that shape.

    Raises:
        DataFileError: the file cannot be read, is damaged (its checksum is verified) or has another shape.
    """
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise DataFileError(path, f"cannot be read ({error.strerror})") from error
    try:
        # gzip's trailer says how long the data is, so zlib allocates once instead of growing.
        expected = min(int.from_bytes(packed[-4:], "little"), _LARGEST_RATIO * len(packed))
        raw = zlib.decompress(packed, wbits=_GZIP, bufsize=max(expected, 1))
    except zlib.error as error:
        raise DataFileError(path, f"is damaged ({error})") from error
    header = 4 + 4 * len(shape)
    magic = bytes((0, 0, _UNSIGNED_BYTE, len(shape)))
    if raw[:4] != magic:
        raise DataFileError(path, f"is no IDX file of unsigned bytes in {len(shape)} dimensions")
    found = tuple(int(size) for size in np.frombuffer(raw[4:header].ljust(header - 4, b"\0"), ">u4"))
    if found != shape:
        raise DataFileError(path, f"holds {_shown(found)}, not {_shown(shape)}")
    data = np.frombuffer(raw, np.uint8, offset=header)
    if data.size != np.prod(shape, dtype=np.int64):
        raise DataFileError(path, f"holds {data.size:,} bytes of data, not those of {_shown(shape)}")
    return data.reshape(shape)


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
