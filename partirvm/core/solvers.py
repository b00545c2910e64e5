"""Solvers that maximise the evidence of a regression's columns: ``SOLVERS[name](state, rule,
on_step)``.

"fixed-point" applies MacKay's updates to all columns at once (``core.updates``): few, expensive
steps from all candidates. "fast" applies Tipping & Faul's actions (``core.fast``): many cheap steps
from the columns of the last fit. "auto" is the fixed point if there are several targets or a prior.

**Auto with new columns.** With a wide kernel, actions end at a far lower evidence: they add columns
that later ones make redundant. The fixed point prunes many columns at once, including columns that
should be kept. So the columns with the largest q²/s are restored together (``rejoined``) and the
fixed point prunes again, as long as the evidence rises; then actions over all candidates alternate
with the fixed point of the active columns (``improve``) until neither gains.

**Starts.** The α at which a fixed point starts determines where it ends (63 nats apart on sinc with
100 rows), so a fit of at most 500 new columns also starts at several common α. Growth by actions
alone, as a further start, never reached a higher evidence.

**Auto in a continued fit.** Most candidates of a round are soon pruned, so they are first
``screened`` alongside the columns of the earlier fit. An intermediate fit then takes ``JOINT``
iterations of all columns. Rounds of 20,000 rows then take a third of the CPU time; the median error
ratio over 13 fits of nine datasets is .998 (.97 to 1.06). Turns gain nothing here and would double
the time.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from partirvm.core.fast import Greedy, grow
from partirvm.core.posterior import own_factors, posterior, whitened
from partirvm.core.priors import ABSENT, DEPENDENT, entry_precision
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import HyperState, Watch, maximise
from partirvm.errors import NumericalError

ROUGH = 3e-4
"""Tolerance of the starts, unless the rule's is larger; the final fit uses the rule's tolerance.
Over 66 fits of 100 and 200 rows from eleven datasets, the evidence is on average as high as with
1e-5 throughout."""

LOOSE = 1e-4
"""Tolerance of the turns, unless the rule's is larger."""

SCREENING = 12
"""Maximum number of iterations of new columns alongside the others. With 30 of these and 6 of all
columns, kin40k (10,000 rows) is slower and 3 % worse: columns that are pruned early do not
return."""

JOINT = 3
"""Maximum number of subsequent iterations of all columns in an intermediate fit."""

SCARCE = 2
"""Factor on both limits in a last fit and where columns are limited, so that fewer columns
remain."""

Solver = Callable[[HyperState, StopRule, Watch], tuple[HyperState, Termination]]
Begin = Callable[[HyperState, HyperState], HyperState]


def auto(
    state: HyperState, rule: StopRule, on_step: Watch = lambda info: None
) -> tuple[HyperState, Termination]:
    """Return the best fixed point from several starts, with columns restored and improved, or the
    fixed point of a continued fit."""
    fresh = state.entered is not None and bool(state.entered.all())
    joint = len(state.statistics.sum_squares) > 1 or not state.prior.is_flat
    if joint or (fresh and rule.vectors is not None):
        return maximise(state, rule, on_step)
    if not fresh:
        return _continued(state, rule, on_step)
    fit, reason = maximise(state, replace(rule, tol=max(rule.tol, ROUGH)), on_step)
    small = len(state.labels) <= 500  # at this size the fixed-point solver takes less than a second
    if not (reason is Termination.CONVERGED or (small and reason is Termination.CANCELLED)):
        return fit, reason
    fits = [_from_starts(fit, state, rule, on_step) if small else fit]
    del fit  # two M × M matrices, which must not be held during the subsequent fits
    best, reason = improve(turns(fits.pop(), state, rule, rejoined, on_step), state, rule, on_step)
    return best, Termination.CANCELLED if rule.guard and best.posterior.cancelled else reason


SOLVERS: dict[str, Solver] = {"auto": auto, "fixed-point": maximise, "fast": grow}
"""All solvers by name."""


