"""JSON and numeric chunks protected by checksums, and type checks for JSON from files.

The schema of a JSON object maps each field that readers use to its type: an annotation such as
``list[str] | None``, a ``range``, the schema of a nested object, or a tuple of alternatives. A
field ``name?`` may be missing.

Readers of DATA use only the chunk bytes, never Zarr's array metadata, so that no file can choose a
codec. At most ``BLOSC_RATIO`` times a chunk's stored bytes are allocated.
"""

import hashlib
import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from partirvm.errors import FormatError, MissingDataError
from partirvm.quoting import without_credentials
from partirvm.storage.address import options_of, reading
from partirvm.storage.folder import Folder

HEAD = 1 << 25
"""Maximum size of JSON in bytes."""

MOST = 1 << 63
"""Bound on the absolute values of integers in files."""

TIME = range(1 << 37)
"""Times that a file may contain, in seconds since 1970."""

BLOSC_HEADER = 16
"""Bytes before a compressed block."""

CRC = 4
"""Bytes of the checksum after a compressed block."""

BLOSC_RATIO = 255
"""Largest compression ratio of LZ4, which compresses DATA chunks."""


Schema: TypeAlias = dict[str, Any]


def read_json(
    folder: Folder, name: str, schema: Schema | None = None, missing: str = ""
) -> dict[str, Any]:
    """Read at most ``HEAD`` bytes and verify the JSON object, of this schema, that ``to_json``
    wrote for this name.

    Raises ``MissingDataError``, with a message that begins with ``missing``, if the object does not
    exist, and ``FormatError`` if it is damaged, moved or of another schema.

    Args:
        folder: the folder.
        name: the name of the object.
        schema: the fields that it must have.
        missing: the beginning of the message if the object does not exist.
    """
    place = f"{folder.location}/{name}"
    try:
        with reading(place):
            data = folder.read(name, HEAD)
    except MissingDataError as error:
        raise MissingDataError(f"{folder.location}: {missing}{name} is missing") from error
    try:
        value = json.loads(data)
        is_intact = value.pop("check") == digest(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"{place}: damaged, or not a file that partirvm wrote: restore the file, or pass "
            "another location"
        ) from error
    if not is_intact:
        raise FormatError(
            f"{place}: damaged, its content does not match its checksum: restore the file"
        )
    origin = value.pop("object", None)
    if origin != name:
        raise FormatError(
            f"{place}: this file was moved or copied from {origin}: restore it, or move it "
            "elsewhere"
        )
    require(value, schema or {}, place)
    return cast(dict[str, Any], value)


def to_json(name: str, value: dict[str, Any]) -> bytes:
    """Serialise a JSON object to be stored under this name. ``check`` is a checksum of name and
    content."""
    named = _cleaned({"object": name, **value})
    return json.dumps({**named, "check": digest(named)}, indent=1).encode()


def _cleaned(value: Any) -> Any:
    """Return a JSON value without credentials in its strings: nothing stored by partirvm contains
    any."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    return list(map(_cleaned, value)) if isinstance(value, list | tuple) else value


def digest(value: Any) -> str:
    """Return a hash of a JSON value that does not depend on the order of keys."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def numbers(folder: Folder, series: str, first: int | None = None) -> list[int]:
    """Return the numbers of the files ``000001.json`` …, from ``first`` or the lowest. Raises
    ``MissingDataError`` if one is missing."""
    listed = listed_numbers(folder, series)
    if not listed:
        return []
    numbers = range(first or listed[0], listed[-1] + 1)
    present = set(listed)
    for number in numbers:  # one by one: a file added by hand may have any number
        name = numbered(series, number)
        # a listing may miss a new object
        if number not in present and not folder.exists(name):
            raise MissingDataError(
                f"{folder.location}: {name} is missing, but {numbered(series, listed[-1])} exists: "
                "restore the missing file, or move the other elsewhere if it was added by hand"
            )
    return list(numbers)


def listed_numbers(folder: Folder, series: str) -> list[int]:
    """Return the numbers of the listed files of a series, in increasing order, possibly with
    gaps."""
    matches = [re.fullmatch(r"(\d{6,})\.json", name) for name in folder.list(series)]
    numbers = [
        int(match[1]) for match in matches if match and match[0] == _file_name(int(match[1]))
    ]
    return sorted(number for number in numbers if number)


def _file_name(number: int, suffix: str = "") -> str:
    return f"{number:06d}{suffix}.json"


def numbered(series: str, number: int, suffix: str = "") -> str:
    """Return the name of an object in a numbered series."""
    return f"{series}/{_file_name(number, suffix)}"


def require(value: dict[str, Any], schema: Schema, place: str) -> None:
    """Raise ``FormatError`` if a JSON object does not have this schema."""
    if not has_type(value, schema):
        raise FormatError(f"{place}: damaged, a field is missing or wrong: restore the file")


PLAIN: dict[Any, tuple[type, ...]] = {
    bool: (bool, np.bool_),
    int: (int, np.integer),
    float: (int, float, np.number),
}
"""The value types that an annotated type accepts."""


