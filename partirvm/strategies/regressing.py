"""Steps of a fit of numbers that every strategy shares: where it starts, what it saves, how it ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.left_out import LeftOut
from partirvm.core.posterior import any_posterior, residuals
from partirvm.core.priors import FLAT, Prior
from partirvm.core.residuals import ResidualStatistics, Scores
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.updates import (
    ALPHA_FLOOR,
    HOPE,
    NOISE_FLOOR,
    HyperState,
    StopRule,
    candidate_factors,
    init,
    joint_entry,
    noise_precision,
)
from partirvm.kernels.design import Design
from partirvm.strategies.columns import labels_of, positions
from partirvm.strategies.instructions import Record
from partirvm.strategies.passes import LeaveOneOutPass, Pass, ResidualPass, ScorePass
from partirvm.strategies.problem import Options, Problem
from partirvm.types import power_of_two

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FIRST_NOISE = 0.1
"""σ² at the start, as a fraction of the target's mean square (Tipping's choice)."""

INTERMEDIATE = 100.0
"""Intermediate fits stop at this × tol: only the last fit needs the last digits."""

REBASES = 2
"""How often one fit may ask for statistics of the residual target before it goes on with what it has."""


def nothing(problem: Problem) -> HyperState:
    """The fit of no columns: the model is the target's mean."""
    statistics = GramStatistics.empty(problem.empty.basis, problem.n_targets)
    power = (problem.power or 1.0) if problem.powers is None else problem.powers
    share = FIRST_NOISE if problem.power else NOISE_FLOOR
    variance = share * power if problem.noise_variance is None else problem.noise_variance
    fixed = problem.noise_variance is not None
    return init(statistics, np.zeros(0), 1 / variance, power=power, fixed_noise=fixed, prior=problem.prior)


def join(fit: HyperState, kept: Design, new: Design, block: GramBlock) -> HyperState:
    """Extend a fit by the columns of ``new``: kept α and β stay, new ones start where Tipping & Faul put them."""
    statistics = fit.statistics.extend(labels_of(new), block, new.basis)
    return _enter(fit, statistics, labels_of(kept.join(new)))


@dataclass(frozen=True)
class Warm:
    """Where a fit over other rows begins: α (M,) of the columns with these labels, and β; other columns are new."""

    labels: Int
    alpha: Float
    beta: float | Float
    power: float | Float
    fixed_noise: bool
    prior: Prior = FLAT

    @classmethod
    def of(cls, fit: HyperState) -> Warm:
        """Where this fit stands."""
        return cls(fit.statistics.labels, fit.alpha, fit.beta, fit.power, fit.fixed_noise, fit.prior)

    def merge(self, other: Warm, labels: Int) -> Warm:
        """A beginning for the columns of two fits together, as far as they are among ``labels``.

        Columns of one fit excuse those of the other; started at the α that they had alone, they drive each other out
        before their noise has fallen. At ``HOPE`` × α the data speak first. β is the larger one.
        """
        both, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        alpha = np.concatenate([self.alpha, other.alpha])[first]
        there = np.isin(both, labels)
        return replace(self, labels=both[there], alpha=HOPE * alpha[there], beta=_larger(self.beta, other.beta))


def _larger(beta: float | Float, other: float | Float) -> float | Float:
    """The larger β, target by target."""
    if isinstance(beta, np.ndarray):
        return np.maximum(beta, other)
    return max(beta, other)


def restart(
    problem: Problem, options: Options, warm: Warm, design: Design, block: GramBlock, noise: GramBlock | None = None
) -> HyperState:
    """A fit of the columns of ``design`` over the rows of ``block``: α and β as far as ``warm`` has them.

    ``noise`` is what another pass for the same columns found over the rows that σ² is to come from.
    """
    empty, labels = GramStatistics.empty(design.basis, problem.n_targets), labels_of(design)
    old = warm.labels
    order = positions(np.concatenate([old, np.setdiff1d(labels, old)]), labels)
    statistics = empty.extend(labels, block, design.basis).take(order)
    start = statistics.take(np.arange(len(old)))
    alpha = np.maximum(warm.alpha, ALPHA_FLOOR * np.max(warm.beta) * np.diagonal(start.gram))
    begun = init(start, alpha, warm.beta, power=warm.power, fixed_noise=warm.fixed_noise, prior=warm.prior)
    fit = _enter(begun, statistics, labels)
    if noise is None:
        return fit
    return replace(
        fit,
        noise=empty.extend(labels, noise, design.basis),
        noise_share=min((options.noise_rows or problem.n_rows) / problem.n_rows, 1.0),
        noise_every=options.noise_every,
    )


