"""Small frozen values used by all parts, and data frames of other libraries as those of pandas."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import DataError

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

LEARNING_ROWS = 8000  # at most so many rows teach a kernel: more hardly change it
LEARNING_FEATURES = 50  # with more features, a kernel is learned again from so many fewer rows that their product stays
LEFT_OUT_ROWS = 50_000  # rows that are left out of a fit at most, to estimate its uncertainty
NOISE_CENTRES = 64  # centres at most of a noise variance that depends on the inputs; at least four rows for each
PANEL_ROWS = 2048  # rows whose design block is held at once; another number changes the rounding of a pass
RESIDUAL_ROWS = 1000  # rows at least of which local residuals are tried without being asked for
RESIDUAL_TEACHERS, RESIDUAL_NEIGHBOURS = 4096, 40  # rows that teach local residuals at most, and their neighbours
RESIDUAL_TARGETS = 4  # targets at most of which they are: each takes as long as one alone
EXTRA_COLUMNS = 120  # test rows whose extra basis functions are evaluated together, a multiple of 24
OFF = 1e-3  # relevance, as a fraction of the largest, below which a feature counts as switched off

BIAS = -1
"""Label of the bias column. Labels below zero mark *leading* columns: not offered by rows, candidates in every fit."""


GRAIN = 2.0**-32
"""Resolution of a scaled target, in standard deviations.

Where a fit of many similar columns ends depends on the last bits, which differ for c·y. Differences of 1e-16 vanish in
multiples of 2e-10. The noise is at least 400,000 times as much.
"""


@dataclass(frozen=True)
class Scaling:
    """Map from raw inputs (n, d) and targets (n, T) to the model's, by column: (x − shift) / scale."""

    x_shift: Float
    x_scale: Float
    t_shift: Float
    t_scale: Float

    def inputs(self, X: Float) -> Float:
        """Inputs (n, d) in the kernel's coordinates."""
        if not self.x_shift.any() and (self.x_scale == 1.0).all():
            return X
        scaled = X - self.x_shift
        scaled /= self.x_scale
        return scaled

    def targets(self, t: Float) -> Float:
        """Targets (n, T) in the likelihood's units; those that are scaled, to the nearest multiple of ``GRAIN``."""
        scaled = (t - self.t_shift) / self.t_scale
        return np.where(self.t_scale == 1.0, scaled, np.rint(scaled / GRAIN) * GRAIN)


def label_bytes(label: Any) -> int:
    """Return the bytes of a name or label in the attributes of DATA, and in memory."""
    return 100 + (len(label.encode(errors="replace")) if isinstance(label, str) else 0)


@dataclass(frozen=True)
class Columns:
    """Names and meaning of the columns.

    ``categories`` maps a categorical feature to its levels, ``classes`` are the labels of the target's codes, None for
    numbers. ``targets`` are the names of several targets, empty for one, and ``target`` is all of them together.
    """

    features: tuple[str, ...]
    target: str = "y"
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    classes: tuple[Any, ...] | None = None
    targets: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the names, categories and classes in memory, about."""
        levels = itertools.chain(self.classes or (), *self.categories.values())
        return sum(map(label_bytes, itertools.chain(self.features, self.targets, levels)))

    def target_names(self, n_targets: int) -> tuple[str, ...]:
        """Names of this many targets; numbered if they have no names.

        >>> Columns(("x0",), "fare").target_names(1), Columns(("x0",), "y").target_names(2)
        (('fare',), ('y0', 'y1'))
        """
        if n_targets == 1:
            return (self.target,)
        return self.targets or tuple(f"{self.target}{k}" for k in range(n_targets))


def module_of(value: Any) -> str:
    """Return the top-level package of the class of a value."""
    return type(value).__module__.partition(".")[0]


def is_frame(value: Any) -> bool:
    """Return True for a pandas or Dask data frame. Neither library is imported."""
    return module_of(value) in ("pandas", "dask", "dask_expr") and hasattr(value, "columns")


def pandas_frame(X: Any, name: str = "X") -> Any:
    """A data frame of polars, Arrow or another library with Arrow's PyCapsule protocol as one of pandas; else X itself.

    Raises ``DataError`` for a lazy frame.
    """
    module, arrow = module_of(X), hasattr(X, "__arrow_c_stream__")
    if hasattr(X, "collect_schema") and not arrow:
        raise DataError(f"{name} is a {type(X).__name__} of {module}, not computed yet: pass its collect()")
    if not arrow or module in ("pandas", "dask", "dask_expr", "distributed", "numpy", "zarr", "partirvm"):
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
    return pandas_frame(y.to_frame(), "y").iloc[:, 0]