def _continued(state: HyperState, rule: StopRule, on_step: Watch) -> tuple[HyperState, Termination]:
    """Return the fixed point of a continued fit, after screening any columns that have just
    entered."""
    if state.entered is not None and state.entered.any():
        intermediate = rule.vectors is not None
        times = 1 if intermediate and not rule.thin else SCARCE
        limit = min(rule.max_iterations, times * SCREENING)
        with suppress(NumericalError):  # near-copies of other columns leave only rounding errors
            state = screened(state, replace(rule, max_iterations=limit), on_step)
        if intermediate and times * JOINT < rule.max_iterations:
            fit, reason = maximise(state, replace(rule, max_iterations=times * JOINT), on_step)
            if reason is Termination.ITERATIONS:
                reason = Termination.HALVED
            return fit, reason
    return maximise(state, rule, on_step)


def screened(state: HyperState, rule: StopRule, on_step: Watch = lambda info: None) -> HyperState:
    """Delete the new columns that do not survive a fit in which the α of the others is held fixed
    (``beside``).

    The remaining columns keep the α at which they entered: optimal α would displace fewer columns.
    β is re-estimated.
    """
    start = beside(state)
    fit, _ = maximise(start, StopRule(rule.tol, rule.max_iterations, guard=False), on_step)
    deleted = np.setdiff1d(start.labels, fit.labels)
    columns = np.flatnonzero(~np.isin(state.labels, deleted))
    beta = float(state.beta) * float(fit.beta)
    return state.restarted(state.statistics.take(columns), state.alpha[columns], beta)


def beside(state: HyperState) -> HyperState:
    """Return the fit of the P columns that have just entered a fit of one target, with the α of the
    M other columns fixed.

    With the covariance C = I/β + ΦA⁻¹Φᵀ of the others as noise, its statistics are ΦᵀC⁻¹Φ (its
    diagonal is s), ΦᵀC⁻¹t (which is q) and tᵀC⁻¹t (Tipping & Faul 2003, eqs. 19 and 22). So an
    iteration takes P³ instead of (M + P)³ operations. Its β, initially 1, multiplies C⁻¹: better
    columns reduce the noise.
    """
    statistics = state.statistics
    beta = float(state.beta)
    entered = np.asarray(state.entered)
    new = np.flatnonzero(entered)
    earlier = np.flatnonzero(~entered)
    old = posterior(statistics.take(earlier), state.alpha[earlier], beta)
    cross = statistics.gram[np.ix_(earlier, new)]
    precision = beta * statistics.gram[np.ix_(new, new)]
    half = whitened(old, cross)
    gram = precision - beta**2 * (half @ half.T)
    np.fill_diagonal(gram, np.maximum(np.diagonal(gram), DEPENDENT * np.diagonal(precision)))
    moved = old.mean - statistics.offset[earlier, 0]
    quality = beta * (statistics.projection[new, 0] - cross.T @ moved)
    square = beta * old.residual + state.alpha[earlier] @ old.mean**2
    block = GramBlock(
        cross=np.zeros((0, len(new))),
        gram=gram,
        projection=quality[:, None],
        sum_squares=np.array([square]),
        n=state.n,
        log_weight=0.0,
    )
    fit = state.restarted(GramStatistics.of(state.labels[new], block), state.alpha[new], 1.0)
    return replace(
        fit, target_variance=beta * state.target_variance, least_noise=beta * state.least_noise
    )


def _from_starts(best: HyperState, whole: HyperState, rule: StopRule, on_step: Watch) -> HyperState:
    """Return the best fixed point from common α: 1/M² (Tipping's SparseBayes) and 1, × their scale.

    Args:
        best: the fixed point from the columns' α
        whole: the fit with all candidates
        rule: decides when the fit ends
        on_step: function called at each step
    """
    M = len(whole.labels)
    last = best.iteration
    largest = float(whole.statistics.gram.diagonal().max(initial=0.0))
    unit = largest / (whole.n * float(whole.target_variance))
    for level in (1.0 / M**2, 1.0) if unit > 0 else ():
        alpha = whole.prior.fix(whole.labels, np.full(M, level * unit))
        start = replace(whole, alpha=alpha, found=None, iteration=last)
        trial = maximise(start, replace(_loose(rule, last), tol=max(rule.tol, ROUGH)), on_step)[0]
        last = trial.iteration
        if trial.log_evidence > best.log_evidence:
            best = trial
        del trial  # the new fit may be worse
    return replace(best, iteration=last)


