"""Panels of a picture as values: axes, and marks in the units of the axes. They are drawn as SVG or by matplotlib.

Colours follow from two roles: ``observed`` and ``contrast`` (errors, or a second quantity). What the model states is a
dashed line, and the range expected by chance is a grey band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

Z = 1.959964
"""Half width of a 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Dots:
    """Rows as points ``x`` (n,), ``y`` (n,)."""

    x: Float
    y: Float


@dataclass(frozen=True)
class Line:
    """A line through points (n,). If ``stated`` is true, it is dashed: what the model states.

    If ``main`` is true, it is what the panel shows; otherwise it is thin.
    """

    x: Float
    y: Float
    name: str = ""
    stated: bool = False
    main: bool = False


@dataclass(frozen=True)
class Errors:
    """Estimates ``y`` (n,) with 95 % intervals from ``low`` to ``high`` (n,), and a text for each."""

    x: Float
    y: Float
    low: Float
    high: Float
    tips: Sequence[str]
    name: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars between ``edges`` (n + 1,) from ``low`` (n,) to ``high`` (n,), and a text for each."""

    edges: Float
    low: Float
    high: Float
    tips: Sequence[str]
    name: str = ""
    contrast: bool = False


@dataclass(frozen=True)
class Band:
    """The range from ``low`` to ``high`` that is expected by chance, over the whole width."""

    low: float
    high: float


@dataclass(frozen=True)
class Cells:
    """A matrix of counts (K, K) and fractions ``shares`` (K, K) in 0 … 1, a text for each cell; row 0 is at the top."""

    names: Sequence[str]
    counts: Int
    shares: Float
    tips: Sequence[Sequence[str]]


Mark: TypeAlias = Dots | Line | Errors | Bars | Band | Cells


@dataclass(frozen=True)
class Panel:
    """One panel: ``x`` and ``y`` are the ranges of the axes, ``remark`` explains how to read the panel.

    If ``percent`` is true, both axes are fractions that are labelled in percent.
    """

    title: str
    remark: str
    x_label: str
    y_label: str
    marks: Sequence[Mark]
    x: tuple[float, float]
    y: tuple[float, float]
    percent: tuple[bool, bool] = (False, False)

    @property
    def legend(self) -> bool:
        """True if marks have names."""
        return any(getattr(mark, "name", "") for mark in self.marks)

    @property
    def description(self) -> str:
        """Title, remark and axes as one text, which stands for the picture where it cannot be seen."""
        remark = f" {self.remark}." if self.remark else ""
        return f"{self.title}.{remark} Horizontal: {self.x_label}; vertical: {self.y_label}."

    @property
    def values(self) -> list[str]:
        """The values of all marks with texts."""
        return [tip for mark in self.marks if isinstance(mark, Errors | Bars) for tip in dict.fromkeys(mark.tips)]

    @property
    def cells(self) -> Cells | None:
        """The matrix of a panel that has no numeric axes."""
        return next((mark for mark in self.marks if isinstance(mark, Cells)), None)


def binomial_interval(hits: Float, rows: Float) -> tuple[Float, Float]:
    """Return the ends of the 95 % interval of a probability (Wilson 1927), given counts (n,).

    >>> low, high = binomial_interval(np.array([50.0]), np.array([100.0]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.404, 0.596)
    """
    share, spread = hits / rows, Z**2 / rows
    centre = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * share * (1 - share) + (spread / 2) ** 2) / (1 + spread)
    return centre - half, centre + half


def span(*values: Float, margin: float = 0.04) -> tuple[float, float]:
    """Return the range of all values, with a margin on both sides as a fraction of the range.

    >>> span(np.array([0.0, 100.0]))
    (-4.0, 104.0)
    """
    low = min(float(each.min()) for each in values if each.size)
    high = max(float(each.max()) for each in values if each.size)
    wide = margin * (high - low) or 0.1 * abs(high) or 1.0
    return low - wide, high + wide
