"""A folder of small objects, on this machine or on any fsspec file system.

Objects are written whole: ``write`` replaces an object in one step, ``create`` creates it only if it does not exist. If
a process is killed during a call, the previous state remains. On a local disk objects are also flushed before the call
returns, so that this holds when the machine loses power.

``create`` is the one operation of which only one of two concurrent calls can succeed. Numbered events, lease epochs and
snapshot pointers rely on it. ``require_exclusive`` refuses a file system that only emulates it (checks, then writes).
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, cast

from partirvm.errors import (
    CutShortError,
    ExistsError,
    FormatError,
    MissingDataError,
    PartirvmError,
    StorageError,
    UsageError,
)

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "it is read-only",
    errno.EFBIG: "a file would exceed the largest size allowed",
}


class Folder(Protocol):
    """A tree of objects under relative names such as ``events/000001.json``; ``location`` is the path the user gave.

    Errors are the builtin ones (``FileNotFoundError``, ``FileExistsError``, other ``OSError``); ``storing`` converts
    them to ``StorageError``.
    """

    location: str

    def read(self, name: str) -> bytes:
        """The bytes of the object. Raises ``FileNotFoundError``."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write an object atomically, replacing an existing one."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Create an object; of two concurrent calls one succeeds. Raises ``FileExistsError`` if it exists."""
        ...

    def require_exclusive(self) -> None:
        """Raise ``StorageError`` if two concurrent calls of ``create`` could both succeed."""
        ...

    def list(self, name: str = "") -> list[str]:
        """Names of the direct children of a folder, sorted; empty if it does not exist."""
        ...

    def empty(self) -> bool:
        """True if the folder contains nothing, hidden names included."""
        ...

    def exists(self, name: str = "") -> bool:
        """True if there is an object or a folder of this name."""
        ...

    def remove(self, name: str = "") -> None:
        """Remove an object, or a folder with its contents; no-op if it does not exist."""
        ...

    def flush(self, name: str) -> None:
        """Wait until all files in a folder are flushed to disk."""
        ...

    def place(self, name: str) -> str:
        """Path or URL of an object, for other libraries."""
        ...

    def sibling(self, name: str) -> Self:
        """The folder of this name next to this one."""
        ...

    def rename(self, other: Self) -> None:
        """Move this folder to ``other``, a folder of the same kind that does not exist yet."""
        ...


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """The JSON object of this name, as written by ``to_json``.

    Raises ``MissingDataError`` if it does not exist, ``CutShortError`` if it is truncated, ``FormatError`` if it is
    damaged in another way.
    """
    place = f"{folder.location}/{name}"
    try:
        with reading(place):
            data = folder.read(name)
    except MissingDataError as error:
        raise MissingDataError(f"{folder.location}: {name} is missing") from error
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        if not data.endswith(END):
            raise CutShortError(f"{place}: damaged, its end is missing") from error
        raise FormatError(f"{place}: damaged, not JSON: {error}") from error
    if not isinstance(value, dict) or value.pop("check", None) != digest(value):
        raise FormatError(f"{place}: damaged, its content does not match its checksum: restore the file")
    return value


def to_json(value: dict[str, Any]) -> bytes:
    """Serialise a JSON object for storage, with a checksum of its content, ``check``."""
    return json.dumps({**value, "check": digest(value)}, indent=1).encode()


END = b"\n}"
"""Ends every object written by ``to_json`` and occurs nowhere else in it."""


def digest(value: Any) -> str:
    """Hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def open_filesystem(url: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path in it.

    Raises ``UsageError`` for an unknown kind of address, ``StorageError`` if the store does not respond.
    """
    import fsspec

    try:
        with reading(url):
            return cast(tuple[Any, str], fsspec.core.url_to_fs(url, **(storage_options or {})))
    except FormatError as error:  # an unknown protocol, or one whose package is not installed
        raise UsageError(f"{url}: cannot open this address ({error.__cause__})") from error


@contextmanager
def reading(
    place: str, advice: str = "is the address right?", damaged: type[PartirvmError] = FormatError
) -> Iterator[None]:
    """Convert the errors of a store, or of a decoder of its contents, to an error that states the place.

    A missing file raises ``MissingDataError``; an ``OSError`` with an error number (no response, no permission)
    ``StorageError``; any other error means that the bytes differ from what was written, and raises ``damaged``.
    """
    try:
        yield
    except (PartirvmError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise MissingDataError(f"{place} is missing ({error.strerror or error}): {advice}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise StorageError(f"{place}: cannot be read: {_reason(error)}: {advice}") from error
        raise damaged(f"{place}: cannot be read ({_text(error)}): {advice}") from error


@contextmanager
def storing(place: str, advice: str = "make room or choose another place") -> Iterator[None]:
    """Convert errors of a full, read-only or forbidden store to a ``StorageError`` that states the place."""
    try:
        yield
    except (ExistsError, StorageError, MissingDataError):
        raise
    except OSError as error:
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from error


def _text(error: Exception) -> str:
    """The text of an error, with its class name, since the text of a KeyError is only the key."""
    return str(error) if " " in str(error) else f"{type(error).__name__} {error}".rstrip()


def _reason(error: OSError) -> str:
    return REASONS.get(error.errno or 0, error.strerror or str(error) or type(error).__name__)