def has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has an annotated type; type variables, ``Any`` and protocols are
    checked less strictly.

    >>> pairs = ((1, 2.5), tuple[float, ...]), ({"a": None}, dict[str, int]), (True, int)
    >>> tuple(has_type(value, kind) for value, kind in pairs)
    (True, False, False)
    """
    if isinstance(hint, dict):
        return isinstance(value, dict) and _has_fields(value, hint)
    if isinstance(hint, tuple):
        return any(has_type(value, alternative) for alternative in hint)
    if isinstance(hint, range):
        return type(value) in (int, float) and hint.start <= value < hint.stop
    if hint is None:
        return value is None
    origin = get_origin(hint) or hint
    parts = get_args(hint)
    if origin in (Union, UnionType):
        return any(has_type(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is Any or not isinstance(origin, type):
        return True
    return _is_instance(value, origin) and _has_parts(value, origin, parts)


def _has_fields(value: dict[str, Any], schema: Schema) -> bool:
    """Return whether an object has all fields of a schema, except optional ones, with their
    types."""
    for name, hint in schema.items():
        field = name.removesuffix("?")
        if field in value:
            if not has_type(value[field], hint):
                return False
        elif field == name:
            return False
    return True


def _is_instance(value: Any, kind: type) -> bool:
    """Return whether a value is an instance of a class, or of a dataclass if this is a protocol;
    integers in files are below ``MOST``."""
    if isinstance(value, bool) and kind in (int, float):
        return False
    if isinstance(value, int) and abs(value) >= MOST:
        return False
    is_protocol = getattr(kind, "_is_protocol", False)
    if is_protocol and not getattr(kind, "_is_runtime_protocol", False):
        return is_dataclass(value)
    return isinstance(value, PLAIN.get(kind, kind))


def _has_parts(value: Any, kind: type, parts: tuple[Any, ...]) -> bool:
    """Return whether the items of a list, a tuple or a dict have the types ``parts`` of its
    annotation."""
    if not parts:
        return True
    if kind is dict:
        return all(
            has_type(key, parts[0]) and has_type(item, parts[1]) for key, item in value.items()
        )
    if kind is list or (kind is tuple and parts[1:] == (...,)):
        return all(has_type(item, parts[0]) for item in value)
    if kind is tuple:
        return len(value) == len(parts) and all(map(has_type, value, parts))
    return True


def require_format(version: Any, known: int, place: str, what: str) -> None:
    """Raise ``FormatError`` if the format is not ``known``.

    Args:
        version: the format that was found.
        known: the format that this version reads.
        place: the place of the file.
        what: a description of the file for the message.
    """
    if version != known:
        raise FormatError(
            f"{place}: the {what} has format {version!r:.40}, this version reads format {known}: "
            f"make the {what} again, or use the version of partirvm that wrote it"
        )


def checksum(block: NDArray[Any]) -> str:
    """Return a cheap checksum: a block's CRC-32C and the sum of its 8-byte words, as 24 hexadecimal
    digits."""
    words = np.ascontiguousarray(block).reshape(-1).view(np.uint64)
    return f"{google_crc32c.value(words):08x}{int(words.sum(dtype=np.uint64)):016x}"


def create_blosc(
    place: str, shape: Sequence[int], chunk: Sequence[int], dtype: Any, fill: Any = math.nan
) -> Any:
    """Create and return an empty Zarr array at a path or URL, with chunks for ``read_blosc``.

    Args:
        place: the path or URL.
        shape: the shape of the array.
        chunk: the shape of a chunk.
        dtype: the type of its numbers.
        fill: the value of missing chunks.
    """
    import zarr
    from zarr.codecs import BloscCodec, Crc32cCodec

    codecs = [BloscCodec(cname="lz4", clevel=1, shuffle="shuffle"), Crc32cCodec()]
    return zarr.create_array(
        place,
        shape=tuple(shape),
        chunks=tuple(chunk),
        dtype=dtype,
        zarr_format=3,
        compressors=codecs,
        fill_value=fill,
        config={"write_empty_chunks": True},
        storage_options=options_of(place) or None,
    )


def read_blosc(folder: Folder, name: str, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """Read a chunk compressed by Blosc and protected by CRC-32C. Raises ``ValueError`` if it is
    damaged.

    Args:
        folder: the folder.
        name: the name of the chunk.
        shape: its shape.
        dtype: the type of its numbers.
    """
    import numcodecs.blosc

    # as in Zarr: Blosc's threads must not mix with the caller's
    numcodecs.blosc.use_threads = False
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    data = np.frombuffer(folder.read(name, nbytes + BLOSC_HEADER + CRC + 1), np.uint8)
    body = data[:-CRC]
    checksum = struct.pack("<I", google_crc32c.value(body))
    if len(body) < BLOSC_HEADER or data[-CRC:].tobytes() != checksum:
        raise ValueError("its checksum is wrong")
    states, block, stored = struct.unpack_from("<III", body, 4)
    if (states, stored) != (nbytes, len(body)) or block > nbytes or nbytes > BLOSC_RATIO * stored:
        raise ValueError(
            f"it declares {states:,} bytes in blocks of {block:,}, but should have {nbytes:,}"
        )
    chunk = np.empty(shape, dtype)
    numcodecs.blosc.decompress(body, chunk)
    return chunk
