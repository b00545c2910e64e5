"""Checkpoints: the state of a strategy as names, arrays and scalars. Together with the spec it reproduces the bits.

A checkpoint is taken after a line of history is stored (``jobs.driver.RESUMABLE``). It contains the state that the spec
of the fit (``setup.spec``) does not contain. The schema contains no names of classes of this package, so that the
classes may be renamed:

    ``state``      ``kind`` ("rounds", "working-set" or "split-merge") and the fields of this kind:

    rounds         ``kernel`` (a spec, because the kernel may have been learned again), ``design``, ``fit``, ``scores``
                   (held-out scores of regression: ``n``, ``square``, ``absolute``, ``nll``, ``crps``,
                   ``interval_score``, ``covered``, ``unit``; or None), ``round``, ``selection``, ``seen`` (the value of
                   ``fit_rows`` for this fit), ``candidates``,
                   ``duplicates``, ``dropped``, ``reason``, ``end`` (the reason of the end, or None), ``learned``,
                   ``sample_rows`` (the rows of a growing sample)
    working-set    the fields of rounds, and ``used`` (row numbers), ``evidence``, ``flat``, ``patient``, ``kept``,
                   ``work``, ``slow``, ``best``: None or ``round``, ``error``, ``kernel``, ``design``, ``fit``,
                   ``seen``, ``candidates``, ``reason``
    split-merge    ``level``, ``partitions``, ``duplicates``, ``dropped``, ``best`` (the evidence of a row), and
                   ``below`` and ``parts``, lists of ``design``, ``gain``, ``start``

    design         ``centres`` (m, d), ``labels`` (m,), ``bias``, ``active``: the columns; ``noise``: None, or
                   ``kernel``, ``centres``, ``weights``, ``shift`` of the noise factor
    fit            regression: ``statistics``, ``alpha`` (M,), ``beta``, ``iteration``, ``floored``, ``entered``,
                   ``calibration`` (``n``, ``noise_variance``, ``overconfidence``, ``top``, ``quantiles``, or None) and
                   ``posteriors``, one for each target;
                   classification: ``likelihood``, ``labels``, ``alpha`` and ``weights`` (M, C), ``passes``,
                   ``posteriors``, one for each output, and ``block``: ``log_likelihood``, ``gradient``,
                   ``curvature``, ``wrong``, ``n``, ``nll``
    statistics     ``labels`` (M,), ``gram`` (M, M), ``projection``, ``offset`` (M, T), ``sum_squares`` (T,), ``n``,
                   ``log_weight``
    posteriors     ``mean``, ``variance``, ``determinedness`` (M,), ``residual``, ``log_evidence``, ``factor`` (M, M),
                   ``scale`` (M,), ``jitter``, ``rounding``: stored, because their bits may depend on how they were
                   computed
    start          regression: ``labels``, ``alpha``, ``beta``; classification: ``labels``, ``alpha``, ``weights``

Reasons (``reason``, ``end``) are values of ``core.termination.Termination``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.termination import Termination
from partirvm.jobs.packed_fits import (
    Packed,
    named,
    pack_fit,
    pack_scores,
    pack_start,
    picked,
    unpack_fit,
    unpack_scores,
    unpack_start,
)
from partirvm.jobs.sealed_values import read_values, write_values
from partirvm.kernels import kernel_from_spec
from partirvm.kernels.design import Design, LocalNoise
from partirvm.setup.spec import require_types
from partirvm.storage import reading
from partirvm.strategies.problem import Options, Problem
from partirvm.strategies.split_merge import Part, SplitMergeState
from partirvm.strategies.stages import RoundsState
from partirvm.strategies.working_set import Best, WorkingSetState

KIND = "partirvm-checkpoint"
FORMAT = 10

ROUNDS, WORKING_SET, SPLIT_MERGE = "rounds", "working-set", "split-merge"
"""The kinds of states of strategies."""

PACKED = {"state": {"kind": frozenset({ROUNDS, WORKING_SET, SPLIT_MERGE}), "round?": int}}
"""The values that are used before a checkpoint is unpacked."""

DESIGN = ("centres", "labels", "bias", "active")
NOISE = ("centres", "weights", "shift")
COUNTERS = ("round", "selection", "seen", "candidates", "duplicates", "dropped", "learned")
USED = ("used", "evidence", "flat", "patient", "kept", "work", "slow")
BEST = ("round", "error", "seen", "candidates")
LEVELS = ("level", "partitions", "duplicates", "dropped", "best")


def save_checkpoint(value: Any, location: str) -> str:
    """Write a packed checkpoint to a new folder or URL. Returns and raises as ``write_values`` does."""
    return write_values(value, location, KIND, FORMAT)


def load_checkpoint(location: str, *, allow_code: bool = False, seal: str | None = None) -> Any:
    """Return the packed checkpoint stored by ``save_checkpoint``. Raises as ``read_values`` does."""
    return read_values(location, KIND, FORMAT, allow_code=allow_code, seal=seal)


def pack(state: Any) -> Packed:
    """Return the names, arrays and scalars of the state of a strategy."""
    return {"state": _pack_split_merge(state) if isinstance(state, SplitMergeState) else _pack_rounds(state)}


def unpack(packed: Packed, problem: Problem, options: Options) -> Any:
    """Return the state that ``pack`` packed, for a fit with this problem and these options.

    Raises ``FormatError`` if names or values do not match this fit.
    """
    with reading("the checkpoint of this fit", "restore it, or start the job again"):
        state = packed["state"]
        unpacked = _unpack_split_merge if state["kind"] == SPLIT_MERGE else _unpack_rounds
        return require_types(unpacked(state, problem, options))


def _pack_rounds(state: RoundsState) -> Packed:
    packed = {
        "kind": ROUNDS,
        "kernel": state.problem.empty.kernel.spec(),
        "design": _pack_design(state.design),
        "fit": pack_fit(state.fit),
        "scores": pack_scores(state.scores),
        "reason": state.reason.value,
        "end": None if state.end is None else state.end.value,
        "sample_rows": state.options.sample_rows,
        **named(state, COUNTERS),
    }
    if not isinstance(state, WorkingSetState):
        return packed
    return {**packed, "kind": WORKING_SET, **named(state, USED), "best": _pack_best(state.best)}


def _unpack_rounds(packed: Packed, problem: Problem, options: Options) -> RoundsState:
    problem = problem.with_kernel(kernel_from_spec(packed["kernel"]))
    design = _unpack_design(packed["design"], problem)
    end = packed["end"]
    own: Packed = {
        "problem": problem,
        "options": replace(options, sample_rows=packed["sample_rows"]),
        "design": design,
        "fit": unpack_fit(_fitting(packed["fit"], problem, design), problem, design),
        "scores": unpack_scores(packed["scores"]),
        "reason": Termination(packed["reason"]),
        "end": None if end is None else Termination(end),
        **picked(packed, COUNTERS),
    }
    if packed["kind"] == ROUNDS:
        return RoundsState(**own)
    _require_rows(packed["used"], problem.n_rows)
    return WorkingSetState(**own, **picked(packed, USED), best=_unpack_best(packed["best"], problem))


def _pack_best(best: Best | None) -> Packed | None:
    if best is None:
        return None
    return {
        "kernel": best.design.kernel.spec(),
        "design": _pack_design(best.design),
        "fit": pack_fit(best.fit),
        "reason": best.reason.value,
        **named(best, BEST),
    }


def _unpack_best(packed: Packed | None, problem: Problem) -> Best | None:
    if packed is None:
        return None
    problem = problem.with_kernel(kernel_from_spec(packed["kernel"]))
    design, reason = _unpack_design(packed["design"], problem), Termination(packed["reason"])
    fit = unpack_fit(_fitting(packed["fit"], problem, design), problem, design)
    return Best(design=design, fit=fit, reason=reason, **picked(packed, BEST))


def _pack_split_merge(state: SplitMergeState) -> Packed:
    def each(parts: Iterable[Part]) -> list[Packed]:
        return [
            {"design": _pack_design(part.design), "gain": part.gain, "start": pack_start(part.warm)} for part in parts
        ]

    return {"kind": SPLIT_MERGE, **named(state, LEVELS), "below": each(state.below), "parts": each(state.parts)}


def _unpack_split_merge(packed: Packed, problem: Problem, options: Options) -> SplitMergeState:
    def one(part: Packed) -> Part:
        design = _unpack_design(part["design"], problem)
        _require_shape(part["gain"], design.labels.shape)
        return Part(design, part["gain"], unpack_start(_fitting(part["start"], problem, design), problem))

    def each(parts: Iterable[Packed]) -> tuple[Part, ...]:
        return tuple(map(one, parts))

    levels = picked(packed, LEVELS)
    return SplitMergeState(problem, options, below=each(packed["below"]), parts=each(packed["parts"]), **levels)


def _pack_design(design: Design) -> Packed:
    noise = design.noise
    packed = None if noise is None else {**named(noise, NOISE), "kernel": noise.kernel.spec()}
    return {**named(design, DESIGN), "noise": packed}


def _unpack_design(packed: Packed, problem: Problem) -> Design:
    noise, d = packed["noise"], problem.empty.centres.shape[1]
    functions = problem.empty.functions
    if noise is not None:
        noise = LocalNoise(kernel=kernel_from_spec(noise["kernel"]), **picked(noise, NOISE))
        _require_shape(noise.centres, (len(noise.weights), d))
        _require_shape(noise.weights, (len(noise.weights),))
    design = replace(problem.empty, noise=noise, **picked(packed, DESIGN))
    _require_shape(design.centres, (len(design.labels), d))
    _require_shape(design.labels, (len(design.labels),))
    _require_rows(design.active, 0 if functions is None else functions.size)
    return design


def _fitting(packed: Packed, problem: Problem, design: Design) -> Packed:
    """Return the values of a fit of the design's columns.

    Raises ``ValueError`` for an array with an axis whose length is the number neither of columns nor of outputs.
    """
    outputs = {problem.n_outputs, problem.n_targets, problem.n_classes}
    parts: list[Packed] = [packed, *(value for value in packed.values() if isinstance(value, dict))]
    _require_lengths(parts, {design.n_columns, *outputs})
    for each in packed.get("posteriors", ()):  # one-vs-rest: an output has some of the columns
        _require_lengths([each], {len(each["mean"]), *outputs})
    return packed


def _require_lengths(parts: Iterable[Packed], lengths: set[int]) -> None:
    for name, value in ((name, value) for part in parts for name, value in part.items()):
        if isinstance(value, np.ndarray) and not set(value.shape) <= lengths:
            raise ValueError(f"{name!r} is an array of shape {value.shape}, its lengths can be {sorted(lengths)}")


def _require_shape(array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"an array of shape {array.shape} in place of {shape}")


def _require_rows(numbers: NDArray[Any], count: int) -> None:
    """Raise ``ValueError`` unless these are numbers below ``count``."""
    if numbers.ndim != 1 or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < count):
        raise ValueError(f"an array of numbers that are not below {count:,}")
