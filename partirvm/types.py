"""Small frozen values used by all parts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


LEARNING_ROWS = 8000
"""Maximum number of rows that a kernel is learned from: more rows hardly change it."""

LEARNING_FEATURES = 50
"""With more features than this, a kernel is learned again from so many fewer rows that their numbers are no more."""

LEFT_OUT_ROWS = 50_000
"""Maximum number of rows that are left out of a fit, to estimate its uncertainty; of more rows a sample."""

NOISE_CENTRES = 64
"""Maximum number of centres of a noise variance that depends on the inputs; there are at least four rows for each."""

PANEL_ROWS = 2048
"""Rows whose design block is held at once. Part of the arithmetic of a pass: another number changes the rounding."""

BIAS = -1
"""Label of the bias column. Labels below zero mark *leading* columns: not offered by rows, candidates in every fit."""

EXTRA_COLUMNS = 120
"""Test rows whose extra basis functions are evaluated together, a multiple of 24 (``core.predictive``)."""

OFF = 1e-3
"""Relevance, as a fraction of the largest, below which a feature counts as switched off."""


SQUARABLE = 256
"""Binary exponents up to which squares, and sums of squares, are well inside the range of float64."""


def power_of_two(size: Any) -> Float:
    """A unit for numbers of this size: 1, or a power of two just below the size if squares would leave the range.

    Multiplication by it is exact, so a result in this unit has the bits of numbers of moderate size.

    >>> power_of_two([3.0, 0.0, 1e-200]).tolist() == [1.0, 1.0, 2.0**-665]
    True
    """
    given = np.asarray(size, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        _, exponent = np.frexp(np.abs(given))
    beyond = np.isfinite(given) & (given != 0) & (np.abs(exponent) > SQUARABLE)
    return np.ldexp(1.0, np.where(beyond, exponent - 1, 0))


def over_square(value: Any, scale: Any) -> Any:
    """value / scale², also if scale² itself is outside the range of float64."""
    unit = power_of_two(scale)
    with np.errstate(over="ignore"):
        return value / unit / unit / (scale / unit) ** 2


GRAIN = 2.0**-32
"""Resolution of a scaled target, in standard deviations.

The last bits of c·y depend on c, and where a fit of many similar columns ends depends on the last bits. Differences of
1e-16 vanish in multiples of 2e-10, so that c·y has the vectors of y. The noise is at least 1e-4 standard deviations
(``core.updates.NOISE_FLOOR``), 400,000 times as much.
"""


@dataclass(frozen=True)
class Scaling:
    """Map from raw inputs and targets to the model's: (x − shift) / scale, per column.

    ``x_shift``, ``x_scale`` are (d,), ``t_shift``, ``t_scale`` are (T,), in the data's units.
    """

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

    @property
    def t_unit(self) -> Float:
        """Variances of the targets (T,) are stored in the square of this unit: the targets' own unit, or a power of
        two near their size if their squares would leave the range of float64."""
        return power_of_two(self.t_scale)

    @property
    def t_variance(self) -> Float:
        """``t_scale``² in the square of ``t_unit``, (T,)."""
        found: Float = (self.t_scale / self.t_unit) ** 2
        return found


def label_bytes(label: Any) -> int:
    """Return the bytes of a name or label in the attributes of DATA, with those of its object when they are read."""
    return 100 + (len(label.encode(errors="replace")) if isinstance(label, str) else 0)


@dataclass(frozen=True)
class Columns:
    """Names and meaning of the columns.

    ``categories`` maps a categorical feature's name to its levels in the order of their integer codes; ``classes`` are
    the labels of the codes 0 … K−1 of the target, or None for a numeric target. ``targets`` are the names of several
    targets, in order, and ``target`` is all of them together; for one target ``targets`` is empty.
    """

    features: tuple[str, ...]
    target: str = "y"
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    classes: tuple[Any, ...] | None = None
    targets: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the names, categories and classes in memory, about: each takes ``label_bytes``."""
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
