"""The Gaussian likelihood of a numeric target: t = Φw + noise of variance σ² = 1/β.

Gram statistics over the rows are sufficient, so that a fit is dense: one pass brings new columns, and α and β are found
without another. Of several targets, which share columns and α, each has its own β.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from partirvm.core import solvers
from partirvm.core.left_out import LeftOut, sampled_rows
from partirvm.core.on_demand import DesignRows, Pool
from partirvm.core.posterior import any_posterior, residuals
from partirvm.core.priors import FLAT, Prior
from partirvm.core.residuals import LargestErrors, ResidualStatistics, Scores
from partirvm.core.statistics import CrossBlock, GramBlock, GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import (
    ALPHA_FLOOR,
    HOPE,
    NOISE_FLOOR,
    HyperState,
    StopRule,
    any_sparsity_quality,
    candidate_factors,
    init,
    joint_entry,
    joint_gain,
    noise_precision,
)
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Begin, DenseFit, FitOptions, FitProblem, Likelihood, OnStep
from partirvm.likelihoods.columns import labels_of, positions
from partirvm.likelihoods.gaussian_passes import DesignPass, GramPass, LeaveOneOutPass, ResidualPass, ScorePass
from partirvm.likelihoods.packing import SCORES, Packed, named, pack_dense, unpack_dense
from partirvm.likelihoods.passes import Pass
from partirvm.model import Model
from partirvm.types import Columns, power_of_two

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FIRST_NOISE = 0.1
"""σ² at the start, as a fraction of the target's mean square (Tipping's choice)."""


@dataclass(frozen=True)
class Solve(DenseFit):
    """A dense fit: step from ``start`` until ``rule`` ends it. ``candidates`` is for the watcher.

    ``solver`` says how (``core.solvers``); candidates of actions from nothing may be in a ``pool``.
    """

    start: HyperState
    rule: StopRule
    candidates: int
    solver: str = "fixed-point"
    pool: Pool | None = None

    def run(self, on_step: OnStep) -> tuple[HyperState, Termination]:
        """Where the fit ends, and why."""
        return solvers.solve(self.start, self.rule, self.solver, on_step, self.pool)


@dataclass(frozen=True)
class Warm:
    """Start of a fit over other rows: α (M,) of the columns with these labels, and β; other columns are new."""

    labels: Int
    alpha: Float
    beta: float | Float
    target_variance: float | Float
    fixed_noise: bool
    prior: Prior = FLAT

    @classmethod
    def of(cls, fit: HyperState) -> Warm:
        """The start that continues this fit."""
        return cls(fit.statistics.labels, fit.alpha, fit.beta, fit.target_variance, fit.fixed_noise, fit.prior)

    def merge(self, other: Warm, labels: Int) -> Warm:
        """A start for the columns of two fits together, restricted to ``labels``.

        Columns of one fit excuse those of the other; started at the α that they had alone, they drive each other out
        before their noise has fallen. At ``HOPE`` × α the data speak first. β is the larger one.
        """
        both, first = np.unique(np.concatenate([self.labels, other.labels]), return_index=True)
        alpha = np.concatenate([self.alpha, other.alpha])[first]
        there = np.isin(both, labels)
        return replace(self, labels=both[there], alpha=HOPE * alpha[there], beta=_larger(self.beta, other.beta))

    def begun(self, statistics: GramStatistics) -> HyperState:
        """The fit of these statistics of the same columns."""
        return init(
            statistics,
            self.alpha,
            self.beta,
            target_variance=self.target_variance,
            fixed_noise=self.fixed_noise,
            prior=self.prior,
        )


@dataclass(frozen=True)
class GaussianLikelihood(Likelihood[HyperState, Warm]):
    """A numeric target with Gaussian noise of one variance, estimated or given."""

    name: ClassVar[str] = "gaussian"
    words: ClassVar[tuple[str, ...]] = ("estimate",)
    has_noise: ClassVar[bool] = True
    relearns: ClassVar[bool] = True

    def serves(self, n_classes: int, word: float | str) -> bool:
        """A numeric ``noise_variance`` means this likelihood."""
        return super().serves(n_classes, word) or (n_classes == 0 and not isinstance(word, str))

    def model(self, design: Design, fit: HyperState, columns: Columns, moderate: bool) -> Model:
        """Means and variances of a new noisy target."""
        return Model.from_fit(design, fit, columns)

    def n_outputs(self, n_classes: int) -> int:
        """One."""
        return 1

    def step_flops(self, problem: FitProblem, rows: int, columns: int) -> float:
        """Those of a factorisation for each target."""
        return float(problem.n_targets * columns**3)

    def start(self, problem: FitProblem) -> HyperState:
        """The fit of no columns: the model is the target's mean."""
        statistics = GramStatistics.empty(problem.empty.basis, problem.n_targets)
        target_variance = (
            (problem.target_variance or 1.0) if problem.target_variances is None else problem.target_variances
        )
        share = FIRST_NOISE if problem.target_variance else NOISE_FLOOR
        variance = share * target_variance if problem.noise_variance is None else problem.noise_variance
        fixed = problem.noise_variance is not None
        return init(
            statistics,
            np.zeros(0),
            1 / variance,
            target_variance=target_variance,
            fixed_noise=fixed,
            prior=problem.prior,
        )

    def warm(self, fit: HyperState) -> Warm:
        """Its α and β."""
        return Warm.of(fit)

    def merge(self, left: Warm, right: Warm, labels: Int) -> Warm:
        """See ``Warm.merge``."""
        return left.merge(right, labels)

    def measure(self, fit: HyperState, kept: Design, new: Design, rows: Int | None) -> tuple[Pass, ...]:
        """One pass for the Gram products of the new columns."""
        return (GramPass(kept, new, fit.statistics.offset, rows=rows),)

    def join(self, fit: HyperState, kept: Design, new: Design, *statistics: GramBlock) -> HyperState:
        """Kept α and β stay, new columns start where Tipping & Faul put them."""
        (block,) = statistics
        extended = fit.statistics.extend(labels_of(new), block, new.basis)
        return _enter(fit, extended, labels_of(kept.join(new)))

    def restart(
        self,
        problem: FitProblem,
        options: FitOptions,
        fit: HyperState,
        warm: Warm,
        design: Design,
        *statistics: GramBlock,
    ) -> HyperState:
        """α and β as far as ``warm`` has them. A second block is of the rows that σ² is to come from."""
        block, *noise = statistics
        empty, labels = GramStatistics.empty(design.basis, problem.n_targets), labels_of(design)
        old = warm.labels
        order = positions(np.concatenate([old, np.setdiff1d(labels, old)]), labels)
        ordered = empty.extend(labels, block, design.basis).take(order)
        start = ordered.take(np.arange(len(old)))
        alpha = np.maximum(warm.alpha, ALPHA_FLOOR * np.max(warm.beta) * np.diagonal(start.gram))
        entered = _enter(replace(warm, alpha=alpha).begun(start), ordered, labels)
        if not noise:
            return entered
        return replace(
            entered,
            noise=empty.extend(labels, noise[0], design.basis),
            noise_share=min((options.noise_rows or problem.n_rows) / problem.n_rows, 1.0),
            noise_every=options.noise_every,
        )

    def first_design(self, problem: FitProblem, options: FitOptions, new: Design, rows: Int | None) -> tuple[Pass, ...]:
        """Actions need the Gram matrix of columns that join, and not of all: the design is no larger."""
        acts = options.solver in ("fast", "auto") and problem.prior == FLAT and problem.n_targets == 1
        return (DesignPass(new, rows),) if acts else ()

    def from_design(
        self, problem: FitProblem, options: FitOptions, fit: HyperState, design: Design, *statistics: DesignRows
    ) -> tuple[HyperState, Pool | None]:
        """Actions take what they need of the Gram matrix; the fixed point needs all of it."""
        (rows,) = statistics
        if options.solver == "auto":
            return self.restart(problem, options, fit, self.warm(fit), design, rows.gram()), None
        return fit, Pool(design.basis, labels_of(design), rows.joined())

    def fit(self, problem: FitProblem, options: FitOptions, design: Design, fit: HyperState, begin: Begin) -> Solve:
        """A dense fit, without its cancellation guard where σ² comes from other rows."""
        rule = begin.rule if fit.noise is None else replace(begin.rule, guard=False)
        return Solve(fit, rule, begin.candidates, options.solver, begin.pool)

    def again(self, fit: HyperState) -> HyperState:
        """The same with its iterations counted from zero."""
        return replace(fit, iteration=0)

    def settling(
        self, problem: FitProblem, design: Design, fit: HyperState, rows: Int | None, *, whole: bool, last: bool
    ) -> tuple[Pass, ...]:
        """The residual and, at the end, the leave-one-out errors, in one pass.

        Rows are left out of a fit of one target that has seen all, and has estimated its noise.
        """
        found = fit.posterior
        residual = ResidualPass(design, found.means, rows=rows)
        if not (last and whole) or fit.noise is not None or fit.fixed_noise or problem.n_targets > 1:
            return (residual,)
        left_out = LeaveOneOutPass(design, found.mean, found.root(), float(fit.beta), sampled_rows(problem.n_rows))
        return left_out, residual

    def settle(self, fit: HyperState, *statistics: Any, last: bool) -> HyperState:
        """Statistics of the residual target; at the end also its noise variance and posterior."""
        *left_out, found = statistics
        return settle(fit, found, *left_out) if last else rebase(fit, found)

    def grow(self, problem: FitProblem, design: Design, fit: HyperState, rows: Int) -> tuple[Pass, ...]:
        """Statistics of the new rows: with those of the rows before they are those of all."""
        return self.measure(self.start(problem), problem.empty, design, rows)

    def grown(self, problem: FitProblem, design: Design, fit: HyperState, *statistics: GramBlock) -> HyperState:
        """The fit at its α and β, with the sum of both."""
        (block,) = statistics
        empty = GramStatistics.empty(design.basis, problem.n_targets)
        return Warm.of(fit).begun(fit.statistics.merge(empty.extend(labels_of(design), block, design.basis)))

    def errors(
        self,
        design: Design,
        fit: HyperState,
        count: int,
        used: Int,
        rows: Int | None,
        *,
        draw: tuple[int, int] | None = None,
        floor: float = 0.0,
    ) -> Pass:
        """By absolute residual."""
        return ResidualPass(design, fit.posterior.means, count, used, rows)

    def largest(self, statistic: ResidualStatistics) -> LargestErrors:
        """Those of the residual pass."""
        return statistic.largest

    def gain_pass(self, design: Design, fit: HyperState, pool: Design, rows: Int | None) -> Pass:
        """Products of the pool's columns with the fit's, and of each with itself."""
        return GramPass(design, pool, fit.statistics.offset, diagonal=True, rows=rows)

    def gains(self, fit: HyperState, statistic: CrossBlock) -> Float:
        """``statistic`` may come from a sample of the rows; it is scaled up to all of them."""
        scale = fit.statistics.n / statistic.n if fit.statistics.n else 1.0
        cross, diagonal, projection = (
            each * scale for each in (statistic.cross, statistic.diagonal, statistic.projection)
        )
        s, q = any_sparsity_quality(fit, fit.statistics.offset, cross, diagonal, projection)
        return joint_gain(s, q, fit.prior.alpha)

    def size_pass(self, design: Design, fit: HyperState, pool: Design, rows: Int | None) -> Pass:
        """Gram products of all columns together."""
        return GramPass(design, pool, fit.statistics.offset, rows=rows)

    def sizes(self, fit: HyperState, pool: Design, statistic: GramBlock, alpha: float) -> Float:
        """Of several targets it is the largest over these."""
        extended = fit.statistics.extend(pool.labels, statistic, pool.basis)
        together = np.concatenate([fit.alpha, np.full(len(pool.labels), alpha)])
        found: Float = np.abs(any_posterior(extended, together, fit.beta).means[len(fit.alpha) :]).max(axis=1)
        return found

    def score(self, design: Design, fit: HyperState, moderate: bool) -> ScorePass:
        """Squared error and log density."""
        return ScorePass.of(Model.from_fit(design, fit, Columns(())))

    def record(self, problem: FitProblem, fit: HyperState, scores: Scores | None) -> dict[str, Any]:
        """In the target's own units."""
        scale, n = problem.empty.scaling.t_scale, fit.statistics.n
        return {
            "rows": n or problem.n_rows,
            "vectors": fit.n_vectors,
            "iterations": fit.iteration,
            "log_evidence": float(fit.log_evidence - n * np.log(scale).sum()),
            **noise(fit.noise_variance, scale),
            "train_rmse": _train_rmse(fit, scale),
            "floored": fit.floored,
            "overconfidence": None if fit.calibration is None else fit.calibration.overconfidence,
            "overconfident": fit.overconfident,
            "held_out_rmse": scores.rmse if scores else None,
            "held_out_nlpd": scores.nlpd if scores else None,
        }

    def pack(self, fit: HyperState) -> Packed:
        """Statistics, posteriors, α and β."""
        return pack_dense(fit)

    def unpack(self, problem: FitProblem, design: Design, packed: Packed) -> HyperState:
        """The prior, and what is known of the noise, are the problem's."""
        return unpack_dense(packed, self.start(problem), design, several=problem.target_variances is not None)

    def pack_warm(self, warm: Warm) -> Packed:
        """α and β by labels."""
        return named(warm, ("labels", "alpha", "beta"))

    def unpack_warm(self, problem: FitProblem, packed: Packed) -> Warm:
        """The rest is the problem's."""
        return replace(Warm.of(self.start(problem)), **packed)

    def pack_scores(self, scores: Scores | None) -> Packed | None:
        """Their sums."""
        return None if scores is None else named(scores, SCORES)

    def unpack_scores(self, packed: Packed | None) -> Scores | None:
        """Scores of these sums."""
        return None if packed is None else Scores(**packed)


