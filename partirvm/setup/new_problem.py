"""Make the ``Problem`` of a fit: scaling, kernel, prior, classes and noise, for use by the strategies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.moments import Moments
from partirvm.core.priors import GammaDensity, Prior
from partirvm.data import Source
from partirvm.errors import DataError, UsageError
from partirvm.execution import Executor
from partirvm.kernels.bases import labels_by_name
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods import likelihood_for
from partirvm.likelihoods.gaussian import root_mean
from partirvm.options import Request
from partirvm.options.constraints import OneOf
from partirvm.setup.basis import resolve_basis
from partirvm.setup.classes import find_classes
from partirvm.setup.kernel import resolve_kernel
from partirvm.strategies.problem import Problem
from partirvm.types import GRAIN, Scaling, over_square

FARTHEST_NOISE = 1e60
"""Largest ratio of a given noise variance to the target variance; the smallest ratio is its reciprocal."""


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
            "separately with multi_output='independent'"
        )
    if problem.prior != Prior(fixed=problem.prior.fixed):
        raise UsageError(
            f"alpha_prior and noise_prior need a single target, but y has {source.n_targets} targets: "
            "leave these options out, or use multi_output='independent'"
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
        OneOf(tuple(labels))("a name in fixed_alpha", name)
    fixed = sorted((labels[name], alpha) for name, alpha in held.items())
    return Prior(
        GammaDensity(*parameters.alpha_prior),
        GammaDensity(shape, float(over_square(rate, target_scale))),
        tuple(fixed),
    )


def _deviation(moments: Any) -> NDArray[np.float64]:
    deviation: NDArray[np.float64] = moments.deviation
    return np.where(deviation > 0, deviation, 1.0)
