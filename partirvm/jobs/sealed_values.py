"""Store plain values and arrays in a sealed group (``storage.sealed``). Specs and checkpoints are stored this way.

An array of at least ``LARGE`` bytes is a separate Zarr array ``a0``, ``a1`` …. All smaller arrays are concatenated in
the array ``packed``: a split-merge of thousands of partitions has tens of thousands of small arrays, and separate
arrays would need one or two files each. They are followed by JSON with two keys: ``tree`` is the JSON of
``jobs.codec``, and ``places`` lists dtype, shape, memory order and position of each array. The attribute ``tail`` is
the length of this JSON.

The memory order of an array (C or Fortran) is kept, because BLAS may round differently in the other order. Arrays that
are not contiguous are loaded in C order.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import FormatError
from partirvm.jobs.codec import Codec, plain
from partirvm.kernels.functions import require_no_code
from partirvm.storage.sealed import read_sealed, write_sealed

LARGE = 1 << 16
"""Minimum size in bytes of an array that is stored separately in the group."""

CODEC = Codec(())
"""A codec for plain values and arrays only: the files contain no objects of classes."""


def write_values(value: Any, location: str, kind: str, version: int) -> str:
    """Write plain values and arrays, also nested in tuples, lists and dicts, to a new folder or URL. Returns the digest
    of all contents.

    Raises ``TypeError`` for a value that cannot be stored, ``ExistsError`` if the location exists, and ``StorageError``
    if it cannot be written.
    """
    tree, arrays = CODEC.encode(value)
    places = _places(arrays)
    packed = b"".join(a.tobytes(order="A") for a, place in zip(arrays, places, strict=True) if _is_packed(place))
    own = {
        f"a{number}": array.T if place["order"] == "F" else array
        for number, (array, place) in enumerate(zip(arrays, places, strict=True))
        if not _is_packed(place)
    }
    tail = json.dumps({"tree": tree, "places": places}, separators=(",", ":")).encode()
    whole = np.frombuffer(packed + tail, np.uint8)
    return write_sealed(location, kind, version, {"tail": len(tail)}, {**own, "packed": whole})


def read_values(location: str, kind: str, version: int, *, allow_code: bool = False, seal: str | None = None) -> Any:
    """Return the value stored by ``write_values``. ``seal`` is the digest of the group.

    Raises ``MissingDataError`` if the group or a part of the group is missing, damaged or another one. Raises
    ``FormatError`` if the group has another kind or cannot be decoded, and ``NewerFormatError`` if a newer version
    wrote the group. Raises ``UsageError`` if the value contains the spec of a named function (``kernels.functions``)
    and ``allow_code`` is false.
    """
    about, stored = read_sealed(location, kind, version, seal=seal)
    try:
        packed = stored.pop("packed").tobytes()
        tail = json.loads(packed[len(packed) - about["tail"] :])
        arrays = [
            _unpacked(packed, place) if _is_packed(place) else _alone(stored[f"a{number}"], place)
            for number, place in enumerate(tail["places"])
        ]
        value = CODEC.decode(tail["tree"], arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise cannot_be_read(location, kind, error) from error
    if not allow_code:
        require_no_code(value, location)
    return value


def cannot_be_read(location: str, kind: str, error: Exception) -> FormatError:
    """Return the error for a file whose values cannot be decoded."""
    return FormatError(f"{location}: the {kind.removeprefix('partirvm-')} cannot be read: {error}")


def _is_packed(place: dict[str, Any]) -> bool:
    return place["packed"] is not None


def _places(arrays: list[NDArray[Any]]) -> list[dict[str, Any]]:
    """Return dtype, shape, order and position of each array.

    ``packed`` is the byte offset of a small array in the array ``packed``, or None for a large array.
    """
    places: list[dict[str, Any]] = []
    end = 0
    for array in arrays:
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        small = array.nbytes < LARGE
        place = {"dtype": array.dtype.str, "shape": list(array.shape), "order": order, "packed": end if small else None}
        places.append(place)
        end += array.nbytes if small else 0
    return places


def _unpacked(packed: bytes, place: dict[str, Any]) -> NDArray[Any]:
    dtype, shape = plain(place["dtype"]), tuple(place["shape"])
    if not math.prod(shape):
        return np.zeros(shape, dtype, order=place["order"])
    flat = np.frombuffer(packed, dtype, math.prod(shape), place["packed"])
    return flat.copy().reshape(shape, order=place["order"])


def _alone(array: NDArray[Any], place: dict[str, Any]) -> NDArray[Any]:
    array = array.astype(plain(place["dtype"]), copy=False)  # Zarr does not keep the byte order
    return array.T if place["order"] == "F" else array
