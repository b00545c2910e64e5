"""A third likelihood, in one file: Student's t with ν = 4 degrees of freedom, for targets with outliers.

A t-distributed residual is a Gaussian one whose row has the weight u = (ν + 1) / (ν + β r²) (Dempster, Laird & Rubin
1980). So a fit goes on by passes that bring the Gram statistics of the rows as they are weighted at the last mean, and
the mean at which they do not change any more is the mode of the weights under this likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from partirvm.core.posterior import posterior
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import HyperState, maximise
from partirvm.kernels.design import Design
from partirvm.likelihoods import GAUSSIAN
from partirvm.likelihoods.base import (
    Begin,
    Panel,
    Pass,
    PassFit,
    survivors,
)
from partirvm.likelihoods.gaussian import GaussianLikelihood

NU = 4.0
"""ν, degrees of freedom."""

MODE = 1e-9
"""Relative change of the mean at which it is the mode."""


def row_weights(residual: np.ndarray, beta: float) -> np.ndarray:
    """u (n,) of residuals (n,)."""
    return (NU + 1) / (NU + beta * residual**2)


@dataclass(frozen=True)
class StudentPass(Pass):
    """Gram products of all columns, the rows weighted by their residuals of the mean (M,)."""

    name: ClassVar[str] = "reweighted gram"
    design: Design
    mean: np.ndarray
    beta: float

    def of_panel(self, panel: Panel, block: np.ndarray) -> GramBlock:
        """Products of the panel's rows."""
        target = self.design.scaling.targets(panel.t)
        weights = row_weights(target[:, 0] - block @ self.mean, self.beta)
        if panel.weights is not None:
            weights = weights * panel.weights
        return GramBlock.of(np.zeros((len(block), 0)), block, target, weights)


@dataclass(frozen=True)
class StudentFit(PassFit):
    """A fit of the columns of ``design``; α, β and means begin where ``start`` has them, new columns at weight zero.

    Once α and β are ``settled`` only the mode is sought.
    """

    design: Design
    start: HyperState
    rule: StopRule
    candidates: int
    most: int
    rows: np.ndarray | None = None
    settled: bool = False
    passes: int = 0
    current: HyperState | None = None
    reason: Termination | None = None

    @property
    def fit(self) -> HyperState:
        """The fit after the last pass."""
        return self.current

    def _first(self) -> tuple[np.ndarray, np.ndarray]:
        labels = self.design.all_labels
        mean, alpha = np.zeros(len(labels)), np.full(len(labels), 1 / self.start.target_variance)
        for position, label in enumerate(self.start.labels):
            mean[labels == label] = self.start.posterior.mean[position]
            alpha[labels == label] = self.start.alpha[position]
        return mean, alpha

    @property
    def next_pass(self) -> Pass:
        """The pass that comes next."""
        if self.current is None:
            return StudentPass(self.design, self._first()[0], self.start.beta, rows=self.rows)
        fit = self.current
        return StudentPass(survivors(self.design, fit), fit.posterior.mean, fit.beta, rows=self.rows)

    def advance(self, block: GramBlock, poll: Callable[[], None] = lambda: None) -> StudentFit:
        """Maximise the evidence of the weighted rows, or find the mean at the same α and β."""
        poll()
        before = self.current or self.start
        mean, alpha = self._first() if self.current is None else (before.posterior.mean, before.alpha)
        labels = self.design.all_labels if self.current is None else before.labels
        statistics = GramStatistics.of(labels, block)
        fit = replace(before, statistics=statistics, alpha=alpha, found=None, entered=None, iteration=0)
        fit = replace(fit, found=posterior(statistics, fit.alpha, fit.beta))
        passes, settled, change = self.passes + 1, self.settled, np.inf
        if settled:
            change = np.abs(fit.posterior.mean - mean).max() / max(np.abs(mean).max(), 1e-300)
        else:
            fit, reason = maximise(fit, replace(self.rule, guard=False, max_iterations=10))
            if reason is Termination.HALVED:
                return self._on(fit, passes, settled, reason)
            level = self.current is not None and abs(fit.log_evidence - before.log_evidence) < self.rule.tol * fit.n
            settled = (level and len(fit.labels) == len(before.labels)) or passes >= self.most
        ended = passes >= 2 * self.most
        reason = Termination.CONVERGED if change < MODE else Termination.ITERATIONS if ended else None
        return self._on(fit, passes, settled, reason)

    def _on(self, fit: HyperState, passes: int, settled: bool, reason: Termination | None) -> StudentFit:
        return replace(self, current=replace(fit, iteration=passes), passes=passes, settled=settled, reason=reason)


@dataclass(frozen=True)
class StudentLikelihood(GaussianLikelihood):
    """A number with t-distributed noise; the evidence is that of the weighted rows."""

    name: str = "student"
    words: tuple[str, ...] = ("student",)
    small_fits: GaussianLikelihood | None = GAUSSIAN

    def measure(self, fit: HyperState, kept: Design, new: Design, rows: Any) -> tuple[Pass, ...]:
        """None: weights of rows change with the mean."""
        return ()

    def join(
        self, problem: Any, fit: HyperState, kept: Design, new: Design, *statistics: Any, warm: Any = None
    ) -> HyperState:
        """The fit that stands: columns join, and rows change, with the first pass."""
        return fit

    def fit(self, problem: Any, options: Any, design: Design, fit: HyperState, begin: Begin) -> StudentFit:
        """Passes until neither α nor the mean changes."""
        return StudentFit(design, fit, begin.rule, begin.candidates, options.max_passes, begin.rows)

    def settling(self, *args: Any, **about: Any) -> tuple[Pass, ...]:
        """None: the fit has been at its rows to the end."""
        return ()

    def settle(self, fit: HyperState, *statistics: Any, last: bool) -> HyperState:
        """The fit as it is."""
        return fit
