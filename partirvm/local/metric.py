"""The coordinates in which local residuals measure distances, derived from a model's kernel.

A distance kernel is a function of Σ_i gamma_i (a_i·(x − z))², alone or within sums, products and
kernels on a subset of columns; its coordinates are √gamma_i a_i·x. Different categories add gamma
to the squared distance, by means of a coordinate √(gamma/2) per level. In an ANOVA kernel, gamma is
weighted by the portion of a feature, so that the squared distance of rows near each other is the
kernel's k(x, x) − k(x, z). With several kernels, the first one is used. Directions and levels
without effect are omitted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from partirvm.kernels.composed import inside
from partirvm.kernels.design import Design
from partirvm.types import Columns, Float, Int

MOST_LEVELS = 64
"""Maximum total number of category levels: with more, a search would compare all rows with each
other."""

LEAST_SHARE = 1e-6
"""Minimum of a direction's gamma as a fraction of the largest."""


@dataclass(frozen=True)
class Metric:
    """A map from a kernel's points (n, d) to coordinates, applied by calling it.

    Attributes:
        axes: (r', d), multiplied by the points
        levels: for each level of categories, its feature, its code in the kernel's coordinates, and
            its coordinate
    """

    axes: Float
    levels: tuple[tuple[int, float, float], ...] = ()

    @classmethod
    def of(cls, design: Design, columns: Columns) -> "Metric | None":
        """Return the metric of a design's kernel; None if there is none, or if there are too many
        category levels."""
        if Metric.lacks(design):
            return None
        d = design.scaling.n_inputs
        axes = np.zeros((0, d))
        levels = list[tuple[int, float, float]]()
        for kernel, features in inside(design.kernels[0], d, object):
            widths = kernel.level_widths(len(features))
            levels += _levels_of(widths, features, design, columns)
            matrix = kernel.axes_of_distance(len(features))
            if matrix is None:
                continue
            first = len(axes)
            axes = np.pad(axes, ((0, len(matrix)), (0, 0)))
            axes[first:, features] = matrix
        squares = np.einsum("rd,rd->r", axes, axes)
        axes = axes[squares > LEAST_SHARE * squares.max(initial=0.0)]
        enough = len(axes) + len(levels) > 0 and len(levels) <= MOST_LEVELS
        return cls(axes, tuple(levels)) if enough else None

    @staticmethod
    def lacks(design: Design) -> str:
        """Return the name of the first part of a design's kernel that measures no distances, or ""
        if there is none."""
        if not design.kernels:
            return "none"
        for kernel, features in inside(design.kernels[0], design.scaling.n_inputs, object):
            has_levels = kernel.level_widths(len(features)).any()
            if not has_levels and kernel.axes_of_distance(len(features)) is None:
                return str(getattr(kernel, "name", type(kernel).__name__))
        return ""

    @property
    def width(self) -> int:
        """The number r of coordinates."""
        return len(self.axes) + len(self.levels)

    def scaled(self, scales: Float) -> "Metric":
        """Return the metric with its coordinates multiplied by ``scales`` (r,)."""
        of_axes, of_levels = np.split(scales, [len(self.axes)])
        levels = tuple(
            (feature, code, scale * coordinate)
            for (feature, code, coordinate), scale in zip(
                self.levels, of_levels.tolist(), strict=True
            )
        )
        return Metric(self.axes * of_axes[:, None], levels)

    def __call__(self, points: Float) -> Float:
        """Return the coordinates (n, r) of points (n, d), summed over the features in order."""
        coordinates = np.zeros((len(points), self.width))
        for axis, x in zip(self.axes.T, points.T, strict=True):
            if axis.any():
                coordinates[:, : len(self.axes)] += x[:, None] * axis
        for place, (feature, code, coordinate) in enumerate(self.levels, start=len(self.axes)):
            coordinates[:, place] = np.where(points[:, feature] == code, coordinate, 0.0)
        return coordinates


def _levels_of(
    widths: Float, features: Int, design: Design, columns: Columns
) -> Iterator[tuple[int, float, float]]:
    """Yield the feature, the code and the coordinate of each level that has an effect.

    Args:
        widths: (d',), what different levels add to the squared distance
        features: (d',), the kernel's features
        design: defines the scaling of codes
        columns: defines the levels of each feature
    """
    scaling = design.scaling
    for gamma, feature in zip(widths.tolist(), features.tolist(), strict=True):
        if gamma > 0:
            levels = columns.categories.get(columns.features[feature], ())
            codes = np.arange(len(levels)) - scaling.x_shift[feature]
            for code in (codes / scaling.x_scale[feature]).tolist():
                yield feature, code, float(np.sqrt(gamma / 2))
