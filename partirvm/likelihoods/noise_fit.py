"""The fit of a noise variance that depends on the inputs, to the errors of rows left out (``core.log_variance``).

The last fit of a regression first has constant noise. Its errors of rows left out give a log variance with few centres.
The columns are then fitted again to weighted rows (``kernels.design``), and the rows are left out again. Two such
rounds are no better than one. Kernels of several widths compete by evidence: multiples of the widths of the mean, and
equal widths for all features, since noise may depend on other features than the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import LeftOut
from partirvm.core.log_variance import cross_fitted, dependence, fit, negative_log_density
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo
from partirvm.kernels import Categorical, Family, Gaussian, Kernel
from partirvm.kernels.design import Design, LocalNoise
from partirvm.likelihoods.base import DenseFit, OnStep
from partirvm.types import NOISE_CENTRES

Float = NDArray[np.float64]
Int = NDArray[np.int64]

CONSTANT, LOCAL, AUTO = "constant", "local", "auto"
"""Values of the option ``noise``."""

FEWEST = 50
"""Minimum number of rows left out for local noise."""

MOST_ROWS, MOST_VALUES = 16_384, 1 << 20
"""Maximum numbers of rows, and of their input values, for the fit of the log variance."""

COMPETITION = 4096
"""Maximum number of rows for the choice of the kernel."""

MULTIPLES = (4.0, 1.0, 0.25, 0.0625)
"""Factors of the mean's gammas."""

EQUAL = (4.0, 1.0, 0.25)
"""Equal gammas of all features, as multiples of "scale", 1/(features × variance)."""

DEPENDENT = 0.01
"""With "auto", the p-value of the test of constant noise above which no log variance is fitted."""

TESTED = 16
"""Maximum number of centres in this test."""

CLEAR = 1.0
"""With "auto", the minimum gain in log density of rows left out, in standard errors."""


@dataclass(frozen=True)
class FittedNoise:
    """Result of ``NoiseFit``: ``noise`` is None if constant noise was as good.

    ``rows`` (n,) are the rows of the fit, ``factors`` (n,) the ratios of their noise factor to that of a fit without
    them: weights for an unbiased calibration (``LeftOut.scaled``). ``gain`` is the mean gain in log density of rows
    left out, in nats.
    """

    noise: LocalNoise | None
    rows: Int
    factors: Float
    gain: float = 0.0


@dataclass(frozen=True)
class NoiseFit(DenseFit):
    """Fit of a log variance to errors of rows left out; ``design`` is that of the mean.

    ``points`` (n, d) are the raw inputs of the rows of ``left_out``. Without ``always``, constant noise remains unless
    local noise is clearly better.
    """

    design: Design
    points: Float
    left_out: LeftOut
    always: bool
    candidates: int = NOISE_CENTRES

    def run(self, on_step: OnStep) -> tuple[FittedNoise, Termination]:
        """Return the noise; ``on_step`` is called after the fit of each kernel."""
        errors, variances = self.left_out.expected()
        squares, rows = errors**2, self.left_out.rows
        points = self.design.scaling.inputs(self.points)
        constant = FittedNoise(None, rows, np.ones(len(rows))), Termination.CONVERGED
        kernels = kernels_for(self.design, points)
        if not squares.any() or not kernels:
            return constant
        if not self.always and not _depends(kernels, points, squares, variances):
            return constant
        centres = points[_evenly(len(points), min(NOISE_CENTRES, len(points) // 4))]
        some = _evenly(len(points), min(len(points), COMPETITION))
        evidences = []
        for number, kernel in enumerate(kernels):
            found = fit(_block(kernel, points[some], centres), squares[some], variances[some])
            on_step(StepInfo(number + 1, int((found.weights != 0).sum()), 0, found.log_evidence, np.nan, found.level))
            evidences.append(found.log_evidence)
        kernel = kernels[int(np.argmax(evidences))]
        block = _block(kernel, points, centres)
        found = fit(block, squares, variances)
        by_row, overall = cross_fitted(block, squares, variances)
        gains = negative_log_density(squares, variances + overall) - negative_log_density(squares, variances + by_row)
        gain, kept = float(gains.mean()), found.weights != 0
        clear = gain > CLEAR * float(gains.std()) / np.sqrt(len(gains))
        if not kept.any() or not (self.always or clear):
            return constant
        logs = block @ found.weights
        shift = float(np.log(np.mean(np.exp(logs))))
        noise = LocalNoise(kernel, centres[kept], found.weights[kept], shift)
        return FittedNoise(noise, rows, found.level * np.exp(logs) / by_row, gain), Termination.CONVERGED


def noise_sample(left_out: LeftOut, n_features: int) -> LeftOut | None:
    """Return the rows for the fit of a log variance, a part of the rows left out; None if there are too few."""
    n = len(left_out.rows)
    if n < FEWEST:
        return None
    return left_out.take(_evenly(n, rows_of_fit(n, n_features)))


def rows_of_fit(n: int, n_features: int) -> int:
    """Return the number of ``n`` rows to which the log variance is fitted."""
    return min(n, MOST_ROWS, max(MOST_VALUES // n_features, FEWEST))


def kernels_for(design: Design, points: Float) -> list[Kernel]:
    """Return the kernels that compete, given the design of the mean and points (n, d) in the kernel's coordinates."""
    found = [kernel.rescaled(multiple) for kernel in design.kernels[:1] if kernel.local for multiple in MULTIPLES]
    if found and not (isinstance(found[0], Family) and not isinstance(found[0], Categorical)):
        return found  # equal widths are wrong for categories
    variance = points.var(axis=0)
    scale = np.divide(1.0, len(variance) * variance, out=np.zeros(len(variance)), where=variance > 0)
    return found + [Gaussian(tuple((multiple * scale).tolist())) for multiple in EQUAL if scale.any()]


def _depends(kernels: list[Kernel], points: Float, squares: Float, variances: Float) -> bool:
    """Return whether the errors are unlikely for constant noise."""
    centres = points[_evenly(len(points), min(TESTED, len(points) // 8))]
    columns = [_block(kernels[number], points, centres) for number in sorted({1, len(kernels) - 2})]
    return any(dependence(block, squares, variances) < DEPENDENT / len(columns) for block in columns)


def _block(kernel: Kernel, points: Float, centres: Float) -> Float:
    block = np.empty((len(centres), len(points))).T
    kernel.prepare(centres)(points, block)
    return block


def _evenly(n: int, count: int) -> Int:
    """Return ``count`` numbers below n, evenly spaced."""
    return np.arange(count, dtype=np.int64) * n // max(count, 1)
