"""A folder at an fsspec URL. Each object is written by one request, which such stores execute atomically.

The reply to a request may be lost, and clients repeat requests. To write or to remove an object again changes nothing.
To create it again fails, so ``create`` then compares the object with its own bytes. Therefore objects of different
writers must differ: each contains a token, or the time and the epoch of its writer.
"""

from __future__ import annotations

import errno
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Self

from fsspec.exceptions import FSTimeoutError

from partirvm.errors import StorageError
from partirvm.storage.folder import reading

_CREATING = threading.Lock()
"""A lock for ``memory://``: this file system is local to a process and creates objects in two steps."""

REPLY_SECONDS = 300.0
"""Limit of a write with its repetitions: aiohttp waits without limit for the reply to ``Expect: 100-continue``."""

PART_BYTES = 64 << 20
"""Size of a write above which the limit is proportional to the size (0.2 MiB/s)."""


@contextmanager
def replying(filesystem: Any, n_bytes: int) -> Iterator[dict[str, float]]:
    """Yield the keyword arguments that limit a write of ``n_bytes``. Raises ``TimeoutError`` beyond the limit."""
    seconds = REPLY_SECONDS * max(1.0, n_bytes / PART_BYTES)
    try:
        yield {"timeout": seconds} if filesystem.async_impl else {}
    except FSTimeoutError as error:
        raise TimeoutError(f"the store has not replied within {seconds:g} s") from error


class RemoteFolder:
    """A ``Folder`` on an fsspec filesystem."""

    def __init__(self, location: str, filesystem: Any, root: str) -> None:
        self.location, self._fs, self._root = location.rstrip("/"), filesystem, root.rstrip("/")

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of the object, at most the first ``most``."""
        with self._reading(name):
            part = {} if most is None else {"start": 0, "end": most}
            return bytes(self._fs.cat_file(self._path(name), **part))

    def write(self, name: str, data: bytes) -> None:
        """Write an object by one request."""
        self._send(name, data)

    def create(self, name: str, data: bytes) -> None:
        """Create an object by one request; the store refuses the request if the object exists.

        After an error the object is read. If it has these bytes, the request was executed and only its reply was lost.
        """
        with _CREATING if "memory" in self._fs.protocol else nullcontext():
            try:
                self._send(name, data, mode="create")
            except Exception as error:
                found = None
                self._fs.invalidate_cache(self._path(name))  # a listing from before does not show the object
                with suppress(Exception):
                    found = self.read(name)
                if found is None:
                    raise
                if found != data:
                    raise FileExistsError(errno.EEXIST, "exists already", self.place(name)) from error

    def require_exclusive(self) -> None:
        """Raise ``StorageError`` if the file system or the store cannot create objects exclusively.

        fsspec's default ``pipe_file(mode="create")`` checks first and then writes, so two processes may both succeed.
        Only a file system that overrides this method (memory, s3, gcs, abfs …) leaves the decision to the store. The
        method also tests the store: creation of an existing object must fail.
        """
        name = f".probe-{uuid.uuid4().hex}"
        try:
            if _own_create(self._fs):
                self.create(name, b"1")
                self.create(name, b"2")
        except FileExistsError:
            return
        except (TypeError, ValueError, NotImplementedError):
            pass  # the file system does not support mode="create"
        finally:
            self.remove(name)
        raise StorageError(
            f"{self.location}: the filesystem {type(self._fs).__name__} cannot create an object exclusively, so two "
            "processes could run the same job: put the job on a local disk, or on a store with exclusive creation "
            "(such as S3)"
        )

    def list(self, name: str = "") -> list[str]:
        """Return the sorted names in a folder."""
        path = self._path(name)
        with self._reading(name):
            self._fs.invalidate_cache(path)
            try:
                found = self._fs.ls(path, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        names = {entry.rstrip("/").rsplit("/", 1)[-1] for entry in found if entry.rstrip("/") != path}
        return sorted(name for name in names if not name.startswith("."))

    def empty(self) -> bool:
        """Return True if the folder has no contents, including hidden files."""
        path = self._path("")
        with self._reading(""):
            self._fs.invalidate_cache(path)
            try:
                return not self._fs.ls(path, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return True

    def exists(self, name: str = "") -> bool:
        """Return True if an object or a folder has this name."""
        with self._reading(name):
            self._fs.invalidate_cache(self._path(name))
            return bool(self._fs.exists(self._path(name)))

    def remove(self, name: str = "") -> None:
        """Remove an object or a folder. Other processes may have added objects that a cache does not list, or removed
        objects.
        """
        if self.exists(name):
            self._fs.invalidate_cache()
            with suppress(FileNotFoundError):
                self._fs.rm(self._path(name), recursive=True)

    def remove_empty(self, name: str = "") -> None:
        """Return at once: such stores have no empty folders."""

    def flush(self, name: str) -> None:
        """Return at once: a completed request is durable."""

    def place(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.location}/{name}" if name else self.location

    def sibling(self, name: str) -> Self:
        """Return the folder with this name in the same parent folder."""
        return type(self)(_beside(self.location, name), self._fs, _beside(self._root, name))

    def _send(self, name: str, data: bytes, **how: str) -> None:
        with replying(self._fs, len(data)) as limit:
            self._fs.pipe_file(self._path(name), data, **limit, **how)

    def _reading(self, name: str) -> AbstractContextManager[None]:
        """Convert errors of a read request, because libraries of stores have their own error classes."""
        return reading(self.place(name), "check the connection to the store", StorageError)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _beside(path: str, name: str) -> str:
    return f"{path.rpartition('/')[0]}/{name}"


def _own_create(filesystem: Any) -> bool:
    """Return True if a file system, or the wrapped file system, overrides the method that writes a file."""
    from fsspec import AbstractFileSystem

    inner = getattr(filesystem, "fs", None)
    if isinstance(inner, AbstractFileSystem):
        return _own_create(inner)
    return type(filesystem).pipe_file is not AbstractFileSystem.pipe_file or hasattr(filesystem, "_pipe_file")