def rebase(fit: HyperState, found: ResidualStatistics) -> HyperState:
    """The same α and β with statistics of the residual target, so that nothing cancels."""
    statistics = fit.statistics.rebase(fit.posterior.means, found.projection, found.sum_squares)
    return replace(fit, statistics=statistics, found=any_posterior(statistics, fit.alpha, fit.beta))


def settle(fit: HyperState, found: ResidualStatistics, left_out: LeftOut | None = None) -> HyperState:
    """The final noise variance, from the measured residual, with its posterior and evidence."""
    calibration = None
    if left_out is not None:
        calibration = left_out.calibration(float(fit.beta), float(fit.target_variance))
    fit = replace(fit, calibration=calibration)
    if fit.noise is None:
        fit = rebase(fit, found)
    else:
        noise = fit.noise.rebase(fit.posterior.means, found.projection, found.sum_squares)
        fit = replace(fit, noise=noise)
    if fit.fixed_noise:
        return fit
    beta, floored = noise_precision(fit)
    return replace(fit, beta=beta, floored=floored, found=any_posterior(fit.statistics, fit.alpha, beta))


def root_mean(errors: Float) -> float:
    """Root mean square over targets of their root mean square errors (T,)."""
    if len(errors) == 1:
        return float(errors[0])
    unit = power_of_two(errors.max())
    return float(np.sqrt(((errors / unit) ** 2).mean()) * unit)


