"""The search for the local kernel whose predictions of left-out rows have the highest density."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from partirvm.core.newton import Poll
from partirvm.local.kriging import (
    CORRELATIONS,
    LEAST_SQUARE,
    Conditional,
    Learned,
    LocalKernel,
    Neighbourhoods,
    Panels,
)
from partirvm.process import in_threads
from partirvm.types import Float

START_LENGTH = 0.7
"""Length at which a search starts, in units of the usual distance."""

START_NOISES = 1.0, 0.1, 0.01, 1e-4
"""Initial noise variances of a search, as fractions of the mean square."""

ITERATIONS = 15
"""Maximum number of iterations of a search."""

ENOUGH = 0.1
"""A search ends when the log density of all rows rises by less than this (nats), or by less than a
tenth of it when scales are learned, since the density rises slowly along the scales."""

RATIOS = 1e-6, 1e4
"""Bounds on s²/ℓ^(2·smoothness) in the units of ``Units``."""

LENGTHS = 0.05, 100.0
"""Bounds on ℓ in its unit."""

NUGGETS = 1e-8, 4.0
"""Bounds on ω in its unit."""

FREEDOMS = 0.5, 1e4
"""Bounds on ν."""

RARE = 10.0
"""Minimum ω, and half the minimum variance, times the number of training rows, in units of the mean
square. Even if no training row has an error of usual size next to a near copy, one row in n may
have one; this costs at most 1/(2·10) nats of mean log density. On one split of protein (2,000
rows), the NLPD is 20.7 without a minimum ω; on another (10,000 rows), it is 6.6 without a minimum
variance and 1.0 with it. On etopo20 (36,000), the minimum variance costs 0.02 nats.
"""

STEEPEST = 3.0
"""Upper bound on the exponent b."""

SCALES = 0.05, 20.0
"""Bounds on the coordinate scales."""


@dataclass(frozen=True)
class Units:
    """Positive units of a kernel's parameters.

    Attributes:
        variance: the unit of s²: the mean squared error
        length: the unit of ℓ: the median distance of the last neighbour
        noise: the unit of ω: the mean squared error over the mean of 1/w
    """

    variance: float
    length: float
    noise: float

    @classmethod
    def of(cls, panels: Panels) -> Self:
        """Return the units for one target's rows."""
        neighbourhoods, errors = panels
        square = max(float(np.mean(np.concatenate(errors) ** 2)), LEAST_SQUARE)
        distances = np.concatenate([rows.offsets.distances[:, -1] for rows in neighbourhoods])
        noises = np.concatenate([rows.row_noises for rows in neighbourhoods])
        length = max(float(np.median(distances)), 1e-100)
        return cls(square, length, square / float(np.mean(noises)))


def starts_of(panels: Panels) -> list[LocalKernel]:
    """Return Matérn kernels as possible starts of a search, from as much noise as signal to hardly
    any noise.

    The density has maxima at a length near the usual distance, where a search begins, and at large
    lengths (polynomials).
    """
    units = Units.of(panels)
    length = START_LENGTH * units.length
    return [
        LocalKernel("matern32", units.variance, length, share * units.noise, 1.0, 3.0)
        for share in START_NOISES
    ]


