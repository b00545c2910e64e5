"""Folders that survive their writers: small objects written whole, snapshots, and a lease on who may write.

A leaf of the house: it knows no fit, no model and no data, so that jobs, models, data and outputs can all stand on it.
"""

from __future__ import annotations

from partirvm.storage.folder import Folder, open_filesystem, reading, storing
from partirvm.storage.opening import open_folder

__all__ = ["Folder", "open_filesystem", "open_folder", "reading", "storing"]
