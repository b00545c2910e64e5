"""A folder of small objects, on this machine or on an fsspec file system.

Every object is written in one step: if a process is killed, the previous state remains. On a local
disk, it is written to a temporary file, flushed, and renamed or linked, to survive a power failure.
Requests to other stores are atomic.

If two processes ``create`` the same name, exactly one succeeds: numbered events, lease epochs and
group heads rely on this. A client may repeat a request whose reply was lost, so ``create`` then
compares the object with its own bytes: different writers must write different bytes, by including a
token, or a time and an epoch.
"""

import builtins
import errno
import os
import posixpath
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from partirvm.errors import ExistsError, StorageError
from partirvm.storage.address import Where, address, open_filesystem, protocol_of, reading, storing

REPLY_SECONDS = 300.0
"""Time limit for writing an object: aiohttp waits indefinitely for the reply to ``Expect:
100-continue``."""

EXCLUSIVE = {"s3", "gs", "gcs", "az", "abfs", "memory"}
"""Protocols whose stores can create an object exclusively."""

NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flag for opening a file to read; Windows, which has no pipes in folders, lacks it."""

_creating = threading.Lock()
"""Lock for exclusive creation: fsspec's memory store checks before it writes, so two threads could
both succeed."""


def open_folder(location: Where) -> "Folder":
    """Return the folder at a path or fsspec URL; the folder need not exist."""
    location = address(location).replace(
        os.sep, "/"
    )  # Windows uses another separator but accepts this one
    if protocol_of(location) == "file":
        return Folder(location, location.removeprefix("file://"))
    filesystem, root = open_filesystem(location)
    return Folder(location, root, filesystem)


class Folder:
    """A tree of objects under relative names such as ``events/000001.json``, or the location of a
    single object.

    ``location`` is the location that the user passed, and ``path`` the path on this machine, or
    None in another store. Methods raise builtin errors, which ``storing`` converts.
    """

    def __init__(self, location: str, root: str | Path, filesystem: Any = None) -> None:
        from fsspec.implementations.local import LocalFileSystem

        # fsspec would expand ~ to the home folder
        if filesystem is None and str(root).startswith("~"):
            root = Path(root).absolute()
        self._fs = filesystem or LocalFileSystem()
        self._root = str(root).replace(os.sep, "/").rstrip("/")
        self.path = Path(root) if type(self._fs) is LocalFileSystem else None
        self.location = location if self.path is not None else location.rstrip("/")
        self.name = PurePosixPath(self._root).name
        self.suffix = PurePosixPath(self._root).suffix

    def place(self, name: str = "") -> str:
        """Return the path or URL of an object, for use by other libraries."""
        return (
            str(self._at(name).as_posix())
            if self.path is not None
            else f"{self.location}/{name}".rstrip("/")
        )

    def at(self, name: str) -> "Folder":
        """Return a folder inside this one."""
        return Folder(self.place(name), self._at(name), self._fs)

    def sibling(self, name: str) -> "Folder":
        """Return the folder with this name in the same parent folder."""
        location, root = (
            posixpath.join(posixpath.dirname(path), name) for path in (self.location, self._root)
        )
        return Folder(location, root, self._fs)

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of an object, or only the first ``most`` bytes. Raises
        ``FileNotFoundError``."""
        if self.path is None:
            with self._reading(name):
                return bytes(self._fs.cat_file(self._at(name), start=0 if most else None, end=most))
        # do not wait for a writer: a pipe among someone else's files has none
        with open(
            self._at(name), "rb", opener=lambda path, flags: os.open(path, flags | NO_WAIT)
        ) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", self.place(name))
            # read() would allocate as much as it is allowed to read
            return file.read(about.st_size if most is None else min(about.st_size, most))

    def write(self, name: str, data: bytes) -> None:
        """Write an object atomically, replacing an existing one."""
        if self.path is None:
            self._send(name, data)
        else:
            with _beside(self._at(name), data) as part:
                part.replace(self._at(name))

    def create(self, name: str, data: bytes) -> None:
        """Create an object. Of two concurrent calls, exactly one succeeds. Raises
        ``FileExistsError`` if it exists."""
        if self.path is not None:
            with _beside(self._at(name), data) as part:
                try:
                    os.link(part, self._at(name))
                except OSError as error:
                    if error.errno not in (
                        errno.EPERM,
                        errno.ENOTSUP,
                        errno.ENOSYS,
                        errno.EMLINK,
                        errno.EOPNOTSUPP,
                    ):
                        raise
                    _write(
                        self._at(name), data
                    )  # a disk without links, where a kill may leave a damaged file
            return
        try:
            with _creating:
                self._send(name, data, mode="create")
        except Exception as error:
            existing = None
            self._fs.invalidate_cache(self._at(name))  # an earlier listing does not show the object
            with suppress(Exception):
                existing = self.read(name)
            if existing is None:
                raise
            if existing != data:  # if the bytes are equal, only the reply was lost
                raise FileExistsError(errno.EEXIST, "already exists", self.place(name)) from error

    def require_exclusive(self, name: str) -> None:
        """Create an existing object again, and raise ``StorageError`` if that succeeds: two
        processes could then both create it, as on most fsspec file systems. Protocols in
        ``EXCLUSIVE`` leave the decision to the store.
        """
        if self.path is not None:
            return
        with suppress(FileExistsError):
            if protocol_of(self.location) in EXCLUSIVE:
                self.create(name, b"again")
            self.remove(name)
            raise StorageError(
                f"{self.location}: the filesystem {type(self._fs).__name__} cannot create an "
                "object exclusively, so two processes could run the same job: use a local disk, "
                "or a store that can (such as S3)"
            )

    def list(self, name: str = "", *, hidden: bool = False) -> builtins.list[str]:
        """Return the sorted names of a folder's children; empty if there is no folder."""
        path = self._fs._strip_protocol(str(self._at(name)))
        listed = set[str]()
        with suppress(FileNotFoundError), self._reading(name):
            self._fs.invalidate_cache(path)
            listed = {entry.rstrip("/") for entry in self._fs.ls(path, detail=False)} - {path}
        names = (entry.rpartition("/")[2] for entry in listed)
        return sorted(child for child in names if hidden or not child.startswith("."))

    def empty(self) -> bool:
        """Return True if the folder has no contents, not even hidden files."""
        return not self.is_file() and not self.list(hidden=True)

    def exists(self, name: str = "") -> bool:
        """Return True if there is an object or a folder with this name."""
        path = str(self._at(name))
        with self._reading(name):
            self._fs.invalidate_cache(path)
            return bool(self._fs.exists(path))

    def is_file(self) -> bool:
        """Return True if this place is an object."""
        with self._reading(""):
            return bool(self._fs.isfile(self._root))

    def size(self) -> int:
        """Return the size in bytes of the object at this place."""
        with self._reading(""):
            self._fs.invalidate_cache(self._root)
            return int(self._fs.size(self._root))

    def is_inside(self, other: "Folder") -> bool:
        """Return True if this place is ``other`` or inside it. Links are followed."""
        if self.path is None or other.path is None:
            return f"{self.location}/".startswith(f"{other.location}/")
        return self.path.resolve().is_relative_to(other.path.resolve())

    def remove(self, name: str = "") -> None:
        """Remove an object, or a folder with its contents, if it exists."""
        with suppress(FileNotFoundError):
            self._fs.invalidate_cache()
            self._fs.rm(str(self._at(name)), recursive=True)

    def remove_empty(self, name: str = "") -> None:
        """Remove a local folder in one step if it contains only hidden files left by killed
        writers."""
        if self.path is not None:
            with suppress(OSError):
                for part in () if self.list(name) else self._at(name).glob(".*.part"):
                    part.unlink()
                self._at(name).rmdir()

    def flush(self, name: str) -> None:
        """Wait until all files in a folder are flushed to disk. In other stores, a completed
        request is durable."""
        if self.path is not None:
            flush(self._at(name))

    def scratch(self, name: str = "") -> AbstractContextManager[str]:
        """Return a folder on this machine for unfinished files: ``name`` in this folder, or a
        temporary one."""
        if self.path is not None:
            return nullcontext(self.place(name))
        return tempfile.TemporaryDirectory(prefix="partirvm-output-")

    def publish(self, part: Path, check: Callable[[], None] = lambda: None) -> None:
        """Move a finished file or folder here, replacing any existing one. ``check`` is called
        first and may raise.

        If this folder is on a local disk, ``part`` must be on the same disk. While a folder is
        replaced, neither version exists for a moment.
        """
        with storing(self.location):
            if self.path is not None:
                flush(part)
                check()
                if self.path.is_dir() and part.is_dir():
                    shutil.rmtree(self.path)
                part.replace(self.path)
                sync(self.path.parent)
                return
            check()
            if part.is_file():
                self._fs.put_file(str(part), self._root)
                return
            self.remove("zarr.json")  # a Zarr group's root object is removed first and written last
            self.remove()
            for file in sorted(
                filter(Path.is_file, part.rglob("*")), key=lambda file: file == part / "zarr.json"
            ):
                self._fs.put_file(str(file), f"{self._root}/{file.relative_to(part).as_posix()}")

    def _at(self, name: str) -> Any:
        """Return the path of an object on this machine or in the file system."""
        return self.path / name if self.path is not None else f"{self._root}/{name}".rstrip("/")

    def _send(self, name: str, data: bytes, **options: str) -> None:
        limit = {"timeout": REPLY_SECONDS} if self._fs.async_impl else {}
        self._fs.pipe_file(self._at(name), data, **limit, **options)

    def _reading(self, name: str) -> AbstractContextManager[None]:
        """Convert the errors of a read request, since store libraries have their own error
        classes."""
        return reading(self.place(name), "check the connection to the store", StorageError)


