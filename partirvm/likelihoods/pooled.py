"""Several classes by default: vectors chosen one class against the rest, then one softmax of all these vectors.

**Vectors** come from ``ovr`` fits, whose outputs have separate α. The posterior of each output is then exact up to
Laplace's approximation, while the blocks between outputs that ``multinomial`` omits make it prune too many vectors.

**Probabilities** come from the last fit. All classes get all vectors, the likelihood is the softmax, and all vectors
share one α, which maximises Laplace's evidence. A search in log α finds it, with the mode of the softmax at each α.
MacKay's update would not find it: the update ignores that B changes with the mode, and where the classes are separable
its α is about ten times too large. The separate α of ``ovr`` are no alternative: a class with few vectors of its own is
too certain. No vector is deleted.

On 500 rows of pendigits the log loss is .22 for ``multinomial``, .15 for ``ovr`` and .13 for this model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState, init, settled
from partirvm.core.link import LogisticBlock
from partirvm.core.newton import SETTLED, NewtonSearch, receive, settle
from partirvm.core.priors import Prior
from partirvm.core.termination import StopRule, Termination
from partirvm.kernels.design import Design
from partirvm.likelihoods.base import Begin, FitOptions, FitProblem, Likelihood, Pass, PassFit, survivors
from partirvm.likelihoods.class_passes import LogisticPass
from partirvm.likelihoods.classes import ONE_VS_REST, SOFTMAX, ClassLikelihood, Newton

STEPS = 12
"""Maximum number of steps to one side."""


@dataclass(frozen=True)
class Peak:
    """A search for the maximum of a function, with steps of length ``step`` from 0; immutable.

    Steps follow the rising side until the function falls. The last point is the vertex of the parabola through the best
    point and its neighbours. ``values`` maps the multiples of ``step`` to the function.

    ``at`` is the point to evaluate next, in units of ``step``. With ``last`` it is the vertex, the result.

    >>> peak = Peak(step=1.0)
    >>> while not peak.last:
    ...     peak = peak.after(-((peak.x - 1.6) ** 2))
    >>> round(peak.x, 12)
    1.6
    """

    step: float
    at: float = 0.0
    values: tuple[tuple[int, float], ...] = ()
    last: bool = False

    @property
    def x(self) -> float:
        """The point to evaluate next."""
        return self.step * self.at

    def after(self, value: float) -> Peak:
        """Return the search after the function has been evaluated at ``x``."""
        values = dict(self.values) | {int(self.at): value}
        best = max(values, key=lambda k: values[k])
        left, right = values.get(best - 1), values.get(best + 1)
        found = replace(self, values=tuple(values.items()))
        if abs(best) < STEPS:
            if left is None:
                return replace(found, at=best - 1)
            if right is None:
                return replace(found, at=best + 1)
        bend = 0.0 if left is None or right is None else left + right - 2 * values[best]
        vertex = 0.0 if left is None or right is None or not bend < 0 else 0.5 * (left - right) / bend
        return replace(found, at=best + vertex, last=True)


Float = NDArray[np.float64]

CLOSE = 0.01
"""Distance from the mode, nats, at which the evidence of an α is known."""

STEP = float(np.log(3.0))
"""Step of the search in log α."""


@dataclass(frozen=True)
class PooledLikelihood(ClassLikelihood):
    """Vectors of ``ovr``, and in the last fit one softmax with one α for all vectors."""

    name: str = "pooled"
    words: tuple[str, ...] = ("auto", "pooled")
    measured_by: Likelihood[Any, Any] | None = ONE_VS_REST

    def start(self, problem: FitProblem) -> LaplaceState:
        """Return the ``ovr`` fit without columns."""
        return ONE_VS_REST.start(problem)

    def fit(self, problem: FitProblem, options: FitOptions, design: Design, fit: LaplaceState, begin: Begin) -> PassFit:
        """Return an ``ovr`` fit; the last fit of a run is followed by the fit of the softmax."""
        choosing = ONE_VS_REST.newton(problem, options, design, fit, begin)
        return Pooling(choosing) if begin.rule.thin else choosing


@dataclass(frozen=True)
class Pooling(PassFit):
    """The last fit: ``choosing`` to its end, then the softmax of the columns that are left.

    ``search`` is None until the first pass of the softmax is finished. ``alpha`` (M, C) are the first α of the softmax.
    Those of kernel columns are multiplied by exp(``peak.x``). When ``peak`` has ended, only the mode is searched.
    """

    choosing: Newton
    search: NewtonSearch | None = None
    alpha: Float | None = None
    peak: Peak = field(default_factory=lambda: Peak(STEP))
    reason: Termination | None = None

    @property
    def candidates(self) -> int:  # type: ignore[override]
        """Number of candidates of ``choosing``."""
        return self.choosing.candidates

    @property
    def next_pass(self) -> Pass:
        """The next pass."""
        chosen = self.choosing
        if chosen.reason is None:
            return chosen.next_pass
        weights = _centred(chosen.fit.mean) if self.search is None else self.search.trial.weights
        return LogisticPass(survivors(chosen.design, chosen.fit), weights, SOFTMAX.name, chosen.rows)

    @property
    def fit(self) -> LaplaceState:
        """The current fit."""
        return self.choosing.fit if self.search is None else self.search.current

    def advance(self, block: LogisticBlock, poll: Callable[[], None] = lambda: None) -> Pooling:
        """Return the fit after the statistic of the pass; ``poll`` is called between dense iterations."""
        chosen = self.choosing
        if chosen.reason is None:
            chosen = chosen.advance(block, poll)
            over = chosen.reason is Termination.ITERATIONS or not chosen.fit.n_columns
            return replace(self, choosing=chosen, reason=chosen.reason if over else None)
        poll()
        if self.search is None:
            first = _joint(chosen.fit, block, chosen.prior)
            return replace(self, search=settle(first), alpha=first.alpha)
        rule, last = chosen.rule, self.peak.last
        most = chosen.fit.passes + rule.max_iterations
        tol = rule.tol if last else CLOSE / (SETTLED * max(block.n, 1))
        search, reason = receive(self.search, block, StopRule(tol, most), poll)
        if last or reason is not Termination.CONVERGED:
            return replace(self, search=search, reason=reason)
        now, peak = search.current, self.peak.after(search.current.log_evidence)
        assert self.alpha is not None
        alpha = np.where((now.labels < 0)[:, None], self.alpha, self.alpha * np.exp(peak.x))
        return replace(self, search=settle(settled(now, alpha, now.weights, now.block), search), peak=peak)


def _centred(weights: Float) -> Float:
    """Return weights (M, C) whose sum over outputs is zero; the softmax is the same."""
    found: Float = weights - weights.mean(axis=1, keepdims=True)
    return found


def _joint(chosen: LaplaceState, block: LogisticBlock, prior: Prior) -> LaplaceState:
    """Return the first softmax fit of the chosen columns; α of each kind is the geometric mean of all finite α.

    Of the prior only fixed values of α remain: a density of α would delete columns.
    """
    alpha, leading = np.empty(chosen.alpha.shape), chosen.labels < 0
    for kind in (leading, ~leading):
        found = chosen.alpha[kind]
        alpha[kind] = np.exp(np.log(found[np.isfinite(found)]).mean()) if kind.any() else 1.0
    first = init(SOFTMAX.name, chosen.labels, alpha, _centred(chosen.mean), block, Prior(fixed=prior.fixed))
    return replace(first, passes=chosen.passes + 1)
