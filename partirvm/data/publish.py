"""Writing DATA so that it is there whole or not at all.

On this machine everything is written into a sibling folder ``.NAME.partial-HOST-PID`` and renamed at the end; one that
a killed process left behind is removed by the next ingest of the same name, which first puts back the DATA that it was
about to replace. Behind a URL, where nothing can be renamed, the attributes are written last, and a group without them
does not open.
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
from partirvm.storage.process_identity import started

ADVICE = "make room or choose another place; ingest needs about twice the size of the data, 8 bytes per number"

WRITING_SECONDS = 5.0
"""Most seconds of waiting for writes under way when an ingest is left by an error."""


class Publication:
    """A place to write DATA to, and another to spill to, until ``commit``.

    Attributes
    ----------
    group : zarr.Group
        The group being written.
    spill : Path
        A folder on this machine, beside the data where those are local. Not created yet.
    """

    def __init__(self, group: Any, spill: Path, publish: Any) -> None:
        self.group, self.spill, self._publish = group, spill, publish

    def commit(self, attributes: dict[str, Any]) -> None:
        """Write the attributes and make the group what stands under the name."""
        with storing("the data"):
            self.group.attrs.put(attributes)
            self._publish()


@contextmanager
def publication(url: str, *, overwrite: bool = False) -> Iterator[Publication]:
    """Open a place to write a DATA group that is to stand at ``url``; whatever was written is removed on any error.

    Raises ``ExistsError`` where something stands there and is not to be overwritten, or is no DATA; ``StorageError``
    where nothing can be written.
    """
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
    """Wait for what Zarr's own thread still writes: an interruption ends the wait for it and not the writing."""
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
    """Raise ``ExistsError`` unless the place is free, an empty folder, or DATA that may be overwritten."""
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise _exists(str(path))
    head = path / "zarr.json"
    if not head.is_file() or KIND not in head.read_text(errors="replace"):
        raise ExistsError(
            f"{path} is there already and is not DATA of partirvm: it is not overwritten. Choose another name."
        )


def _exists(url: str) -> ExistsError:
    return ExistsError(f"{url} is there already. Choose another name, or say overwrite=True (`--overwrite`).")


def remove_leftovers(path: Path) -> None:
    """Remove what killed ingests of the same name left behind on this machine.

    DATA that one of them had put aside, and did not come to replace, are put back first.
    """
    pattern = re.compile(re.escape(f".{path.name}.partial-{socket.gethostname()}-") + r"(\d+)")
    for sibling in path.parent.iterdir():
        match = pattern.fullmatch(sibling.name)
        # one of this process's own number is from before a reboot, or from another container: it holds none yet
        if match and (int(match[1]) == os.getpid() or started(int(match[1])) is None):
            _put_back(sibling, path)
            shutil.rmtree(sibling, ignore_errors=True)


def _put_back(partial: Path, path: Path) -> None:
    """Put the data that an overwrite had moved to ``partial/old`` back to their place, where nothing stands there."""
    if (partial / "old").exists() and not os.path.lexists(path):
        (partial / "old").rename(path)


def storing(place: str) -> AbstractContextManager[None]:
    """Turn what a full, read-only or forbidden store raises into ``StorageError``, with what an ingest needs."""
    return storage.storing(place, ADVICE)
