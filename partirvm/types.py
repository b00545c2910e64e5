"""Small frozen values that every part may hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


LEARNING_ROWS = 8000
"""Most rows that a kernel is learned from: with more of them it hardly changes."""

PANEL_ROWS = 2048
"""Rows whose design is held at once. Part of the arithmetic of a pass: another number gives other rounding."""

BIAS = -1
"""Label of the bias column. Labels below zero are of *leading* columns, which no row offers and every fit has."""

EXTRA_COLUMNS = 240
"""Test rows whose extra basis functions are evaluated together, a multiple of 24 (``core.rowwise``)."""

OFF = 1e-3
"""Relevance, as a fraction of the largest, below which a feature counts as switched off."""


SQUARABLE = 256
"""Binary exponents up to which the squares of numbers, and sums of these, are far from the ends of a double's range."""


def power_of_two(size: Any) -> Float:
    """A unit for numbers of these sizes: 1, or for sizes with too large or small squares the power of two below them.

    Multiplying by it is exact, so that a result in such a unit is that of numbers of ordinary size.

    >>> power_of_two([3.0, 0.0, 1e-200]).tolist() == [1.0, 1.0, 2.0**-665]
    True
    """
    given = np.asarray(size, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        _, exponent = np.frexp(np.abs(given))
    beyond = np.isfinite(given) & (given != 0) & (np.abs(exponent) > SQUARABLE)
    return np.ldexp(1.0, np.where(beyond, exponent - 1, 0))


def over_square(value: Any, scale: Any) -> Any:
    """value / scale², where scale² itself may be beyond a double's range."""
    unit = power_of_two(scale)
    with np.errstate(over="ignore"):
        return value / unit / unit / (scale / unit) ** 2


@dataclass(frozen=True)
class Scaling:
    """How raw inputs and targets map to what the model sees: (x − shift) / scale, per column.

    ``x_shift``, ``x_scale`` are (d,), ``t_shift``, ``t_scale`` are (T,), in the data's units.
    """

    x_shift: Float
    x_scale: Float
    t_shift: Float
    t_scale: Float

    def inputs(self, X: Float) -> Float:
        """Inputs (n, d) as the kernel sees them."""
        if not self.x_shift.any() and (self.x_scale == 1.0).all():
            return X
        scaled = X - self.x_shift
        scaled /= self.x_scale
        return scaled

    def targets(self, t: Float) -> Float:
        """Targets (n, T) as the likelihood sees them."""
        return (t - self.t_shift) / self.t_scale

    @property
    def t_unit(self) -> Float:
        """What variances of the targets (T,) are kept in the square of: the targets' own units, unless they are of
        sizes whose squares are no ordinary numbers; then powers of two of these."""
        return power_of_two(self.t_scale)

    @property
    def t_variance(self) -> Float:
        """``t_scale``² in the square of ``t_unit``, (T,)."""
        found: Float = (self.t_scale / self.t_unit) ** 2
        return found


@dataclass(frozen=True)
class Columns:
    """Names and meaning of the columns.

    ``categories`` maps a categorical feature's name to its levels in the order of their integer codes; ``classes`` are
    the labels behind codes 0 … K−1 of the target, or None where the target is a number. Of several targets that have
    names these are ``targets``, in their order, and ``target`` names all of them together; else ``targets`` is empty.
    """

    features: tuple[str, ...]
    target: str = "y"
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    classes: tuple[Any, ...] | None = None
    targets: tuple[str, ...] = ()

    def target_names(self, n_targets: int) -> tuple[str, ...]:
        """Names of so many targets; numbered where they have none of their own.

        >>> Columns(("x0",), "fare").target_names(1), Columns(("x0",), "y").target_names(2)
        (('fare',), ('y0', 'y1'))
        """
        if n_targets == 1:
            return (self.target,)
        return self.targets or tuple(f"{self.target}{k}" for k in range(n_targets))
