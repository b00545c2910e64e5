"""Steps of a classification fit that every strategy shares, and the fit itself between its passes. Pure.

A ``Newton`` instruction is carried out pass by pass: ``begun`` asks for the first, ``heard`` makes of its statistic the
next, until there is a reason to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState, enter, init, trial_factors
from partirvm.core.logistic import LogisticBlock, LogisticCross
from partirvm.core.newton import Search, begin, receive, settle
from partirvm.core.termination import Termination
from partirvm.core.updates import StepInfo, StopRule, evidence_gain
from partirvm.kernels.design import Design
from partirvm.strategies.columns import labels_of, positions, survivors
from partirvm.strategies.instructions import Newton, Record, Start
from partirvm.strategies.passes import LogisticPass, LogisticScorePass
from partirvm.strategies.problem import Options, Problem

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def nothing(problem: Problem) -> LaplaceState:
    """The fit before the first: no column, every class as probable as any other."""
    outputs = problem.n_outputs
    none = np.zeros((0, outputs))
    shared = outputs if problem.likelihood == "ovr" else 1
    block = LogisticBlock(np.zeros(shared), none, np.zeros((outputs, 0, 0)), 0, 0)
    return init(problem.likelihood, np.zeros(0, np.int64), none, none, block, problem.prior)


@dataclass(frozen=True)
class Course:
    """A ``Newton`` under way; ``search`` is None before its first pass is back."""

    task: Newton
    search: Search | None = None
    reason: Termination | None = None

    @property
    def wanted(self) -> LogisticPass:
        """The pass that comes next."""
        task = self.task
        if self.search is None:
            return LogisticPass(task.design, _placed(task.start, labels_of(task.design)), task.likelihood, task.rows)
        trial = self.search.trial
        return LogisticPass(survivors(task.design, trial), trial.weights, task.likelihood, task.rows)

    def heard(self, block: LogisticBlock, look: Callable[[], None] = lambda: None) -> Course:
        """Go on with the statistic of the pass; with a ``reason`` it is over, and ``fit`` is where it ended.

        ``look`` is called between dense iterations, and may raise.
        """
        task = self.task
        if self.search is not None:
            search, reason = receive(self.search, block, self.rule, look)
            return replace(self, search=search, reason=reason)
        labels, start = labels_of(task.design), task.start
        there = np.isin(start.labels, labels)
        known = start.labels[there], start.alpha[there], start.weights[there]
        first = enter(task.likelihood, labels, block, *known, task.prior, wait=self.fast)
        first = replace(first, passes=1)
        return replace(self, search=settle(first) if task.hold else begin(first, self.rule, look, fast=self.fast))

    @property
    def fast(self) -> bool:
        """Whether it goes by actions; ``auto`` is the fixed point."""
        return self.task.solver == "fast"

    @property
    def rule(self) -> StopRule:
        """When it ends: a fit by actions that begins with few vectors has nothing to prune, and converges."""
        rule, start = self.task.rule, self.task.start
        begun = np.isin(self.task.design.labels, start.labels).sum()
        return replace(rule, vectors=None) if self.fast and rule.vectors is not None and begun <= rule.vectors else rule

    @property
    def info(self) -> StepInfo:
        """What the last pass told; feeds reports only."""
        fit = self.fit
        return StepInfo(fit.passes, fit.n_vectors, 0, fit.log_evidence, math.nan, math.nan)

    @property
    def fit(self) -> LaplaceState:
        """The fit where it stands."""
        assert self.search is not None
        return self.search.current


def _placed(start: Start, labels: Int) -> Float:
    """Weights (M, C) of the columns with these labels, zero for those that are new."""
    weights = np.zeros((len(labels), start.weights.shape[1]))
    known = np.flatnonzero(np.isin(labels, start.labels))
    weights[known] = start.weights[positions(labels[known], start.labels)]
    return weights


def newton_rule(rule: StopRule, options: Options) -> StopRule:
    """The rule of a dense fit as that of a classification fit, whose iterations are passes."""
    return replace(rule, max_iterations=options.max_passes, guard=False)


def score(design: Design, fit: LaplaceState, moderate: bool) -> LogisticScorePass:
    """The pass over held-out rows that scores a fit."""
    return LogisticScorePass(design, fit.mean, fit.roots(), fit.likelihood, moderate)


def pool_gains(fit: LaplaceState, cross: LogisticCross) -> Float:
    """Evidence that each column of a pool would bring (Q,), nats, summed over outputs (Tipping & Faul 2003, eq. 27).

    ``cross`` may come from a sample of the rows; it is scaled up to all that the fit has seen.
    """
    scale = fit.n / cross.n if fit.n else 1.0
    s, q = trial_factors(fit, scale * cross.cross, scale * cross.diagonal.T, scale * cross.gradient)
    gains: Float = evidence_gain(s, q, fit.own_prior.alpha).sum(axis=1)
    return gains


def record(fit: LaplaceState, scores: Any = None, **facts: Any) -> Record:
    """A classification fit's line of history; ``facts`` are the fields of ``Record`` that the strategy knows."""
    n = max(fit.n, 1)
    return Record(
        rows=fit.n,
        vectors=fit.n_vectors,
        iterations=fit.iteration,
        log_evidence=fit.log_evidence,
        noise_variance=None,
        train_rmse=None,
        train_log_loss=fit.block.surprise / n,
        train_error=fit.block.wrong / n,
        held_out_log_loss=None if scores is None else scores.log_loss,
        held_out_error=None if scores is None else scores.error,
        **facts,
    )
