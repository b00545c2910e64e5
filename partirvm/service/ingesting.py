"""Ingest with sizes as people write them."""

from __future__ import annotations

import functools
from typing import Any

from partirvm import data as _data
from partirvm.data import ZarrSource
from partirvm.planning.units import parse_bytes


@functools.wraps(_data.ingest)
def ingest(source: Any, data: Any, *, memory_limit: int | str | None = None, **options: Any) -> ZarrSource:
    """As ``data.ingest``; ``memory_limit`` may also be a text such as ``"512MiB"``."""
    limit = None if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    return _data.ingest(source, data, memory_limit=limit, **options)
