"""What passes and dense fits took, and lines of history that tell it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from partirvm.backends.process import peak_memory
from partirvm.strategies.instructions import Record

Entry = dict[str, Any]
"""A line of history: a record, with seconds and bytes, as plain JSON."""


@dataclass
class Spent:
    """What was spent since the last line of history: seconds of passes, of deciding, and each dense fit's own time.

    ``rows`` are those that the passes read, all together.
    """

    passing: float = 0.0
    deciding: float = 0.0
    passes: int = 0
    rows: int = 0
    dense: deque[tuple[float, float]] = field(default_factory=deque)

    def solved(self, began: float, ended: float) -> None:
        """A dense fit ran from then to then."""
        self.dense.append((began, ended))

    def all(self) -> dict[str, float]:
        """Everything, for one line."""
        began = self.dense[0][0] if self.dense else time.time()
        seconds = self.deciding + sum(ended - began for began, ended in self.dense)
        spent = _spent(self.passing, self.passes, self.rows, seconds, began)
        self.passing, self.deciding, self.passes, self.rows = 0.0, 0.0, 0, 0
        self.dense.clear()
        return spent

    def share(self, of: int) -> dict[str, float]:
        """What belongs to the next of ``of`` lines, whose dense fits came in their order."""
        if of <= 1 or len(self.dense) <= 1:
            return self.all()
        part, rows = self.passes // len(self.dense), self.rows // len(self.dense)
        self.passes, self.rows = self.passes - part, self.rows - rows
        passing, deciding = self.passing / len(self.dense), self.deciding / len(self.dense)
        self.passing, self.deciding = self.passing - passing, self.deciding - deciding
        began, ended = self.dense.popleft()
        return _spent(passing, part, rows, deciding + ended - began, began)


def line(record: Record, spent: dict[str, float], began: float, epoch: float, *, saved: bool) -> Entry:
    """A line of history: the record, what ``Spent`` says of it, and seconds since ``began`` (``perf_counter``).

    ``epoch`` is the beginning of the run in seconds since 1970; ``saved`` says that a model was.
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