def _loose(rule: StopRule, done: int) -> StopRule:
    """Return the rule for turns, which together may take ``rule.max_iterations`` more after the
    ``done`` ones."""
    return StopRule(max(rule.tol, LOOSE), done + rule.max_iterations, guard=False, thin=True)


def improve(
    fit: HyperState, whole: HyperState, rule: StopRule, on_step: Watch
) -> tuple[HyperState, Termination]:
    """Alternate between actions and the fixed point.

    Args:
        fit: the first fixed point
        whole: the fit with all candidates
        rule: decides when the fit ends
        on_step: function called at each step
    """
    loose = _loose(rule, fit.iteration)

    def act(fit: HyperState, whole: HyperState) -> HyperState:
        # four refreshes cover about 64 + M/2 actions; beyond that, updating all α together is
        # better
        limited = replace(loose, max_iterations=fit.iteration + 4)
        return grow(_among(whole, fit), limited, on_step)[0]

    fit = turns(fit, whole, rule, act, on_step)
    final = replace(rule, max_iterations=fit.iteration + rule.max_iterations, guard=False)
    last, reason = maximise(fit, final, on_step)
    return (last, reason) if last.log_evidence >= fit.log_evidence else (fit, reason)


def turns(
    fit: HyperState, whole: HyperState, rule: StopRule, start: Begin, on_step: Watch
) -> HyperState:
    """Repeat the fixed point while it gains 1e-3 nats per row without raising the noise.

    Args:
        fit: the first fixed point
        whole: the fit with all candidates
        rule: decides when the fit ends
        start: where the next fixed point starts, ``start(fit, whole)``
        on_step: function called at each step
    """
    loose = _loose(rule, fit.iteration)
    gain = np.inf
    while gain > 1e-3 * whole.n and fit.iteration < loose.max_iterations:
        trial, _ = maximise(start(fit, whole), loose, on_step)
        gain = trial.log_evidence - fit.log_evidence
        if gain <= 0 or float(fit.beta) > 1.01 * float(trial.beta):
            return replace(fit, iteration=trial.iteration)
        fit = trial
    return fit


def rejoined(fit: HyperState, whole: HyperState) -> HyperState:
    """Return the columns of ``fit`` and the restored columns of ``whole``, at the α of joining
    columns."""
    active = Greedy(_among(whole, fit)).active
    s = np.maximum(active.S, 0.0)
    q = active.Q.copy()
    s[active.columns], q[active.columns] = own_factors(active, active.alpha)
    precision = active.beta * active.diagonal
    alpha = entry_precision(s, q, precision)
    alpha[active.columns] = active.alpha
    rank = q**2 / np.maximum(s, np.maximum(DEPENDENT * precision, ABSENT))
    rank[active.columns] = np.inf
    count = active.M + max(10, active.M // 2)
    columns = np.sort(np.argsort(-rank, kind="stable")[:count])
    statistics = active.statistics.take(columns)
    return whole.restarted(
        statistics, alpha[columns], fit.beta, floored=fit.floored, iteration=fit.iteration
    )


def _among(whole: HyperState, fit: HyperState) -> HyperState:
    """Return all candidates of ``whole``: the columns of ``fit`` unchanged, the others as if they
    had just entered."""
    _, places, places_in_fit = np.intersect1d(
        whole.labels, fit.labels, assume_unique=True, return_indices=True
    )
    alpha = whole.alpha.copy()
    alpha[places] = fit.alpha[places_in_fit]
    entered = np.ones(len(whole.labels), bool)
    entered[places] = False
    return whole.restarted(
        whole.statistics,
        alpha,
        fit.beta,
        floored=fit.floored,
        iteration=fit.iteration,
        entered=entered,
    )
