"""Preparation of features for the kernel: skewed features are warped if this raises the evidence,
and missing values are filled in.

A feature with a long tail spreads its rows so unevenly that no width suits all of them. A warp,
asinh((x − centre)/spread) in place of x, is linear near its centre and logarithmic far from it, on
both sides and even beyond the training rows. A feature is tried around its median and, like a
logarithm, from the end without the tail with one large and two small spreads. Features are tried
one by one, with all others unchanged; successful warps are then added in order of decreasing gain
while the evidence rises.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from partirvm.kernels import Kernel
from partirvm.kernels.anova import Anova
from partirvm.kernels.composed import inside
from partirvm.kernels.radial import RadialKernel
from partirvm.learning.exact_process import ProcessFit, ProcessRows, climb
from partirvm.learning.forms import with_gammas
from partirvm.learning.sample import SampledRows, fitted
from partirvm.scaling.maps import FeatureMap, Scaling
from partirvm.spec.problem import Problem
from partirvm.types import Float, Int

SKEWED = 0.8
"""Minimum absolute skewness of features that are tried."""

HEAVY = 4.5
"""Minimum kurtosis (3 for a normal distribution) of features that are tried although they are not
skewed."""

MOST_SKEWED = 24
"""Maximum number of features that are tried, to save time."""

CENTRES = 150
"""Maximum number of centres for the tied evidence: with 300, the same warps were chosen (protein,
census 8H, used cars). With 3,000 rows instead of 8,000, too little of the tails is visible: the
RMSE on census 16L is 3 % larger."""

EXACT_ROWS = 2000
"""Up to this many rows, the exact process gives the evidence."""

LESS_NOISE = 0.0, 1.4
"""Values subtracted from the exact process's log noise variance; the highest evidence counts."""

WARPED_STEPS = 15
"""Maximum number of L-BFGS steps after the warps."""

RIDGE = 0.05
"""Minimum eigenvalue of the input correlations, which is also added to each eigenvalue."""

MOST_INPUTS = 100
"""Maximum number of inputs for regressions; with more, missing values are replaced by the mean."""


class FeatureWarp(NamedTuple):
    """Centre and spread of asinh((x − centre)/spread), in the units of the feature."""

    centre: float
    spread: float


@dataclass(frozen=True)
class WarpTrial:
    """The result of warping one feature.

    Attributes:
        evidence: log evidence in nats.
        position: position of the feature.
        warp: warp of the feature.
        scaling: scaling of all inputs with the warp.
        kernel: kernel after the warp.
    """

    evidence: float
    position: int
    warp: FeatureWarp
    scaling: Scaling
    kernel: Kernel


@dataclass(frozen=True)
class WarpTrials:
    """Evidence of warps: from the exact process with few rows, otherwise the tied evidence of all
    rows.

    Attributes:
        rows: the rows of the process, with the unwarped problem.
        numbers: (n,), numbers of the rows of the process, in increasing order.
        centres: (c,), row numbers of the centres for the tied evidence, in increasing order.
        raw: (N, d), features of all rows, in the original units.
        process: the best process without warps.
        exact: whether the evidence comes from the exact process.
        margin: minimum gain of a warp in nats.
    """

    rows: ProcessRows
    numbers: Int
    centres: Int
    raw: Float
    process: ProcessFit
    exact: bool
    margin: float

    def evidence(self, scaling: Scaling, kernel: Kernel) -> float:
        """Return the evidence of a scaling and a kernel."""
        sample = self.rows.sample
        problem = self.rows.problem.with_scaling(scaling).with_kernel(kernel)
        if not self.exact:
            design = sample.candidates(problem, self.centres)
            *_, posterior = fitted(sample, problem, design, count=5)
            return float(posterior.log_evidence)
        inputs = scaling.inputs(sample.rows.gather(self.numbers).X)
        rows = replace(self.rows, problem=problem, X=inputs)
        noises = [self.process.noise - less for less in LESS_NOISE]
        fits = [replace(self.process, kernel=kernel, noise=noise) for noise in noises]
        return max(rows.profile(fit)[0] for fit in fits)

    def best(
        self, position: int, warps: Iterable[FeatureWarp], scaling: Scaling, kernel: Kernel
    ) -> WarpTrial:
        """Return the mildest among a feature's nearly equally good warps.

        Args:
            position: position of the feature
            warps: the warps, mildest first
            scaling: scaling of all inputs without the warp
            kernel: the kernel before the warp
        """
        d = scaling.n_inputs

        def initial(gammas: Float, inputs: Int) -> Float:
            return np.where(inputs == position, 1 / d, gammas)

        # the learned gamma applies to the unwarped feature; 1/d is gamma="scale"
        kernels = kernel, with_gammas(kernel, d, initial)
        scalings = [(warp, warped_by(scaling, position, warp, self.raw)) for warp in warps]
        trials = [
            WarpTrial(self.evidence(bent, start), position, warp, bent, start)
            for (warp, bent), start in product(scalings, kernels)
        ]
        least = max(trial.evidence for trial in trials) - self.margin
        return next(trial for trial in trials if trial.evidence >= least)


