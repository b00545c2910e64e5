"""Explicit basis functions: B columns φ_b(x) that do not depend on the rows, with or without kernel columns.

Inputs are the model's coordinates (standardised if the fit standardises). Basis functions are *leading* columns of a
design, like the bias. Function b has the label −2 − b (``label_of``). Each value must depend only on its own row,
because the functions are called for arbitrary blocks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.kernels.base import PIECE_ROWS, padded
from partirvm.kernels.functions import Function, evaluated, function_of, name_of, require_path, title_of
from partirvm.types import BIAS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

BIAS_NAME, LINEAR = "bias", "linear"
"""Name of the bias, and of the basis functions that are the features."""


@dataclass(frozen=True)
class BasisPart:
    """The ``size`` basis functions of one Python function, which maps points (n, d) to an array (n, size).

    ``function`` is a path "module:function", which is imported at first use, a callable, for fits in this process only,
    or "linear" for the features themselves. ``given`` holds the names of the functions, or nothing if they have none. A
    model can predict only where the module is installed. Loading a model imports nothing.

    Examples
    --------
    >>> BasisPart("numpy:sin", 1).names(["x0"])
    ('sin[0]',)
    """

    function: str | Function
    size: int
    given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.function) and self.function != LINEAR:
            require_path(self.function, "basis", "mypackage.physics:harmonics")

    def __call__(self, points: Float) -> Float:
        """Return the values at points (n, d), shape (n, B), with bits independent of the size of the block."""
        if self.function == LINEAR:
            return points
        what = f"basis {title_of(self.function)}"
        found = evaluated(function_of(self.function, "basis"), what, padded(points, PIECE_ROWS))[: len(points)]
        if found.shape[1] != self.size:
            raise UsageError(
                f"{what} returned {found.shape[1]} columns, but {self.size} in the first call: their number must "
                "not depend on the rows"
            )
        return found

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return a name for each function: the given one, or the function's with a position, ``f`` if it has none."""
        if self.function == LINEAR:
            return tuple(features)
        path = self.function if isinstance(self.function, str) else str(getattr(self.function, "__name__", "f"))
        own = path.rpartition(":")[2].rpartition(".")[2]
        return self.given or tuple(f"{own if own.isidentifier() else 'f'}[{b}]" for b in range(self.size))


@dataclass(frozen=True)
class Basis:
    """The B basis functions of one or several parts, in order.

    Examples
    --------
    >>> Basis((BasisPart("linear", 2), BasisPart("numpy:abs", 2)))(np.array([[3.0, -4.0]])).tolist()
    [[3.0, -4.0, 3.0, 4.0]]
    """

    parts: tuple[BasisPart, ...]

    @property
    def size(self) -> int:
        """The number B of basis functions."""
        return sum(part.size for part in self.parts)

    def __call__(self, points: Float) -> Float:
        """Return φ_b(x) of points (n, d), shape (n, B). Raises ``UsageError`` for invalid values."""
        return np.hstack([part(points) for part in self.parts])

    def names(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return a name for each function, (B,), given the names of the features. Names need not be unique."""
        return tuple(name for part in self.parts for name in part.names(features))

    def spec(self, *, local: bool = False) -> dict[str, Any]:
        """Return plain JSON, with ``local`` also for functions that exist only in this process."""
        return {
            "parts": [{"function": name_of(each.function, "basis", local), "size": each.size} for each in self.parts]
        }


def label_of(function: Int) -> Int:
    """Return the labels −2 − b of the columns of basis functions b. Applied to labels, the formula returns b.

    >>> label_of(np.array([0, 5])).tolist(), label_of(np.array([-2, -7])).tolist()
    ([-2, -7], [0, 5])
    """
    return BIAS - 1 - function


def labels_by_name(basis: Basis | None, features: Sequence[str]) -> dict[str, int]:
    """Return a dict from name to label of the leading columns: ``bias``, then the functions; repeats get a number.

    >>> labels_by_name(Basis((BasisPart("linear", 2), BasisPart("linear", 2))), ["age", "bias"])
    {'bias': -1, 'age': -2, 'bias (2)': -3, 'age (2)': -4, 'bias (3)': -5}
    """
    found = {BIAS_NAME: BIAS}
    for b, name in enumerate(() if basis is None else basis.names(features)):
        own, count = name, 1
        while own in found:
            count += 1
            own = f"{name} ({count})"
        found[own] = BIAS - 1 - b
    return found
