"""A folder of small objects, on this machine or on a file system of fsspec.

Every object is written in one step. ``write`` replaces an object; ``create`` fails if the object exists. If a process
is killed during a call, the previous state remains. On a local disk each object is also flushed before the call
returns, so that the object survives a power failure.

If two processes call ``create`` for the same name at the same time, exactly one call succeeds. Numbered events, lease
epochs and snapshot pointers rely on this. ``require_exclusive`` refuses a file system that first checks and then
writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, cast

from partirvm.errors import (
    ClusterError,
    CutShortError,
    ExistsError,
    FormatError,
    MissingDataError,
    PartirvmError,
    StorageError,
    UsageError,
)
from partirvm.storage.address import require_address
from partirvm.storage.schema import ANY, Schema, require

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "it is read-only",
    errno.EFBIG: "a file would exceed the largest size allowed",
}

HEAD = 1 << 25
"""Maximum number of bytes of JSON."""

CLIENTS = {"aiobotocore", "aiohttp", "azure", "botocore", "google", "gcsfs"}
"""Packages with error classes of their own that fsspec does not convert."""


class Folder(Protocol):
    """A tree of objects under relative names such as ``events/000001.json``. ``location`` is the path that the user
    gave.

    Methods raise builtin errors (``FileNotFoundError``, ``FileExistsError``, other ``OSError``). ``storing`` converts
    these errors to ``StorageError``.
    """

    location: str

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of an object, at most the first ``most``. Raises ``FileNotFoundError``."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write an object atomically, replacing an existing one."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create an object. Of two concurrent calls exactly one succeeds. Raises ``FileExistsError`` if the object
        exists.
        """
        ...

    def require_exclusive(self) -> None:
        """Raise ``StorageError`` if two concurrent calls of ``create`` could both succeed."""
        ...

    def list(self, name: str = "") -> list[str]:
        """Return the sorted names of the direct children of a folder; empty if the folder does not exist."""
        ...

    def empty(self) -> bool:
        """Return True if the folder has no contents, including hidden files."""
        ...

    def exists(self, name: str = "") -> bool:
        """Return True if an object or a folder has this name."""
        ...

    def remove(self, name: str = "") -> None:
        """Remove an object, or a folder with its contents; no-op if the name does not exist."""
        ...

    def remove_empty(self, name: str = "") -> None:
        """Remove a folder if it has no contents."""
        ...

    def flush(self, name: str) -> None:
        """Wait until all files in a folder are flushed to disk."""
        ...

    def place(self, name: str) -> str:
        """Return the path or URL of an object, for other libraries."""
        ...

    def sibling(self, name: str) -> Self:
        """Return the folder with this name in the same parent folder."""
        ...


