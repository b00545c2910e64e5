"""Row numbers of diagnostics in the order of the table that was ingested."""

from __future__ import annotations

from functools import cache
from typing import Any

from partirvm.data.source import Source
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import PartirvmError


def table_rows(diagnostics: list[dict[str, Any]], source: Source, held_out: Source | None) -> list[dict[str, Any]]:
    """Return the diagnostics of a history line with the row numbers before shuffling in ``largest``.

    Diagnostics without coverage are of training rows left out (``core.left_out``), all others of held-out rows. If the
    numbers cannot be read, ``largest`` is empty: a finished fit does not fail because of its report.
    """
    left_out = any(not each.get("covered", True) for each in diagnostics)
    shown = source if held_out is None or left_out else held_out
    if not isinstance(shown, ZarrSource):  # other sources keep the order of their rows
        return diagnostics
    numbers = cache(shown.original_rows)

    def number(row: int) -> int:
        tile, place = divmod(row, shown.tile_rows)
        return int(numbers(tile)[place])

    try:
        return [
            {**each, "largest": [[number(row), *values] for row, *values in each["largest"]]} for each in diagnostics
        ]
    except PartirvmError:
        return [{**each, "largest": []} for each in diagnostics]
