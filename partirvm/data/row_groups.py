"""Groups of rows: their specification, and the codes of groups.

The code of a group is computed from its label alone, as a hash or, for blocks of time and space, of
the block's numbers: equal labels have equal codes in every table, and rows that are appended or
predicted later need no list of labels. 1, 1.0 and "1" are equal labels. Codes have 52 bits, so that
they are exact as float64, and two of a million groups share a code with a probability of 1e-4.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import refuse_masked
from partirvm.core.sampling import scrambled
from partirvm.data.dates import Dates
from partirvm.data.frames import is_frame, pandas_column, pandas_frame
from partirvm.data.labels import text_of_label
from partirvm.data.source import Source, default_names
from partirvm.data.tables import numbers
from partirvm.errors import DataError, UsageError
from partirvm.options.constraints import parse_duration
from partirvm.quoting import listed, quoted
from partirvm.types import Float, Int

DAY = 86_400.0
"""Seconds of a day."""

CODE_BITS = 52
"""Number of bits of a code."""

Hash = NDArray[np.uint64]


@dataclass(frozen=True)
class Groups:
    """Columns whose values say which rows belong together, such as a station, a patient or a day.

    Rows of one group share something that the features do not say. With groups, everything that a
    fit estimates or chooses from left-out rows leaves out whole groups, and predictions state the
    uncertainty of a new group. ``Groups("station")`` names a column of labels, which is no feature;
    several columns, such as the coordinates of a station, remain features, and so do those of
    blocks of time and space (``by_time``, ``by_blocks``).

    Parameters
    ----------
    columns : str or tuple of str
        Names of columns; rows with equal values in all of them form a group. Columns of an array
        are named x0, x1, …
    side : float or None, default=None
        Length of a block in each column, in the column's units (days for dates); None for labels.

    Raises
    ------
    UsageError
        For a side that is not positive.

    Examples
    --------
    >>> Groups("station"), Groups.by_time("when", "7d").side, Groups.by_blocks(("x", "y"), 20).side
    (Groups(columns=('station',), side=None), 7.0, 20.0)
    """

    columns: tuple[str, ...]
    side: float | None = None

    def __init__(self, columns: str | Sequence[str], side: float | None = None) -> None:
        names = (columns,) if isinstance(columns, str) else tuple(map(str, columns))
        if not names:
            raise UsageError("groups need the name of a column")
        if side is not None and not 0 < side < np.inf:
            raise UsageError(f"the blocks of groups have the side {side}: it must be positive")
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "side", None if side is None else float(side))

    @property
    def is_label(self) -> bool:
        """True for a single column of labels, which is no feature; other columns remain
        features."""
        return self.side is None and len(self.columns) == 1

    @classmethod
    def by_time(cls, column: str, length: str | float) -> Self:
        """Return the groups of rows in the same period of time.

        Parameters
        ----------
        column : str
            Name of a column of dates, or of numbers.
        length : str or float
            Length of a period, such as "7d", "6h" or "30m"; a number is in the units of a column of
            numbers, and in days for dates.
        """
        side = length
        if isinstance(length, str):
            side = parse_duration(length, "length of a period") / DAY
        return cls(column, float(side))

    @classmethod
    def by_blocks(cls, columns: Sequence[str], side: float) -> Self:
        """Return the groups of rows in the same block of space.

        Parameters
        ----------
        columns : sequence of str
            Names of the coordinates.
        side : float
            Length of the sides of a block, in the units of the coordinates.
        """
        return cls(columns, side)

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Return the groups of a text: ``station``, ``when:7d`` or ``x,y:20``.

        >>> Groups.parsed("x,y:20")
        Groups(columns=('x', 'y'), side=20.0)
        """
        names, colon, side = text.rpartition(":") if ":" in text else (text, "", "")
        columns = [name.strip() for name in names.split(",")]
        if not colon:
            return cls(columns)
        try:
            length = float(side)
        except ValueError:
            length = parse_duration(side, "length of a block") / DAY
        return cls(columns, length)

    def __str__(self) -> str:
        names = ",".join(self.columns)
        return names if self.side is None else f"{names}:{self.side:g}"

    def codes(self, values: Sequence[Any]) -> Int:
        """Return the codes (n,) of the groups of rows, given an Arrow array for each column.

        Raises ``DataError`` for missing values.
        """
        codes: Hash | None = None
        for name, array in zip(self.columns, values, strict=True):
            _require_complete(name, array)
            of_column = _label_hashes(array) if self.side is None else self._block(name, array)
            codes = of_column if codes is None else scrambled(codes + np.uint64(1)) ^ of_column
        assert codes is not None
        return (scrambled(codes) >> np.uint64(64 - CODE_BITS)).astype(np.int64)

    def _block(self, name: str, array: Any) -> Hash:
        """Return the numbers of the blocks of an Arrow array's values."""
        import pyarrow as pa

        assert self.side is not None
        try:
            positions: Float = Dates().days(array)
        except pa.ArrowNotImplementedError:
            positions = numbers(array)
        except pa.ArrowException as error:
            raise DataError(
                f"blocks of groups need numbers or dates, but the column {quoted(name)} has other "
                f"values ({error}): name the column without a length"
            ) from error
        return np.floor(positions / self.side).astype(np.int64).astype(np.uint64)


