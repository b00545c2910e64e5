"""A format for models and checkpoints: JSON and arrays in one Zarr group. Checksums of all contents detect damage.

    GROUP/zarr.json     attributes: ``kind``, ``format``, the JSON, ``arrays`` and ``digest``
    GROUP/NAME/…        one array each

``arrays`` states the dtype, shape, chunks and hash of the bytes of each array; ``digest`` is a hash of all other
attributes. The attributes are written last: a group without attributes is incomplete. Before an array is read, its
metadata are compared with ``arrays``; after reading, its bytes are compared with the hash. A forged shape cannot cause
a large allocation: no chunk is larger than ``CHUNK``, and all chunks must exist.

Only groups of Zarr format 3 are opened, because an array of format 2 may name codecs that run code.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ExistsError, FormatError, MissingDataError, NewerFormatError
from partirvm.storage.address import require_address
from partirvm.storage.folder import digest, reading, storing

Array = NDArray[Any]

CHUNK = 1 << 23
"""Maximum number of bytes of a chunk."""

AT_ONCE = 64
"""Number of chunks that are requested from a store at once."""


def write_sealed(
    location: str,
    kind: str,
    version: int,
    about: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    compress: bool = False,
    inside: Callable[[], Mapping[str, Any]] = dict,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Write JSON and numeric arrays to a folder or URL that is empty or missing. Returns the digest of all contents.

    ``inside`` is called before the attributes are written; it may write further contents of the folder, and returns
    more JSON.

    Raises ``ExistsError`` if the folder is not empty, and ``StorageError`` if the folder cannot be written.
    """
    import zarr

    require_address(location, storage_options)
    stated = {name: _metadata(np.asarray(array)) for name, array in arrays.items()}
    with storing(location):
        try:
            group = zarr.open_group(location, mode="w-", zarr_format=3, storage_options=storage_options)
        except (FileExistsError, zarr.errors.ContainsGroupError, zarr.errors.ContainsArrayError) as error:
            raise ExistsError(f"{location} exists already and is never overwritten: choose another name") from error
        for name, array in arrays.items():
            _write(group, name, array, stated[name]["chunks"], compress)
        attributes = {**about, **inside(), "kind": kind, "format": version, "arrays": stated}
        seal = digest(attributes)
        group.update_attributes({**attributes, "digest": seal})
    return seal


