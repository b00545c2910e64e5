"""How the kernel sees features: skewed ones are warped if the evidence rises, and missing values
are filled in.

A feature with a long tail spreads its rows so unevenly that no width suits all of them. A warp,
asinh((x − centre)/spread) in place of x, is linear near its centre and logarithmic far from it, on
both sides and even beyond the training rows. A feature is tried around its median and, like a
logarithm, from the end without the tail with one large and two small spreads. Features are tried
one by one with all others unchanged; those that gain are then added in order of decreasing gain
while the evidence rises.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from partirvm.kernels import Kernel
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.forms import with_gammas
from partirvm.learning.sample import SampledRows, fitted
from partirvm.strategies.problem import Problem
from partirvm.types import FeatureMap, Float, Int, Scaling

Warp: TypeAlias = tuple[float, float]
"""Centre and spread."""

Found: TypeAlias = tuple[float, int, Warp, Scaling, Kernel]
"""Evidence for a warped feature, its position and warp, and the scaling of all inputs and the
kernel after warping."""

SKEWED, HEAVY = 0.8, 4.5
"""Minimum absolute skewness, or kurtosis (a normal has 3), of features that are tried."""

CENTRES = 150
"""Maximum number of centres for the tied evidence: 300 chose the same warps (protein, census 8H,
used cars). 3,000 rows instead of 8,000 show too little of the tails: the RMSE on census 16L is 3 %
larger."""

EXACT, LESS_NOISE = 2000, (0.0, 1.4)
"""Up to this many rows, the exact process gives the evidence, at its log noise or this much
less."""

RIDGE, MOST_INPUTS = 0.05, 100
"""Minimum eigenvalue of the correlations, and what is added to it; with more inputs, missing values
become the mean."""


def warped(
    sample: SampledRows, problem: Problem, order: Int, most: int, best: ProcessFit
) -> tuple[Problem, ProcessFit]:
    """Return the problem whose skewed features are warped, and its best process on ``most`` rows,
    from ``best``.

    Each warp must raise the evidence by log n nats, ½ log n for each of its two numbers (Schwarz
    1978). With many rows, this is the tied evidence. With few, the exact process is not yet adapted
    to a warp when it is tried, so warps that gain one nat are taken, and kept if all of them
    together have gained enough after its ascent.
    """
    raw = sample.rows.gather(np.sort(order)).X
    exact = len(order) <= EXACT and not problem.n_classes
    few = np.sort(order[:most])
    centres = np.sort(order[: min(CENTRES, len(order) // 4)])
    rows, seen = ProcessRows.of(sample, problem, few), sample.rows.gather(few).X
    nats = float(np.log(len(order)))
    count = 0
    least = 1.0 if exact else nats

    def evidence(scaling: Scaling, kernel: Kernel) -> float:
        tried = problem.with_scaling(scaling).with_kernel(kernel)
        if not exact:
            return float(
                fitted(sample, tried, sample.candidates(tried, centres), count=5)[2].log_evidence
            )
        own = replace(rows, problem=tried, X=scaling.inputs(seen))
        return max(
            own.profile(replace(best, kernel=kernel, noise=best.noise - less))[0]
            for less in LESS_NOISE
        )

    def best_of(j: int, warps: Iterable[Warp], scaling: Scaling, kernel: Kernel) -> Found:
        tried = [(warp, warped_by(scaling, j, warp, raw)) for warp in warps]
        d = scaling.n_inputs
        # the learned gamma belongs to the unwarped feature; 1/d is gamma="scale"
        kernels = (
            kernel,
            with_gammas(kernel, d, lambda gammas, inputs: np.where(inputs == j, 1 / d, gammas)),
        )
        found = [
            (evidence(own, each), j, warp, own, each) for warp, own in tried for each in kernels
        ]
        most = max(each[0] for each in found)
        return next(
            each for each in found if each[0] >= most - least
        )  # the mildest of equally good warps

    scaling = problem.empty.scaling
    kernel = best.kernel
    skewed = _skewed(raw, scaling, kernel)[:24]  # to save time
    value = first = evidence(scaling, kernel) if skewed else 0.0
    singles = [best_of(j, warps(raw[:, j]), scaling, kernel) for j in skewed]
    for single in sorted(singles, key=lambda each: -each[0]):
        if single[0] > first + least:
            found = single if not count else best_of(single[1], [single[2]], scaling, kernel)
            if found[0] > value + least:
                count = count + 1
                (value, *_, scaling, kernel) = found
    if not count:
        return problem, best
    changed = problem.with_scaling(with_regressions(scaling, raw))
    begun = replace(best, kernel=kernel)
    climbed = climb(ProcessRows.of(sample, changed, order[:most]), begun, 15)
    return (
        (problem, best)
        if exact and climbed.value < best.value + count * nats
        else (changed, climbed)
    )


def all_warped(scaling: Scaling, kernel: Kernel, raw: Float) -> Scaling:
    """Return the scaling with each skewed feature of rows (n, d), if any, warped from the end
    without its tail."""
    for j in (skewed := _skewed(raw, scaling, kernel, len(raw))):
        scaling = warped_by(scaling, j, list(warps(raw[:, j]))[1], raw)
    return with_regressions(scaling, raw) if skewed else scaling


def _skewed(raw: Float, scaling: Scaling, kernel: Kernel, seen: int = 200) -> list[int]:
    """Return the positions of numeric features of rows (n, d) with a long tail, by decreasing
    kurtosis.

    It must take more than four values in the first ``seen`` rows: flags and short lists of codes
    are not warped.
    """
    deviation = np.nanstd(raw, axis=0)
    z = (raw - np.nanmean(raw, axis=0)) / np.where(deviation > 0, deviation, 1.0)
    skewness = np.nanmean(z**3, axis=0)
    kurtosis = np.nanmean(z**4, axis=0)
    several = np.array([len(np.unique(x[:seen])) > 4 for x in raw.T])
    tried = several & ((np.abs(skewness) > SKEWED) | (kurtosis > HEAVY))
    numeric = [
        j for _, columns in inside(kernel, scaling.n_inputs, RadialKernel) for j in columns.tolist()
    ]
    places = np.argsort(-kurtosis, kind="stable").tolist()
    return [j for j in places if tried[j] and j in numeric and j not in scaling.embedded]


def warps(x: Float) -> Iterator[Warp]:
    """Yield the warps of a feature (n,), mildest first: around its median, and from the end without
    the tail."""
    x = x[np.isfinite(x)]
    middle = float(np.median(x))
    end = float(x.min() if ((x - x.mean()) ** 3).sum() > 0 else x.max())
    for centre, factors in ((middle, (1.0,)), (end, (1.0, 1 / 16, 1 / 256))):
        distances = np.abs(x - centre)
        for factor in factors if distances.any() else ():
            yield centre, factor * float(np.median(distances[distances > 0]))


def warped_by(scaling: Scaling, j: int, warp: Warp, raw: Float) -> Scaling:
    """Return the scaling with feature j warped by centre and spread."""
    features = scaling.features or FeatureMap.plain(raw.shape[1])
    centres = features.centres.copy()
    spreads = features.spreads.copy()
    centres[j], spreads[j] = warp
    return restandardised(scaling, replace(features, centres=centres, spreads=spreads), raw, [j])


def restandardised(
    scaling: Scaling, features: FeatureMap, raw: Float, places: list[int]
) -> Scaling:
    """Return the scaling for new ``features``, whose inputs at these places are standardised on
    rows (n, d)."""
    shift = scaling.x_shift.copy()
    scale = scaling.x_scale.copy()
    values = features(raw)[:, places]
    shift[places], scale[places] = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    return replace(
        scaling, x_shift=shift, x_scale=np.where(scale > 0, scale, 1.0), features=features
    )


def with_regressions(scaling: Scaling, raw: Float) -> Scaling:
    """Return the scaling that predicts missing values from the other inputs, learned from the rows
    (n, d).

    In a normal distribution with precision P, the conditional mean of an input is −Σ_k P_jk z_k /
    P_jj. Correlations over rows with both values need not be those of a distribution, so small
    eigenvalues are raised.
    """
    if scaling.features is None or not len(scaling.features.gaps) or scaling.n_inputs > MOST_INPUTS:
        return scaling
    numeric = np.arange(scaling.n_inputs)
    if scaling.blank is not None:
        numeric = np.flatnonzero(
            scaling.blank == 0
        )  # a missing label is a level of its own, and codes predict nothing
    Z = ((scaling.features(raw) - scaling.x_shift) / scaling.x_scale)[:, numeric]
    present = ~np.isnan(Z)
    Z = np.where(present, Z, 0.0)
    both = present.astype(float)
    squares, axes = np.linalg.eigh(Z.T @ Z / np.maximum(both.T @ both, 1.0))
    precision = (axes / (np.maximum(squares, RIDGE) + RIDGE)) @ axes.T
    of_numeric = -precision / precision.diagonal()[:, None]
    np.fill_diagonal(of_numeric, 0.0)
    regressions = np.zeros((scaling.n_inputs, scaling.n_inputs))
    regressions[np.ix_(numeric, numeric)] = of_numeric
    return replace(scaling, regressions=regressions)