@dataclass(frozen=True, eq=False)
class LevelDensity:
    """The density of errors as a function of a = νs², with the best ν for each a.

    With c = ν + k and V = a + uᵀC⁻¹u, the density depends on c·d/V and log(V/c), where d is the
    squared residual divided by the unknown part; the best c is 1 ÷ mean d/V.

    Attributes:
        residuals: (n,), d of each row
        squares: (n,), uᵀC⁻¹u of each row
        k: the number of neighbours
        low: the smallest s²
        high: the largest s²
    """

    residuals: Float
    squares: Float
    k: int
    low: float
    high: float

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The bounds on log a."""
        return float(np.log(FREEDOMS[0] * self.low)), float(np.log(FREEDOMS[1] * self.high))

    def freedom(self, a: float) -> float:
        """Return the best ν within the bounds on ν and s²."""
        inverse = max(float(np.mean(self.residuals / (a + self.squares))), 1e-300)
        smallest = max(FREEDOMS[0], a / self.high)
        largest = min(FREEDOMS[1], a / self.low)
        return float(np.clip(1.0 / inverse - self.k, smallest, largest))

    def loss(self, log_a: float) -> float:
        """Return −2 times the mean log density, up to a constant, at the nearest a within
        bounds."""
        lowest, highest = self.bounds
        a = np.exp(min(max(log_a, lowest), highest))
        c = self.freedom(a) + self.k
        totals = a + self.squares
        return float(np.mean(np.log(totals) + c * self.residuals / totals) - np.log(c))

    def best(self, start: float) -> float:
        """Return the a that maximises the density; of several maxima, the one next to ``start``."""
        from scipy.optimize import minimize_scalar

        lowest, highest = self.bounds
        centre = min(max(float(np.log(start)), lowest), highest)
        loss = self.loss(centre)
        for step in (1.0, -1.0):
            next_loss = self.loss(centre + step)
            while next_loss < loss:
                centre += step
                loss = next_loss
                next_loss = self.loss(centre + step)
        bounds = max(centre - 1.0, lowest), min(centre + 1.0, highest)
        minimum = minimize_scalar(
            self.loss, bounds=bounds, method="bounded", options={"xatol": 1e-3}
        )
        return float(np.exp(minimum.x))


def best_levels(
    conditionals: Sequence[Conditional],
    errors: Float,
    start: float,
    bounds: tuple[float, float],
) -> tuple[float, float]:
    """Return the values of s² (within its bounds) and ν that maximise the density of the rows'
    errors.

    Args:
        conditionals: the distributions of the n errors, in panels
        errors: (n,)
        start: νs², next to which a maximum is sought
        bounds: the smallest and the largest s²
    """
    factors = np.concatenate([panel.factor for panel in conditionals])
    means = np.concatenate([panel.mean for panel in conditionals])
    unknown = np.concatenate([panel.unknown for panel in conditionals])
    squares = np.concatenate([panel.square for panel in conditionals])
    residuals = (errors / factors - means) ** 2 / unknown
    density = LevelDensity(residuals, squares, conditionals[0].errors.shape[1], *bounds)
    a = density.best(start)
    freedom = density.freedom(a)
    return a / freedom, freedom


@dataclass(frozen=True, eq=False)
class LocalTrial:
    """A point of a search.

    Attributes:
        point: (3 + r,), as in ``LocalSearch``
        kernel: the kernel at this point
        loss: minus the mean log density of the rows' errors
        slopes: (3 + r,), the derivatives of the loss
    """

    point: Float
    kernel: LocalKernel
    loss: float
    slopes: Float


class LocalSearch:
    """A search for the kernel with the largest mean log density of the rows' errors.

    A point consists of log ω/s², log ℓ, b and, if they are learned, the logarithms of the
    coordinate scales. ω/s² is in units that fall with ℓ: for smooth functions, s² ∝
    ℓ^(2·smoothness) is a ridge of the density, and one coordinate runs along it. s² and ν are
    optimal at each point.

    Attributes:
        neighbourhoods: the rows' neighbourhoods, in panels
        errors: the rows' errors, in panels
        targets: (n,), all errors
        poll: called before each evaluation
        units: the units of the parameters
        power: 2·smoothness, the power of ℓ to which s² is proportional on the ridge
        rank: r, the number of coordinate scales that are learned
        ratio: s²/ℓ^power at which the search for s² starts, in units
        ratios: bounds on s²/ℓ^power, in units
        lengths: bounds on ℓ, in its unit
        least_noise: the smallest ω, in its unit
        start: supplies the parameters that the search does not change
        trials: the points evaluated so far
    """

    def __init__(
        self,
        panels: Panels,
        start: LocalKernel,
        poll: Poll,
        *,
        scales: bool,
        form: bool,
    ) -> None:
        """Prepare a search.

        Args:
            panels: neighbourhoods and errors of the rows
            start: supplies the family and, without ``form``, the fixed s² and ℓ
            poll: called before each evaluation; may raise to stop the search
            scales: True to learn coordinate scales
            form: False to learn only the noise
        """
        self.neighbourhoods, self.errors = panels
        self.targets = np.concatenate(self.errors)
        self.poll = poll
        self.units = Units.of(panels)
        self.power = CORRELATIONS[start.family]
        self.rank = self.neighbourhoods[0].offsets.coordinates.shape[2] if scales else 0
        length = float(np.clip(start.length / self.units.length, *LENGTHS))
        ratio = start.variance / self.units.variance / length**self.power
        self.ratio = float(np.clip(ratio, *RATIOS))
        self.ratios = RATIOS if form else (self.ratio, self.ratio)
        self.lengths = LENGTHS if form else (length, length)
        self.least_noise = max(NUGGETS[0], min(RARE / len(self.targets), 0.1))
        least = 2.0 * self.least_noise * self.units.variance
        self.start = replace(start, inflation=1.0, least=least)
        self.trials = list[LocalTrial]()

    @property
    def bounds(self) -> list[tuple[float, ...]]:
        """The bounds on each coordinate of a point."""
        low, high = self.ratios
        shares = self.least_noise / high, NUGGETS[1] / low
        shape = np.log([shares, self.lengths])
        return [*map(tuple, shape), (0.0, STEEPEST), *[tuple(np.log(SCALES))] * self.rank]

    def point_of(self, kernel: LocalKernel) -> Float:
        """Return the point (3 + r,) of a kernel, clipped to the bounds."""
        length = kernel.length / self.units.length
        variance = kernel.variance / self.units.variance / length**self.power
        share = kernel.noise / self.units.noise / variance
        x = *np.log([share, length]), kernel.exponent, *np.zeros(self.rank)
        return np.asarray(np.clip(x, *np.transpose(self.bounds)))

    def value_and_slopes(self, point: Float) -> tuple[float, Float]:
        """Return the loss and its derivatives at a point."""
        trial = self.trial_at(point)
        return trial.loss, trial.slopes

    def trial_at(self, point: Float) -> LocalTrial:
        """Return the trial at a point (3 + r,), which is evaluated if it is new."""
        for trial in self.trials:
            if np.array_equal(trial.point, point):
                return trial
        self.poll()
        self.trials.append(self._evaluated(point.copy()))
        return self.trials[-1]

    def _evaluated(self, point: Float) -> LocalTrial:
        share, length = np.exp(point[:2]).tolist()
        unit = self.units.variance * length**self.power
        relative = replace(
            self.start,
            variance=1.0,
            length=self.units.length * length,
            noise=self.units.noise / unit * share,
            exponent=float(point[2]),
        )
        neighbourhoods = self._scaled(np.exp(point[3:]))
        conditionals = in_threads(partial(Conditional, relative), neighbourhoods)
        low, high = self.ratios
        lowest = max(low, self.least_noise / share)
        highest = min(high, NUGGETS[1] / share)
        variance, freedom = best_levels(
            conditionals,
            self.targets,
            start=unit * self.ratio * max(self.start.freedom, 10.0),
            bounds=(unit * lowest, unit * highest),
        )
        kernel = replace(
            relative,
            variance=variance,
            freedom=freedom,
            noise=relative.noise * variance,
        )
        density, slopes = self._mean_log_density(conditionals, kernel)
        return LocalTrial(point, kernel, -density, -self._by_point(slopes, variance / unit))

    def _scaled(self, scales: Float) -> list[Neighbourhoods]:
        """Return the neighbourhoods with the coordinate scales applied, or unchanged without
        scales."""
        if not self.rank:
            return self.neighbourhoods
        return [rows.scaled(scales) for rows in self.neighbourhoods]

    def _by_point(self, slopes: Float, ratio: float) -> Float:
        """Convert derivatives with respect to the parameters (5 + r,) to derivatives with respect
        to a point (3 + r,), where s² is ``ratio`` times its unit.

        Where s² is at its bounds, ω varies with ω/s²; where ω is at its bounds or s² is optimal, s²
        varies.
        """
        low, high = self.ratios
        by_variance, by_length, by_noise, by_exponent = slopes[:4]
        by_share = -by_variance if low * 1.001 < ratio < high / 1.001 else by_noise
        by_ridge = by_length + self.power * by_variance
        return np.concatenate([[by_share, by_ridge, by_exponent], slopes[5:]])

    def _mean_log_density(
        self, conditionals: list[Conditional], kernel: LocalKernel
    ) -> tuple[float, Float]:
        """Return the mean log density of the rows' errors, and its derivatives
        (``log_density``)."""
        log_density = partial(Conditional.log_density, kernel=kernel, scales=self.rank > 0)
        panels = in_threads(log_density, conditionals, self.errors)
        densities, slopes = zip(*panels, strict=True)
        n = len(self.targets)
        return float(np.sum(np.concatenate(densities))) / n, np.sum(slopes, axis=0) / n


def learned(
    panels: Panels,
    starts: Sequence[LocalKernel],
    poll: Poll = lambda: None,
    *,
    scales: bool = False,
    form: bool = True,
) -> Learned:
    """Return the kernel with the largest mean log density of the rows' errors, the scales, and this
    density.

    L-BFGS-B starts at the best of ``starts``, keeps its family, and optimises ω/s², ℓ and b
    (``LocalSearch``).

    Args:
        panels: neighbourhoods and errors of the rows
        starts: kernels of one family
        poll: called before each evaluation; may raise to stop the search
        scales: True to learn coordinate scales
        form: False to keep the first start's s² and ℓ and learn only the noise
    """
    from scipy.optimize import minimize

    search = LocalSearch(panels, starts[0], poll, scales=scales, form=form)
    trials = [search.trial_at(search.point_of(start)) for start in starts]
    best = min(trials, key=lambda trial: trial.loss)
    tolerance = (0.1 if scales else 1.0) * ENOUGH / len(search.targets)
    end = minimize(
        search.value_and_slopes,
        best.point,
        jac=True,
        method="L-BFGS-B",
        bounds=search.bounds,
        options={"maxiter": ITERATIONS, "ftol": tolerance},
    )
    return Learned(search.trial_at(end.x).kernel, np.exp(end.x[3:]), -float(end.fun))
