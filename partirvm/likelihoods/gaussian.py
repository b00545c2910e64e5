"""The Gaussian likelihood of a numeric target: t = Φw + noise of variance σ² = 1/β.

Gram statistics over the rows are sufficient, so fits are dense: one pass computes the statistics of
new columns, and α and β are found without further passes. Several targets share columns and α; each
target has a separate β.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from partirvm.core import solvers
from partirvm.core.diagnostics import NumberDiagnostics
from partirvm.core.group_effects import GroupEffects
from partirvm.core.held_back import sampled_rows
from partirvm.core.left_out import LeftOut, left_out_of
from partirvm.core.posterior import posterior
from partirvm.core.priors import entry_precision
from partirvm.core.scores import Scores
from partirvm.core.statistics import GramBlock, GramStatistics, ResidualStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import ALPHA_FLOOR, NOISE_FLOOR, HyperState, noise_precision
from partirvm.kernels.design import Design
from partirvm.likelihoods.passes import ErrorPass, GramPass, LeaveOneOutPass, ResidualPass
from partirvm.model import AnyModel, Model
from partirvm.spec.panel_pass import Pass, Rows, positions
from partirvm.spec.problem import (
    DenseFit,
    Draw,
    Likelihood,
    OnStep,
    Options,
    Problem,
    RoundTraits,
    Start,
    WorkingTargets,
)
from partirvm.types import LEFT_OUT_ROWS, Columns, Float, Int

PRECISE = 1e-6
"""Largest bound on the relative rounding error of a residual from statistics at which no pass has
to recompute it."""

FIRST_NOISE = 0.1
"""Initial σ² as a fraction of the target variance (Tipping's choice)."""
LEAST_NOISE = 0.1
"""Minimum σ² as a fraction of the mean squared error on rows left out of kernel learning
(`left_out_square`). Without it, the evidence of few rows can be largest when every row is a vector
and nothing is left for the noise."""


@dataclass(frozen=True)
class Solve(DenseFit):
    """A dense fit: a ``solver`` from ``core.solvers`` iterates from ``start`` until ``rule`` ends
    the fit."""

    start: HyperState
    rule: StopRule
    solver: str = "fixed-point"

    def run(self, on_step: OnStep) -> tuple[HyperState, Termination]:
        return solvers.SOLVERS[self.solver](replace(self.start, iteration=0), self.rule, on_step)


@dataclass(frozen=True)
class GaussianLikelihood(Likelihood):
    """Regression likelihood with Gaussian noise of estimated or given variance."""

    name: str = "gaussian"
    words: tuple[str, ...] = ("auto", "gaussian")

    has_noise = True
    working = WorkingTargets(effects=True)
    left_out_rows: ClassVar[int] = LEFT_OUT_ROWS
    rounds = RoundTraits(ranks_gains=True, fewer_candidates=True, learns_again=True)
    takes = frozenset({"residual", "solver", "warp_target"})

    def model(self, design: Design, fit: HyperState, columns: Columns, moderate: bool) -> AnyModel:
        return Model.from_fit(design, fit, columns)

    def start(self, problem: Problem) -> HyperState:
        """Return the fit without columns, whose prediction is the target's mean. The initial σ² is
        at most the squared error on left-out rows: from .1 of the variance, fits to some smooth
        functions with little noise end with noise alone."""
        target_variance: float | Float = problem.target_variance or 1.0
        if problem.target_variances is not None:
            target_variance = problem.target_variances
        noise_variance = problem.noise_variance
        if noise_variance is None:
            share = FIRST_NOISE if problem.target_variance else NOISE_FLOOR
            noise_variance = share * target_variance
            if problem.target_variances is None and problem.left_out_square > 0.0:
                noise_variance = min(noise_variance, problem.left_out_square)
        return HyperState(
            GramStatistics.empty(problem.n_targets),
            np.zeros(0),
            beta=1 / noise_variance,
            target_variance=target_variance,
            fixed_noise=problem.noise_variance is not None,
            prior=problem.prior,
            least_noise=LEAST_NOISE * problem.left_out_square,
        )

    def warm(self, fit: HyperState) -> Start:
        return Start(fit.labels, fit.alpha, fit.beta)

    def measure(
        self, fit: HyperState, kept: Design, new: Design, rows: Rows | None
    ) -> tuple[Pass, ...]:
        return (GramPass(kept, new, fit.statistics.offset, n_classes=fit.n_classes, rows=rows),)

    def join(
        self,
        problem: Problem,
        fit: HyperState,
        kept: Design,
        new: Design,
        *statistics: Any,
        warm: Start | None = None,
    ) -> HyperState:
        """Return the fit at the old α and β; the α of new columns is derived from Tipping & Faul's
        optimum."""
        (block,) = statistics
        labels = new.all_labels
        if kept.n_columns:
            return _enter(fit, fit.statistics.extend(labels, block), kept.join(new).all_labels)
        warm = warm or self.warm(fit)
        order = positions(np.concatenate([warm.labels, np.setdiff1d(labels, warm.labels)]), labels)
        ordered = GramStatistics.of(labels, block).take(order)
        known = ordered.take(np.arange(len(warm.labels)))
        return _enter(fit.restarted(known, warm.alpha, warm.beta), ordered, labels)

    def fit(
        self,
        problem: Problem,
        options: Options,
        design: Design,
        fit: HyperState,
        rule: StopRule,
        rows: Int | None,
        warm: Start | None,
    ) -> Solve:
        return Solve(fit, rule, options.solver)

    def settling(
        self,
        problem: Problem,
        design: Design,
        fit: HyperState,
        rows: Int | None,
        *,
        last: bool,
        left_out: bool,
        corrected: bool = False,
    ) -> tuple[Pass, ...]:
        """Return passes for leave-one-out errors and a residual pass; with many rows, a
        sufficiently precise residual requires no pass."""
        current = fit.posterior
        precise = np.all(np.asarray(current.rounding) <= PRECISE * np.asarray(current.residual))
        passes: list[Pass] = []
        one_target = problem.n_targets == 1
        if left_out and not fit.fixed_noise and (one_target or corrected):
            sample = sampled_rows(problem.n_rows, rows, shuffled=problem.shuffled)
            # with several targets, the mean is used
            least = problem.left_out_square if one_target else 0.0
            betas = np.atleast_1d(fit.beta).tolist()
            for k, target in enumerate(current.targets or (current,)):
                passes.append(
                    LeaveOneOutPass(
                        design, target.mean, target.root(), betas[k], least, k, rows=sample
                    )
                )
        if not (last and problem.n_rows > self.left_out_rows and precise):
            passes.append(ResidualPass(design, current.means, rows=rows))
        return tuple(passes)

    def settle(self, fit: HyperState, *statistics: Any, last: bool) -> HyperState:
        """Return the fit with statistics of the residual target; a last fit gets its final noise
        variance.

        The residual replaces statistics that lost digits to cancellation; α and β are kept.
        Left-out errors calibrate a fit of one target.
        """
        if last:
            fit = _calibrated(fit, left_out_of(statistics))
        for statistic in statistics:
            if isinstance(statistic, ResidualStatistics):
                moved = replace(
                    fit.statistics,
                    offset=fit.posterior.means,
                    projection=statistic.projection,
                    sum_squares=statistic.sum_squares,
                )
                fit = replace(fit, statistics=moved, found=posterior(moved, fit.alpha, fit.beta))
        if not last or fit.fixed_noise:
            return fit
        beta, floored = noise_precision(fit)
        fit = replace(fit, beta=beta, floored=floored, found=None)
        return replace(fit, found=fit.posterior)

    def errors(
        self, design: Design, fit: Any, count: int, used: Int, rows: Int | None, draw: Draw = None
    ) -> Pass:
        return ErrorPass(
            design, fit.posterior.means, count, used, draw=draw, n_classes=fit.n_classes, rows=rows
        )

    def gain_pass(
        self, design: Design, fit: HyperState, pool: Design, rows: Int | None
    ) -> tuple[Pass, ...]:
        return (GramPass(design, pool, fit.statistics.offset, True, fit.n_classes, rows=rows),)

    def record(self, problem: Problem, fit: HyperState, scores: Scores | None) -> dict[str, Any]:
        scale = problem.empty.scaling.t_scale
        n = fit.statistics.n
        errors = np.sqrt(np.atleast_1d(fit.posterior.residual) / max(n, 1))
        facts = {
            "rows": n or problem.n_rows,
            "vectors": fit.n_vectors,
            "iterations": fit.iteration,
            "floored": fit.floored,
            **noise(fit.noise_variance, scale),
            "log_evidence": float(fit.log_evidence - n * np.log(scale).sum()),
            "train_rmse": root_mean(scale * errors),
        }
        calibration = fit.of_known_groups or fit.calibration
        if calibration is not None:
            facts["overconfidence"] = calibration.overconfidence
            facts["overconfident"] = calibration.overconfident
        if scores is not None:
            facts["held_out_rmse"] = scores.loss
            facts["held_out_nlpd"] = scores.figures()["nlpd"]
        return facts

    def stored(self, fit: HyperState) -> HyperState:
        """Return the fit with its posterior and without its left-out errors."""
        return replace(fit, left_out=None, found=fit.posterior)


def _calibrated(fit: HyperState, left_out: tuple[LeftOut, ...]) -> HyperState:
    """Return the fit with the calibration from its left-out errors, if it has exactly one
    target."""
    if len(left_out) != 1:
        return replace(fit, calibration=None, left_out=None)
    calibration = left_out[0].calibration(float(fit.beta), float(fit.target_variance))
    diagnostics = None if calibration is None else left_out[0].diagnostics(calibration)
    return replace(fit, calibration=calibration, left_out=diagnostics)


def calibrated_by_groups(
    fit: HyperState, groups: LeftOut, rows: LeftOut, effects: GroupEffects | None = None
) -> HyperState:
    """Return the fit of one target with one calibration for rows of new groups and another one for
    rows of known groups.

    Args:
        fit: the fit
        groups: errors of left-out groups
        rows: errors of rows that were left out one by one, after effects of their groups
        effects: these effects, or None
    """
    calibrated = _calibrated(fit, (groups,))
    beta = float(fit.beta) if effects is None else effects.precision(float(fit.beta))
    of_known = rows.calibration(beta, float(fit.target_variance))
    return replace(calibrated, of_known_groups=of_known, effects=effects)


def with_rows(fit: HyperState, block: GramBlock) -> HyperState:
    """Return the fit after adding its columns' statistics over other rows, with unchanged α and
    β."""
    return fit.restarted(
        fit.statistics.merge(GramStatistics.of(fit.labels, block)), fit.alpha, fit.beta
    )


def left_out_diagnostics(problem: Problem, fit: Any) -> Sequence[NumberDiagnostics]:
    """Return the diagnostics of left-out rows in the target's units, if there are any."""
    scaling = problem.empty.scaling
    diagnostics = getattr(fit, "left_out", None)
    if diagnostics is None:
        return ()
    return (diagnostics.scaled(scaling.t_shift[0], scaling.t_scale[0], scaling.target),)


def root_mean(errors: Float) -> float:
    """Return the root mean square of the targets' root mean square errors (T,)."""
    return float(np.sqrt((errors**2).mean()))


def _enter(fit: HyperState, statistics: GramStatistics, labels: Int) -> HyperState:
    """Start a fit of ``statistics``, whose first columns are the columns of ``fit``, and sort the
    columns by ``labels``."""
    beta = fit.beta
    M = len(fit.labels)
    diagonal = np.diagonal(statistics.gram)
    precision = np.multiply.outer(diagonal, beta)
    s, q = fit.factors(statistics.gram[:M, M:], diagonal[M:], statistics.projection[M:])
    alpha = np.concatenate([fit.alpha, entry_precision(s, q, precision[M:], joint=True)])
    largest = precision if precision.ndim == 1 else precision.max(axis=1)
    alpha = np.maximum(alpha, ALPHA_FLOOR * largest)
    order = positions(labels, statistics.labels)
    return fit.restarted(statistics.take(order), alpha[order], beta, entered=order >= M)


def noise(variance: Any, scale: Float) -> dict[str, Any]:
    """Return the history fields for the ``variance`` of the noise of standardised targets with
    these scales (T,)."""
    return {
        "noise_variance": float(np.mean(scale**2 * variance)),
        "noise_sd": root_mean(scale * np.sqrt(variance)),
    }
