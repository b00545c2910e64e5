"""Ingest new DATA, or append rows to existing DATA; memory sizes may be texts such as ``"512MiB"``."""

from __future__ import annotations

import functools
import os
from typing import Any

from partirvm import data as _data
from partirvm.data import ZarrSource
from partirvm.errors import UsageError
from partirvm.execution.process import resident_memory, return_freed_memory, trim_freed_memory
from partirvm.options.constraints import parse_bytes


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
    """Run ``data.ingest``; ``memory_limit`` may also be a text such as ``"512MiB"``."""
    limit = None if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    if again and not append:
        raise UsageError("again applies only to an append: pass append=True (`--append`) too")
    return_freed_memory()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's other allocators keep freed memory
    return _data.ingest(source, data, memory_limit=limit, append=append, again=again, resident=_resident, **options)


def _resident() -> int:
    """Return freed memory to the system, then return the resident bytes of this process."""
    trim_freed_memory()
    return resident_memory()
