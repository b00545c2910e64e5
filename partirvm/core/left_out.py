"""Leave-one-out errors without each row's own columns, used to check predictions for new rows.

A training row can stand in for a new row, which is not a centre, once the row is removed from the
data and its own columns D from the design, at fixed α and β. With r = t − Φμ, h_n = βφ_nᵀΣφ_n and g
= Σφ_n, the posterior without row n (as in Sundararajan & Keerthi 2001 for Gaussian processes), and
then conditioned on w_D = 0, gives

    Σ' = Σ + β g gᵀ/(1 − h_n),        μ' = μ − β g r_n/(1 − h_n),
    e_n = r_n/(1 − h_n) + cᵀV⁻¹μ'_D,   v_n = φ_nᵀΣ'φ_n − cᵀV⁻¹c,   c = (Σ'φ_n)_D,   V = Σ'_DD,

the error and the variance of the mean at row n as if it were new. ``Calibration`` holds the noise
variance, mean e² − mean v; the quantiles of |z|, z_n = e_n/√(v_n + noise variance); and the
overconfidence, mean r²/(1 − h)² divided by the mean of 1/β + v, which is about one for a good fit
and 10² to 10⁸ for a much too narrow kernel.

A fit without row n might choose a nearby row as a centre. If ρ is the largest value of the removed
column at another row, relative to its peak, only the fraction (1 − ρ²)^⅛ of the change from removal
is counted. Quantiles use all z, with centres (often rows with large errors) and other rows scaled
to the same mean square: 95 % intervals from 240 fits covered 93.9 %. With enough rows, quantiles of
z depend on the standard deviation, and the tails are separate (``core.local_quantiles``).

If rows are left out by groups (``core.left_out_groups``), errors are correlated within groups. The
number of independent errors (``core.groups``) then limits the levels of quantiles: of few groups,
the higher quantiles come from Student's t (Lee, Barber & Willett 2023, "Distribution-free inference
with hierarchical data", study the exact counterpart).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np

from partirvm.core.diagnostics import NO_ENDS, NumberDiagnostics
from partirvm.core.groups import independent_count
from partirvm.core.held_back import alternate_halves
from partirvm.core.local_quantiles import FEWEST_LOCAL, LocalQuantiles, QuantileCurves
from partirvm.core.predictive import quantile
from partirvm.types import Bool, Float, Int

LEAST = 1e-10
"""Minimum of 1 − h: smaller values are rounding errors."""

SUBSTITUTE = 0.125
"""Exponent of 1 − ρ² in the counted fraction of the change from removing a column. At 0, intervals
are too wide where many rows are centres (kin40k, 700 rows, 160 vectors: 95 % intervals cover
98.0 %); at ½, they are too narrow (91.5 %)."""

DOUBTFUL = 30.0
"""Maximum credible root mean square error of the centres, as a multiple of the other rows' error:
without noise, the few vectors that represent a smooth function have nearly perfect substitutes."""

FEWEST = 20
"""Minimum number of rows for quantiles."""

FEWEST_OF_GROUP = 10
"""Minimum number of rows in a group that is scaled."""

BEYOND = 10
"""Number of rows beyond the highest empirical level."""

BEYOND_OF_GROUPS = 2
"""The same for the number of independent errors of rows in groups: a few groups with large errors
are usual, so that the tail of Student's t, from a lower level on, would be too short."""

GRID = 200
"""Number of levels of the stored quantiles."""

TOP = 0.995
"""Highest level of the stored quantiles. Beyond it, the tail of Student's t is used."""

LEAST_LEVEL = 1e-9
"""Level of the central interval that stands for the median."""

GAUSSIAN_LEVEL = 0.9
"""Level at which the interval is as wide as for a Gaussian with the predicted standard
deviation."""


