"""Durable folders: objects are written atomically, snapshots are groups of arrays, and a lease
allows one writer at a time.

This package imports no fit, model or data modules, so that jobs, models, data and outputs can all
import it.
"""

from partirvm.storage.address import Where, open_filesystem, reading, storing
from partirvm.storage.folder import Folder, open_folder, require_replaceable

__all__ = [
    "Folder",
    "Where",
    "open_filesystem",
    "open_folder",
    "reading",
    "require_replaceable",
    "storing",
]