def _require_complete(name: str, array: Any) -> None:
    """Raise ``DataError`` if an Arrow array has missing values."""
    if array.null_count:
        first = int(np.argmax(np.asarray(array.is_null())))
        raise DataError(
            f"the column {quoted(name)} of the groups has {array.null_count:,} missing values, "
            f"the first in row {first:,} (counted from 0): remove these rows, or give each a group "
            "of its own"
        )


def _label_hashes(array: Any) -> Hash:
    """Return a hash (n,) of the label of each value of an Arrow array."""
    import pyarrow as pa

    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    hashes = [_hash_of(label) for label in encoded.dictionary.to_pylist()]
    places = np.asarray(encoded.indices)
    return np.asarray(np.array(hashes, dtype=np.uint64)[places])


def _hash_of(label: Any) -> int:
    """Return a hash of 64 bits of a label."""
    digest = hashlib.blake2b(text_of_label(label).encode(errors="replace"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def label_codes(labels: Any, n_rows: int) -> Int:
    """Return the codes (n,) of groups given by a label for each row.

    Args:
        labels: the labels (n,), an array, a list or a series
        n_rows: n, the number of rows

    Raises ``DataError`` for another number of labels and for missing labels.
    """
    shape = np.shape(labels)
    if shape != (n_rows,):
        raise DataError(
            f"X has {n_rows:,} rows, so groups must have the shape ({n_rows},) but has {shape}"
        )
    return Groups("groups").codes([_arrow_array("groups", labels)])


def without_groups(X: Any, groups: Any) -> tuple[Any, Int | None]:
    """Return X without a column of labels that are groups, and the codes (n,) of the groups.

    Args:
        X: the rows, of any kind that ``fit`` takes
        groups: labels (n,), the name of a column, ``Groups``, or None

    Raises ``DataError`` for missing columns, and ``UsageError`` for names without columns.
    """
    if groups is None:
        return X, None
    if isinstance(X, str | os.PathLike | Source):
        raise UsageError(
            "a dataset includes its groups: pass groups to ingest (`--groups`), not to fit"
        )
    if isinstance(groups, str):
        groups = Groups(groups)
    if not isinstance(groups, Groups):
        return X, label_codes(groups, X.shape[0] if hasattr(X, "shape") else len(X))
    X = pandas_frame(X)
    codes = groups.codes([_column(X, name, groups) for name in groups.columns])
    if groups.is_label:
        X = X.drop(columns=list(groups.columns))
    return X, codes


def _column(X: Any, name: str, groups: Groups) -> Any:
    """Return a column of a frame or array as an Arrow array."""
    if is_frame(X):
        if name not in X.columns:
            raise DataError(
                f"the data frame has no column {quoted(name)} for the groups. It has "
                f"{listed(map(str, X.columns))}"
            )
        column = X[name]
        return _arrow_array(name, column.compute() if hasattr(column, "compute") else column)
    names = default_names(np.shape(X)[1])
    if name not in names or groups.is_label:
        raise UsageError(
            f"X is an array without a column {quoted(name)} of labels: pass the labels themselves "
            "as groups, or a data frame; other columns of groups are named x0, x1, …"
        )
    return _arrow_array(name, np.asarray(X[:, names.index(name)]))


def _arrow_array(name: str, values: Any) -> Any:
    """Convert labels, numbers or dates to an Arrow array; labels of mixed types become text."""
    import pyarrow as pa

    values = pandas_column(values)
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        refuse_masked(values, name)
        array = pa.array([None if label is None else text_of_label(label) for label in values])
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