def read_json(folder: Folder, name: str, schema: Schema = ANY) -> dict[str, Any]:
    """Read and verify a JSON object of this schema that was written by ``to_json`` for this name.

    Raises ``MissingDataError`` if the object does not exist, ``CutShortError`` if a killed writer left only its
    beginning, and ``FormatError`` if the object is damaged in another way, was written for another name, or has not the
    schema. Of an object that is too large only the first ``HEAD`` bytes are read.
    """
    place = f"{folder.location}/{name}"
    try:
        with reading(place):
            data = folder.read(name, HEAD)
    except MissingDataError as error:
        raise MissingDataError(f"{folder.location}: {name} is missing") from error
    try:
        value = json.loads(data)
        del value["size"]
        whole = value.pop("check") == digest(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if _is_cut_short(name, data):
            raise CutShortError(f"{place}: damaged, its end is missing") from error
        raise FormatError(f"{place}: damaged, not an object of partirvm: restore or remove the file") from error
    if not whole:
        raise FormatError(f"{place}: damaged, its content does not match its checksum: restore the file")
    if (own := value.pop("object", None)) != name:
        raise FormatError(f"{place}: this file was moved or copied from {own}: restore or remove it")
    require(value, schema, place)
    return cast(dict[str, Any], value)


def to_json(name: str, value: dict[str, Any]) -> bytes:
    """Serialise a JSON object for storage under this name.

    ``check`` is a checksum of name and content, and ``size`` the number of bytes after its own line.
    """
    rest = json.dumps({**value, "check": digest({"object": name, **value})}, indent=1)[1:]
    return b"%s%d,%s" % (_head(name), len(rest), rest.encode())


def _head(name: str) -> bytes:
    return f'{{\n "object": {json.dumps(name)},\n "size": '.encode()


def _is_cut_short(name: str, data: bytes) -> bool:
    """Return True if the data are the beginning of an object of this name; False for anything else, e.g. garbage."""
    head = _head(name)
    if not data.startswith(head):
        return head.startswith(data)
    size, comma, rest = data.removeprefix(head).partition(b",")
    return size.isdigit() and len(rest) < int(size) if comma else not size.strip(b"0123456789")


def numbers(folder: Folder, series: str, first: int | None = None) -> list[int]:
    """Return the numbers of the objects ``000001.json``, ``000002.json``, … of a series, without gap.

    ``first`` is the first number, or None for the lowest that exists. Raises ``MissingDataError`` with the first
    missing number.
    """
    found = listed_numbers(folder, series)
    there = set(found)
    for number in range(found[0] if first is None else first, found[-1]) if found else ():
        if number not in there and not folder.exists(numbered(series, number)):  # a listing may miss a new object
            raise MissingDataError(
                f"{folder.location}: {numbered(series, number)} is missing, but {numbered(series, found[-1])} exists: "
                "restore the missing file, or remove the other if it was added by hand"
            )
        there.add(number)
    return sorted(there)


NUMBERED = re.compile(r"(?!0{6}\.)([0-9]{6}|[1-9][0-9]{6,})\.json")


def listed_numbers(folder: Folder, series: str) -> list[int]:
    """Return the numbers of the listed objects of a series in increasing order, with gaps."""
    return sorted(int(name[:-5]) for name in folder.list(series) if NUMBERED.fullmatch(name))


def numbered(series: str, number: int, suffix: str = "") -> str:
    """Return the name of an object of a series of numbered objects."""
    return f"{series}/{number:06d}{suffix}.json"


def digest(value: Any) -> str:
    """Return a hash of a JSON value; the hash does not depend on the order of keys."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def open_filesystem(url: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path inside this file system.

    Raises ``UsageError`` for an address that is not allowed or unknown, and ``StorageError`` if the store does not
    respond.
    """
    import fsspec

    url = os.fspath(url)
    require_address(url, storage_options)
    try:
        with reading(url):
            return cast(tuple[Any, str], fsspec.core.url_to_fs(url, **(storage_options or {})))
    except FormatError as error:  # an unknown protocol, or a protocol whose package is missing
        raise UsageError(f"{url}: cannot open this address ({error.__cause__})") from error


@contextmanager
def reading(
    place: str, advice: str = "is the address right?", damaged: type[PartirvmError] = FormatError
) -> Iterator[None]:
    """Convert errors of a store or of a decoder to errors of partirvm that name the place.

    A missing file raises ``MissingDataError``. An ``OSError`` with an error number (no permission), a time-out or an
    error of the client of a store raises ``StorageError``. Any other error means that the bytes differ from the written
    bytes, and raises ``damaged``.
    """
    try:
        yield
    except (PartirvmError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{place} is missing ({error.strerror or error}): {advice}") from error
    except Exception as error:
        if (isinstance(error, OSError) and error.errno) or _is_of_client(error):
            raise StorageError(f"{place}: cannot be read: {_reason(error)}: {advice}") from error
        raise damaged(f"{place}: cannot be read ({_text(error)}): {advice}") from error


@contextmanager
def storing(place: str, advice: str = "make room or choose another place") -> Iterator[None]:
    """Convert errors of a full, read-only, forbidden or silent store to a ``StorageError`` that names the place."""
    try:
        yield
    except (ClusterError, ExistsError, StorageError, MissingDataError):  # a cluster without workers is a TimeoutError
        raise
    except Exception as error:
        if not isinstance(error, OSError) and not _is_of_client(error):
            raise
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from error


def _is_of_client(error: Exception) -> bool:
    """Return True for a time-out, a broken connection, and errors of the packages that talk to stores."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, TimeoutError | ConnectionError) or bool(packages & CLIENTS)


def _text(error: Exception) -> str:
    """Return the text of an error. The class name is added to a text of one word, because the text of a KeyError is
    only the key.
    """
    return str(error) if " " in str(error) else f"{type(error).__name__} {error}".rstrip()


def _reason(error: Exception) -> str:
    number, text = getattr(error, "errno", None), getattr(error, "strerror", None)
    return REASONS.get(number or 0, text or str(error) or type(error).__name__)
