"""Make the ``Problem`` of a fit: scaling, kernel, prior, classes and noise, for use by the strategies."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.core.priors import GammaDensity, Prior
from partirvm.data import Source
from partirvm.data.labels import class_weights
from partirvm.errors import DataError, DataWarning, UsageError
from partirvm.execution import Executor
from partirvm.execution.tasks import Progress
from partirvm.kernels.design import NONE, Design
from partirvm.kernels.functions import labels_by_name
from partirvm.likelihoods import likelihood_for
from partirvm.likelihoods.gaussian import root_mean
from partirvm.options import Request
from partirvm.options.constraints import Check
from partirvm.quoting import listed, quoted
from partirvm.resolve.basis import resolve_basis
from partirvm.resolve.kernel import resolve_kernel
from partirvm.strategies.problem import Problem
from partirvm.types import GRAIN, Scaling, over_square

Codes = NDArray[np.integer[Any]]
Float = NDArray[np.float64]
Int = NDArray[np.int64]

FARTHEST_NOISE = 1e60
"""Largest ratio of a given noise variance to the target variance; the smallest ratio is its reciprocal."""

RARE = 5
"""A class with fewer rows gives a warning."""

MANY = 20
"""More classes than this need ``LEAST_ROWS`` rows per class on average: the target is probably a number or a key."""

LEAST_ROWS = 2.0
"""Minimum mean number of rows per class, if there are more than ``MANY`` classes."""

NAMED = 10
"""Maximum number of classes named in a warning."""


def new_problem(
    source: Source, held_out: Source | None, parameters: Request, moments: Moments, executor: Executor
) -> Problem:
    """Make the problem of the source's rows; a kernel that will be learned is the initial one."""
    classes, targets = source.columns.classes is not None, moments.targets
    scaling = resolve_scaling(moments, parameters.standardize, classes=classes, fit_intercept=parameters.fit_intercept)
    empty = Design(
        resolve_kernel(parameters, moments, source.columns),
        scaling,
        np.zeros((0, source.n_features)),
        NONE,
        bias=False,
        origin=scaling.inputs(moments.inputs.mean),
        functions=resolve_basis(parameters, source, scaling),
    )
    labels, scales = labels_by_name(empty.functions, source.columns.features), scaling.t_scale
    found, variances = find_classes(source, parameters, executor), np.ones(1)
    if found is None:
        variances = (targets.variance * targets.total / targets.n) / (scales / targets.unit) ** 2
        variances = np.where(np.abs(variances - 1.0) < GRAIN, 1.0, variances)
    problem = Problem(
        n_rows=source.n_rows,
        empty=empty,
        bias=parameters.fit_intercept,
        target_variance=float(variances.mean()),
        noise_variance=None,
        target_scale=root_mean(scales),
        shuffled=source.shuffled,
        held_out=held_out is not None,
        likelihood=likelihood_for(0, parameters.noise_variance),
        prior=resolve_prior(parameters, float(scales[0]), labels),
    )
    if found is not None:
        likelihood = likelihood_for(found.n_classes, parameters.multi_class)
        return replace(problem, likelihood=likelihood, n_classes=found.n_classes, codes=found.codes)
    if not isinstance(parameters.noise_variance, str):
        noise = over_square(parameters.noise_variance, scales)
        _check_noise(parameters.noise_variance, noise, variances)
        problem = replace(problem, noise_variance=noise if source.n_targets > 1 else float(noise[0]))
    if source.n_targets == 1:
        return problem
    _check_targets(source, problem, variances)
    return replace(problem, target_variances=np.where(variances > 0, variances, 1.0))


def _check_targets(source: Source, problem: Problem, variances: NDArray[np.float64]) -> None:
    """Raise an error if one of several targets is constant, or if their priors were given."""
    if variances.any() and not variances.all():
        which = int(np.flatnonzero(variances == 0)[0])
        name = f" ({source.columns.targets[which]!r})" if source.columns.targets else ""
        raise DataError(
            f"target {which} of {source.n_targets}{name} is constant: leave this target out, or fit each target "
            "separately with MultiOutputRegressor of scikit-learn"
        )
    if problem.prior != Prior(fixed=problem.prior.fixed):
        raise UsageError(
            f"alpha_prior and noise_prior need a single target, but y has {source.n_targets} targets: "
            "leave these options out, or fit each target separately"
        )


