"""Ingest new DATA, or append rows to existing DATA; memory sizes may be texts such as ``"512MiB"``."""

from __future__ import annotations

import functools
import os
from typing import Any

from partirvm import data as _data
from partirvm.data import ZarrSource
from partirvm.data.appending import append as _append
from partirvm.errors import UsageError
from partirvm.execution.process import resident_memory, return_freed_memory, trim_freed_memory
from partirvm.planning.units import parse_bytes

KEPT = ("features", "categorical", "classes", "like", "tile_rows", "overwrite")
"""Options that cannot be given when rows are appended, because the existing DATA define them."""


@functools.wraps(_data.ingest)
def ingest(
    source: Any,
    data: Any,
    *,
    memory_limit: int | str | None = None,
    append: bool = False,
    again: bool = False,
    **options: Any,
) -> ZarrSource:
    """Run ``data.ingest``; ``memory_limit`` may also be a text such as ``"512MiB"``.

    With ``append`` the rows are added after the rows of existing DATA (``data.appending``); with ``again`` also if DATA
    have the same rows already.
    """
    limit = None if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    options |= {"memory_limit": limit, "resident": _resident}
    if again and not append:
        raise UsageError("again applies only to an append: pass append=True (`--append`) too")
    return_freed_memory()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's other allocators keep freed memory
    return _append_to(source, data, {**options, "again": again}) if append else _data.ingest(source, data, **options)


def _append_to(source: Any, data: Any, options: dict[str, Any]) -> ZarrSource:
    given = [name for name in KEPT if options.pop(name, None)]
    if given:
        raise UsageError(f"append takes {', '.join(given)} from DATA: leave these options out, or make new DATA")
    shuffle = options.pop("shuffle", 0)
    return _append(source, data, shuffle=0 if shuffle is None else int(shuffle), **options)


def _resident() -> int:
    """Return freed memory to the system, then return the resident bytes of this process."""
    trim_freed_memory()
    return resident_memory()
