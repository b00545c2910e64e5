"""Labels of categories that the training rows do not have: they count as missing labels."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partirvm.errors import UnseenLevelWarning, warn
from partirvm.quoting import counted, listed, quoted
from partirvm.types import Columns, Float

NAMED = 8
"""Maximum number of labels that a warning names per column."""

REMEMBERED = 1000
"""Maximum number of distinct unseen labels of a column that are kept: a column of identifiers may
have a new label in each row."""


@dataclass(frozen=True)
class UnseenLevels:
    """The rows with a label that the training rows do not have.

    Attributes:
        rows: number of these rows.
        labels: the first ``REMEMBERED`` of these labels, by column.
    """

    rows: int = 0
    labels: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def __add__(self, other: "UnseenLevels") -> "UnseenLevels":
        labels = dict(self.labels)
        for name, more in other.labels.items():
            joined = dict.fromkeys((*labels.get(name, ()), *more))
            labels[name] = tuple(joined)[:REMEMBERED]
        return UnseenLevels(self.rows + other.rows, labels)

    def warn(self, where: str, n_rows: int) -> None:
        """Warn about these rows among ``n_rows`` rows of the data called ``where``, if there are
        any."""
        if not self.rows:
            return
        columns = "; ".join(self._columns())
        warn(
            f"{where}: {self.rows:,} of {counted(n_rows, 'row')} have a label that the training "
            f"rows do not have, which counts as a missing label: {columns}",
            UnseenLevelWarning,
        )

    def _columns(self) -> Iterator[str]:
        """Yield the name of each column with its labels."""
        for name, labels in self.labels.items():
            number = len(labels)
            more = ""
            if number > NAMED:
                more = f" ({'at least ' * (number == REMEMBERED)}{number:,} labels)"
            yield f"{quoted(name)}: {listed(labels, NAMED, quoted)}{more}"


def with_known_codes(X: Float, columns: Columns, where: str = "X") -> Float:
    """Return rows (n, d) of numbers with NaN for each code that is no level of its feature, and
    warn about these rows.

    Args:
        X: rows, (n, d); not changed.
        columns: the columns of the training rows.
        where: name of the rows in the warning.
    """
    known = X
    labels = dict[str, tuple[Any, ...]]()
    is_unseen = np.zeros(len(X), dtype=np.bool_)
    for name, levels in columns.categories.items():
        j = columns.features.index(name)
        codes = X[:, j]
        is_level = (codes >= 0) & (codes < len(levels)) & (codes == np.floor(codes))
        unseen = ~(is_level | np.isnan(codes))
        if unseen.any():
            known = known.copy() if known is X else known
            known[unseen, j] = np.nan
            labels[name] = tuple(np.unique(codes[unseen])[:REMEMBERED].tolist())
            is_unseen |= unseen
    UnseenLevels(int(is_unseen.sum()), labels).warn(where, len(X))
    return known
