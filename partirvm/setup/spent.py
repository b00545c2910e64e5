"""Record the time of passes and dense fits, and add it to history entries."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from partirvm.backends.process import peak_memory
from partirvm.strategies.instructions import Record

Entry = dict[str, Any]
"""A history entry: a record with seconds and bytes, as plain JSON."""


@dataclass
class Spent:
    """Time spent since the last history entry: seconds of passes, seconds of ``deciding``, and each dense fit's times.

    ``rows`` is the number of rows that all these passes read together.
    """

    passing: float = 0.0
    deciding: float = 0.0
    passes: int = 0
    rows: int = 0
    dense: deque[tuple[float, float]] = field(default_factory=deque)

    def solved(self, began: float, ended: float) -> None:
        """Record a dense fit that ran from ``began`` to ``ended``, in seconds since 1970."""
        self.dense.append((began, ended))

    def all(self) -> dict[str, float]:
        """Return all recorded time for one history entry, and start again from zero."""
        began = self.dense[0][0] if self.dense else time.time()
        seconds = self.deciding + sum(ended - began for began, ended in self.dense)
        spent = _spent(self.passing, self.passes, self.rows, seconds, began)
        self.passing, self.deciding, self.passes, self.rows = 0.0, 0.0, 0, 0
        self.dense.clear()
        return spent

    def share(self, of: int) -> dict[str, float]:
        """Return the share of the next of ``of`` history entries, and subtract it; dense fits are in entry order."""
        if of <= 1 or len(self.dense) <= 1:
            return self.all()
        part, rows = self.passes // len(self.dense), self.rows // len(self.dense)
        self.passes, self.rows = self.passes - part, self.rows - rows
        passing, deciding = self.passing / len(self.dense), self.deciding / len(self.dense)
        self.passing, self.deciding = self.passing - passing, self.deciding - deciding
        began, ended = self.dense.popleft()
        return _spent(passing, part, rows, deciding + ended - began, began)


def line(record: Record, spent: dict[str, float], began: float, epoch: float, *, saved: bool) -> Entry:
    """Make a history entry of a record, its times from ``Spent``, and the seconds since ``began`` (``perf_counter``).

    ``epoch`` is the start of the run in seconds since 1970. ``saved`` is True if a model was saved.
    """
    seconds = time.perf_counter() - began
    entry = {**asdict(record), "termination": record.termination.value, "seconds": seconds, **spent}
    entry["solve_began"] -= epoch
    entry["peak_memory"], entry["saved"] = peak_memory(), saved
    return entry


def _spent(passing: float, passes: int, rows: int, solving: float, began: float) -> dict[str, float]:
    return {
        "pass_seconds": passing,
        "passes": passes,
        "pass_rows": rows,
        "solve_seconds": solving,
        "solve_began": began,
    }