@dataclass(frozen=True)
class Calibration:
    """Uncertainty of predictions at new rows, estimated from left-out rows.

    Attributes:
        n: number of left-out rows
        noise_variance: noise variance in the model's units
        overconfidence: mean squared left-out error ÷ the variance that the evidence predicts
        top: level of the last quantile
        quantiles: quantiles of |z| at the levels ``top``·k/K, k = 1 … K; K = 0 for fewer than
            ``FEWEST`` rows (K,)
        local: quantiles of z at several standard deviations, in the model's units; None for fewer
            than ``FEWEST_LOCAL`` rows and for rows of left-out groups
    """

    n: int
    noise_variance: float
    overconfidence: float
    top: float
    quantiles: tuple[float, ...]
    local: LocalQuantiles | None = None

    @property
    def overconfident(self) -> bool:
        """True if left-out errors are larger than the evidence predicts; ratios of 0.8 to 2 are
        usual."""
        return self.overconfidence > 4.0

    @property
    def scale(self) -> float:
        """Factor from √(v + noise variance) to the predicted standard deviation, using
        ``GAUSSIAN_LEVEL``."""
        return self.multiple(GAUSSIAN_LEVEL) / quantile(GAUSSIAN_LEVEL)

    def multiple(self, level: float) -> float:
        """Return the half width of the central interval at this level, in units of √(v + noise
        variance).

        Beyond ``top`` or without quantiles, it uses Student's t with n degrees of freedom. Raises
        ``UsageError`` unless 0 < level < 1.
        """
        tail = quantile(level, self.n)
        K = len(self.quantiles)
        if not K:
            return tail
        if level > self.top:
            return self.quantiles[-1] * tail / quantile(self.top, self.n)
        return float(np.interp(level * K / self.top, np.arange(K + 1), (0.0, *self.quantiles)))

    def curves(self, tails: Float) -> QuantileCurves:
        """Return the quantiles of z at the probabilities ½ + ½·``tails`` (Q,) as functions of √(v +
        noise variance).

        Beyond ``top``, they grow as those of Student's t with n degrees of freedom do. Raises
        ``UsageError`` unless −1 < tails < 1.
        """
        signs = np.sign(tails)
        levels = np.maximum(np.abs(tails), LEAST_LEVEL).tolist()
        if self.local is None:
            return QuantileCurves.constant(signs * [self.multiple(level) for level in levels])
        students = np.array([quantile(level, self.n) for level in levels])
        growth = np.maximum(students / quantile(self.top, self.n), 1.0) - 1.0
        curves = self.local.curves(np.clip(tails / self.top, -1.0, 1.0))
        beyond = (signs * growth)[:, None] * np.abs(curves.multiples)
        return QuantileCurves(curves.knots, curves.multiples + beyond)


OwnColumns: TypeAlias = Sequence[tuple[int, Int]]
"""Positions of the rows that are centres, each with its columns."""

OF_ROWS = ("errors", "variances", "owner", "rows", "targets")
"""Fields of ``LeftOut`` with one entry per row."""


