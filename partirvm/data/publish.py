"""Atomic writing of DATA: after a call the complete group exists, or no group.

Each writer of DATA, an ingest or an append, holds the lease in the folder ``.NAME.lease`` next to the DATA, which is
removed at the end. A second writer is refused. Everything that is not published yet is in a folder
``.NAME.partial-TOKEN`` next to the DATA. The next writer removes what killed writers left. If a partial folder contains
old DATA that a killed ingest had moved aside, the old DATA are restored first.

On this machine a group is published by a rename that fails if the name exists. Stores at a URL cannot rename. For such
stores the attributes are written last, and a group without attributes cannot be opened. New DATA in place of old ones
go to a prefix of their own, and the old objects are removed last. A writer there that stops between its last look at
the lease and the attributes, and goes on after another writer has finished, still publishes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from partirvm import storage
from partirvm.data.layout import KIND, local_path
from partirvm.errors import ExistsError, LeaseLostError
from partirvm.storage.address import require_address
from partirvm.storage.lease import Lease, acquire

storing = partial(
    storage.storing,
    advice="make room or choose another place; ingest needs about twice the size of the data, 8 bytes per number",
)
"""Converts errors of a full, read-only or forbidden store to ``StorageError``, which states the space needed."""

WRITING_SECONDS = 5.0
"""Maximum number of seconds to wait for pending writes when an ingest ends with an error."""


@dataclass
class Publication:
    """The group that is being written, and a folder for temporary files. Both are in use until ``commit``.

    ``spill`` is a folder on this machine, not created yet. ``publish`` gets the attributes and makes the group visible.
    ``segment`` is the name of the group in the DATA; empty if it is the group of the DATA.
    """

    group: Any
    spill: Path
    publish: Callable[[dict[str, Any]], None]
    segment: str = ""

    def commit(self, attributes: dict[str, Any]) -> None:
        """Write the attributes and publish the group."""
        with storing("the data"):
            self.publish(attributes)


@contextmanager
def publication(url: str, *, overwrite: bool = False) -> Iterator[Publication]:
    """Yield a ``Publication`` for the DATA group at ``url``. On any error everything written is removed.

    Raises ``LeaseError`` if another process writes the DATA. Raises ``ExistsError`` if the path holds something other
    than DATA, or if it holds DATA and ``overwrite`` is false. Raises ``StorageError`` if the path cannot be written.
    """
    require_address(os.fspath(url))
    path = local_path(url)
    with (
        claimed(url) as lease,
        _remote(url, lease, overwrite) if path is None else _local(path, lease, overwrite) as place,
    ):
        yield place


@contextmanager
def claimed(url: str) -> Iterator[Lease]:
    """Hold the lease of the DATA at a path or URL, whether or not they exist.

    Raises ``LeaseError`` if another process holds the lease, and ``LeaseLostError`` instead of an error that came after
    another process took over.
    """
    path = local_path(url)
    place = storage.open_folder(url.rstrip("/") if path is None else os.path.abspath(path))  # noqa: PTH100 - links stay
    folder = place.sibling(f".{place.name}.lease")
    folder.location = url  # for messages
    with storing(url), acquire(folder, dict, stop="stop this process") as lease:
        try:
            yield lease
        except Exception:
            lease.check()
            raise
        finally:
            lease.withdraw()


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Remove what killed writers left next to DATA, and yield an empty folder next to DATA. Requires the lease."""
    partial = path.with_name(f".{path.name}.partial-{uuid.uuid4().hex}")
    try:
        with storing(str(path)):
            remove_leftovers(path)
            partial.mkdir(parents=True)
        yield partial
    except BaseException:
        _finish_writes()
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _local(path: Path, lease: Lease, overwrite: bool) -> Iterator[Publication]:
    import zarr

    path = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link that is to be replaced
    with partial_folder(path) as partial:
        with storing(str(path)):
            _refuse_existing(path, overwrite)
            group = zarr.open_group(str(partial / "data"), mode="w", zarr_format=3)

        def publish(attributes: dict[str, Any]) -> None:
            group.attrs.put(attributes)
            lease.check()
            _refuse_existing(path, overwrite)
            if overwrite and os.path.lexists(path):
                path.rename(partial / "old")
            try:
                with suppress(OSError):
                    path.rmdir()  # an empty folder may be replaced
                (partial / "data").rename(path)
            except BaseException:
                _put_back(partial, path)
                raise

        yield Publication(group, partial / "spill", publish)


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
def _remote(url: str, lease: Lease, overwrite: bool) -> Iterator[Publication]:
    import zarr

    folder = storage.open_folder(url)
    there = not folder.empty()
    if there:
        _refuse(url, folder.read(HEAD) if folder.exists(HEAD) else b"", overwrite)
    segment = f"data-{uuid.uuid4().hex}" if there else ""
    with storing(url):
        group = zarr.open_group(folder.place(segment), mode="w", attributes={"kind": KIND}, zarr_format=3)
    committed = False

    def publish(attributes: dict[str, Any]) -> None:
        nonlocal committed
        lease.check()
        head = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        folder.write(HEAD, json.dumps(head).encode())
        committed = True
        for name in folder.list() if there else ():
            if name not in (HEAD, segment):
                folder.remove(name)

    with tempfile.TemporaryDirectory(prefix="partirvm-spill-") as spill:
        try:
            yield Publication(group, Path(spill, "spill"), publish, segment)
        finally:
            if not committed:
                with suppress(LeaseLostError):
                    lease.check()
                    folder.remove(segment)


HEAD = "zarr.json"
"""The metadata of a Zarr group."""


def _refuse_existing(path: Path, overwrite: bool) -> None:
    """Raise ``ExistsError`` unless the path is free or an empty folder, or holds DATA and ``overwrite`` is true."""
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        _refuse(str(path), (path / HEAD).read_bytes() if (path / HEAD).is_file() else b"", overwrite)


def _refuse(url: str, head: bytes, overwrite: bool) -> None:
    """Raise ``ExistsError`` unless this is the metadata of DATA and ``overwrite`` is true."""
    if not overwrite:
        raise ExistsError(f"{url} exists already. Choose another name, or pass overwrite=True (`--overwrite`).")
    if KIND.encode() not in head:
        raise ExistsError(f"{url} exists, is not DATA of partirvm, and is not overwritten. Choose another name.")


def remove_leftovers(path: Path) -> None:
    """Remove the partial folders of killed writers of the same name. Requires the lease.

    DATA that a killed ingest had moved aside without replacement are restored first.
    """
    pattern = re.compile(re.escape(f".{path.name}.partial-") + "[0-9a-f]{32}")
    for sibling in path.parent.iterdir():
        if pattern.fullmatch(sibling.name):
            _put_back(sibling, path)
            shutil.rmtree(sibling, ignore_errors=True)


def _put_back(partial: Path, path: Path) -> None:
    """Move DATA from ``partial/old`` back to their path, if the path is free."""
    if (partial / "old").exists() and not os.path.lexists(path):
        (partial / "old").rename(path)