def read_sealed(
    location: str, kind: str, version: int, *, storage_options: dict[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read and verify the JSON and the arrays of a group.

    Raises ``MissingDataError`` if the group is missing, incomplete or damaged, ``FormatError`` if the group has another
    kind or version, and ``NewerFormatError`` if the version is newer than this program.
    """
    what = kind.removeprefix("partirvm-")
    group, attributes = open_sealed(location, what, storage_options)
    if attributes.get("kind") != kind:
        raise FormatError(f"{location}: this is not a partirvm {what} (kind {attributes.get('kind')!r})")
    require_format(attributes.get("format"), version, location, what, f"make the {what} again")
    if attributes.pop("digest", None) != digest(attributes):
        raise MissingDataError(
            f"{location}: the attributes of the {what} are damaged: restore the file, or make the {what} again"
        )
    stated: dict[str, dict[str, Any]] = attributes.pop("arrays")
    return attributes, {
        name: _read(group, name, each, f"{location}: array {name!r} of the {what}") for name, each in stated.items()
    }


def open_sealed(location: str, what: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Open a Zarr group for reading. Returns the group and its attributes.

    Raises ``MissingDataError`` if there is no group or its metadata cannot be read.
    """
    import zarr

    require_address(location, storage_options)
    with reading(
        f"{location}: zarr.json of the {what}", f"restore the file, or make the {what} again", MissingDataError
    ):
        try:
            group = zarr.open_group(location, mode="r", zarr_format=3, storage_options=storage_options)
            return group, dict(group.attrs)
        except FileNotFoundError as error:
            raise MissingDataError(f"{location}: no {what} here") from error


def require_format(found: Any, known: int, place: str, what: str, again: str) -> None:
    """Raise ``NewerFormatError`` for a format later than ``known``, and ``FormatError`` for any other mismatch."""
    if type(found) is int and found > known:
        raise NewerFormatError(
            f"{place}: the {what} has format {found}, this version reads format {known}: upgrade partirvm"
        )
    if found != known:
        raise FormatError(f"{place}: the {what} has format {found!r}, this version reads format {known}: {again}")


def require_array(stored: Any, stated: Mapping[str, Any], place: str) -> None:
    """Raise ``MissingDataError`` unless a Zarr array has the stated dtype, shape and chunks."""
    found = {"dtype": stored.dtype.newbyteorder("<").str, "shape": list(stored.shape), "chunks": list(stored.chunks)}
    wrong = [name for name, value in found.items() if value != stated[name]]
    if wrong:
        name = wrong[0]
        raise MissingDataError(
            f"{place} is damaged: its {name} is {found[name]}, but was {stated[name]}: "
            "restore the file, or make the folder again"
        )


def _metadata(array: Array) -> dict[str, Any]:
    """Return the metadata of an array, as stored in the attributes of the group."""
    chunks = _chunks(array.shape, array.dtype.itemsize)
    return {"dtype": _little(array).str, "shape": list(array.shape), "chunks": chunks, "hash": _hash(array)}


def _chunks(shape: Sequence[int], itemsize: int) -> list[int]:
    """Return the chunk shape of an array, at most ``CHUNK`` bytes; a chunk has whole rows if a row is small enough."""
    left, chunks = CHUNK // itemsize, []
    for n in reversed(shape):
        chunks.append(max(min(n, left), 1))
        left //= chunks[-1]
    return chunks[::-1]


def _little(array: Array) -> np.dtype[Any]:
    return array.dtype.newbyteorder("<")


def _hash(array: Array) -> str:
    data = np.ascontiguousarray(array, _little(array))
    return hashlib.blake2b(data.reshape(-1).view(np.uint8).data, digest_size=16).hexdigest()


def _write(group: Any, name: str, array: Array, chunks: list[int], compress: bool) -> None:
    from zarr.codecs import Crc32cCodec, ZstdCodec

    stored = group.create_array(
        name,
        shape=array.shape,
        dtype=array.dtype.newbyteorder("="),  # older versions of Zarr accept only the native order
        chunks=tuple(chunks),
        compressors=[ZstdCodec(), Crc32cCodec()] if compress else None,  # no damaged frame reaches the decompressor
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    if array.size:
        stored[...] = array


def _read(group: Any, name: str, stated: Mapping[str, Any], place: str) -> Array:
    with reading(place, "restore the file, or make the folder again", MissingDataError):
        stored = group[name]
        require_array(stored, stated, place)
        _require_chunks(stored, place)
        array: Array = np.asarray(stored[...])
    if _hash(array) != stated["hash"]:
        raise MissingDataError(
            f"{place} is damaged, its bytes differ from the written bytes: restore the file, or make the folder again"
        )
    return array


def _require_chunks(stored: Any, place: str) -> None:
    """Raise ``MissingDataError`` if a chunk of a Zarr array is missing or too large to allocate.

    Without this check Zarr would allocate the stated shape and fill missing chunks with zeros.
    """
    chunks = _chunks(stored.shape, stored.dtype.itemsize)
    if list(stored.chunks) != chunks:
        raise MissingDataError(
            f"{place} is damaged: its chunks are {list(stored.chunks)}, but should be {chunks}: restore the file, or "
            "make the folder again"
        )
    lost = _lost_chunk(stored)
    if lost is not None:
        raise MissingDataError(
            f"{place} is damaged, its chunk {lost} is missing: restore the file, or make the folder again"
        )


def _lost_chunk(stored: Any) -> str | None:
    """Return the name of the first missing chunk of a Zarr array, or None. The search stops at this chunk."""
    from zarr.core.sync import sync

    grid = [-(-n // chunk) for n, chunk in zip(stored.shape, stored.chunks, strict=True)]
    needed = math.prod(grid)

    async def search() -> str | None:
        for start in range(0, needed, AT_ONCE):
            places = (np.unravel_index(number, grid) for number in range(start, min(start + AT_ONCE, needed)))
            names = [stored.metadata.encode_chunk_key(tuple(map(int, place))) for place in places]
            there = await asyncio.gather(*(stored.store.exists(f"{stored.path}/{name}") for name in names))
            if not all(there):
                return str(names[there.index(False)])
        return None

    found: str | None = sync(search())
    return found
