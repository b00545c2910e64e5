"""A format for models and checkpoints: JSON and arrays in one Zarr group. Checksums of all contents detect damage.

    GROUP/zarr.json     attributes: ``kind``, ``format``, the JSON, ``arrays`` and ``digest``
    GROUP/NAME/…        one array each, without compression

``arrays`` states the dtype, shape and hash of the bytes of each array; ``digest``, the *seal* of the group, is a hash
of all other attributes. The attributes are written last: a group without attributes is incomplete.

Readers use only these attributes and the bytes of the chunks, never the metadata that Zarr keeps of an array: no file
chooses a codec. Reading takes no more memory than the stored bytes, since nothing is compressed, a missing chunk ends
the reading, and pages of an array that were never filled take no memory. The attributes have at most ``HEAD`` bytes
and ``VALUES`` values. Chunks of DATA are compressed; their size is known
beforehand, and at most ``BLOSC_RATIO`` times the stored bytes of a chunk are allocated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from partirvm.errors import ExistsError, FormatError, MissingDataError, NewerFormatError
from partirvm.storage import folder as folders
from partirvm.storage.address import open_filesystem, reading, storing
from partirvm.storage.folder import Folder, open_folder
from partirvm.storage.records import HEAD, digest, require

Array = NDArray[Any]

CHUNK = 1 << 23
"""Maximum number of bytes of a chunk."""

VALUES = 1 << 20
"""Maximum number of values of the JSON of a group: a process that reads two copies, one to compare digests, stays below
256 MiB. 200 million rows of 100 features have 586,000 checksums.
"""

BLOSC_HEADER, CRC = 16, 4
"""Bytes before and after a compressed block."""

BLOSC_RATIO = 255
"""Largest ratio of LZ4, which compresses chunks of DATA."""


def zarr_store(location: str, storage_options: dict[str, Any] | None = None) -> Any:
    """Return what Zarr opens at a path or fsspec URL: a path, or a store whose writes have a limit.

    Zarr and the clients of stores wait for the reply to a write without a limit. A write of the returned store raises
    ``TimeoutError`` after ``folder.REPLY_SECONDS``, as those of folders do.
    """
    from zarr.storage import FsspecStore, WrapperStore

    filesystem, root = open_filesystem(location, storage_options)
    if "file" in filesystem.protocol:
        return Path(root)

    class LimitedStore(WrapperStore[FsspecStore]):
        async def set(self, key: str, value: Any) -> None:
            limit = folders.REPLY_SECONDS
            try:
                await asyncio.wait_for(self._store.set(key, value), limit)
            except TimeoutError as error:
                raise TimeoutError(f"the store has not replied within {limit:g} s") from error

    return LimitedStore(FsspecStore.from_url(location, storage_options=storage_options))


def checksum(block: NDArray[Any]) -> str:
    """Return the CRC-32C and the sum of the words of 8 bytes of a block, as 24 hexadecimal digits.

    A cryptographic hash would cost a fifth of a pass, this checksum less than a hundredth.
    """
    words = np.ascontiguousarray(block).reshape(-1).view(np.uint64)
    return f"{google_crc32c.value(words):08x}{int(words.sum(dtype=np.uint64)):016x}"


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


def write_sealed(
    location: str,
    kind: str,
    version: int,
    about: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    storage_options: dict[str, Any] | None = None,
) -> str:
    """Write JSON and numeric arrays to a folder or URL that is empty or missing. Returns the digest of all contents.

    Raises ``ExistsError`` if the folder is not empty, and ``StorageError`` if the folder cannot be written.
    """
    import zarr

    stated = {name: _metadata(np.asarray(array)) for name, array in arrays.items()}
    with storing(location):
        try:
            group = zarr.open_group(zarr_store(location, storage_options), mode="w-", zarr_format=3)
        except (FileExistsError, zarr.errors.ContainsGroupError, zarr.errors.ContainsArrayError) as error:
            raise ExistsError(f"{location} exists already and is never overwritten: choose another name") from error
        for name, array in arrays.items():
            _write(group, name, np.asarray(array))
        attributes = {**about, "kind": kind, "format": version, "arrays": stated}
        seal = digest(attributes)
        group.update_attributes({**attributes, "digest": seal})
    return seal


def read_sealed(
    location: str, kind: str, version: int, *, seal: str | None = None, storage_options: dict[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read and verify the JSON and the arrays of a group. ``seal`` is the digest that the group must have.

    Raises ``MissingDataError`` if the group is missing, incomplete, damaged or another one, ``FormatError`` if the
    group has another kind or version, and ``NewerFormatError`` if the version is newer than this program.
    """
    what = kind.removeprefix("partirvm-")
    folder, attributes = open_sealed(location, what, storage_options)
    if attributes.get("kind") != kind:
        raise FormatError(f"{location}: this is not a partirvm {what} (kind {attributes.get('kind')!r})")
    require_format(attributes.get("format"), version, location, what, f"make the {what} again")
    found = attributes.pop("digest", None)
    if found != digest(attributes):
        raise MissingDataError(
            f"{location}: the attributes of the {what} are damaged: restore the file, or make the {what} again"
        )
    if seal not in (None, found):
        raise MissingDataError(
            f"{location}: this is not the {what} that was saved here: restore the folder, or make the {what} again"
        )
    require(attributes, {"arrays": {"*": {"dtype": str, "shape": [int], "hash": str}}}, f"{location}: the {what}")
    stated: dict[str, dict[str, Any]] = attributes.pop("arrays")
    return attributes, {
        name: _read(folder, name, each, f"{location}: array {name!r} of the {what}") for name, each in stated.items()
    }