def _check_noise(given: float, noise: NDArray[np.float64], target_variances: NDArray[np.float64]) -> None:
    """Raise ``UsageError`` for a noise variance that is numerically zero or infinite relative to the target variance.

    ``given`` is in squared target units; ``noise`` (T,) is the same variance in units of the scaled targets.
    """
    share = np.divide(noise, target_variances, out=np.ones_like(target_variances), where=target_variances > 0)
    if not ((share >= 1 / FARTHEST_NOISE) & (share <= FARTHEST_NOISE)).all():
        far = share[int(np.argmax(np.abs(np.log10(np.maximum(share, np.finfo(float).tiny)))))]
        raise UsageError(
            f"noise_variance is {given:g}, which is {far:.0e} × the target variance: give a variance in squared target "
            f"units between {1 / FARTHEST_NOISE:.0e} × and {FARTHEST_NOISE:.0e} × the target variance, or 'estimate'"
        )


def resolve_scaling(
    moments: Moments, standardize: bool, *, classes: bool = False, fit_intercept: bool = True
) -> Scaling:
    """Compute the scaling from the training moments: subtract the mean, divide by the standard deviation (ddof 0).

    The scale of a constant feature is 1. The scale of a constant target is its absolute value, so that its noise floor
    is in its own unit. Without ``standardize`` only the mean of the target is subtracted; this does not change a model
    with a bias, but it improves the numerical accuracy. Without a bias the target is then left alone. With ``classes``
    the target holds codes and is not scaled.
    """
    d, T = len(moments.inputs.mean), len(moments.targets.mean)
    t_shift, t_scale = moments.targets.mean, _deviation(moments.targets) if standardize else np.ones(T)
    t_scale = np.where(moments.targets.constant & (t_shift != 0), np.abs(t_shift), t_scale)
    if not (standardize or fit_intercept):
        t_shift = np.zeros(T)
    if classes:
        t_shift, t_scale = np.zeros(T), np.ones(T)
    if not standardize:
        return Scaling(np.zeros(d), np.ones(d), t_shift, t_scale)
    return Scaling(moments.inputs.mean, _deviation(moments.inputs), t_shift, t_scale)


def resolve_prior(parameters: Request, target_scale: float, labels: Mapping[str, int]) -> Prior:
    """Make the prior of the request.

    The rate of the noise prior is given in squared target units and divided by the squared target scale. The rate of
    the α prior is used unchanged. ``labels`` maps the names of the leading columns to their labels; ``fixed_alpha`` may
    fix the α of these columns. Raises ``UsageError`` if ``fixed_alpha`` contains another name.
    """
    shape, rate = parameters.noise_prior
    held = parameters.fixed_alpha or {}
    for name in held:
        Check("word", tuple(labels))("a name in fixed_alpha", name)
    fixed = sorted((labels[name], alpha) for name, alpha in held.items())
    return Prior(
        GammaDensity(*parameters.alpha_prior),
        GammaDensity(shape, float(over_square(rate, target_scale))),
        tuple(fixed),
    )


def _deviation(moments: Any) -> NDArray[np.float64]:
    deviation: NDArray[np.float64] = moments.deviation
    return np.where(deviation > 0, deviation, 1.0)


@dataclass(frozen=True)
class Classes:
    """Class codes of all rows (N,), the number of rows of positive weight of each class (K,), and their weights (K,).

    A code takes one byte for up to 127 classes and two bytes for more classes.
    """

    codes: Codes
    counts: Int
    totals: Float

    @property
    def n_classes(self) -> int:
        """K, the number of classes."""
        return len(self.counts)

    @classmethod
    def of(cls, source: Source, executor: Executor, progress: Progress | None = None) -> Classes:
        """Read all rows once. ``progress`` is called after each tile; an exception from it ends the reading."""
        assert source.columns.classes is not None
        count = partial(_counts_of_tile, len(source.columns.classes))
        tiles = [found for _, found in executor.map(count, source, range(source.n_tiles), progress)]
        codes, counts, totals = zip(*tiles, strict=True)
        return cls(np.concatenate(codes), np.sum(counts, axis=0), np.sum(totals, axis=0))


