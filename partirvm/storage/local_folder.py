"""A folder on this machine: whole files by renaming and linking, flushed to the disk."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP}
"""What ``os.link`` says on a disk that has no hard links."""


@contextmanager
def replacing(path: Path, part: Path | None = None) -> Iterator[Path]:
    """A hidden name beside ``path`` to write a file or folder to, which then takes the place of what is at ``path``.

    ``part`` is another name to write to, on the same disk. Any error removes what was written and leaves ``path`` as it
    was. A file is replaced in one step. A folder cannot be: for a moment nothing stands under its name.
    """
    part = part or path.with_name(f".{path.name}.{uuid.uuid4().hex}.part{path.suffix}")
    try:
        yield part
        if path.is_dir() and part.is_dir():
            shutil.rmtree(path)
        part.replace(path)
    finally:
        remove(part)


def remove(path: Path) -> None:
    """Remove a file, or a folder and all in it; nothing happens if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(NotADirectoryError):
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk. A disk that cannot say so is taken at its word."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def flush(path: Path) -> None:
    """Wait until a file, or every file and then every folder below a folder, and its own name are on the disk."""
    if not path.is_dir():
        sync(path)
    for folder, _, files in os.walk(path, topdown=False):
        for file in files:
            sync(Path(folder, file))
        sync(Path(folder))
    sync(path.parent)


class LocalFolder:
    """A ``Folder`` on this machine."""

    def __init__(self, location: str, path: str | Path) -> None:
        self.location, self._root = location, Path(path)

    def read(self, name: str) -> bytes:
        """The file's bytes."""
        try:
            return self._path(name).read_bytes()
        except NotADirectoryError as error:
            raise FileNotFoundError(errno.ENOENT, "there is nothing", str(self._path(name))) from error

    def write(self, name: str, data: bytes) -> None:
        """Write to a hidden name, flush, rename."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            _write(part, data, "wb")
        sync(path.parent)

    def create(self, name: str, data: bytes) -> None:
        """Write to a hidden name, flush, link: the name appears with all its bytes, for one process only.

        Where the disk has no links the name is opened exclusively; a process killed then may leave an object cut short.
        """
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        try:
            _write(part, data, "xb")
            try:
                os.link(part, path)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                _write(path, data, "xb")
        finally:
            remove(part)
        sync(path.parent)

    def require_exclusive(self) -> None:
        """Every local disk creates exclusively."""

    def list(self, name: str = "") -> list[str]:
        """Names in a folder, none of those still being written."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in self._path(name).iterdir() if not path.name.startswith("."))
        return []

    def empty(self) -> bool:
        """Whether nothing at all is there, hidden names counted."""
        path = self._path("")
        return not (path.is_dir() and any(path.iterdir())) and not path.is_file()

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or folder."""
        return self._path(name).exists()

    def remove(self, name: str = "") -> None:
        """Remove a file or folder, to the end even if something is added meanwhile."""
        path = self._path(name)
        for _ in range(10):
            with suppress(FileNotFoundError):
                try:
                    return remove(path)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
        return remove(path)

    def flush(self, name: str) -> None:
        """Flush every file below, then every folder, then the names of these folders."""
        flush(self._path(name))

    def place(self, name: str) -> str:
        """The path."""
        return str(self._path(name))

    def sibling(self, name: str) -> Self:
        """The folder of this name beside this one."""
        path = self._root.parent / name
        return type(self)(str(path), path)

    def rename(self, other: Self) -> None:
        """One rename."""
        self._root.rename(other._root)

    def _path(self, name: str) -> Path:
        return self._root / name if name else self._root


def _write(path: Path, data: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
