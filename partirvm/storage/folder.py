"""A folder of small objects, on this machine or on any fsspec file system.

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
from partirvm.storage.address import require_address

REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "it is read-only",
    errno.EFBIG: "a file would exceed the largest size allowed",
}


class Folder(Protocol):
    """A tree of objects under relative names such as ``events/000001.json``. ``location`` is the path that the user
    gave.

    Methods raise builtin errors (``FileNotFoundError``, ``FileExistsError``, other ``OSError``). ``storing`` converts
    these errors to ``StorageError``.
    """

    location: str

    def read(self, name: str) -> bytes:
        """Return the bytes of an object. Raises ``FileNotFoundError``."""
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

    def flush(self, name: str) -> None:
        """Wait until all files in a folder are flushed to disk."""
        ...

    def place(self, name: str) -> str:
        """Return the path or URL of an object, for other libraries."""
        ...

    def sibling(self, name: str) -> Self:
        """Return the folder with this name in the same parent folder."""
        ...

    def rename(self, other: Self) -> None:
        """Move this folder to ``other``, a folder of the same kind that does not exist yet."""
        ...


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """Read and verify a JSON object that was written by ``to_json``.

    Raises ``MissingDataError`` if the object does not exist, ``CutShortError`` if the object is truncated, and
    ``FormatError`` if the object is damaged in another way.
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
    """Serialise a JSON object for storage. The key ``check`` holds a checksum of the content."""
    return json.dumps({**value, "check": digest(value)}, indent=1).encode()


END = b"\n}"
"""The last bytes of every object written by ``to_json``. These bytes occur nowhere else in an object."""


def digest(value: Any) -> str:
    """Return a hash of a JSON value; the hash does not depend on the order of keys."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def open_filesystem(url: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path inside this file system.

    Raises ``UsageError`` for an address that is not allowed or unknown, and ``StorageError`` if the store does not
    respond.
    """
    import fsspec

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

    A missing file raises ``MissingDataError``. An ``OSError`` with an error number (no response, no permission) raises
    ``StorageError``. Any other error means that the bytes differ from the written bytes, and raises ``damaged``.
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
    """Convert errors of a full, read-only or forbidden store to a ``StorageError`` that names the place."""
    try:
        yield
    except (ExistsError, StorageError, MissingDataError):
        raise
    except OSError as error:
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from error


def _text(error: Exception) -> str:
    """Return the text of an error. The class name is added to a text of one word, because the text of a KeyError is
    only the key.
    """
    return str(error) if " " in str(error) else f"{type(error).__name__} {error}".rstrip()


def _reason(error: OSError) -> str:
    return REASONS.get(error.errno or 0, error.strerror or str(error) or type(error).__name__)