def warped(
    sample: SampledRows, problem: Problem, order: Int, most: int, best: ProcessFit
) -> tuple[Problem, ProcessFit]:
    """Warp skewed features.

    Each warp must raise the evidence by log n nats, ½ log n for each of its two numbers (Schwarz
    1978). With many rows, the tied evidence is used. With few rows, the exact process is not yet
    adapted to a warp under trial: warps that gain one nat are accepted, and kept if all of them
    together have gained enough after the process is refitted.

    Args:
        sample: the sample of rows
        problem: the problem with unwarped features
        order: (n,), numbers of the rows in random order
        most: maximum number of rows of the process
        best: the best process with unwarped features

    Returns the problem with warped features, and its best process.
    """
    raw = sample.rows.gather(np.sort(order)).X[:, : problem.empty.scaling.n_features]
    nats = float(np.log(len(order)))
    exact = len(order) <= EXACT_ROWS
    numbers = np.sort(order[:most])
    trials = WarpTrials(
        rows=ProcessRows.of(sample, problem, numbers),
        numbers=numbers,
        centres=np.sort(order[: min(CENTRES, len(order) // 4)]),
        raw=raw,
        process=best,
        exact=exact,
        margin=1.0 if exact else nats,
    )
    taken = accumulated(trials, problem.empty.scaling, best.kernel)
    if not taken:
        return problem, best
    bent = problem.with_scaling(with_regressions(taken[-1].scaling, raw))
    rows = ProcessRows.of(sample, bent, order[:most])
    climbed = climb(rows, replace(best, kernel=taken[-1].kernel), WARPED_STEPS)
    if exact and climbed.value < best.value + len(taken) * nats:
        return problem, best
    return bent, climbed


def accumulated(trials: WarpTrials, scaling: Scaling, kernel: Kernel) -> list[WarpTrial]:
    """Return the trials that raise the evidence, each of which includes all warps before it."""
    skewed = _skewed(trials.raw, scaling, kernel)[:MOST_SKEWED]
    if not skewed:
        return []
    first = trials.evidence(scaling, kernel)
    singles = [trials.best(j, warps(trials.raw[:, j]), scaling, kernel) for j in skewed]
    taken: list[WarpTrial] = []
    evidence = first
    for single in sorted(singles, key=lambda trial: -trial.evidence):
        if single.evidence <= first + trials.margin:
            break
        trial = single
        if taken:
            before = taken[-1]
            trial = trials.best(single.position, [single.warp], before.scaling, before.kernel)
        if trial.evidence > evidence + trials.margin:
            taken.append(trial)
            evidence = trial.evidence
    return taken


def all_warped(scaling: Scaling, kernel: Kernel, raw: Float) -> Scaling:
    """Return the scaling that warps each skewed feature of the rows (n, d) from the end without the
    tail."""
    skewed = _skewed(raw, scaling, kernel, len(raw))
    for j in skewed:
        _, from_the_end, *_ = warps(raw[:, j])
        scaling = warped_by(scaling, j, from_the_end, raw)
    return with_regressions(scaling, raw) if skewed else scaling


def _skewed(raw: Float, scaling: Scaling, kernel: Kernel, seen: int = 200) -> list[int]:
    """Return the positions of numeric features with a long tail, by decreasing kurtosis.

    Flags and short lists of codes are not warped.

    Args:
        raw: (n, d), rows before scaling
        scaling: how the features are scaled and embedded
        kernel: the kernel, whose radial parts act on the numeric features
        seen: number of leading rows in which a feature must take more than four values
    """
    deviation = np.nanstd(raw, axis=0)
    z = (raw - np.nanmean(raw, axis=0)) / np.where(deviation > 0, deviation, 1.0)
    skewness = np.nanmean(z**3, axis=0)
    kurtosis = np.nanmean(z**4, axis=0)
    several = np.array([len(np.unique(x[:seen])) > 4 for x in raw.T])
    tried = several & ((np.abs(skewness) > SKEWED) | (kurtosis > HEAVY))
    parts = inside(kernel, scaling.n_inputs, RadialKernel | Anova)
    numeric = [j for _, columns in parts for j in columns.tolist()]
    places = np.argsort(-kurtosis, kind="stable").tolist()
    return [j for j in places if tried[j] and j in numeric and j not in scaling.embedded]


def warps(x: Float) -> Iterator[FeatureWarp]:
    """Yield the warps of a feature (n,), mildest first: around its median, and from the end without
    the tail."""
    x = x[np.isfinite(x)]
    middle = float(np.median(x))
    end = float(x.min() if ((x - x.mean()) ** 3).sum() > 0 else x.max())
    for centre, factors in ((middle, (1.0,)), (end, (1.0, 1 / 16, 1 / 256))):
        distances = np.abs(x - centre)
        for factor in factors if distances.any() else ():
            yield FeatureWarp(centre, factor * float(np.median(distances[distances > 0])))


def warped_by(scaling: Scaling, j: int, warp: FeatureWarp, raw: Float) -> Scaling:
    """Return the scaling with one feature warped.

    Args:
        scaling: the scaling without this warp
        j: the index of the feature
        warp: centre and spread of the warp, in the units of the feature
        raw: (n, d), rows before scaling, on which the warped feature is standardised
    """
    features = scaling.features or FeatureMap.plain(raw.shape[1])
    centres = features.centres.copy()
    spreads = features.spreads.copy()
    centres[j], spreads[j] = warp
    return restandardised(scaling, replace(features, centres=centres, spreads=spreads), raw, [j])


def restandardised(
    scaling: Scaling, features: FeatureMap, raw: Float, places: list[int]
) -> Scaling:
    """Return the scaling for a new map of features.

    Args:
        scaling: scaling for the previous map
        features: the new map
        raw: (n, d), rows on which the changed inputs are standardised
        places: numbers of the changed inputs
    """
    shift = scaling.x_shift.copy()
    scale = scaling.x_scale.copy()
    values = features(raw)[:, places]
    shift[places] = np.nanmean(values, axis=0)
    scale[places] = np.nanstd(values, axis=0)
    positive = np.where(scale > 0, scale, 1.0)
    return replace(scaling, x_shift=shift, x_scale=positive, features=features)


def with_regressions(scaling: Scaling, raw: Float) -> Scaling:
    """Return the scaling that predicts missing values from the other inputs by regressions learned
    from the rows (n, d).

    In a normal distribution with precision P, the conditional mean of an input is −Σ_k P_jk z_k /
    P_jj. Correlations computed from rows with both values need not form a valid correlation matrix,
    so small eigenvalues are raised.
    """
    if scaling.features is None or not len(scaling.features.gaps) or scaling.n_inputs > MOST_INPUTS:
        return scaling
    numeric = np.arange(scaling.n_inputs)
    if scaling.blank is not None:
        # a missing label is a separate level, and codes are useless as predictors
        numeric = np.flatnonzero(scaling.blank == 0)
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
