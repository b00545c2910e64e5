"""Fits as names, arrays and scalars: the part of a checkpoint that depends on the likelihood (``jobs.checkpoint``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from partirvm.core.laplace import LaplaceState
from partirvm.core.left_out import Calibration
from partirvm.core.logistic import LogisticBlock
from partirvm.core.posterior import JointPosterior, Posterior
from partirvm.core.priors import Prior
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import HyperState
from partirvm.kernels.design import Design

Packed: TypeAlias = dict[str, Any]

STATISTICS = ("labels", "gram", "projection", "offset", "sum_squares", "n", "log_weight")
POSTERIOR = (
    *("mean", "variance", "determinedness", "residual", "log_evidence", "factor", "scale", "jitter", "rounding"),
)
BLOCK = ("log_likelihood", "gradient", "curvature", "wrong", "n", "nll")
CALIBRATION = ("n", "noise_variance", "overconfidence", "top", "quantiles")
SCORES = ("n", "square", "absolute", "nll", "crps", "interval_score", "covered", "unit")
DENSE = ("alpha", "beta", "iteration", "floored", "entered")
LAPLACE = ("labels", "alpha", "weights", "passes")


def named(value: Any, names: Iterable[str]) -> Packed:
    """Return these attributes of a value by name."""
    return {name: getattr(value, name) for name in names}


def picked(packed: Packed, names: Iterable[str]) -> Packed:
    """Return the items with these names; ``KeyError`` is raised if one is missing."""
    return {name: packed[name] for name in names}


def pack_dense(fit: HyperState) -> Packed:
    """Return a fit of Gram statistics as names, arrays and scalars."""
    found = fit.posterior
    each = found.each if isinstance(found, JointPosterior) else (found,)
    return {
        "statistics": named(fit.statistics, STATISTICS),
        "calibration": None if fit.calibration is None else named(fit.calibration, CALIBRATION),
        "posteriors": [named(one, POSTERIOR) for one in each],
        **named(fit, DENSE),
    }


def unpack_dense(packed: Packed, start: HyperState, design: Design, *, several: bool) -> HyperState:
    """Return the fit of the design's columns; ``start`` gives all fields that are not packed."""
    posteriors = tuple(Posterior(**each) for each in packed["posteriors"])
    calibration = packed["calibration"]
    return replace(
        start,
        statistics=GramStatistics(design.basis, **packed["statistics"]),
        calibration=None if calibration is None else Calibration(**calibration),
        found=JointPosterior(posteriors) if several else posteriors[0],
        **picked(packed, DENSE),
    )


def pack_laplace(fit: LaplaceState) -> Packed:
    """Return a fit by Laplace's approximation as names, arrays and scalars."""
    posteriors = [named(each, POSTERIOR) for each in fit.posteriors]
    return {**named(fit, LAPLACE), "posteriors": posteriors, "block": named(fit.block, BLOCK)}


def unpack_laplace(packed: Packed, likelihood: str, prior: Prior) -> LaplaceState:
    """Return the fit, for the likelihood of this name."""
    posteriors = tuple(Posterior(**each) for each in packed["posteriors"])
    block, own = LogisticBlock(**packed["block"]), picked(packed, LAPLACE)
    return LaplaceState(likelihood, block=block, posteriors=posteriors, prior=prior, **own)
