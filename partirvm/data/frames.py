"""Data frames and columns of other libraries, converted to pandas."""

from typing import Any

from partirvm.errors import DataError

NO_TABLES = ("pandas", "dask", "dask_expr", "distributed", "numpy", "zarr", "partirvm")
"""Packages whose objects are read without conversion through Arrow."""


def module_of(value: Any) -> str:
    """Return the top-level package of the class of a value."""
    return type(value).__module__.partition(".")[0]


def is_frame(value: Any) -> bool:
    """Return True for a pandas or Dask data frame. Neither library is imported."""
    return module_of(value) in ("pandas", "dask", "dask_expr") and hasattr(value, "columns")


def pandas_frame(X: Any, name: str = "X") -> Any:
    """Convert a frame with Arrow's PyCapsule protocol (such as polars) to pandas; return any other
    X unchanged. Raises ``DataError`` for lazy frames."""
    module = module_of(X)
    arrow = hasattr(X, "__arrow_c_stream__")
    if hasattr(X, "collect_schema") and not arrow:
        raise DataError(
            f"{name} is a {module} {type(X).__name__}, not yet computed: call collect() first"
        )
    if not arrow or module in NO_TABLES:
        return X
    import pyarrow as pa

    try:
        return pa.table(X).to_pandas(date_as_object=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"{name}, a {module} {type(X).__name__}, cannot be read as a table: {error}"
        ) from error


def pandas_column(y: Any) -> Any:
    """Convert a polars series or data frame to pandas; return anything else unchanged."""
    if module_of(y) != "polars":
        return y
    if not hasattr(y, "to_frame"):
        return pandas_frame(y, "y")
    return pandas_frame(y.to_frame(), "y").iloc[:, 0]
