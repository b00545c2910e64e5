"""Plain values and arrays in a sealed group (``storage.sealed``): what specs and checkpoints are kept in.

The JSON of the group is ``tree`` (that of ``jobs.codec``, as text) and ``places`` (dtype, shape, order and place of
each array). Arrays of ``LARGE`` bytes and more are Zarr arrays ``a0``, ``a1`` … of their own, the others lie one after
the other in ``packed``: a split-merge of thousands of partitions has tens of thousands of small arrays, and each would
be a file or two.

Rows-first or columns-first order of memory is kept, since BLAS may round differently from another one. Arrays that are
neither (slices with gaps) come back rows-first.
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
"""Bytes from which an array is one of its own in the group."""

CODEC = Codec(())
"""Plain values and arrays alone: no class has a place in these files."""


def write_values(value: Any, location: str, kind: str, version: int) -> None:
    """Write plain values, arrays, and tuples, lists and dicts of these to a folder or URL with nothing there.

    Raises ``TypeError`` for what cannot be stored, ``ExistsError`` if something is there, ``StorageError`` where it
    cannot be written.
    """
    tree, arrays = CODEC.encode(value)
    places = _places(arrays)
    packed = b"".join(a.tobytes(order="A") for a, place in zip(arrays, places, strict=True) if _is_packed(place))
    own = {
        f"a{number}": array.T if place["order"] == "F" else array
        for number, (array, place) in enumerate(zip(arrays, places, strict=True))
        if not _is_packed(place)
    }
    about = {"tree": json.dumps(tree, separators=(",", ":")), "places": places}
    write_sealed(location, kind, version, about, {**own, "packed": np.frombuffer(packed, np.uint8)})


def read_values(location: str, kind: str, version: int, *, allow_code: bool = False) -> Any:
    """The value that was written.

    Raises ``MissingDataError`` if nothing is there or a part of it is missing or damaged, ``FormatError`` if it is
    something else or cannot be decoded, ``NewerFormatError`` if it is of a newer version, ``UsageError`` if it holds
    the spec of a named function (``kernels.functions``) and ``allow_code`` is false.
    """
    about, stored = read_sealed(location, kind, version)
    packed = stored.pop("packed").tobytes()
    try:
        arrays = [
            _unpacked(packed, place) if _is_packed(place) else _alone(stored[f"a{number}"], place)
            for number, place in enumerate(about["places"])
        ]
        value = CODEC.decode(json.loads(about["tree"]), arrays)
    except (ValueError, KeyError) as error:
        raise cannot_be_read(location, kind, error) from error
    if not allow_code:
        require_no_code(value, location)
    return value


def cannot_be_read(location: str, kind: str, error: Exception) -> FormatError:
    """What a file whose values make no sense is refused with."""
    return FormatError(f"{location}: the {kind.removeprefix('partirvm-')} cannot be read: {error}")


def _is_packed(place: dict[str, Any]) -> bool:
    return place["packed"] is not None


def _places(arrays: list[NDArray[Any]]) -> list[dict[str, Any]]:
    """What is said of each array; ``packed`` is where it begins among the small ones."""
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
    array = array.astype(plain(place["dtype"]), copy=False)  # Zarr has no order of bytes
    return array.T if place["order"] == "F" else array
