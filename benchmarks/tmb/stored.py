"""Fits of a benchmark in a JSON file, so that an interrupted run goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measure import say

Row = dict[str, Any]


def fits(
    path: Path, cases: Iterable[tuple[Any, ...]], fit: Callable[..., Row], minutes: float
) -> list[Row]:
    """Return the stored fits and those of the other cases, which are stored.

    Args:
        path: the file
        cases: arguments of each fit, which identify it
        fit: returns a row
        minutes: after these, no fit starts
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    done = {tuple(row["case"]) for row in rows}
    began = time.perf_counter()
    for case in cases:
        if case in done or time.perf_counter() - began > 60 * minutes:
            continue
        rows.append({"case": list(case), **fit(*case)})
        path.write_text(json.dumps(rows))
        say(f"{case}: {rows[-1]['seconds']:.1f} s")
    return rows
