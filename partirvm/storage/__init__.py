"""Durable folders: objects are written atomically, snapshots are groups of arrays, and a lease
allows one writer at a time.

This package imports no fit, model or data modules, so that jobs, models, data and outputs can all
import it.
"""

from partirvm.storage.address import Where, open_filesystem, reading, storing
from partirvm.storage.codec import Codec, read_group, write_group
from partirvm.storage.folder import Folder, open_folder, require_replaceable
from partirvm.storage.lease import Lease, LeaseTimes, Process
from partirvm.storage.records import read_json, to_json

__all__ = [
    "Codec",
    "Folder",
    "Lease",
    "LeaseTimes",
    "Process",
    "Where",
    "open_filesystem",
    "open_folder",
    "read_group",
    "read_json",
    "reading",
    "require_replaceable",
    "storing",
    "to_json",
    "write_group",
]