def _enter(fit: HyperState, statistics: GramStatistics, labels: Int) -> HyperState:
    """Start a fit of ``statistics``, which hold the columns of ``fit`` first; it ends up in the order of labels."""
    beta, new = fit.beta, slice(fit.statistics.n_columns, None)
    precision = np.multiply.outer(np.diagonal(statistics.gram), beta)
    entry = joint_entry(*candidate_factors(fit, statistics), precision[new], fit.prior.alpha)
    alpha = np.concatenate([fit.alpha, entry])
    alpha = np.maximum(alpha, ALPHA_FLOOR * (precision if precision.ndim == 1 else precision.max(axis=1)))
    order = positions(labels, statistics.labels)
    entered, statistics = order >= fit.statistics.n_columns, statistics.take(order)
    begun = init(
        statistics,
        alpha[order],
        beta,
        target_variance=fit.target_variance,
        fixed_noise=fit.fixed_noise,
        prior=fit.prior,
    )
    return replace(begun, entered=entered)


def _larger(beta: float | Float, other: float | Float) -> float | Float:
    """The larger β, target by target."""
    if isinstance(beta, np.ndarray):
        return np.maximum(beta, other)
    return max(beta, other)


def _train_rmse(fit: HyperState, scale: Float) -> float:
    """Root mean square of the residual over the rows that σ² comes from, and over targets, in their own units (T,)."""
    n, residual = fit.statistics.n, np.atleast_1d(fit.posterior.residual)
    if fit.noise is not None:
        n, residual = fit.noise.n, residuals(fit.noise, fit.posterior.means)
    return float(root_mean(scale * np.sqrt(residual / max(n, 1))))


def noise(variance: Any, scale: Float) -> dict[str, Any]:
    """Fields of history for a noise variance of standardised targets that have these scales (T,)."""
    with np.errstate(over="ignore", under="ignore"):
        mean = float(np.mean(scale**2 * variance))
    return {"noise_variance": mean if np.isfinite(mean) else None, "noise_sd": root_mean(scale * np.sqrt(variance))}
