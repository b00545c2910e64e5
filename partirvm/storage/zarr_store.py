"""What Zarr opens for a path or URL: a path on this machine, or a store whose writes have a limit.

Zarr and the clients of stores wait for the reply to a write without a limit.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from zarr.core.buffer import Buffer
from zarr.storage import FsspecStore, WrapperStore

from partirvm.storage import remote_folder
from partirvm.storage.folder import open_filesystem


def zarr_store(location: str, storage_options: dict[str, Any] | None = None) -> Path | LimitedStore:
    """Return what Zarr opens at a path or fsspec URL."""
    filesystem, root = open_filesystem(location, storage_options)
    if isinstance(filesystem, LocalFileSystem):
        return Path(root)
    return LimitedStore(FsspecStore.from_url(location, storage_options=storage_options))


class LimitedStore(WrapperStore[FsspecStore]):
    """A store whose writes raise ``TimeoutError`` after ``remote_folder.REPLY_SECONDS``, as those of folders do."""

    async def set(self, key: str, value: Buffer) -> None:
        """Write an object."""
        limit = remote_folder.REPLY_SECONDS
        try:
            await asyncio.wait_for(self._store.set(key, value), limit)
        except TimeoutError as error:
            raise TimeoutError(f"the store has not replied within {limit:g} s") from error
