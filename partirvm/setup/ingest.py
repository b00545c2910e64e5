"""Ingest with sizes as people write them, of new DATA and of more rows for DATA that are there."""

from __future__ import annotations

import functools
from typing import Any

from partirvm import data as _data
from partirvm.backends.allocator import (
    arrow_from_system,
    give_back_freed_memory,
    keep_freed_memory,
    return_freed_memory,
)
from partirvm.backends.process import resident_memory
from partirvm.data import ZarrSource
from partirvm.data.appending import append as _append
from partirvm.errors import UsageError
from partirvm.planning.units import parse_bytes

KEPT = ("features", "categorical", "classes", "like", "tile_rows", "overwrite")
"""Options that rows which are appended cannot have: DATA say all this."""


@functools.wraps(_data.ingest)
def ingest(
    source: Any, data: Any, *, memory_limit: int | str | None = None, append: bool = False, **options: Any
) -> ZarrSource:
    """As ``data.ingest``; ``memory_limit`` may also be a text such as ``"512MiB"``.

    With ``append`` the rows go after those of DATA that are there (``data.appending``).
    """
    limit = None if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    options |= {"memory_limit": limit, "process": _Process()}
    return_freed_memory()
    with arrow_from_system():
        return _append_to(source, data, options) if append else _data.ingest(source, data, **options)


def _append_to(source: Any, data: Any, options: dict[str, Any]) -> ZarrSource:
    given = [name for name in KEPT if options.pop(name, None)]
    if given:
        raise UsageError(f"append takes {', '.join(given)} from DATA: leave it out, or make new DATA")
    shuffle = options.pop("shuffle", 0)
    return _append(source, data, shuffle=0 if shuffle is None else int(shuffle), **options)


class _Process:
    """This process, as ``data.budget.Process`` has it."""

    def resident(self) -> int:
        """Its resident bytes, once freed ones were given back."""
        give_back_freed_memory()
        return resident_memory()

    def reuse(self) -> None:
        """From now on keep what is freed."""
        keep_freed_memory()
