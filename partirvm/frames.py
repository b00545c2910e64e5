"""Convert data frames of other libraries to pandas by Arrow's PyCapsule protocol, keeping names and categories.

pandas and pyarrow are imported only when such a frame is passed.
"""

from __future__ import annotations

from typing import Any

from partirvm.errors import DataError

OWN = ("pandas", "dask", "dask_expr", "distributed", "numpy", "zarr", "partirvm")
"""Packages whose objects are used unchanged."""


def module_of(value: Any) -> str:
    """Return the top-level package of the class of a value.

    >>> module_of([])
    'builtins'
    """
    return type(value).__module__.partition(".")[0]


def is_frame(value: Any) -> bool:
    """Return True for a pandas or Dask data frame. Neither library is imported."""
    return module_of(value) in ("pandas", "dask", "dask_expr") and hasattr(value, "columns")


def pandas_frame(X: Any, name: str = "X") -> Any:
    """A data frame of polars, Arrow or another library with the protocol, converted to pandas; else X unchanged.

    Raises ``DataError`` for a single column, and for a lazy frame.
    """
    module = module_of(X)
    if hasattr(X, "to_frame") and getattr(X, "ndim", 1) == 1:
        raise DataError(
            f"{name} is one column, a {type(X).__name__} of {module}, but must have two dimensions: its to_frame() has "
            "one feature"
        )
    if hasattr(X, "collect") and hasattr(X, "collect_schema") and not hasattr(X, "__arrow_c_stream__"):
        raise DataError(f"{name} is a {type(X).__name__} of {module}, not computed yet: pass its collect()")
    if module in OWN or not hasattr(X, "__arrow_c_stream__"):
        return X
    import pyarrow as pa

    try:
        return pa.table(X).to_pandas(date_as_object=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name}, a {type(X).__name__} of {module}, cannot be read as a table: {error}") from error


def pandas_column(y: Any) -> Any:
    """A polars series or data frame converted to pandas; anything else unchanged."""
    if module_of(y) != "polars":
        return y
    if not hasattr(y, "to_frame"):
        return pandas_frame(y, "y")
    frame = pandas_frame(y.to_frame(), "y")
    return frame[frame.columns[0]]
