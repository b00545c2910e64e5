"""Where a run goes on: a strategy's state as names, arrays and scalars, with which the spec makes the same bits again.

A checkpoint is taken when a line of history is safe (``jobs.driver.RESUMABLE``), and holds what the spec of the fit
(``setup.spec``) does not say; what a strategy holds only between two such lines is not in it. The schema, in which
classes of this package have no names, so that they may change theirs:

    ``waiting``    how many lines of history the state waits for
    ``state``      ``kind``: "rounds", "working-set" or "split-merge", and with it

    rounds         ``kernel`` (a spec: it may have been learned again), ``design``, ``fit``, ``scores`` (of held-out
                   numbers: ``n``, ``square``, ``absolute``, ``surprise``, ``covered``, ``unit``; or None), ``round``,
                   ``selection``, ``seen`` (the likelihood of the fit's rows), ``candidates``, ``duplicates``,
                   ``dropped``, ``reason``, ``concluding``, ``settled``, ``learned``
    working-set    the same, and ``used`` (row numbers), ``evidence``, ``flat``, ``patient``, ``best``: None, or
                   ``round``, ``error``, ``kernel``, ``design``, ``fit``, ``seen``, ``candidates``, ``reason``
    split-merge    ``level``, ``partitions``, ``duplicates``, ``dropped``, ``best`` (the evidence of a row), and
                   ``below`` and ``parts``, lists of ``design``, ``gain``, ``start``

    design         ``centres`` (m, d), ``labels`` (m,), ``bias``, ``active``: the columns
    fit            of numbers ``statistics``, ``noise`` (statistics or None), ``alpha`` (M,), ``beta``, ``iteration``,
                   ``floored``, ``noise_share``, ``noise_every``, ``entered``, ``left_out`` (``n``, ``square``,
                   ``stated``, ``counts``, or None) and ``posteriors``, one for each target;
                   of classes ``labels``, ``alpha`` and ``weights`` (M, C), ``passes``, ``posteriors``, one for each
                   output, and ``block``: ``log_likelihood``, ``gradient``, ``curvature``, ``wrong``, ``n``,
                   ``surprise``
    statistics     ``labels`` (M,), ``gram`` (M, M), ``projection``, ``offset`` (M, T), ``energy`` (T,), ``n``,
                   ``log_weight``
    posteriors     ``mean``, ``variance``, ``determinedness`` (M,), ``residual``, ``log_evidence``, ``factor`` (M, M),
                   ``scale`` (M,), ``jitter``, ``rounding``: stored, since how they were computed may decide their bits
    start          of numbers ``labels``, ``alpha``, ``beta``; of classes ``labels``, ``alpha``, ``weights``

Reasons (``reason``, ``concluding``) are values of ``core.termination.Termination``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from partirvm.core.laplace import LaplaceState
from partirvm.core.left_out import LeftOut
from partirvm.core.logistic import LogisticBlock
from partirvm.core.posterior import JointPosterior, Posterior
from partirvm.core.residuals import Scores
from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import Termination
from partirvm.errors import FormatError
from partirvm.jobs.driver import Checkpoint
from partirvm.jobs.sealed_values import read_values, write_values
from partirvm.kernels import kernel_from_spec
from partirvm.kernels.design import Design
from partirvm.likelihoods.gaussian import Warm
from partirvm.likelihoods.laplace import Start
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.relearning import with_kernel
from partirvm.strategies.rounds import Phase, RoundsState
from partirvm.strategies.split_merge import Part, SplitMergeState
from partirvm.strategies.working_set import Best, WorkingSetState

KIND = "partirvm-checkpoint"
FORMAT = 3

Packed: TypeAlias = dict[str, Any]

ROUNDS, WORKING_SET, SPLIT_MERGE = "rounds", "working-set", "split-merge"
"""The kinds of states."""

DESIGN = ("centres", "labels", "bias", "active")
STATISTICS = ("labels", "gram", "projection", "offset", "energy", "n", "log_weight")
POSTERIOR = (
    *("mean", "variance", "determinedness", "residual", "log_evidence", "factor", "scale", "jitter", "rounding"),
)
BLOCK = ("log_likelihood", "gradient", "curvature", "wrong", "n", "surprise")
LEFT_OUT = ("n", "square", "stated", "counts")
SCORES = ("n", "square", "absolute", "surprise", "covered", "unit")
NUMBERS = ("alpha", "beta", "iteration", "floored", "noise_share", "noise_every", "entered")
CLASSES = ("labels", "alpha", "weights", "passes")
COUNTERS = (*("round", "selection", "seen", "candidates", "duplicates", "dropped", "settled", "learned"),)
USED = ("used", "evidence", "flat", "patient")
BEST = ("round", "error", "seen", "candidates")
LEVELS = ("level", "partitions", "duplicates", "dropped", "best")


def save_checkpoint(value: Any, location: str) -> None:
    """Write a packed checkpoint to a folder or URL with nothing there. Raises as ``write_values`` does."""
    write_values(value, location, KIND, FORMAT)


def load_checkpoint(location: str, *, allow_code: bool = False) -> Any:
    """The packed checkpoint that was written. Raises as ``read_values`` does."""
    return read_values(location, KIND, FORMAT, allow_code=allow_code)


def pack(checkpoint: Checkpoint) -> Packed:
    """Names, arrays and scalars of a checkpoint."""
    state = checkpoint.state
    packed = _pack_split_merge(state) if isinstance(state, SplitMergeState) else _pack_rounds(state)
    return {"waiting": checkpoint.waiting, "state": packed}


def unpack(packed: Packed, problem: Problem, options: Options) -> Checkpoint:
    """The checkpoint of which ``pack`` made this, of a fit with this problem and these options.

    Raises ``FormatError`` for names or values that cannot be those of such a fit.
    """
    try:
        state = packed["state"]
        unpacked = _unpack_split_merge if state["kind"] == SPLIT_MERGE else _unpack_rounds
        return Checkpoint(unpacked(state, problem, options), packed["waiting"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the checkpoint is not of this fit: {type(error).__name__}: {error}") from error


def _pack_rounds(state: RoundsState) -> Packed:
    packed = {
        "kind": ROUNDS,
        "kernel": state.problem.empty.kernel.spec(),
        "design": _named(state.design, DESIGN),
        "fit": _pack_fit(state.fit),
        "scores": _named(state.scores, SCORES) if isinstance(state.scores, Scores) else None,
        "reason": state.reason.value,
        "concluding": None if state.concluding is None else state.concluding.value,
        **_named(state, COUNTERS),
    }
    if not isinstance(state, WorkingSetState):
        return packed
    return {**packed, "kind": WORKING_SET, **_named(state, USED), "best": _pack_best(state.best)}


def _unpack_rounds(packed: Packed, problem: Problem, options: Options) -> RoundsState:
    problem = with_kernel(problem, kernel_from_spec(packed["kernel"]))
    design = _unpack_design(packed["design"], problem)
    scores, concluding = packed["scores"], packed["concluding"]
    own: Packed = {
        "problem": problem,
        "options": options,
        "design": design,
        "fit": _unpack_fit(packed["fit"], problem, design),
        "phase": Phase.SAVED,
        "scores": None if scores is None else Scores(**scores),
        "reason": Termination(packed["reason"]),
        "concluding": None if concluding is None else Termination(concluding),
        **_picked(packed, COUNTERS),
    }
    if packed["kind"] == ROUNDS:
        return RoundsState(**own)
    return WorkingSetState(**own, **_picked(packed, USED), best=_unpack_best(packed["best"], problem))


def _pack_best(best: Best | None) -> Packed | None:
    if best is None:
        return None
    return {
        "kernel": best.design.kernel.spec(),
        "design": _named(best.design, DESIGN),
        "fit": _pack_fit(best.fit),
        "reason": best.reason.value,
        **_named(best, BEST),
    }


def _unpack_best(packed: Packed | None, problem: Problem) -> Best | None:
    if packed is None:
        return None
    problem = with_kernel(problem, kernel_from_spec(packed["kernel"]))
    design = _unpack_design(packed["design"], problem)
    fit, reason = _unpack_fit(packed["fit"], problem, design), Termination(packed["reason"])
    return Best(design=design, fit=fit, reason=reason, **_picked(packed, BEST))


def _pack_split_merge(state: SplitMergeState) -> Packed:
    def each(parts: Iterable[Part]) -> list[Packed]:
        return [
            {"design": _named(part.design, DESIGN), "gain": part.gain, "start": _pack_start(part.warm)}
            for part in parts
        ]

    return {"kind": SPLIT_MERGE, **_named(state, LEVELS), "below": each(state.below), "parts": each(state.parts)}


def _unpack_split_merge(packed: Packed, problem: Problem, options: Options) -> SplitMergeState:
    nothing = None if problem.classifies else Warm.of(problem.likelihood.start(problem))

    def each(parts: Iterable[Packed]) -> tuple[Part, ...]:
        return tuple(
            Part(_unpack_design(part["design"], problem), part["gain"], _unpack_start(part["start"], nothing))
            for part in parts
        )

    levels = _picked(packed, LEVELS)
    return SplitMergeState(
        problem, options, Phase.SAVED, below=each(packed["below"]), parts=each(packed["parts"]), **levels
    )


def _pack_start(start: Any) -> Packed:
    return _named(start, ("labels", "alpha", "weights" if isinstance(start, Start) else "beta"))


def _unpack_start(packed: Packed, nothing: Warm | None) -> Warm | Start:
    return Start(**packed) if nothing is None else replace(nothing, **packed)


def _pack_fit(fit: Any) -> Packed:
    if isinstance(fit, LaplaceState):
        posteriors = [_named(each, POSTERIOR) for each in fit.posteriors]
        return {**_named(fit, CLASSES), "posteriors": posteriors, "block": _named(fit.block, BLOCK)}
    found = fit.posterior
    each = found.each if isinstance(found, JointPosterior) else (found,)
    return {
        "statistics": _named(fit.statistics, STATISTICS),
        "noise": None if fit.noise is None else _named(fit.noise, STATISTICS),
        "left_out": None if fit.left_out is None else _named(fit.left_out, LEFT_OUT),
        "posteriors": [_named(one, POSTERIOR) for one in each],
        **_named(fit, NUMBERS),
    }


def _unpack_fit(packed: Packed, problem: Problem, design: Design) -> Any:
    posteriors = tuple(Posterior(**each) for each in packed["posteriors"])
    if problem.classifies:
        block, own = LogisticBlock(**packed["block"]), _picked(packed, CLASSES)
        return LaplaceState(problem.likelihood.name, block=block, posteriors=posteriors, prior=problem.prior, **own)
    noise, left_out = packed["noise"], packed["left_out"]
    return replace(
        problem.likelihood.start(problem),
        statistics=GramStatistics(design.basis, **packed["statistics"]),
        noise=None if noise is None else GramStatistics(design.basis, **noise),
        left_out=None if left_out is None else LeftOut(**left_out),
        found=posteriors[0] if problem.powers is None else JointPosterior(posteriors),
        **_picked(packed, NUMBERS),
    )


def _unpack_design(packed: Packed, problem: Problem) -> Design:
    return replace(problem.empty, **packed)


def _named(value: Any, names: Iterable[str]) -> Packed:
    return {name: getattr(value, name) for name in names}


def _picked(packed: Packed, names: Iterable[str]) -> Packed:
    return {name: packed[name] for name in names}
