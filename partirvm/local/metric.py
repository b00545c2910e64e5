"""The coordinates in which nearness is measured: those in which a model's kernel measures
distances.

A distance kernel is a function of Σ_i gamma_i (a_i·(x − z))², alone or within sums, products and
kernels on some columns; its coordinates are √gamma_i a_i·x. Categories that differ add gamma to the
squared distance, by a coordinate √(gamma/2) per level. With several kernels, the first one counts.
Directions and levels without effect are omitted.
"""

from dataclasses import dataclass

import numpy as np

from partirvm.kernels import Categorical, Directions, Gaussian, Laplacian, Matern32, Matern52
from partirvm.kernels.composed import inside
from partirvm.kernels.design import Design
from partirvm.types import Columns, Float

MOST_LEVELS = 64
"""Maximum total number of category levels: with more, a search compares each row with every
other."""

LEAST_SHARE = 1e-6
"""Minimum of a direction's gamma as a fraction of the largest."""


@dataclass(frozen=True)
class Metric:
    """Coordinates of a kernel's points (n, d): ``axes`` (r, d) times the points, and those of
    categories.

    ``levels`` has, for each level, its feature, its code in the kernel's coordinates, and its own
    coordinate.
    """

    axes: Float
    levels: tuple[tuple[int, float, float], ...] = ()

    @classmethod
    def of(cls, design: Design, columns: Columns) -> "Metric | None":
        """The metric of a design's kernel; None if there is none, or too many category levels."""
        scaling = design.scaling
        axes = list[Float]()
        levels = list[tuple[int, float, float]]()
        d = scaling.n_inputs
        for kernel, features in inside(design.kernels[0], d, object) if design.kernels else ():
            if isinstance(kernel, Categorical):
                for gamma, feature in zip(
                    kernel.widths(len(features)), features.tolist(), strict=True
                ):
                    count = len(columns.categories.get(columns.features[feature], ()))
                    codes = (np.arange(count) - scaling.x_shift[feature]) / scaling.x_scale[feature]
                    levels += [
                        (feature, code, float(np.sqrt(gamma / 2)))
                        for code in codes.tolist()
                        if gamma > 0
                    ]
                continue
            if isinstance(kernel, Directions):
                own = np.sqrt(kernel.kernel.widths(len(kernel.axes)))[:, None] * kernel.matrix
            elif isinstance(kernel, Gaussian | Matern32 | Matern52):
                own = np.diag(np.sqrt(kernel.widths(len(features))))
            elif isinstance(kernel, Laplacian):
                own = np.diag(kernel.widths(len(features)))
            else:
                return None
            whole = np.zeros((len(own), d))
            whole[:, features] = own
            axes.append(whole)
        found = np.concatenate(axes) if axes else np.zeros((0, d))
        squares = np.einsum("rd,rd->r", found, found)
        found = found[squares > LEAST_SHARE * squares.max(initial=0.0)]
        enough = len(found) + len(levels) > 0 and len(levels) <= MOST_LEVELS
        return cls(found, tuple(levels)) if enough else None

    @staticmethod
    def lacks(design: Design) -> str:
        """Return the name of the first part of a design's kernel that measures no distances, or ""
        if there is none."""
        if not design.kernels:
            return "none"
        for kernel, _ in inside(design.kernels[0], design.scaling.n_inputs, object):
            if not isinstance(
                kernel, Categorical | Directions | Gaussian | Matern32 | Matern52 | Laplacian
            ):
                return str(getattr(kernel, "name", type(kernel).__name__))
        return ""

    @property
    def width(self) -> int:
        """r, the number of coordinates."""
        return len(self.axes) + len(self.levels)

    def scaled(self, scales: Float) -> "Metric":
        """Return the metric whose coordinates are multiplied by ``scales`` (r,)."""
        own = zip(self.levels, scales[len(self.axes) :].tolist(), strict=True)
        levels = tuple(
            (feature, code, scale * coordinate) for (feature, code, coordinate), scale in own
        )
        return Metric(self.axes * scales[: len(self.axes), None], levels)

    def __call__(self, points: Float) -> Float:
        """Return the coordinates (n, r) of points (n, d), summed over the features in order."""
        found = np.zeros((len(points), self.width))
        for axis, x in zip(self.axes.T, points.T, strict=True):
            if axis.any():
                found[:, : len(self.axes)] += x[:, None] * axis
        for place, (feature, level, coordinate) in enumerate(self.levels, start=len(self.axes)):
            found[:, place] = np.where(points[:, feature] == level, coordinate, 0.0)
        return found
