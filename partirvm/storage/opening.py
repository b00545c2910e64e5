"""Open the folder at a path or URL, on this machine or in another store."""

from __future__ import annotations

from typing import Any

from partirvm.storage.folder import Folder, open_filesystem


def open_folder(location: str, storage_options: dict[str, Any] | None = None) -> Folder:
    """Return the folder at a path or fsspec URL; the folder need not exist."""
    from fsspec.implementations.local import LocalFileSystem

    from partirvm.storage.local_folder import LocalFolder
    from partirvm.storage.remote_folder import RemoteFolder

    filesystem, root = open_filesystem(location, storage_options)
    if isinstance(filesystem, LocalFileSystem):
        return LocalFolder(location, root)
    return RemoteFolder(location, filesystem, root)