def _counts_of_tile(n_classes: int, source: Source, number: int) -> tuple[Codes, Int, Float]:
    """Read a tile; return its class codes, and rows of positive weight and sums of weights of each class (K,)."""
    tile = source.tile(number)
    codes = tile.t[:, 0].astype(np.int64)
    counts = np.bincount(codes if tile.weights is None else codes[tile.weights > 0], minlength=n_classes)
    totals = np.bincount(codes, tile.weights, minlength=n_classes).astype(np.float64)
    return codes.astype(np.int8 if n_classes <= np.iinfo(np.int8).max else np.int16), counts, totals


def find_classes(source: Source, parameters: Request, executor: Executor) -> Classes | None:
    """Read all rows and return the classes of the target; return None for a numeric target.

    Raises ``UsageError`` if the option ``classify`` contradicts the target, ``DataError`` for fewer than two classes.
    """
    labels = source.columns.classes
    if labels is None:
        if parameters.classify:
            raise UsageError(
                f"{source}: the target {quoted(source.columns.target)} is a number: to classify, ingest the data with "
                "classes=True (`--classes`)"
            )
        return None
    if parameters.classify is False:
        raise UsageError(
            f"{source}: the target {quoted(source.columns.target)} is a class ({len(labels)} of them): use "
            "RVMClassifier, or ingest the data without --classes if it is a number"
        )
    found = Classes.of(source, executor)
    _check(source.columns.target, labels, found.counts)
    return found


def class_weights_of(
    source: Source, parameters: Request, executor: Executor, progress: Progress | None = None
) -> Float | None:
    """Return the weight of each class (K,), or None if ``class_weight`` is None.

    The value "balanced" reads all rows once to count the classes. ``progress`` is called after each tile, and an
    exception from ``progress`` ends the reading. Raises the errors of ``class_weights``, and ``UsageError`` if the
    target is numeric.
    """
    if parameters.class_weight is None:
        return None
    if source.columns.classes is None:
        raise UsageError(
            f"{source}: class_weight needs classes, but the target {quoted(source.columns.target)} is a number: "
            "ingest the data with classes=True (`--classes`), or with a column of row weights (`--weights`)"
        )
    balanced = parameters.class_weight == "balanced"
    counts = Classes.of(source, executor, progress).totals if balanced else None
    return class_weights(parameters.class_weight, source.columns.classes, counts)


def _check(target: str, labels: tuple[Any, ...], counts: Int) -> None:
    there = np.flatnonzero(counts)
    if len(there) < 2:
        found = "no class" if not len(there) else f"one class, {quoted(labels[there[0]])}"
        raise DataError(
            f"the target {quoted(target)} has {found} in all rows of positive weight: a classification needs two"
        )
    if len(there) > MANY and counts.sum() < LEAST_ROWS * len(there):
        raise DataError(
            f"the target {quoted(target)} has {len(there):,} classes in {counts.sum():,} rows of positive weight: with "
            f"more than {MANY} classes, {LEAST_ROWS:.0f} rows per class are needed on average; merge rare classes, or "
            "fit the target as a number, without classes"
        )
    missing = [str(labels[k]) for k in np.flatnonzero(counts == 0).tolist()]
    rare = [f"{labels[k]} ({counts[k]})" for k in np.flatnonzero((counts > 0) & (counts < RARE))]
    if missing:
        warnings.warn(
            f"classes without a row of positive weight: {_named(missing)}; the model cannot learn their probability",
            DataWarning,
            stacklevel=4,
        )
    if rare:
        warnings.warn(
            f"classes with fewer than {RARE} rows: {_named(rare)}; their rows take part in the fit, but their "
            "probability is uncertain",
            DataWarning,
            stacklevel=4,
        )


def _named(classes: list[str]) -> str:
    """List the first ``NAMED`` classes and the number of the others.

    >>> _named(["a", "b"]), _named([str(k) for k in range(100)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 90 more')
    """
    rest = len(classes) - NAMED
    return listed(classes[:NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
