"""A folder on this machine. Files are replaced by rename, created by hard link, and flushed to disk."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP}
"""The error numbers of ``os.link`` on a disk without hard links."""


READS = 5
"""Maximum number of reads of a file that is replaced during each read."""


@contextmanager
def replacing(path: Path, part: Path | None = None) -> Iterator[Path]:
    """Replace ``path`` by a new file or folder. The caller writes to the yielded hidden name, which is renamed on exit.

    ``part`` is an alternative hidden name on the same disk. On any error the new content is removed and ``path`` is
    unchanged. A file is replaced in one step. When a folder is replaced, nothing exists under its name for a moment.
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
    """Remove a file, or a folder with its contents; no-op if the path does not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(NotADirectoryError):
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk. A disk that does not support this causes no error."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def flush(path: Path) -> None:
    """Wait until a file, or a folder with everything in it, is flushed to disk together with its name."""
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

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of the file, at most the first ``most``. On a network disk a file may be replaced while it
        is read: it is read again.
        """
        left = READS
        while True:
            left -= 1
            try:
                with open(self._path(name), "rb", opener=_open_at_once) as file:
                    about = os.fstat(file.fileno())
                    if not stat.S_ISREG(about.st_mode):
                        raise OSError(errno.EINVAL, "not a regular file", str(self._path(name)))
                    size = about.st_size  # read() would allocate all that it is allowed to read
                    return file.read(size if most is None else min(size, most))
            except NotADirectoryError as error:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(self._path(name))) from error
            except OSError as error:
                if error.errno != errno.ESTALE or not left:
                    raise

    def write(self, name: str, data: bytes) -> None:
        """Write a hidden file, flush it, and rename it to the final name."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            _write(part, data, "wb")
        sync(path.parent)

    def create(self, name: str, data: bytes) -> None:
        """Write a hidden file, flush it, and link it to the final name, so that the name appears with all its bytes. If
        several processes create the same name, only one succeeds.

        Without hard links the file is opened exclusively. A killed process may then leave a truncated object.
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
        """Return without a check: every local disk supports exclusive creation."""

    def list(self, name: str = "") -> list[str]:
        """Return the names in a folder, without files that are still being written."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in self._path(name).iterdir() if not path.name.startswith("."))
        return []

    def empty(self) -> bool:
        """Return True if the folder has no contents, including hidden files."""
        path = self._path("")
        return not (path.is_dir() and any(path.iterdir())) and not path.is_file()

    def exists(self, name: str = "") -> bool:
        """Return True if a file or folder has this name."""
        return self._path(name).exists()

    def remove(self, name: str = "") -> None:
        """Remove a file or folder completely, even if files are added meanwhile."""
        path = self._path(name)
        for _ in range(10):
            with suppress(FileNotFoundError):
                try:
                    return remove(path)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
        return remove(path)

    def remove_empty(self, name: str = "") -> None:
        """Remove a folder in one step if it has no contents besides hidden files. These are files of killed writers. A
        living writer of one fails with ``FileNotFoundError``.
        """
        path = self._path(name)
        with suppress(OSError):
            for part in () if self.list(name) else path.glob(".*.part*"):
                part.unlink()
            path.rmdir()

    def flush(self, name: str) -> None:
        """Flush every file in the folder, then every subfolder, then the names of these folders."""
        flush(self._path(name))

    def place(self, name: str) -> str:
        """Return the path of a file or folder."""
        return str(self._path(name))

    def sibling(self, name: str) -> Self:
        """Return the folder with this name in the same parent folder."""
        path = self._root.parent / name
        return type(self)(str(path), path)

    def rename(self, other: Self) -> None:
        """Rename the folder."""
        self._root.rename(other._root)

    def _path(self, name: str) -> Path:
        return self._root / name if name else self._root


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for a writer: a pipe among the files of somebody else has none."""
    return os.open(path, flags | os.O_NONBLOCK)


def _write(path: Path, data: bytes, mode: str) -> None:
    with path.open(mode) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