def _enter(fit: HyperState, statistics: GramStatistics, labels: Int) -> HyperState:
    """Start a fit of ``statistics``, which hold the columns of ``fit`` first; it ends up in the order of labels."""
    beta, new = fit.beta, slice(fit.statistics.n_columns, None)
    precision = np.multiply.outer(np.diagonal(statistics.gram), beta)
    entry = joint_entry(*candidate_factors(fit, statistics), precision[new], fit.prior.alpha)
    alpha = np.concatenate([fit.alpha, entry])
    alpha = np.maximum(alpha, ALPHA_FLOOR * (precision if precision.ndim == 1 else precision.max(axis=1)))
    order = positions(labels, statistics.labels)
    entered, statistics = order >= fit.statistics.n_columns, statistics.take(order)
    begun = init(statistics, alpha[order], beta, power=fit.power, fixed_noise=fit.fixed_noise, prior=fit.prior)
    return replace(begun, entered=entered)


def intermediate_rule(options: Options, candidates: int) -> StopRule:
    """Stop at ``stop_fraction`` of the candidates that the fit began with, or of P by the literal rule."""
    whole = candidates if options.stop_rule == "candidates" else options.partition_size
    return StopRule(INTERMEDIATE * options.tol, options.max_iterations, int(options.stop_fraction * whole))


def final_rule(options: Options) -> StopRule:
    """Converge, and leave no column that the evidence would rather be without."""
    return StopRule(options.tol, options.max_iterations, thin=True)


def unguarded(rule: StopRule, fit: HyperState, rebases: int) -> StopRule:
    """The rule without its cancellation guard: the fit has had its ``REBASES``, or its σ² comes from other rows."""
    return rule if rebases < REBASES and fit.noise is None else replace(rule, guard=False)


def rebase(fit: HyperState, found: ResidualStatistics) -> HyperState:
    """The same α and β with statistics of the residual target, so that nothing cancels."""
    statistics = fit.statistics.rebase(fit.posterior.means, found.projection, found.energy)
    return replace(fit, statistics=statistics, found=any_posterior(statistics, fit.alpha, fit.beta))


def settling(problem: Problem, design: Design, fit: HyperState, seen: str, rows: Int | None) -> tuple[Pass, ...]:
    """The passes over ``rows`` that the last word on a fit needs, by one reading; ``seen`` is its likelihood.

    Rows are left out of a fit of one target that has seen all, and has estimated its noise.
    """
    found = fit.posterior
    last = ResidualPass(design, found.means, rows=rows)
    if seen != "full" or fit.noise is not None or fit.fixed_noise or problem.n_targets > 1:
        return (last,)
    return LeaveOneOutPass(design, found.mean, found.root(), float(fit.beta)), last


def settle(fit: HyperState, found: ResidualStatistics, left_out: LeftOut | None = None) -> HyperState:
    """The last word: noise from the measured residual, and the posterior and evidence that belong to it."""
    fit = replace(fit, left_out=left_out)
    if fit.noise is None:
        fit = rebase(fit, found)
    else:
        noise = fit.noise.rebase(fit.posterior.means, found.projection, found.energy)
        fit = replace(fit, noise=noise)
    if fit.fixed_noise:
        return fit
    beta, floored = noise_precision(fit)
    return replace(fit, beta=beta, floored=floored, found=any_posterior(fit.statistics, fit.alpha, beta))


def score(design: Design, fit: HyperState) -> ScorePass:
    """The pass over held-out rows that scores a fit, in the target's own units."""
    return ScorePass(design, fit.posterior.mean, fit.posterior.root(), fit.noise_variance)


def train_rmse(fit: HyperState, scale: Float) -> float:
    """Root mean square of the residual over the rows that σ² comes from, and over targets, in their own units (T,)."""
    n, residual = fit.statistics.n, np.atleast_1d(fit.posterior.residual)
    if fit.noise is not None:
        n, residual = fit.noise.n, residuals(fit.noise, fit.posterior.means)
    return float(root_mean(scale * np.sqrt(residual / max(n, 1))))


def root_mean(errors: Float) -> float:
    """Root mean square over targets of their root mean square errors (T,)."""
    if len(errors) == 1:
        return float(errors[0])
    unit = power_of_two(errors.max())
    return float(np.sqrt(((errors / unit) ** 2).mean()) * unit)


def noise(variance: Any, scale: Float) -> dict[str, Any]:
    """What a line of history says of the noise whose variance is that of standardised targets of these scales (T,)."""
    with np.errstate(over="ignore", under="ignore"):
        mean = float(np.mean(scale**2 * variance))
    return {"noise_variance": mean if np.isfinite(mean) else None, "noise_sd": root_mean(scale * np.sqrt(variance))}


def record(problem: Problem, fit: HyperState, scores: Scores | None = None, **facts: Any) -> Record:
    """A fit's line of history, in the target's own units; ``facts`` are what the strategy knows of it."""
    scale, n = problem.empty.scaling.t_scale, fit.statistics.n
    return Record(
        rows=n or problem.n_rows,
        vectors=fit.n_vectors,
        iterations=fit.iteration,
        log_evidence=float(fit.log_evidence - n * np.log(scale).sum()),
        **noise(fit.noise_variance, scale),
        train_rmse=train_rmse(fit, scale),
        floored=fit.floored,
        overconfidence=None if fit.left_out is None else fit.left_out.overconfidence,
        overconfident=fit.overconfident,
        held_out_rmse=scores.rmse if scores else None,
        held_out_nlpd=scores.nlpd if scores else None,
        **facts,
    )
