"""Steps that every strategy shares: where a fit starts, what it saves, how it ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from partirvm.core.posterior import posterior
from partirvm.core.residuals import ResidualStatistics, Scores
from partirvm.core.statistics import BIAS, GramBlock, GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import (
    ALPHA_FLOOR,
    NOISE_FLOOR,
    HyperState,
    StopRule,
    candidate_factors,
    entry_precision,
    init,
    noise_precision,
)
from partirvm.kernels.design import Design
from partirvm.strategies.instructions import Options, Problem, Record, Save, ScorePass

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
    statistics = GramStatistics.empty(problem.empty.basis)
    power = problem.power or 1.0
    share = FIRST_NOISE if problem.power else NOISE_FLOOR
    variance = share * power if problem.noise_variance is None else problem.noise_variance
    return init(statistics, np.zeros(0), 1 / variance, power=power, fixed_noise=problem.noise_variance is not None)


def labels_of(design: Design) -> Int:
    """Labels of all columns of a design, the bias first."""
    return np.concatenate([np.full(int(design.bias), BIAS, dtype=np.int64), design.labels])


def join(fit: HyperState, kept: Design, new: Design, block: GramBlock) -> tuple[Design, HyperState]:
    """Extend a fit by the columns of ``new``: kept α and β stay, new ones start where Tipping & Faul put them."""
    statistics = fit.statistics.extend(labels_of(new), block, new.basis)
    precision = fit.beta * np.diagonal(block.gram)
    alpha = np.concatenate([fit.alpha, entry_precision(*candidate_factors(fit, statistics), precision)])
    alpha = np.maximum(alpha, ALPHA_FLOOR * fit.beta * np.diagonal(statistics.gram))
    design = kept.join(new)
    if new.bias and kept.n_columns:
        bias = int(np.flatnonzero(statistics.labels == BIAS)[0])
        order = np.concatenate([[bias], np.delete(np.arange(len(alpha)), bias)])
        statistics, alpha = statistics.take(order), alpha[order]
    return design, init(statistics, alpha, fit.beta, power=fit.power, fixed_noise=fit.fixed_noise)


def survivors(design: Design, fit: HyperState) -> Design:
    """The columns of ``design`` that are still in the fit, in the fit's order."""
    labels = fit.statistics.labels
    order = np.argsort(design.labels, kind="stable")
    kernel_labels = labels[labels != BIAS]
    positions = order[np.searchsorted(design.labels, kernel_labels, sorter=order)]
    return design.take(positions, bias=bool((labels == BIAS).any()))


def intermediate_rule(options: Options, candidates: int) -> StopRule:
    """Stop at ``stop_fraction`` of the candidates that the fit began with."""
    return StopRule(INTERMEDIATE * options.tol, options.max_iterations, int(options.stop_fraction * candidates))


def final_rule(options: Options) -> StopRule:
    """Converge."""
    return StopRule(options.tol, options.max_iterations)


def unguarded(rule: StopRule, rebases: int) -> StopRule:
    """The rule without its cancellation guard once the fit has had its ``REBASES``."""
    return rule if rebases < REBASES else replace(rule, guard=False)


def rebase(fit: HyperState, residuals: ResidualStatistics) -> HyperState:
    """The same α and β with statistics of the residual target, so that nothing cancels."""
    statistics = fit.statistics.rebase(fit.posterior.mean[:, None], residuals.projection, residuals.energy)
    return replace(fit, statistics=statistics, posterior=posterior(statistics, fit.alpha, fit.beta))


def settle(fit: HyperState, residuals: ResidualStatistics) -> HyperState:
    """The last word: noise from the measured residual, and the posterior and evidence that belong to it."""
    fit = rebase(fit, residuals)
    if fit.fixed_noise:
        return fit
    beta, floored = noise_precision(fit)
    return replace(fit, beta=beta, floored=floored, posterior=posterior(fit.statistics, fit.alpha, beta))


def score(design: Design, fit: HyperState) -> ScorePass:
    """The pass over held-out rows that scores a fit, in the target's own units."""
    return ScorePass(design, fit.posterior.mean, fit.posterior.root(), 1 / fit.beta)


def save(
    problem: Problem,
    design: Design,
    fit: HyperState,
    *,
    kind: str,
    number: int,
    candidates: int,
    reason: Termination,
    selection: str,
    duplicates: int,
    scores: Scores | None = None,
) -> Save:
    """A usable model with its line of history."""
    scale, n = problem.target_scale, fit.statistics.n
    record = Record(
        kind=kind,
        number=number,
        rows=n or problem.n_rows,
        candidates=candidates,
        vectors=fit.n_vectors,
        iterations=fit.iteration,
        termination=reason,
        log_evidence=float(fit.posterior.log_evidence - n * np.log(scale)),
        noise_variance=scale**2 / fit.beta,
        train_rmse=scale * float(np.sqrt(fit.posterior.residual / max(n, 1))),
        selection=selection,
        duplicates=duplicates,
        floored=fit.floored,
        held_out_rmse=scores.rmse if scores else None,
        held_out_nlpd=scores.nlpd if scores else None,
    )
    return Save(design, fit, record)