def open_sealed(
    location: str, what: str, storage_options: dict[str, Any] | None = None
) -> tuple[Folder, dict[str, Any]]:
    """Return the folder of a Zarr group and the attributes of the group.

    Raises ``MissingDataError`` if there is no group or its metadata cannot be read.
    """
    folder = open_folder(location, storage_options)
    place = f"{location}: zarr.json of the {what}"
    with reading(place, f"restore the file, or make the {what} again", MissingDataError):
        try:
            data = folder.read("zarr.json", HEAD + 1)
        except FileNotFoundError as error:
            raise MissingDataError(f"{location}: no {what} here") from error
        if len(data) > HEAD:
            raise ValueError(f"it has more than {HEAD:,} bytes")
        if sum(map(data.count, (b",", b"[", b"{"))) > VALUES:
            raise ValueError(f"it has more than {VALUES:,} values")
        return folder, dict(json.loads(data).get("attributes", {}))


def require_format(found: Any, known: int, place: str, what: str, again: str) -> None:
    """Raise ``NewerFormatError`` for a format later than ``known``, and ``FormatError`` for any other mismatch."""
    if type(found) is int and found > known:
        raise NewerFormatError(
            f"{place}: the {what} has format {found}, this version reads format {known}: upgrade partirvm"
        )
    if found != known:
        raise FormatError(f"{place}: the {what} has format {found!r}, this version reads format {known}: {again}")


def _metadata(array: Array) -> dict[str, Any]:
    """Return the metadata of an array, as stored in the attributes of the group."""
    return {"dtype": array.dtype.newbyteorder("<").str, "shape": list(array.shape), "hash": _hash(array)}


def _chunk(array: Array) -> tuple[int, ...]:
    """Return the shape of the chunks of an array of one dimension or more: whole rows, about ``CHUNK`` bytes."""
    rows, *rest = (max(n, 1) for n in array.shape)
    return min(rows, max(CHUNK // (math.prod(rest) * array.itemsize), 1)), *rest


def _hash(array: Array) -> str:
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return hashlib.blake2b(data.reshape(-1).view(np.uint8).data, digest_size=16).hexdigest()


def _write(group: Any, name: str, array: Array) -> None:
    array = np.atleast_1d(array)
    stored = group.create_array(
        name,
        shape=array.shape,
        dtype=array.dtype.newbyteorder("="),  # older versions of Zarr accept only the native order
        chunks=_chunk(array),
        compressors=None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    if array.size:
        stored[...] = array


def _read(folder: Folder, name: str, stated: Mapping[str, Any], place: str) -> Array:
    again = "restore the file, or make the folder again"
    with reading(place, again, MissingDataError):
        dtype = np.dtype(stated["dtype"])
        if dtype.kind not in "biufc":
            raise ValueError(f"dtype {dtype.str} is not one of numbers")
        try:
            array = np.empty(stated["shape"] or 1, dtype)
        except MemoryError as error:
            raise ValueError(f"no array has the stated shape {stated['shape']}: {error}") from error
    chunk = _chunk(array)
    nbytes = math.prod(chunk) * array.itemsize
    for number in range(-(-len(array) // chunk[0]) if array.size else 0):
        key = "/".join(map(str, ("c", number, *(0 for _ in chunk[1:]))))
        with reading(f"{place}: chunk {key}", again, MissingDataError):
            data = folder.read(f"{name}/{key}", nbytes + 1)
            if len(data) != nbytes:
                raise ValueError(f"it should have {nbytes:,} bytes, not {'more' if len(data) > nbytes else len(data)}")
            part = array[number * chunk[0] : (number + 1) * chunk[0]]
            part[...] = np.frombuffer(data, dtype).reshape(chunk)[: len(part)]
    if _hash(array) != stated["hash"]:
        raise MissingDataError(f"{place} is damaged, its bytes differ from the written bytes: {again}")
    return array.reshape(stated["shape"])
