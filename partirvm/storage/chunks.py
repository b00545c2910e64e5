"""Read chunks of the arrays that this package writes, and checksums of their content.

Chunks are read without Zarr: the metadata of an array decide neither how its bytes are decoded nor how much memory that
takes. At most ``BLOSC_RATIO`` times the stored bytes of a chunk are allocated.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from partirvm.storage.folder import Folder

BLOSC_HEADER, CRC = 16, 4
"""Bytes before and after a compressed block."""

BLOSC_RATIO = 255
"""Largest ratio of LZ4, which compresses chunks of DATA."""


def checksum(block: NDArray[Any]) -> str:
    """Return the CRC-32C and the sum of the words of 8 bytes of a block, as 24 hexadecimal digits.

    A cryptographic hash would cost a fifth of a pass, this checksum less than a hundredth.
    """
    words = np.ascontiguousarray(block).reshape(-1).view(np.uint64)
    return f"{google_crc32c.value(words):08x}{int(words.sum(dtype=np.uint64)):016x}"


def chunk_name(array: str, place: Sequence[int]) -> str:
    """Return the name of a chunk in the folder of a Zarr group.

    >>> chunk_name("X", (3, 0))
    'X/c/3/0'
    """
    return "/".join((array, "c", *map(str, place)))


def read_raw(folder: Folder, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Read a chunk without compression. Raises ``ValueError`` if it has another size."""
    nbytes = math.prod(shape) * dtype.itemsize
    data = folder.read(name, nbytes + 1)
    if len(data) != nbytes:
        raise ValueError(f"it should have {nbytes:,} bytes, not {'more' if len(data) > nbytes else len(data)}")
    return np.frombuffer(data, dtype).reshape(shape)


def read_blosc(folder: Folder, name: str, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """Read a chunk that Blosc compressed and CRC-32C protects. Raises ``ValueError`` if it is damaged."""
    import numcodecs.blosc

    numcodecs.blosc.use_threads = False  # as Zarr does: threads of Blosc and of the caller do not mix
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    data = np.frombuffer(folder.read(name, nbytes + BLOSC_HEADER + CRC + 1), np.uint8)
    body = data[:-CRC]
    if len(body) < BLOSC_HEADER or data[-CRC:].tobytes() != struct.pack("<I", google_crc32c.value(body)):
        raise ValueError("its checksum is wrong")
    states, block, stored = struct.unpack_from("<III", body, 4)
    if (states, stored) != (nbytes, len(body)) or block > nbytes or nbytes > BLOSC_RATIO * stored:
        raise ValueError(f"it states {states:,} bytes in blocks of {block:,}, but should have {nbytes:,}")
    whole = np.empty(shape, dtype)
    numcodecs.blosc.decompress(body, whole)
    return whole
