"""A job's folder: what was asked, what happened, and the model to use.

    JOB/spec.json              what was asked, of which data, by which versions
    JOB/events/000001.json     one numbered object per event, never changed
    JOB/models/000003/         a model; numbered from 1
    JOB/model.json             points to the model to use: written last, replaced whole
    .JOB.before/               beside JOB: the job that it overwrites, until its own first model is saved

The folder is any place that fsspec knows. Small objects are written whole: to a temporary name and renamed on a local
disk, in one request elsewhere.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import fsspec

from partirvm.errors import ExistsError, FormatError, MissingDataError, StorageError
from partirvm.model import Model, load_model, save_model

FORMAT = 1


class JobStore:
    """Reads and writes one job's folder."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.location = os.fspath(location).rstrip("/")
        self._fs, self._root = fsspec.core.url_to_fs(self.location)
        folder, _, name = self._root.rstrip("/").rpartition("/")
        self._aside = f"{folder}/.{name}.before"
        self._events = 0

    @classmethod
    def create(cls, location: str, spec: dict[str, Any], *, overwrite: bool = False) -> Self:
        """Start a job's folder. Raises ``ExistsError`` if something is there that may not be overwritten.

        A job that is overwritten is kept beside the folder, as a hidden sibling, until the new one has saved its first
        model; ``discard`` puts it back. So does the next job that overwrites, for one that was killed before that.
        """
        store = cls(location)
        if store._fs.exists(store._root):
            empty = store._fs.isdir(store._root) and not store._fs.ls(store._root)
            if not empty and not overwrite:
                raise ExistsError(f"{store.location}: there is something here already; --overwrite replaces a job")
            if not empty and not store._fs.exists(store._path("spec.json")):
                raise ExistsError(f"{store.location}: this is not a job, it will not be overwritten")
            if store.has_model():
                store._remove(store._aside)
                store._fs.mv(store._root, store._aside, recursive=True)
            else:
                store._remove(store._root)
        try:
            store._write("spec.json", {"format": FORMAT, **spec})
        except BaseException:
            store.discard()
            raise
        return store

    def spec(self) -> dict[str, Any]:
        """What was asked. Raises ``MissingDataError`` for no job, ``FormatError`` for one of a newer version."""
        spec = self._read("spec.json")
        if spec["format"] > FORMAT:
            raise FormatError(
                f"{self.location}: the job has format {spec['format']}, this version reads up to {FORMAT}: "
                "upgrade partirvm"
            )
        return spec

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event."""
        self._events += 1
        self._write(f"events/{self._events:06d}.json", entry)

    def save(self, model: Model) -> None:
        """Make this model the one to use; the one before it goes once the pointer has moved.

        Raises ``StorageError`` if it cannot be written; nothing of it is left then, and the one before stays in use.
        """
        before = self._pointer()
        name = f"models/{1 if before is None else int(before.rsplit('/', 1)[-1]) + 1:06d}"
        try:
            save_model(model, f"{self.location}/{name}")
            self._write("model.json", {"path": name})
        except BaseException:
            if self._pointer() != name:
                self._remove_unfinished(self._path(name))
            raise
        self._remove(self._aside if before is None else self._path(before))

    def discard(self) -> None:
        """Remove the job's folder and all that is in it; put back the job that it overwrote."""
        self._remove(self._root)
        if self._fs.exists(self._aside):
            self._fs.mv(self._aside, self._root, recursive=True)

    def has_model(self) -> bool:
        """Whether there is a model to use."""
        return self._pointer() is not None

    def model(self) -> Model:
        """The model to use. Raises ``MissingDataError`` if the job has none yet."""
        self.spec()
        if not self.has_model():
            before = f"; the one before it is kept in {self._aside}" if self._fs.exists(self._aside) else ""
            raise MissingDataError(f"{self.location}: the job has no model yet{before}")
        return load_model(self.location)

    def events(self) -> list[dict[str, Any]]:
        """All events in order."""
        if not self._fs.exists(self._path("events")):
            return []
        names = sorted(Path(path).name for path in self._fs.ls(self._path("events"), detail=False))
        return [self._read(f"events/{name}") for name in names if name.endswith(".json") and not name.startswith(".")]

    def _pointer(self) -> str | None:
        """Path of the model to use inside the folder, None if there is none yet."""
        return str(self._read("model.json")["path"]) if self._fs.exists(self._path("model.json")) else None

    def _remove(self, path: str) -> None:
        if self._fs.exists(path):
            self._fs.rm(path, recursive=True)

    def _remove_unfinished(self, path: str) -> None:
        """Remove a folder whose writing failed; threads of Zarr may go on with other files of it for a moment."""
        for _ in range(10):
            with suppress(OSError):
                self._remove(path)
            time.sleep(0.02)
            if not self._fs.exists(path):
                return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _read(self, name: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads(self._fs.cat_file(self._path(name)))
        except FileNotFoundError as error:
            raise MissingDataError(f"{self.location}: no job here ({name} is missing)") from error
        except json.JSONDecodeError as error:
            raise FormatError(f"{self.location}/{name}: damaged, not JSON: {error}") from error
        return value

    def _write(self, name: str, value: dict[str, Any]) -> None:
        data = json.dumps(value, indent=1).encode()
        path = self._path(name)
        try:
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            if "file" in self._fs.protocol:
                _write_local(Path(path), data)
            else:
                self._fs.pipe_file(path, data)
        except OSError as error:
            raise StorageError(f"{self.location}/{name}: cannot be written: {error}") from error


def _write_local(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