def require_replaceable(
    place: Folder, what: str, is_ours: Callable[[Folder], bool], *, overwrite: bool
) -> None:
    """Raise ``ExistsError`` if there is anything at ``place``, unless it is ``what`` and
    ``overwrite`` is true.

    Parameters
    ----------
    place : Folder
        The output, a file or a folder.
    what : str
        What partirvm would write there, such as "a report".
    is_ours : callable
        Returns True if partirvm wrote the existing output. Anything else is never replaced, and no
        message offers to replace it.
    overwrite : bool
        Whether the user allowed replacement.
    """
    with storing(place.location):
        if not place.exists():
            return
        ours = is_ours(place)
    if not ours:
        raise ExistsError(
            f"{place.location} exists and is not {what} that partirvm wrote, so it is not "
            "overwritten: choose another name"
        )
    if not overwrite:
        raise ExistsError(
            f"{place.location} already exists: choose another name, or replace it with --overwrite"
        )


NO_FLUSHING = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""Errors of a disk that does not support flushing."""


def sync(*paths: Path) -> None:
    """Flush files and folder entries to disk. A disk that does not support flushing causes no
    error; one that is full or damaged does."""
    for path in paths if os.name == "posix" else ():  # Windows cannot open folders
        handle = os.open(path, os.O_RDONLY)
        try:
            _flush_handle(handle)
        finally:
            os.close(handle)


def flush(path: Path) -> None:
    """Wait until a file, or a folder with everything in it, is flushed to disk together with its
    name."""
    sync(*sorted(path.rglob("*"), reverse=True), path, path.parent)


@contextmanager
def _beside(path: Path, data: bytes) -> Iterator[Path]:
    """Yield a flushed temporary file next to ``path``, to be renamed to ``path``. It is removed at
    the end."""
    _make(path.parent)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        _write(part, data)
        yield part
    finally:
        part.unlink(missing_ok=True)
    sync(path.parent)


def _make(folder: Path) -> None:
    """Create a folder whose name survives a power failure."""
    if not folder.is_dir():
        _make(folder.parent)
        # another process may create it; if it is a file, the next write reports that
        with suppress(FileExistsError):
            folder.mkdir()
        sync(folder.parent)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        _flush_handle(file.fileno())


def _flush_handle(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_FLUSHING:
            raise
