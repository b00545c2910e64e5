"""Conversion of data frames to numeric rows: labels of categorical columns are replaced by the model's codes.

Arrays contain codes, and data frames contain labels. pandas is not imported; only methods of data frames are called.
"""

from __future__ import annotations

from datetime import date, time, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.exact import require_exact, require_exact_frame
from partirvm.errors import DataError
from partirvm.frames import pandas_frame
from partirvm.model.label_arrays import plain_labels
from partirvm.quoting import quoted

Levels = dict[str, tuple[Any, ...]]
"""Type of the levels of each categorical column by name, in the order of the codes."""


def levels_of(frame: Any) -> Levels:
    """Return all levels of the categorical columns of a pandas data frame; empty for other inputs.

    Raises ``DataError`` for levels that are not text, numbers or booleans.
    """
    found: Levels = {}
    for name, dtype in zip(getattr(frame, "columns", ()), getattr(frame, "dtypes", ()), strict=False):
        if hasattr(dtype, "categories"):
            try:
                found[str(name)] = plain_labels(dtype.categories.tolist())
            except DataError as error:
                raise DataError(f"the categorical column {quoted(str(name))} of the data frame: {error}") from error
    return found


def coded_frame(X: Any, levels: Levels) -> Any:
    """Replace the labels of these columns of a data frame by codes. Other inputs are returned unchanged.

    Unknown labels get the code after the last level, and a missing label becomes NaN. Raises ``DataError`` for a
    categorical column that is numeric in the model, for other columns of text, dates or times (all are listed), and for
    an integer that float64 cannot represent.
    """
    X = pandas_frame(X)
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        if isinstance(X, np.ndarray | list | tuple):
            rows = np.asanyarray(X)
            _check_text(rows)
            require_exact(rows, "X")
        return X
    wrong = [name for name in levels_of(X) if name not in levels]
    if wrong:
        raise DataError(f"the column {quoted(wrong[0])} is categorical, but the model was trained on it as numbers")
    mine = [name for name in X.columns if str(name) in levels]
    _check_numbers(X, set(mine))
    if mine:
        X = X.copy()
        for name in mine:
            X[name] = _codes(X[name], levels[str(name)])
    require_exact_frame(X)
    return X


def _check_text(rows: NDArray[Any]) -> None:
    """Raise ``DataError`` for text in an array of rows (n, d) or (n,), except text that is a number."""
    for place, value in np.ndenumerate(rows) if rows.dtype.kind in "OUS" else ():
        if isinstance(value, str | bytes) and not _number(value):
            column = f", column 'x{place[1]}'" if len(place) > 1 else ""
            raise DataError(
                f"X holds text, not numbers, in row {place[0]:,} (counted from 0){column}: {quoted(value)}. Code it as "
                "numbers, or pass a data frame in which this column is categorical, with astype('category')"
            )


def _check_numbers(frame: Any, coded: set[Any]) -> None:
    """Raise ``DataError`` for columns of text, dates or times, except the columns ``coded``."""
    dates, texts, example = [], [], ""
    for place, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        kind = getattr(dtype, "kind", "O")
        if name in coded or kind in "fiubc":
            continue
        if kind in "mM":
            dates.append(repr(str(name)))
            continue
        wrong = next((value for value in frame.iloc[:, place].dropna().tolist() if not _number(value)), None)
        if isinstance(wrong, date | time | timedelta) or type(wrong).__name__ == "Period":
            dates.append(repr(str(name)))
        elif wrong is not None:
            example = example or quoted(wrong)
            texts.append(repr(str(name)))
    if texts:
        raise DataError(
            f"the data frame has text or objects, not numbers, in {_listed(texts)} (such as {example}): make these "
            "columns categorical with astype('category'), code them as numbers, or leave them out"
        )
    if dates:
        raise DataError(
            f"the data frame has dates or times in {_listed(dates)}: convert these columns to numbers, such as seconds "
            "or days since the first, or leave them out"
        )


def _listed(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"the column{'s' * (len(names) > 1)} {', '.join(names[:most])}{more}"


def _number(value: Any) -> bool:
    """Return True for a number, and for text that is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _codes(column: Any, levels: tuple[Any, ...]) -> NDArray[np.float64]:
    """Return the codes of a column of labels (n,), with NaN for missing labels."""
    place = {level: float(code) for code, level in enumerate(levels)}
    if hasattr(column.dtype, "categories"):
        table = [place.get(label, float(len(levels))) for label in column.dtype.categories.tolist()]
        codes: NDArray[np.float64] = np.array([*table, np.nan])[column.cat.codes.to_numpy()]
        return codes
    found = column.map(lambda label: np.nan if label is None or label != label else place.get(label, len(levels)))
    return np.asarray(found, dtype=np.float64)
