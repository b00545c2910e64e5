"""Atomic writing of DATA: after a call the complete group exists, or no group.

On this machine everything is written to a folder ``.NAME.partial-HOST-PID`` next to the final folder, and this partial
folder is renamed at the end. If a process was killed, the next ingest of the same name removes the partial folder. If
the partial folder contains old DATA that the killed process had moved aside, the old DATA are restored first. Stores at
a URL cannot rename. For such stores the attributes are written last, and a group without attributes cannot be opened.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from partirvm import storage
from partirvm.data.layout import KIND, local_path
from partirvm.errors import ExistsError
from partirvm.storage.address import require_address
from partirvm.storage.process_identity import started

ADVICE = "make room or choose another place; ingest needs about twice the size of the data, 8 bytes per number"

WRITING_SECONDS = 5.0
"""Maximum number of seconds to wait for pending writes when an ingest ends with an error."""


class Publication:
    """The group that is being written, and a folder for temporary files. Both are in use until ``commit``.

    Attributes
    ----------
    group : zarr.Group
        The group being written.
    spill : Path
        A folder on this machine for temporary files, next to the data if the data are local. The folder is not created
        yet.
    """

    def __init__(self, group: Any, spill: Path, publish: Any) -> None:
        self.group, self.spill, self._publish = group, spill, publish

    def commit(self, attributes: dict[str, Any]) -> None:
        """Write the attributes and move the group to its final name."""
        with storing("the data"):
            self.group.attrs.put(attributes)
            self._publish()


@contextmanager
def publication(url: str, *, overwrite: bool = False) -> Iterator[Publication]:
    """Yield a ``Publication`` for the DATA group at ``url``. On any error everything written is removed.

    Raises ``ExistsError`` if the path holds something other than DATA, or if it holds DATA and ``overwrite`` is false.
    Raises ``StorageError`` if the path cannot be written.
    """
    require_address(os.fspath(url))
    path = local_path(url)
    with _remote(url, overwrite) if path is None else _local(path, overwrite) as place:
        yield place


@contextmanager
def _local(path: Path, overwrite: bool) -> Iterator[Publication]:
    import zarr

    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link that is to be replaced
    partial = path.with_name(f".{path.name}.partial-{socket.gethostname()}-{os.getpid()}")
    with storing(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        refuse_existing(path, overwrite)

    def publish() -> None:
        if path.exists():
            path.rename(partial / "old")
        try:
            (partial / "data").rename(path)
        except BaseException:
            _put_back(partial, path)
            raise

    try:
        with storing(str(path)):
            partial.mkdir()
            group = zarr.open_group(str(partial / "data"), mode="w", zarr_format=3)
        yield Publication(group, partial / "spill", publish)
    except BaseException:
        _finish_writes()
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _finish_writes() -> None:
    """Wait for pending writes of Zarr's thread. An interruption of the caller does not stop these writes."""
    import zarr.core.sync

    async def others() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=WRITING_SECONDS)

    with suppress(Exception):
        zarr.core.sync.sync(others(), timeout=WRITING_SECONDS)


@contextmanager
def _remote(url: str, overwrite: bool) -> Iterator[Publication]:
    import zarr

    filesystem, place = storage.open_filesystem(url)
    with storing(url):
        if filesystem.exists(place):
            if not overwrite:
                raise _exists(url)
            filesystem.rm(place, recursive=True)
        group = zarr.open_group(url, mode="w", zarr_format=3)
    committed = False

    def publish() -> None:
        nonlocal committed
        committed = True

    with tempfile.TemporaryDirectory(prefix="partirvm-spill-") as spill:
        try:
            yield Publication(group, Path(spill, "spill"), publish)
        finally:
            if not committed and filesystem.exists(place):
                filesystem.rm(place, recursive=True)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise ``ExistsError`` unless the path is free or an empty folder, or holds DATA and ``overwrite`` is true."""
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise _exists(str(path))
    head = path / "zarr.json"
    if not head.is_file() or KIND not in head.read_text(errors="replace"):
        raise ExistsError(f"{path} exists, is not DATA of partirvm, and is not overwritten. Choose another name.")


def _exists(url: str) -> ExistsError:
    return ExistsError(f"{url} exists already. Choose another name, or pass overwrite=True (`--overwrite`).")


def remove_leftovers(path: Path) -> None:
    """Remove the partial folders that killed ingests of the same name left on this machine.

    DATA that a killed ingest had moved aside without replacement are restored first.
    """
    pattern = re.compile(re.escape(f".{path.name}.partial-{socket.gethostname()}-") + r"(\d+)")
    for sibling in path.parent.iterdir():
        match = pattern.fullmatch(sibling.name)
        # a folder with the number of this process is from before a reboot or from another container: not in use
        if match and (int(match[1]) == os.getpid() or started(int(match[1])) is None):
            _put_back(sibling, path)
            shutil.rmtree(sibling, ignore_errors=True)


def _put_back(partial: Path, path: Path) -> None:
    """Move DATA from ``partial/old`` back to their path, if the path is free."""
    if (partial / "old").exists() and not os.path.lexists(path):
        (partial / "old").rename(path)


def storing(place: str) -> AbstractContextManager[None]:
    """Convert errors of a full, read-only or forbidden store to ``StorageError``, which states the space an ingest
    needs.
    """
    return storage.storing(place, ADVICE)