@dataclass(frozen=True)
class LeftOut:
    """Errors and variances of n left-out rows, in the model's units: √u·e and u·v at row weights u
    > 0, (n, 2) each.

    u is the row weight, divided by the noise factor if noise is local: σ²/u is the row's noise
    variance. The first column leaves out the row, and the second one its own columns as well.
    Addition concatenates rows.

    Attributes:
        errors: √u·e (n, 2)
        variances: u·v (n, 2)
        owner: the first own column of each row, or −1 (n,)
        rows: row numbers (n,)
        targets: target and u, for diagnostics (n, 2)
        nearest: the largest value of each column at rows that do not own it, ÷ its peak (M,)
        least_square: a lower bound on the mean squared error, known from another source
        groups: the groups (n,) with which the rows were left out, or None
        difference: fraction of the mean squared error that is due to differences between groups;
            columns in other groups replace own columns only for the rest
        excess: mean squared error of left-out groups minus that of left-out rows, known from
            another source, or None
        effect_square: mean square of independent effects of groups, which are part of the errors
    """

    errors: Float
    variances: Float
    owner: Int
    rows: Int
    targets: Float
    nearest: Float
    least_square: float = 0.0
    groups: Int | None = None
    difference: float = 0.0
    excess: float | None = None
    effect_square: float = 0.0

    @classmethod
    def of(
        cls,
        block: Float,
        target: Float,
        mean: Float,
        root: Float,
        beta: float,
        weights: Float | None = None,
        own: OwnColumns = (),
        peaks: Float | None = None,
        rows: Int | None = None,
        factor: Float | None = None,
    ) -> Self:
        """Leave out the rows of a design block, at a fit's μ, Σ and β.

        Args:
            block: design at the rows (n, M)
            target: targets of the rows (n,)
            mean: μ (M,)
            root: R (M, M), Σ = RRᵀ
            beta: noise precision
            weights: row weights (n,), one by default; rows of weight zero are dropped
            own: positions of rows that are centres, with their columns' positions
            peaks: the columns' largest values (M,), one by default
            rows: row numbers (n,), by default 0, 1, …
            factor: with local noise, u ÷ row weight (n,)
        """
        w = np.ones(len(target)) if weights is None else weights
        white = block @ root
        spread = np.einsum("nm,nm->n", white, white)  # φᵀΣφ
        precisions = beta * w
        remaining = np.maximum(1.0 - precisions * spread, LEAST)  # 1 − h
        errors = np.column_stack([(target - block @ mean) / remaining] * 2)
        variances = np.column_stack([spread / remaining] * 2)
        for row, columns in own:
            shift, reduction = _without_columns(
                root[columns],
                white[row],
                mean[columns],
                errors[row, 0],
                precisions[row],
                remaining[row],
            )
            errors[row, 1] += shift
            variances[row, 1] = max(variances[row, 0] - reduction, 0.0)
        left_out = cls(
            errors,
            variances,
            owners(len(target), own),
            rows=np.arange(len(w), dtype=np.int64) if rows is None else rows,
            targets=np.column_stack([target, np.ones(len(w))]),
            nearest=_largest_elsewhere(block, own, w > 0, peaks),
        )
        return left_out._weighted(w if factor is None else w * factor).take(np.flatnonzero(w > 0))

    def __add__(self, other: Self) -> Self:
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in OF_ROWS
        }
        nearest = np.maximum(self.nearest, other.nearest)
        least_square = max(self.least_square, other.least_square)
        groups = None
        if self.groups is not None and other.groups is not None:
            groups = np.concatenate([self.groups, other.groups])
        return replace(self, **joined, nearest=nearest, least_square=least_square, groups=groups)

    def take(self, places: Int) -> Self:
        """Return the rows at these positions."""
        taken: dict[str, Any] = {name: getattr(self, name)[places] for name in OF_ROWS}
        groups = None if self.groups is None else self.groups[places]
        return replace(self, **taken, groups=groups)

    def expected(self) -> tuple[Float, Float]:
        """Return errors and variances (n,) that include only the counted fraction of the change
        from removing a row's own columns."""
        share = counted_share(self.owner, self.nearest)
        if self.difference:
            share = np.where(self.owner >= 0, share + (1.0 - share) * self.difference, share)
        errors = self.errors[:, 0] + share * np.diff(self.errors)[:, 0]
        variances = self.variances[:, 0] + share * np.diff(self.variances)[:, 0]
        centres = self.owner >= 0
        if (~centres).sum() >= FEWEST_OF_GROUP and centres.any():
            usual = float(np.sqrt(np.mean(errors[~centres] ** 2)))
            of_centres = float(np.sqrt(np.mean(errors[centres] ** 2)))
            if of_centres:
                errors[centres] *= min(1.0, DOUBTFUL * usual / of_centres)
        return errors, variances

    def without_variances(self, rows: Int, variances: Float) -> Self:
        """Return the errors of predictors without independent effects of these ``variances`` (k,)
        at rows with these increasing numbers (k,)."""
        of_effects = self.targets[:, 1] * variances[np.searchsorted(rows, self.rows)]
        variances = np.maximum(self.variances - of_effects[:, None], 0.0)
        return replace(self, variances=variances, effect_square=float(np.mean(of_effects)))

    def different_from(self, rows: Self) -> Self:
        """Return these errors of left-out groups with their ``difference``, given the errors of
        rows that were left out one by one. With an ``excess``, the errors are scaled to the mean
        square of these rows' errors plus the excess.

        Independent effects of groups are no part of the difference: the columns of a group do not
        show them.
        """
        square = float(np.mean(self.errors[:, 0] ** 2))
        of_rows = float(np.mean(rows.expected()[0] ** 2)) + self.effect_square
        groups = replace(self, difference=max(1.0 - of_rows / square, 0.0) if square else 0.0)
        expected = groups._mean_square()
        if self.excess is None or not expected:
            return groups
        factor = np.sqrt((rows._mean_square() + self.excess) / expected)
        return replace(groups, errors=factor * groups.errors)

    def _mean_square(self) -> float:
        """Return the mean squared error, without the factors √u."""
        return float(np.mean(self.expected()[0] ** 2 / self.targets[:, 1]))

    def _weighted(self, factors: Float) -> Self:
        """Return the rows with their weights u multiplied by ``factors`` (n,)."""
        errors = np.sqrt(factors)[:, None] * self.errors
        variances = factors[:, None] * self.variances
        targets = self.targets * np.column_stack([np.ones(len(factors)), factors])
        return replace(self, errors=errors, variances=variances, targets=targets)

    def scaled(self, rows: Int, factors: Float) -> Self:
        """Return the errors with the weights u of ``rows`` (k,), in increasing order, multiplied by
        ``factors`` (k,)."""
        scale = np.ones(len(self.rows))
        scale[np.isin(self.rows, rows)] = factors[np.isin(rows, self.rows)]
        return replace(self._weighted(scale), least_square=0.0)

    def calibration(self, beta: float, target_variance: float) -> Calibration | None:
        """Return the noise variance and quantiles for a fit with this β; None if there are no rows.

        The noise variance is between 1/β and 1/β + ``target_variance``. A larger ``least_square``
        raises it.
        """
        if not len(self.errors):
            return None
        errors, variances = self.expected()
        square = float(np.mean(errors**2))
        variance = float(np.mean(variances))
        noise = 1 / beta + min(max(square - variance - 1 / beta, 0.0), target_variance)
        overconfidence = float(
            np.mean(self.errors[:, 0] ** 2) / (np.mean(self.variances[:, 1]) + 1 / beta)
        )
        deviations = np.sqrt(variances + noise)
        z = errors / deviations
        n = independent_count(z, self.groups)
        pooled = _pooled(np.abs(z), self.owner >= 0)
        top, levels = quantiles(pooled, None if self.groups is None else n)
        least_noise = min(self.least_square - variance, noise + target_variance)
        if n >= FEWEST and least_noise > noise:  # these errors and their quantiles are too small
            normal = [quantile(top * k / GRID) for k in range(1, GRID + 1)]
            levels = tuple(np.maximum(levels, normal).tolist())
            return Calibration(n, least_noise, overconfidence, top, levels)
        return replace(
            Calibration(n, noise, overconfidence, top, levels),
            local=self._local_quantiles(np.copysign(pooled, z), deviations, top),
        )

    def _local_quantiles(self, z: Float, deviations: Float, top: float) -> LocalQuantiles | None:
        """Return the quantiles of z (n,) at each standard deviation; None for few rows and for
        groups.

        Args:
            z: errors ÷ standard deviation (n,)
            deviations: standard deviations (n,), times √u
            top: highest level of an interval
        """
        if self.groups is not None or len(z) < FEWEST_LOCAL:
            return None
        return local_quantiles(z, deviations / np.sqrt(self.targets[:, 1]), top)

    def diagnostics(self, calibration: Calibration) -> NumberDiagnostics:
        """Return the diagnostics of the left-out rows, without coverage, since intervals are
        calibrated on these rows."""
        errors, variances = self.expected()
        targets, weights = self.targets.T
        std = calibration.scale * np.sqrt((variances + calibration.noise_variance) / weights)
        means = targets - errors / np.sqrt(weights)
        z = np.abs(errors) / np.sqrt(variances + calibration.noise_variance)
        inside = inside_95(_pooled(z, self.owner >= 0))
        return replace(NumberDiagnostics.of(targets, means, std, self.rows, NO_ENDS), inside=inside)


