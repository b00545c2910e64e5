"""The place of a file or folder that appears only when it is complete: a local path, or an fsspec URL.

A local file is written beside its final name, flushed and renamed. A store of objects has no rename: the file is
written to this machine first and then sent; the store shows an object only when it has all its bytes. The root object
of a Zarr group is sent last.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from partirvm.errors import ExistsError
from partirvm.storage.address import require_address
from partirvm.storage.folder import Folder, open_filesystem, reading, storing
from partirvm.storage.local_folder import LocalFolder, flush, remove, replacing, sync
from partirvm.storage.remote_folder import RemoteFolder, replying

ROOT = "zarr.json"
"""The object without which a Zarr group cannot be opened."""

FileFacts = list[tuple[str, int, str]]
"""Relative name, size in bytes, and time or tag of each file."""


class Destination(Protocol):
    """The place of a finished file or folder. ``location`` is the path or URL that the user gave.

    Methods raise ``StorageError`` if the place cannot be read or written.
    """

    location: str
    name: str
    suffix: str

    @property
    def absolute(self) -> str:
        """The place as a path or URL that is valid in every working folder."""
        ...

    def exists(self) -> bool:
        """Return True if a file or folder is there."""
        ...

    def is_file(self) -> bool:
        """Return True if a file is there."""
        ...

    def files(self) -> FileFacts:
        """Return the facts of the file, or of each file of the folder, sorted by name."""
        ...

    def is_inside(self, other: str) -> bool:
        """Return True if this place equals the path or URL ``other``, or lies inside it."""
        ...

    def make_parent(self) -> None:
        """Create the folder that contains this place, where the store has such folders."""
        ...

    def beside(self, name: str) -> Folder:
        """Return the folder with this name beside this place."""
        ...

    def scratch(self, folder: Folder | None = None) -> AbstractContextManager[Path]:
        """Return a context manager of a local folder for unfinished files. On a local disk it is ``folder`` or the
        parent of this place, for a file can only be renamed on its own disk.
        """
        ...

    def publish(self, part: Path, check: Callable[[], None] = lambda: None) -> None:
        """Move a finished file or folder here, and replace what is there. ``check`` is called before and may raise."""
        ...


def destination(location: str) -> Destination:
    """Return the destination at a path or URL. Raises ``UsageError`` for a URL that is not allowed or unknown."""
    require_address(location)
    if "://" not in location:
        return LocalDestination(location, Path(location))
    from fsspec.implementations.local import LocalFileSystem

    filesystem, path = open_filesystem(location)
    if isinstance(filesystem, LocalFileSystem):
        return LocalDestination(location, Path(path))
    return RemoteDestination(location, filesystem, path)


class LocalDestination:
    """A destination on this machine."""

    def __init__(self, location: str, path: Path) -> None:
        self.location, self.path = location, path
        self.name, self.suffix = path.name, path.suffix

    @property
    def absolute(self) -> str:
        """The absolute path."""
        return str(self.path.absolute())

    def exists(self) -> bool:
        """Return True if a file or folder is there."""
        return self.path.exists()

    def is_file(self) -> bool:
        """Return True if a file is there."""
        return self.path.is_file()

    def files(self) -> FileFacts:
        """Return name, size and modification time (ns) of the file, or of each file of the folder."""
        path = self.path.absolute()
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        stats = [(str(file.relative_to(path)), file.stat()) for file in sorted(files)]
        return [(name, stat.st_size, str(stat.st_mtime_ns)) for name, stat in stats]

    def is_inside(self, other: str) -> bool:
        """Return True if this path equals ``other`` or lies inside it. Symbolic links are followed."""
        if "://" in other and not other.startswith("file://"):
            return False
        return self.path.resolve().is_relative_to(Path(other.removeprefix("file://")).resolve())

    def make_parent(self) -> None:
        """Create the folder of this path."""
        with storing(self.location):
            self.path.parent.mkdir(parents=True, exist_ok=True)

    def beside(self, name: str) -> Folder:
        """Return the folder with this name in the same folder."""
        return LocalFolder(self.location, self.path.with_name(name))

    @contextmanager
    def scratch(self, folder: Folder | None = None) -> Iterator[Path]:
        """Yield the path of ``folder``, or of the parent."""
        yield self.path.parent if folder is None else Path(folder.place(""))

    def publish(self, part: Path, check: Callable[[], None] = lambda: None) -> None:
        """Flush ``part`` and rename it."""
        with storing(self.location):
            with replacing(self.path, part):
                flush(part)
                check()
            sync(self.path.parent)


class RemoteDestination:
    """A destination in another store, at an fsspec URL."""

    def __init__(self, location: str, filesystem: Any, path: str) -> None:
        self.location, self._fs, self._path = location.rstrip("/"), filesystem, path.rstrip("/")
        place = PurePosixPath(self._path)
        self.name, self.suffix = place.name, place.suffix

    @property
    def absolute(self) -> str:
        """The URL."""
        return self.location

    def exists(self) -> bool:
        """Return True if an object, or a folder of objects, is there."""
        with reading(self.location):
            self._fs.invalidate_cache()
            return bool(self._fs.exists(self._path))

    def is_file(self) -> bool:
        """Return True if an object is there."""
        with reading(self.location):
            return bool(self._fs.isfile(self._path))

    def files(self) -> FileFacts:
        """Return name, size and the tag or time of the object, or of each object of the folder."""
        with reading(self.location):
            self._fs.invalidate_cache()
            found = self._fs.find(self._path, detail=True)
        return [
            (name[len(self._path) :], int(facts["size"]), str(_version(facts))) for name, facts in sorted(found.items())
        ]

    def is_inside(self, other: str) -> bool:
        """Return True if this URL equals ``other`` or lies inside it."""
        return f"{self.location}/".startswith(f"{other.rstrip('/')}/")

    def make_parent(self) -> None:
        """Do nothing: a store of objects has no folders."""

    def beside(self, name: str) -> Folder:
        """Return the folder with this name in the same folder."""
        return RemoteFolder(self.location, self._fs, self._path).sibling(name)

    @contextmanager
    def scratch(self, folder: Folder | None = None) -> Iterator[Path]:
        """Yield a temporary folder of this machine, which is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="partirvm-output-") as scratch:
            yield Path(scratch)

    def publish(self, part: Path, check: Callable[[], None] = lambda: None) -> None:
        """Send ``part``. Each object appears at once. A Zarr group loses its root object first and gets it last."""
        with storing(self.location):
            check()
            if part.is_file():
                self._put(part, self._path)
                return
            if self._fs.exists(self._path):
                if self._fs.exists(f"{self._path}/{ROOT}"):
                    self._fs.rm_file(f"{self._path}/{ROOT}")
                self._fs.rm(self._path, recursive=True)
            files = sorted(file for file in part.rglob("*") if file.is_file() and file != part / ROOT)
            for file in [*files, part / ROOT]:
                self._put(file, f"{self._path}/{file.relative_to(part).as_posix()}")

    def _put(self, file: Path, path: str) -> None:
        with replying(self._fs, file.stat().st_size) as limit:
            self._fs.put_file(str(file), path, **limit)


def _version(facts: dict[str, Any]) -> Any:
    """Return what changes when an object is written again; the names differ from store to store."""
    return next((facts[name] for name in ("ETag", "etag", "LastModified", "mtime", "created") if name in facts), "")


def write_text(location: str, text: str, *, overwrite: bool = False) -> None:
    """Write a text file to a path or URL. An existing file is replaced only when the new one is complete.

    Raises ``ExistsError`` if the file exists and ``overwrite`` is false, and ``StorageError`` if it cannot be written.
    """
    place = destination(location)
    if not overwrite and place.exists():
        raise ExistsError(f"{location} is there already: --overwrite replaces it")
    with storing(location), place.scratch() as folder:
        part = folder / f".{place.name}.{uuid.uuid4().hex}.part"
        try:
            part.write_text(text, encoding="utf-8")
            place.publish(part)
        finally:
            remove(part)
