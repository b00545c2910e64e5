"""Durable folders: small objects written atomically, snapshots, and a lease that allows one writer at a time.

Storage imports no fit, model or data modules, so that jobs, models, data and outputs can all use it.
"""

from __future__ import annotations

from partirvm.storage.folder import Folder, open_filesystem, reading, storing
from partirvm.storage.opening import open_folder

__all__ = ["Folder", "open_filesystem", "open_folder", "reading", "storing"]