def owners(n: int, own: OwnColumns) -> Int:
    """Return the first own column of each of n rows, or −1, given the positions of rows that are
    centres, with their columns."""
    owner = np.full(n, -1)
    for row, columns in own:
        owner[row] = columns[0]
    return owner


def _without_columns(
    part: Float, white: Float, mean: Float, error: float, precision: float, remaining: float
) -> tuple[float, float]:
    """Return cᵀV⁻¹μ'_D and cᵀV⁻¹c, the changes of a row's error and variance without its D columns.

    Args:
        part: rows of R for the D columns (D, M)
        white: Rᵀφ (M,)
        mean: μ_D (D,)
        error: r/(1 − h)
        precision: β times the row's weight
        remaining: 1 − h
    """
    precision = precision * remaining
    cross = part @ white / remaining  # c
    covariance = part @ part.T + precision * np.outer(cross, cross)  # V
    solved = np.linalg.lstsq(covariance, cross, rcond=None)[0]
    return float(solved @ (mean - precision * error * cross)), float(solved @ cross)


def _largest_elsewhere(block: Float, own: OwnColumns, present: Bool, peaks: Float | None) -> Float:
    """Return the largest absolute value of each column at rows that do not own it, ÷ its peak (M,).

    Args:
        block: design at the rows (n, M)
        own: positions of rows that are centres, with their columns' positions
        present: True for rows that are included (n,)
        peaks: the columns' largest values (M,), one by default
    """
    with own_entries_zero(block, own), np.errstate(divide="ignore", invalid="ignore"):
        counted = block if present.all() else block[present]
        largest: Float = np.maximum(
            counted.max(axis=0, initial=0.0), -counted.min(axis=0, initial=0.0)
        )
        largest /= np.abs(1.0 if peaks is None else peaks)
    return largest


