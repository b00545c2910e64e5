"""Checkpoints of a strategy and specs of fits on disk. Both are files of ``storage.codec``.

A checkpoint is the state of the strategy after a line of history was stored (``jobs.driver.RESUMABLE``). What the spec
of the fit determines is stored with it, but taken from the spec when the checkpoint is used (``attached``). Posteriors
are stored, because their bits may depend on how they were computed.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.laplace import LaplaceState
from partirvm.core.link import LogisticBlock
from partirvm.core.posterior import JointPosterior, Posterior
from partirvm.core.priors import GammaDensity, Prior
from partirvm.core.scores import Scores
from partirvm.core.statistics import GramStatistics
from partirvm.core.termination import Termination
from partirvm.core.updates import HyperState
from partirvm.errors import FormatError
from partirvm.kernels.design import Design
from partirvm.kernels.functions import require_no_code
from partirvm.likelihoods import LIKELIHOODS
from partirvm.likelihoods.base import Start
from partirvm.model.files import DESIGN_CLASSES
from partirvm.options import Request
from partirvm.planning.cost import RoundCost, Schedule
from partirvm.planning.memory import DataShape, StepBytes
from partirvm.planning.plan import KernelStore, Machine, Plan, Sparseness
from partirvm.resolve.spec import FitSpec
from partirvm.storage import reading
from partirvm.storage.codec import Codec
from partirvm.strategies.problem import AppendedBatch, Options, Problem
from partirvm.strategies.split_merge import Part, SplitMergeState
from partirvm.strategies.stages import Best, RoundsState

KIND, FORMAT = "partirvm-checkpoint", 12
SPEC_KIND, SPEC_FORMAT = "partirvm-spec", 5

FITS = (GramStatistics, HyperState, JointPosterior, LaplaceState, LogisticBlock, Posterior, Scores, Start)
STATES = (Best, Part, RoundsState, SplitMergeState, Termination)
PROBLEMS = (AppendedBatch, GammaDensity, Options, Prior, Problem)
PLANS = (DataShape, KernelStore, Machine, Plan, RoundCost, Schedule, Sparseness, StepBytes)
CODEC = Codec((*DESIGN_CLASSES, *FITS, *STATES, *PROBLEMS, *PLANS, FitSpec, Request), {"likelihood": LIKELIHOODS})

POINTER = {"history": int, "final": bool, "rows": int}
"""The schema of ``about`` of a checkpoint: the lines of history before it, and the rows of its fit."""

State: TypeAlias = RoundsState | SplitMergeState


def save_checkpoint(value: Any, location: str, about: dict[str, Any] | None = None) -> None:
    """Write the state of a strategy to a new folder or URL. Raises as ``Codec.write`` does."""
    CODEC.write(stored(value) if isinstance(value, State) else value, location, KIND, FORMAT, about)


def load_checkpoint(location: str, *, allow_code: bool = False) -> Any:
    """Return the state stored by ``save_checkpoint``, for ``attached``. Raises as ``Codec.read`` does.

    Raises ``UsageError`` if it contains a named function (``kernels.functions``) and ``allow_code`` is false.
    """
    value = CODEC.read(location, KIND, FORMAT)
    if not allow_code:
        require_no_code(value, location)
    return value


def save_spec(spec: FitSpec, location: str, about: dict[str, Any] | None = None) -> None:
    """Write the spec of a fit, without the class codes of its rows. Raises as ``Codec.write`` does."""
    before = None if spec.before is None else spec.before.with_codes(None)
    CODEC.write(replace(spec.with_codes(None), before=before), location, SPEC_KIND, SPEC_FORMAT, about)


def load_spec(location: str, *, allow_code: bool = False) -> FitSpec:
    """Return the spec stored by ``save_spec``. Raises as ``load_checkpoint`` does."""
    spec = CODEC.read(location, SPEC_KIND, SPEC_FORMAT)
    if not isinstance(spec, FitSpec):
        raise FormatError(f"{location}: the spec cannot be read: it is a {type(spec).__name__}")
    if not allow_code:
        require_no_code(spec, location)
    return spec


def stored(state: State) -> State:
    """Return the state without class codes and diagnostics."""
    own: dict[str, Any] = {"problem": replace(state.problem, codes=None)}
    if isinstance(state, RoundsState):
        own["fit"] = _stored_fit(state.fit)
        own["scores"] = replace(state.scores, diagnostics=()) if isinstance(state.scores, Scores) else None
        if state.best is not None:
            own["best"] = replace(state.best, fit=_stored_fit(state.best.fit))
    return replace(state, **own)


def _stored_fit(fit: Any) -> Any:
    return replace(fit, left_out=None, found=fit.posterior) if isinstance(fit, HyperState) else fit


def attached(state: Any, problem: Problem, options: Options) -> Any:
    """Return a stored state of a strategy for a fit with this problem and these options.

    Raises ``FormatError`` if it does not match this fit.
    """
    with reading("the checkpoint of this fit", "restore it, or start the job again"):
        state = require_state(state)
        problem = problem.with_kernel(state.problem.empty.kernel)
        own: dict[str, Any] = {"problem": problem, "options": replace(options, sample_rows=state.options.sample_rows)}
        if isinstance(state, SplitMergeState):
            for part in (*state.below, *state.parts):
                _require_design(part.design, problem)
                _require_shape(part.gain, part.design.labels.shape)
                _require_lengths(part.warm, part.design, problem)
        else:
            own["fit"] = _attached_fit(state.fit, state.design, problem)
            _require_numbers(state.used, problem.n_rows)
            if state.best is not None:
                own["best"] = replace(state.best, fit=_attached_fit(state.best.fit, state.best.design, problem))
        return replace(state, **own)


def require_state(state: Any) -> State:
    """Return the stored state of a strategy. Raises ``FormatError`` for another value."""
    if not isinstance(state, State):
        raise FormatError(f"the checkpoint of this fit is damaged: it is {state!r:.40}: start the job again")
    return state


def _attached_fit(fit: Any, design: Design, problem: Problem) -> Any:
    """Return a fit of the columns of the design; its constants are those of the problem, which may have new rows."""
    _require_design(design, problem)
    start = problem.likelihood.start(problem)
    if type(fit) is not type(start):
        raise TypeError(f"the fit is a {type(fit).__name__} in place of a {type(start).__name__}")
    _require_lengths(fit, design, problem)
    known = ("prior", "target_variance", "fixed_noise", "least_noise")
    return replace(fit, **{name: getattr(start, name) for name in known if hasattr(start, name)})


def _require_design(design: Design, problem: Problem) -> None:
    """Raise ``ValueError`` unless this is a design of columns for the problem."""
    noise, empty = design.noise, replace(problem.empty, kernel=design.kernel)
    d, m = empty.centres.shape[1], len(design.labels)
    _require_shape(design.centres, (m, d))
    _require_shape(design.labels, (m,))
    if noise is not None:
        _require_shape(noise.centres, (len(noise.weights), d))
        _require_shape(noise.weights, (len(noise.weights),))
    targets = [(scaling.t_shift.tolist(), scaling.t_scale.tolist()) for scaling in (design.scaling, empty.scaling)]
    if design.identity != empty.identity or targets[0] != targets[1]:
        raise ValueError("its kernel, scaling, origin or basis functions are those of another fit")
    _require_numbers(design.active, 0 if empty.functions is None else empty.functions.size)


def _require_lengths(value: Any, design: Design, problem: Problem) -> None:
    """Raise ``ValueError`` for an array with an axis whose length is the number neither of columns nor of outputs."""
    outputs = {problem.n_outputs, problem.n_targets, problem.n_classes}

    def check(value: Any, lengths: set[int]) -> None:
        if isinstance(value, np.ndarray) and not set(value.shape) <= lengths:
            raise ValueError(f"an array has the shape {value.shape}, its lengths can be {sorted(lengths)}")
        if isinstance(value, Posterior):  # one-vs-rest: an output has some of the columns
            lengths = {len(value.mean), *outputs}
        if isinstance(value, tuple):
            for each in value:
                check(each, lengths)
        elif is_dataclass(value):
            for field in fields(value):
                check(getattr(value, field.name), lengths)

    check(value, {design.n_columns, *outputs})


def _require_shape(array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"an array of shape {array.shape} in place of {shape}")


def _require_numbers(numbers: NDArray[Any], count: int) -> None:
    """Raise ``ValueError`` unless these are numbers below ``count``."""
    if numbers.ndim != 1 or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < count):
        raise ValueError(f"an array of numbers that are not below {count:,}")
