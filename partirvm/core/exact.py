"""Checks for integers beyond 2⁵³, which float64 may round, so that two identifiers could become equal."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import DataError
from partirvm.quoting import named, quoted

LARGEST = 2**53
"""Bound up to which all integers are exact in float64."""

ROWS = "row {:,} (counted from 0)"
"""Format of row numbers in messages."""


def require_exact(
    values: Any, name: str, start: int = 0, *, rows: str = ROWS, columns: Any = None, ingested: bool = False
) -> None:
    """Raise ``DataError`` if an array (n,) or (n, d) has an integer that float64 cannot represent.

    Checked are 64-bit integers, text, and integers, decimals and text in arrays of objects; other dtypes are not
    checked. ``start`` is the number of the first row. ``columns`` are the names of the d columns, default ``x0``,
    ``x1``, …. For ``ingested`` values the message suggests options of ingest. Masked values are refused too, since an
    array of float64 would include the masked values.


    >>> require_exact(np.array([2**53, 2**60]), "y")
    >>> require_exact(np.array([[1], [2**53 + 1]]), "X")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DataError: X: the column 'x0' holds the whole number 9007199254740993 in row 1 …
    """
    refuse_masked(values, name)
    place = first_rounded(values)
    if place is not None:
        row, number = start + place[0], place[1] if len(place) > 1 else 0
        column = columns[number] if columns is not None else f"x{number}" if len(place) > 1 else name
        raise rounded(name, column, rows.format(row), values[place], ingested=ingested)


def require_exact_frame(frame: Any, rows: str = ROWS) -> None:
    """Raise ``DataError`` if a numeric column of a pandas data frame has an integer that float64 cannot represent."""
    for place, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        kind = getattr(dtype, "kind", "O")
        if isinstance(dtype, np.dtype) or (kind in "iuO" and not hasattr(dtype, "categories")):
            column = frame.iloc[:, place]
            own = not isinstance(dtype, np.dtype) and kind != "O"
            values = column.fillna(0).to_numpy(f"{kind}8") if own else column.to_numpy()
            require_exact(values, "the data frame", rows=rows, columns=[name])


def refuse_masked(values: Any, name: str) -> None:
    """Raise ``DataError`` if a NumPy array has masked values, which a conversion to float64 would include."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = int(np.ma.getmaskarray(values).sum())
        raise DataError(f"{name}: {masked:,} values are masked: leave these rows out, or impute the values.")


def whole_numbers(values: Any) -> Any:
    """Convert pandas' nullable integers without missing values to a NumPy integer array; return other values unchanged.

    NumPy would convert nullable integers to float64, which could make two labels equal. Raises ``DataError`` for masked
    values.
    """
    refuse_masked(values, "y")
    dtypes = values.dtypes if hasattr(values, "columns") else [getattr(values, "dtype", None)]
    kinds = {getattr(dtype, "kind", "") for dtype in dtypes if not isinstance(dtype, np.dtype)}
    if kinds in ({"i"}, {"u"}) and hasattr(values, "isna") and not np.asarray(values.isna()).any():
        return values.to_numpy(f"{kinds.pop()}8")
    return values


def rounded(where: str, column: Any, place: str, value: Any, *, ingested: bool = False) -> DataError:
    """Return the error for an integer that float64 cannot represent."""
    value, labels = int(value), "make the column of a data frame categorical with astype('category')"
    if ingested:
        labels = f"ingest them as categorical (`--categorical {named(column)}`, of a target `--classes`)"
    return DataError(
        f"{where}: the column {quoted(column)} holds the whole number {value} in {place}, which float64 would "
        f"round to {_nearest(value)}. Leave identifiers out, or {labels}; if rounding is acceptable, "
        "convert the column to float64."
    )


def first_rounded(values: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the index of the first number that ``require_exact`` refuses, or None if all numbers are accepted.

    >>> first_rounded(np.array([2**63, 2**64 - 1], dtype=np.uint64)), first_rounded(np.array([-(2**53), 2**54 + 2]))
    ((1,), (1,))
    """
    if values.dtype.kind in "OUS":
        return next((place for place, value in np.ndenumerate(values) if _is_rounded(value)), None)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return None
    if max(int(values.max()), -int(values.min())) <= LARGEST:
        return None
    # both halves are exact in float64, and so is the difference
    wrong = values.astype(np.float64) - (values >> 32).astype(np.float64) * 2.0**32 != (values & 0xFFFFFFFF)
    return tuple(int(k) for k in np.argwhere(wrong)[0]) if wrong.any() else None


def _is_rounded(value: Any) -> bool:
    if isinstance(value, str | bytes):
        try:
            value = int(value)
        except ValueError:
            return False
    if not isinstance(value, int | Decimal | np.integer):
        return False
    try:
        nearest = float(value)
    except OverflowError:
        return True
    return abs(nearest) >= LARGEST and nearest != (int(value) if isinstance(value, np.integer) else value)


def _nearest(value: int) -> str:
    try:
        return str(int(float(value)))
    except OverflowError:
        return "infinity"