@contextmanager
def own_entries_zero(block: Float, own: OwnColumns) -> Iterator[None]:
    """Set the entries of a design block (n, M) in each row's own columns to zero inside the
    ``with`` block."""
    entries = [block[row, columns] for row, columns in own]
    for row, columns in own:
        block[row, columns] = 0.0
    yield
    for (row, columns), values in zip(own, entries, strict=True):
        block[row, columns] = values


def counted_share(owner: Int, nearest: Float) -> Float:
    """Return the fraction (n,) of the change from removing own columns that is counted; 0 for rows
    without own columns.

    ``owner`` (n,) is the first own column of each row, or −1; ``nearest`` (M,) is as in
    ``LeftOut``.
    """
    centres = owner >= 0
    counted = np.zeros(len(owner))
    near = np.fmin(nearest[owner[centres]], 1.0)  # also one if a peak is zero
    counted[centres] = (1.0 - near**2) ** SUBSTITUTE
    return counted


def left_out_of(statistics: Iterable[Any]) -> tuple[LeftOut, ...]:
    """Return the left-out errors among the statistics of several passes, one per target, if any."""
    return tuple(statistic for statistic in statistics if isinstance(statistic, LeftOut))


def quantiles(z: Float, independent: int | None = None) -> tuple[float, tuple[float, ...]]:
    """Return the highest level and the quantiles of |z| (n,), as in ``Calibration``; no quantiles
    if there are too few rows. ``independent`` is the number of independent values, by default
    n."""
    n = len(z)
    count = n if independent is None else independent
    if count < FEWEST:
        return 0.0, ()
    beyond = BEYOND if independent is None else BEYOND_OF_GROUPS
    top = min(TOP, 1.0 - beyond / count)
    # the k-th of n errors is the quantile at k/(n + 1): a new error is equally likely to fall in
    # each of the n + 1 gaps
    places = (count + 1) * top * np.arange(1, GRID + 1) / GRID * (n / count)
    levels = np.interp(places, np.arange(n + 1), np.concatenate([[0.0], np.sort(z)]))
    return top, tuple(levels.tolist())


def local_quantiles(z: Float, deviations: Float, top: float) -> LocalQuantiles | None:
    """Return quantiles of z (n,), errors in units of their standard deviations (n,), up to the
    level ``top``; None if there are too few rows."""
    if len(z) < FEWEST_LOCAL:
        return None
    return LocalQuantiles.of(z, deviations, top, GRID).calibrated(z, deviations, top)


def recalibrated(
    calibration: Calibration, z: Float, deviations: Float, *, grouped: bool = False
) -> Calibration:
    """Return a calibration with quantiles of other errors.

    Args:
        calibration: the calibration, whose noise variance is unchanged
        z: errors in units of their standard deviations (n,)
        deviations: standard deviations (n,)
        grouped: True for errors of left-out groups
    """
    top, levels = quantiles(np.abs(z))
    local = None if grouped else local_quantiles(z, deviations, top)
    return replace(calibration, n=len(z), top=top, quantiles=levels, local=local)


def inside_95(z: Float) -> int:
    """Return how many of |z| (n,) are inside the 95 % interval that the other half of them
    calibrates."""
    inside = 0
    for known, new in alternate_halves(np.arange(len(z))):
        top, levels = quantiles(z[known])
        multiple = Calibration(len(known), 0.0, 1.0, top, levels).multiple(0.95)
        inside += int((z[new] <= multiple).sum())
    return inside


def _pooled(z: Float, centres: Bool) -> Float:
    """Return |z| (n,), with centres and other rows each scaled to their common mean square unless
    either group is small."""
    square = np.mean(z**2)
    pooled = z.copy()
    for group in (centres, ~centres):
        if group.sum() < FEWEST_OF_GROUP or not z[group].any():
            return z
        pooled[group] *= np.sqrt(square / np.mean(z[group] ** 2))
    return pooled
