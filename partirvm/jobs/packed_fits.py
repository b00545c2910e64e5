"""Fits as names, arrays and scalars: the part of a checkpoint that depends on the likelihood (``jobs.checkpoint``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from partirvm.core.laplace import LaplaceState
from partirvm.core.left_out import Calibration
from partirvm.core.link import LINKS, LogisticBlock
from partirvm.core.posterior import JointPosterior, Posterior
from partirvm.core.scores import ClassScores, Scores
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import HyperState
from partirvm.kernels.design import Design
from partirvm.likelihoods.classes import Start
from partirvm.likelihoods.gaussian import Warm
from partirvm.strategies.problem import Problem

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


def pack_fit(fit: Any) -> Packed:
    """Return a fit as names, arrays and scalars, without what follows from its problem and design."""
    if isinstance(fit, LaplaceState):
        posteriors = [named(each, POSTERIOR) for each in fit.posteriors]
        own = {**named(fit, LAPLACE), "likelihood": fit.likelihood}
        return {**own, "posteriors": posteriors, "block": named(fit.block, BLOCK)}
    found = fit.posterior
    each = found.each if isinstance(found, JointPosterior) else (found,)
    return {
        "statistics": named(fit.statistics, STATISTICS),
        "calibration": None if fit.calibration is None else named(fit.calibration, CALIBRATION),
        "posteriors": [named(one, POSTERIOR) for one in each],
        **named(fit, DENSE),
    }


def unpack_fit(packed: Packed, problem: Problem, design: Design) -> HyperState | LaplaceState:
    """Return the fit of the columns of ``design`` from the result of ``pack_fit``.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` for names or values that are invalid for a fit.
    """
    posteriors = tuple(Posterior(**each) for each in packed["posteriors"])
    if problem.classifies:
        if packed["likelihood"] not in LINKS:
            raise ValueError(f"the likelihood is {packed['likelihood']!r}; known: {', '.join(LINKS)}")
        block, own = LogisticBlock(**packed["block"]), picked(packed, (*LAPLACE, "likelihood"))
        return LaplaceState(block=block, posteriors=posteriors, prior=problem.prior, **own)
    calibration = packed["calibration"]
    several = problem.target_variances is not None
    start: HyperState = problem.likelihood.start(problem)
    return replace(
        start,
        statistics=GramStatistics(design.basis, **packed["statistics"]),
        calibration=None if calibration is None else Calibration(**calibration),
        found=JointPosterior(posteriors) if several else posteriors[0],
        **picked(packed, DENSE),
    )


def pack_start(start: Any) -> Packed:
    """Return a start of a fit as names, arrays and scalars."""
    return named(start, ("labels", "alpha", "beta" if isinstance(start, Warm) else "weights"))


def unpack_start(packed: Packed, problem: Problem) -> Warm | Start:
    """Return the start from the result of ``pack_start``; raises as ``unpack_fit`` does."""
    if problem.classifies:
        return Start(**packed)
    return replace(Warm.of(problem.likelihood.start(problem)), **packed)


def pack_scores(scores: Scores | ClassScores | None) -> Packed | None:
    """Return the sums of the scores of numbers; those of classes are not stored."""
    return named(scores, SCORES) if isinstance(scores, Scores) else None


def unpack_scores(packed: Packed | None) -> Scores | None:
    """Return scores with these sums."""
    return None if packed is None else Scores(**packed)
