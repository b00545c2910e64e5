"""A folder of small objects, on this machine or anywhere that fsspec knows.

What stands under a name is whole: ``write`` replaces it in one step, ``create`` puts it there only if nothing is. A
process that is killed in the middle leaves what was there before. On a local disk objects are also flushed before the
call returns, so that this holds for a machine that loses power.

``create`` is the one operation that two processes cannot both succeed in; numbered events, epochs of the lease and
pointers to snapshots stand on it. A filesystem that only imitates it (looks, then writes) is refused by
``require_exclusive``.
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
    """A tree of objects under relative names such as ``events/000001.json``; ``location`` is what the user called it.

    Errors are the builtin ones (``FileNotFoundError``, ``FileExistsError``, other ``OSError``); ``storing`` makes them
    readable.
    """

    location: str

    def read(self, name: str) -> bytes:
        """The object's bytes. Raises ``FileNotFoundError``."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Put an object there, whole or not at all, in place of any that is there."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Put an object there if nothing is: of two that try at once one succeeds. Raises ``FileExistsError``."""
        ...

    def require_exclusive(self) -> None:
        """Raise ``StorageError`` where ``create`` could let two writers succeed."""
        ...

    def list(self, name: str = "") -> list[str]:
        """Names of what lies directly in a folder, sorted; none if it is not there."""
        ...

    def empty(self) -> bool:
        """Whether nothing at all is there, hidden names counted."""
        ...

    def exists(self, name: str = "") -> bool:
        """Whether there is an object or a folder of this name."""
        ...

    def remove(self, name: str = "") -> None:
        """Remove an object or a folder and all in it; nothing happens if it is not there."""
        ...

    def flush(self, name: str) -> None:
        """Wait until everything in a folder is on the disk."""
        ...

    def place(self, name: str) -> str:
        """Path or URL of an object, as other libraries open it."""
        ...

    def sibling(self, name: str) -> Self:
        """The folder of this name beside this one."""
        ...

    def rename(self, other: Self) -> None:
        """Move all of this folder to where ``other``, a folder of the same kind, is not there yet."""
        ...


def read_json(folder: Folder, name: str) -> dict[str, Any]:
    """The JSON object of this name, as ``to_json`` wrote it.

    Raises ``MissingDataError`` if there is none, ``CutShortError`` if its end is missing, ``FormatError`` if it is
    damaged otherwise.
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
        raise FormatError(f"{place}: damaged, its content is not what its checksum says: restore the file")
    return value


def to_json(value: dict[str, Any]) -> bytes:
    """A JSON object as it is stored: with a checksum of its content, ``check``."""
    return json.dumps({**value, "check": digest(value)}, indent=1).encode()


END = b"\n}"
"""How every object ends that ``to_json`` writes, and nothing in its middle."""


def digest(value: Any) -> str:
    """A hash of JSON: of a value as it is once it is read back, whatever the order of its keys."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def open_filesystem(url: str, storage_options: dict[str, Any] | None = None) -> tuple[Any, str]:
    """The fsspec filesystem of a path or URL, and the path in it.

    Raises ``UsageError`` for an address of no known kind, ``StorageError`` where nothing answers.
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
    """Turn whatever a store, or a decoder of what it holds, raises into an error that names the place.

    What is not there is a ``MissingDataError``; what does not answer or may not be read, that is all that has an error
    number, a ``StorageError``; anything else means that the bytes are not those that were written: ``damaged``.
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
        raise damaged(f"{place}: cannot be read ({_said(error)}): {advice}") from error


@contextmanager
def storing(place: str, advice: str = "make room or choose another place") -> Iterator[None]:
    """Turn what a full, read-only or forbidden store raises into a ``StorageError`` that names the place."""
    try:
        yield
    except (ExistsError, StorageError, MissingDataError):
        raise
    except OSError as error:
        raise StorageError(f"{place}: cannot be written: {_reason(error)}: {advice}") from error


def _said(error: Exception) -> str:
    """The text of an error; a KeyError and the like say little without their name."""
    return str(error) if " " in str(error) else f"{type(error).__name__} {error}".rstrip()


def _reason(error: OSError) -> str:
    return REASONS.get(error.errno or 0, error.strerror or str(error) or type(error).__name__)
