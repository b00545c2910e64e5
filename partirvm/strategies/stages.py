"""The stages of a fit, from candidates to a history line: generators that yield instructions.

A *round* runs ``extended``, ``solved``, ``scored`` and ``saved``. The last fit converges, uses all
rows and takes its noise variance from a residual pass; afterwards, an input-dependent noise
variance may be fitted (``settled``). When rows are appended, a run keeps both its noise factors and
its kernel.

Between rounds, the kernel is *learned again* whenever there are 3.2 times (with many rows, 2.4
times) as many vectors as at the previous search. ``LearnKernel`` searches for a better kernel at
these vectors, on a sample of rows. One pass over the fit's rows computes the statistics of these
columns with the new kernel, which is kept if the evidence at the current α and β is higher; the
next round updates α and β. The evidence over these rows therefore never falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import numpy as np

from partirvm.core.class_groups import ClassGroups
from partirvm.core.diagnostics import to_json
from partirvm.core.groups import GroupedRows
from partirvm.core.left_out import LeftOut, left_out_of
from partirvm.core.pruning import least_loss
from partirvm.core.scores import ClassScores, Scores
from partirvm.core.termination import StopRule, Termination
from partirvm.core.updates import HyperState, without
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.classes import CLASS_GAIN
from partirvm.likelihoods.gaussian import calibrated_by_groups, left_out_diagnostics
from partirvm.likelihoods.indicators import most_left_out
from partirvm.likelihoods.noise_fit import CONSTANT, LOCAL, FittedNoise, NoiseFit, noise_sample
from partirvm.likelihoods.passes import ScorePass
from partirvm.local.known_effects import KnownEffects
from partirvm.local.known_groups import KnownGroups
from partirvm.planning.memory import trial_bytes
from partirvm.spec.entries import Record
from partirvm.spec.problem import Fit, Options, Problem, survivors
from partirvm.strategies.fit_rows import posterior_rows
from partirvm.strategies.instructions import (
    FitEffects,
    FitResiduals,
    Gather,
    LearnKernel,
    LeaveClassGroupsOut,
    LeaveGroupsOut,
    LeaveIndicatorGroupsOut,
    ResidualsFitted,
    Save,
    Steps,
    Stopped,
    TreesFitted,
)
from partirvm.strategies.tree_stage import request_of, requests_trees, with_share
from partirvm.types import LEARNING_FEATURES, LEARNING_ROWS, RESIDUAL_ROWS, Columns, Int

INTERMEDIATE = 100.0
"""Tolerance of intermediate fits, as a multiple of ``tol``; only the last fit converges to
``tol``."""

BETTER = 1e-3
"""Minimum relative decrease in the held-out error for a round to count as better."""

REBASES = 2
"""Maximum number of passes per fit to correct for cancellation."""

PRUNED = 0.3
"""Fraction of the vectors that are deleted together from the last fit of a classification."""

FEWEST_PRUNED = 30
"""Minimum number of vectors for such deletions."""

RISE = 0.2
"""Maximum rise in the log loss as a multiple of ``CLASS_GAIN``."""

NO_RESIDUALS = ResidualsFitted()

UNNAMED = Columns(())
"""Columns of a model that is not saved."""

SHARE = 0.4
"""Maximum number of centres in kernel learning, as a fraction of the rows; with more centres, the
evidence overfits."""

LEAST_WORK = 1e11
"""Number of multiplications that take a second or two; they are counted as work before the first
round, so that small fits do not end early."""


@dataclass(frozen=True)
class RoundsState:
    """The checkpoint of a run in rounds: the columns, their fit, and counts.

    ``seen`` is the value of ``fit_rows`` for the statistics of the fit, empty before the first fit;
    ``learned`` is the number of vectors at which the kernel was last learned again. ``appended`` is
    true until the current columns have been fitted to the appended rows. ``best_round`` is the
    state after the round with the lowest held-out error or log loss.

    Only the working set uses the remaining fields. ``used`` are the rows that have been candidates
    (increasing), ``evidence`` is the highest evidence so far, ``flat`` and ``slow`` are numbers of
    consecutive rounds. ``patient`` makes the next fit converge, since flatness must be judged at
    convergence. ``kept`` is the number of vectors before the last candidates joined, ``stayed`` the
    number of these candidates that remain, and ``work`` the number of multiplications in kernel
    learning and all rounds. ``corrected`` is the left-out error after local residuals, measured
    with ``tested`` vectors. ``class_groups`` is what a last fit of classes says of groups, and
    ``trees`` what boosted trees add to a last fit.
    """

    problem: Problem
    options: Options
    design: Design
    fit: Fit
    round: int = 0
    selection: str = "order"
    seen: str = ""
    candidates: int = 0
    dropped: int = 0
    learned: int = 0
    reason: Termination = Termination.CONVERGED
    scores: Scores | ClassScores | None = None
    local: ResidualsFitted = NO_RESIDUALS
    end: Termination | None = None
    appended: bool = False
    best_round: "RoundsState | None" = None
    used: Int = field(default_factory=lambda: NONE)
    evidence: float = -np.inf
    flat: int = 0
    patient: bool = False
    kept: int = 0
    stayed: int | None = None
    work: float = LEAST_WORK
    slow: int = 0
    tested: int = 0
    corrected: float = 0.0
    class_groups: ClassGroups | None = None
    trees: TreesFitted | None = None


def first_state(problem: Problem, options: Options, **facts: Any) -> RoundsState:
    """Return the state before the first fit; ``facts`` are further fields."""
    return RoundsState(problem, options, problem.empty, problem.likelihood.start(problem), **facts)


def intermediate_rule(options: Options, candidates: int) -> StopRule:
    """Return the rule that ends a fit at ``stop_fraction`` of its initial candidates; near
    ``max_vectors``, it also thins the columns."""
    vectors = int(options.stop_fraction * candidates)
    scarce = (
        options.max_vectors is not None
        and candidates + options.partition_size > options.max_vectors
    )
    return StopRule(
        INTERMEDIATE * options.tol, options.max_iterations, vectors=vectors, thin=scarce
    )


def final_rule(options: Options) -> StopRule:
    """Return the rule for a fit that converges and then deletes columns whose deletion raises the
    evidence."""
    return StopRule(options.tol, options.max_iterations, thin=True)


def columns_of(design: Design, rows: Int) -> Steps[Design]:
    """Request the inputs of rows and return their columns; rows with zero weight have none."""
    ((present, points),) = yield (Gather(rows),)
    return design.with_centres(points, present)


def extended(
    state: RoundsState, new: Design, fit_rows: str, warm: Any = None
) -> Steps[RoundsState]:
    """Request the statistics of the new columns, or of all columns if the rows change.

    Args:
        state: the state before the extension
        new: new columns, possibly none
        fit_rows: rows of the next fit, "full", "sample" or "growing"
        warm: start of the next fit (``Start``), or None
    """
    problem = state.problem
    fit = state.fit
    design = state.design.join(new)
    likelihood = problem.likelihood
    rows = posterior_rows(problem, state.options, fit_rows)
    base = fit
    kept = state.design
    added = new
    if fit_rows != state.seen:
        base = likelihood.start(problem)
        kept = problem.empty
        added = design
    passes = likelihood.measure(base, kept, added, rows)
    # no variable refers to the statistics, which may be as large as the fit, so they are freed
    # before the next instruction
    fit = likelihood.join(problem, fit, kept, added, *((yield passes) if passes else ()), warm=warm)
    return replace(state, design=design, fit=fit, seen=fit_rows, class_groups=None, trees=None)


def solved(state: RoundsState, rule: StopRule, *, warm: Any = None) -> Steps[RoundsState]:
    """Request a fit; if its statistics have lost digits, continue with the residual target's
    statistics.

    A ramp is then chosen on left-out rows or, with groups, on left-out groups.
    """
    problem = state.problem
    options = state.options
    rows = posterior_rows(problem, options, state.seen)
    likelihood = problem.likelihood
    for rebases in count():
        rule = replace(rule, guard=False) if rebases >= REBASES else rule
        (end,) = yield (
            likelihood.fit(problem, options, state.design, state.fit, rule, rows, warm),
        )
        state = replace(
            state, design=survivors(state.design, end.fit), fit=end.fit, reason=end.reason
        )
        del end  # its posterior is as large as the continued fit
        if state.reason is not Termination.CANCELLED:
            break
        fit = likelihood.settle(state.fit, *(yield from residuals(state, last=False)), last=False)
        state = replace(state, fit=fit)
    if likelihood.has_ramp:
        requests: tuple[Any, ...] = likelihood.settling(
            problem, state.design, state.fit, rows, last=False, left_out=True
        )
        if problem.groups is not None:
            groups = problem.groups.of_fit(rows, most_left_out(state.fit))
            requests = (LeaveIndicatorGroupsOut(state.design, state.fit, groups),)
        state = replace(state, fit=likelihood.settle(state.fit, *(yield requests), last=False))
    return state


def pruned(state: RoundsState) -> Steps[RoundsState]:
    """Delete vectors step by step from the last dense fit of several classes, as long as the
    left-out loss rises little.

    The left-out loss overstates the rise, because the remaining vectors have fewer substitutes: on
    digits, from 824 to 282 vectors, it rises by a half, but the loss on new rows by a hundredth. If
    classes overlap, it is accurate, and a rise of ``least_gain`` would be a tenth of the loss
    (magic); hence the limit ``RISE``.
    """
    likelihood = state.problem.likelihood
    if likelihood.has_ramp and state.problem.n_classes > 2:
        loss = state.fit.ramp.loss
        effort = state.options.effort
        rounds = likelihood.rounds
        most = loss + min(rounds.least_gain(1.5 * loss, effort), RISE * CLASS_GAIN[effort])
        while state.fit.n_vectors >= FEWEST_PRUNED:
            fit = state.fit.reduced(PRUNED)
            trial = replace(state, fit=fit, design=survivors(state.design, fit))
            trial = yield from solved(trial, final_rule(state.options))
            if not trial.fit.ramp.loss <= most:
                break
            state = trial
    return state


def limited(state: RoundsState) -> Steps[RoundsState]:
    """Delete vectors from a last fit of all rows until at most ``max_vectors`` remain, and refit
    these.

    Each step deletes at most a fraction ``PRUNED`` of the vectors, choosing one after another the
    vector whose deletion costs the least evidence (``core.pruning``); the fit between two steps
    changes α and the noise. The noise and the left-out errors of the last fit thus belong to the
    remaining vectors.
    """
    most = state.options.max_vectors
    while most is not None and state.fit.n_vectors > most:
        count = min(state.fit.n_vectors - most, max(int(PRUNED * state.fit.n_vectors), 1))
        model: Any = state.problem.likelihood.model(
            state.design, state.fit, UNNAMED, state.options.moderate
        )
        roots = model.root if model.root.ndim == 3 else model.root[None]
        first = state.design.n_leading
        gone = least_loss(model.alpha, model.mean.reshape(len(model.mean), -1), roots, first, count)
        centres = np.delete(np.arange(len(state.design.centres)), gone - first)
        state = replace(state, design=state.design.take(centres))
        if not state.problem.likelihood.newton:
            state = replace(state, fit=without(state.fit, gone))
        state = yield from solved(state, final_rule(state.options))
    return state


def residuals(state: RoundsState, *, last: bool) -> Steps[list[Any]]:
    """Request the passes that compute the residual of a fit, and return their statistics.

    For a last fit to all rows, left-out errors come first; with several targets, they are computed
    only for local residuals.
    """
    problem = state.problem
    rows = posterior_rows(state.problem, state.options, state.seen)
    passes = problem.likelihood.settling(
        problem,
        state.design,
        state.fit,
        rows,
        last=last,
        left_out=last and state.seen != "sample",
        corrected=state.options.residual != "none" or requests_trees(state),
    )
    return list((yield passes) if passes else ())


def settled(state: RoundsState) -> Steps[RoundsState]:
    """Settle the noise of a last fit, leave out groups, if there are any, and then request its
    local residuals and boosted trees."""
    state, left_out = yield from with_noise(state)
    groups = state.problem.groups
    try:
        if groups is not None and not state.problem.likelihood.has_noise:
            state = yield from with_class_groups(state, groups)
        elif left_out:
            state, left_out = yield from with_residuals(state, left_out)
        return (yield from with_trees(state, left_out))
    except Stopped:
        yield from saved(replace(state, scores=None), "early")
        raise


def with_residuals(
    state: RoundsState, left_out: tuple[LeftOut, ...]
) -> Steps[tuple[RoundsState, tuple[LeftOut, ...]]]:
    """Leave out groups, if there are any, and request local residuals.

    Args:
        state: the settled fit
        left_out: errors of rows that were left out one by one, for each target

    Returns the fit, and the errors of left-out rows: for groups, those of new groups and those of
    known ones.
    """
    groups = state.problem.groups
    of_rows = left_out
    if groups is not None:
        state, left_out = yield from with_groups_left_out(state, groups, left_out)
        of_rows = left_out[-1:] if state.problem.n_targets == 1 else left_out
    if state.options.residual == "none":
        return state, left_out
    effects = getattr(state.fit, "effects", None)
    request = FitResiduals(state.design, state.fit, of_rows, state.options, effects=effects)
    (local,) = yield (request,)
    return replace(state, local=local), left_out


def with_trees(state: RoundsState, left_out: tuple[LeftOut, ...]) -> Steps[RoundsState]:
    """Request boosted trees, if the options ask for them.

    Args:
        state: the settled fit, with local residuals
        left_out: errors of left-out rows, for each target
    """
    if not requests_trees(state):
        return replace(state, local=replace(state.local, left_out=None))
    request = request_of(state, left_out)
    if request is None:
        none = TreesFitted.without("rows are left out only if the noise is estimated")
        return replace(state, trees=none, local=replace(state.local, left_out=None))
    (trees,) = yield (request,)
    return cast(RoundsState, with_share(state, request, trees))


def with_groups_left_out(
    state: RoundsState, groups: GroupedRows, rows: tuple[LeftOut, ...]
) -> Steps[tuple[RoundsState, tuple[LeftOut, ...]]]:
    """Calibrate a fit of one target for rows of new groups, and estimate the effects of known ones.

    Args:
        state: the settled fit
        groups: rows that are left out by groups
        rows: errors of rows that were left out one by one, for each target

    Returns the fit, and the errors of left-out groups and of rows after the effects of their
    groups; of several targets, the errors of rows alone.
    """
    problem = state.problem
    if problem.n_targets > 1:
        return state, rows
    ((of_groups,),) = yield (
        LeaveGroupsOut(state.design, state.fit, groups, problem.left_out_square),
    )
    # the bound refers to left-out groups
    of_rows = replace(rows[0], least_square=0.0)
    of_groups = of_groups.different_from(of_rows)
    effects = None
    if state.design.group_columns is None:
        (known,) = yield (FitEffects(of_rows),)
        if known is not None:
            effects = known.effects
            of_rows = known.left_out
    fit = calibrated_by_groups(state.fit, of_groups, of_rows, effects)
    return replace(state, fit=fit), (of_groups, of_rows)


def effects_of_columns(design: Design, fit: HyperState, groups: Int) -> KnownEffects | None:
    """Return the effects of groups that are weights of a fit of one target; None without columns of
    groups.

    As no row belongs to two groups, their precision given the other weights w is block-diagonal:
    with the columns B of a group and the row weights W it is P = βBᵀWB + diag(1 ÷ prior variances),
    and their mean given w changes by H = −βP⁻¹BᵀWΦ per unit of w.

    Args:
        design: the design of M columns
        fit: the fit
        groups: codes of the groups, increasing (G,); those without columns have prior effects
    """
    columns = design.group_columns
    if columns is None:
        return None
    others = design.places_without_groups
    places = np.setdiff1d(np.arange(design.n_columns), others).reshape(-1, columns.width)
    gram = float(fit.beta) * fit.statistics.gram[places]
    precisions = np.stack(
        [block[:, columns_of_group] for block, columns_of_group in zip(gram, places, strict=True)]
    )
    covariances = np.linalg.inv(precisions + np.diag(1.0 / columns.variances))
    moves = -covariances @ gram[:, :, others]
    effects = KnownEffects(fit.posterior.mean[places], covariances, moves)
    return effects.at(columns.places_of(groups).astype(np.int64), columns.variances)


def with_class_groups(state: RoundsState, groups: GroupedRows) -> Steps[RoundsState]:
    """Calibrate the probabilities of a last fit for rows of new groups and of known ones."""
    request = LeaveClassGroupsOut(state.problem, state.options, state.design, state.fit, groups)
    (known,) = yield (request,)
    return replace(state, class_groups=known)


def corrected(state: RoundsState) -> Steps[float]:
    """Return the RMSE of left-out rows after local residuals, in the model's units; 0 if local
    residuals cannot help or do not fit in memory."""
    problem = state.problem
    options = state.options
    room = options.residual_bytes >= trial_bytes(options.neighbours)
    if options.residual == "none" or problem.n_rows < RESIDUAL_ROWS or not room:
        return 0.0
    rows = posterior_rows(problem, options, state.seen)
    passes = problem.likelihood.settling(
        problem, state.design, state.fit, rows, last=True, left_out=True, corrected=True
    )
    left_out = left_out_of((yield passes[: problem.n_targets]))
    (trial,) = yield (FitResiduals(state.design, state.fit, left_out, options, trial=True),)
    return float(trial.error())


def with_noise(
    state: RoundsState, noise: FittedNoise | None = None
) -> Steps[tuple[RoundsState, tuple[LeftOut, ...]]]:
    """Compute the noise variance of a last fit; refit if it depends on the inputs. ``noise`` is a
    previously fitted noise model.

    The left-out errors for each target are also returned.
    """
    statistics = yield from residuals(state, last=True)
    left_out = left_out_of(statistics)
    if left_out and noise is not None:
        statistics[0] = left_out[0].scaled(noise.rows, noise.factors)
    constant = replace(
        state, fit=state.problem.likelihood.settle(state.fit, *statistics, last=True)
    )
    if len(left_out) != 1 or is_constant(state) or state.design.noise is not None:
        return constant, left_out
    try:
        noise = yield from fitted_noise(constant, left_out[0])
        if noise is None:
            return constant, left_out
        design = replace(constant.design, noise=noise.noise)
        state = replace(constant, design=design, seen="", candidates=constant.fit.n_vectors)
        state = yield from extended(state, design.take(NONE, leading=NONE), state.options.last_rows)
        state = yield from solved(state, final_rule(state.options))
        return (yield from with_noise(state, noise))
    except Stopped:
        yield from saved(replace(constant, scores=None), "early")
        raise


def is_constant(state: RoundsState) -> bool:
    """Return True if the noise does not depend on the inputs: on request, and by default for rows
    in groups. Errors at new groups are those between groups, which do not grow and shrink with the
    noise within groups: on terrain in blocks of ten degrees, 95 % intervals that did covered all
    rows."""
    noise = state.options.noise
    return noise == CONSTANT or (state.problem.groups is not None and noise != LOCAL)


def fitted_noise(state: RoundsState, left_out: LeftOut) -> Steps[FittedNoise | None]:
    """Fit input-dependent noise; return None if the errors are mere rounding errors or the kernel
    is too narrow."""
    sample = noise_sample(left_out, state.design.scaling.n_inputs)
    doubtful = state.fit.calibration is not None and state.fit.calibration.overconfident
    if sample is None or state.fit.floored or doubtful:
        return None
    ((_, points),) = yield (Gather(sample.rows),)
    (end,) = yield (NoiseFit(state.design, points, sample, state.options.noise == LOCAL),)
    return cast(FittedNoise | None, end.fit)


def scored(state: RoundsState) -> Steps[RoundsState]:
    """Score the fit on held-out rows, if there are any, and remember the best state."""
    if not state.problem.held_out:
        return state
    columns = Columns(tuple(f"x{j}" for j in range(state.design.centres.shape[1])))
    model: Any = state.problem.likelihood.model(
        state.design, state.fit, columns, state.options.moderate
    )
    if state.local.residuals is not None:
        model = replace(model, residuals=state.local.residuals)
    if state.class_groups is not None:
        model = replace(model, known=state.class_groups)
    if state.trees is not None:
        model = replace(model, trees=state.trees.share)
    (scores,) = yield (ScorePass.of(model),)
    state, best = replace(state, scores=scores), state.best_round
    if best is None or best.scores is None or scores.loss < best.scores.loss * (1 - BETTER):
        state = replace(state, best_round=replace(state, best_round=None, used=NONE))
    return state


def saved(state: RoundsState, kind: str, end: Termination | None = None) -> Steps[RoundsState]:
    """Save the model with a history line; ``end`` is the reason for ending if the run ends here."""
    kind = "early" if kind == "final" and state.options.last_rows != "full" else kind
    known = known_groups(state)
    yield (
        Save(
            state.design,
            state.fit,
            line_of(state, kind=kind),
            state.options.moderate,
            state.local.residuals if known is None else None,
            known,
            state.trees,
        ),
    )
    return replace(state, end=state.reason if end is Termination.CONVERGED else end)


def known_groups(state: RoundsState) -> KnownGroups | ClassGroups | None:
    """Return how rows of known groups are predicted; None if no groups were left out."""
    if state.class_groups is not None:
        return state.class_groups
    groups = state.problem.groups
    calibration = getattr(state.fit, "of_known_groups", None)
    if groups is None or calibration is None:
        return None
    scale = float(state.problem.empty.scaling.t_scale[0])
    noise_variance = scale**2 * calibration.noise_variance
    effects = effects_of_columns(state.design, state.fit, groups.known)
    if effects is None and state.fit.effects is not None:
        effects = KnownEffects.of(state.fit.effects, groups.known)
    return KnownGroups(groups.known, noise_variance, calibration, state.local.residuals, effects)


def line_of(state: RoundsState, **facts: Any) -> Record:
    """Return the history line of a state; ``facts`` add fields of ``Record`` or override them."""
    problem = state.problem
    fit = state.fit
    scores = state.scores
    noise = state.design.noise
    diagnostics: Sequence[Any] = state.local.diagnostics or left_out_diagnostics(problem, fit)
    if state.trees is not None and state.trees.diagnostics:
        diagnostics = state.trees.diagnostics
    if scores is not None:
        diagnostics = scores.diagnostics
    if facts["kind"] not in ("round", "early", "final"):
        diagnostics = ()
    values = {
        **problem.likelihood.record(problem, fit, scores),
        "candidates": state.candidates,
        "selection": state.selection,
        "dropped": state.dropped,
        "number": state.round,
        "termination": state.reason,
        "fit_rows": state.seen or state.options.last_rows,
        "noise_vectors": None if noise is None else len(noise.weights),
        "diagnostics": [to_json(table) for table in diagnostics],
    }
    if state.trees is not None:
        values["trees"] = state.trees.facts
    if state.local != NO_RESIDUALS:
        values["residuals"] = state.local.facts(problem.empty.scaling.t_scale)
    return Record(**{**values, **facts})


def due(problem: Problem, options: Options, fit: Any, centres: int) -> bool:
    """Return whether a learned kernel should be learned again at this fit's vectors.

    This applies only to fits based on sums over rows: otherwise, each comparison would require a
    complete fit. Fits in rounds have up to two fifths more vectors than they would keep, hence the
    factor 3.2: with 2.4, learning took 35 s longer on kin40k with 10,000 rows and lowered the error
    by 7 %. With four times as many rows as kernel learning uses, a fit takes longer anyway: on
    36,000 rows, a factor of 2.4 lowers the error by 4 % and takes a third more time.

    Args:
        problem: the problem with its kernel
        options: options of the fit
        fit: the fit with its vectors
        centres: number of centres from which the kernel was learned
    """
    if not options.centres or not problem.likelihood.rounds.learns_again:
        return False
    rows = min(problem.n_rows, learning_rows(problem.empty.scaling.n_inputs))
    times = 3.2 if problem.n_rows < 4 * rows else 2.4
    maximum = min(int(SHARE * rows), options.learning_columns - 1)
    return bool(times * max(centres, options.centres) <= fit.n_vectors <= maximum)


def learning_rows(n_features: int) -> int:
    """Return the maximum number of rows from which a kernel is learned again."""
    return max(min(LEARNING_ROWS, LEARNING_ROWS * LEARNING_FEATURES // n_features), 1)


def learned_again(state: RoundsState) -> Steps[RoundsState]:
    """Learn the kernel with the fit's vectors as centres, and keep it if it raises the evidence
    over the fit's rows."""
    problem = state.problem
    options = state.options
    old = state.fit
    sample = replace(options, sample_rows=learning_rows(state.design.scaling.n_inputs))
    rows = posterior_rows(problem, sample, "sample")
    (search,) = yield (LearnKernel(state.design, old, rows),)
    facts = {"candidates": old.n_vectors, "rows": search.rows, "iterations": search.evaluations}
    state = replace(state, learned=old.n_vectors)
    gain = 0.0
    taken = False
    if search.better:
        design = replace(state.design, kernel=search.kernel)
        moved = replace(state, problem=problem.with_kernel(search.kernel), design=design, seen="")
        moved = yield from extended(moved, design.take(NONE, leading=NONE), state.seen)
        gain = moved.fit.log_evidence - old.log_evidence
        if taken := gain > options.tol * moved.fit.n:
            state = yield from scored(moved)
    line = line_of(
        state, kind="kernel", kernel=search.kernel.spec(), gain=gain, taken=taken, **facts
    )
    yield (Save(state.design, state.fit, line, options.moderate, model=taken),)
    return state
