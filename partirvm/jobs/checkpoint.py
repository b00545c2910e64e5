"""Checkpoints of a fit on disk: the fit's spec, and the state of the strategy after a history line
is stored.

When a checkpoint is used, everything that the spec determines is taken from the current spec
(``attached``). Posteriors are stored because their bits may depend on how they were computed.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from partirvm.core.laplace import LaplaceState
from partirvm.core.link import LogisticBlock
from partirvm.core.statistics import GramStatistics
from partirvm.core.updates import HyperState
from partirvm.kernels import KERNELS
from partirvm.kernels.functions import require_no_code
from partirvm.likelihoods import LIKELIHOODS
from partirvm.resolve.resolve import FitSpec
from partirvm.spec.problem import Options, Problem
from partirvm.storage import reading
from partirvm.storage.codec import Codec
from partirvm.strategies.split_merge import State
from partirvm.strategies.stages import RoundsState


@dataclass(frozen=True)
class Checkpoint:
    """A fit's spec, and the state of its strategy after ``history`` lines; None before the first
    line."""

    spec: FitSpec
    state: State | None
    history: int


KIND = "partirvm-checkpoint"
FORMAT = 28

FITS = (GramStatistics, HyperState, LaplaceState, LogisticBlock)
"""Types of the fits in a state and of their statistics, which are annotated as ``Any``."""

_codec = cache(Codec)
"""Cached, because building a codec from all annotations takes longer than writing a small
checkpoint."""


def codec() -> Codec:
    """Return the checkpoint codec, which knows the likelihoods that are currently registered."""
    return _codec((Checkpoint, *FITS, *map(type, LIKELIHOODS.values()), *KERNELS.values()))


def save_checkpoint(value: Any, location: str, about: dict[str, Any] | None = None) -> None:
    """Write a checkpoint, in the form returned by ``stored``, to a new folder or URL. Raises as
    ``Codec.write`` does."""
    codec().write(stored(value), location, KIND, FORMAT, about)


def load_checkpoint(location: str, *, allow_code: bool = False) -> Any:
    """Return the checkpoint written by ``save_checkpoint``. Raises as ``Codec.read`` does, and
    ``UsageError`` for disallowed code."""
    value = codec().read(location, KIND, FORMAT)
    if not allow_code:
        require_no_code(value, location)
    return value


def stored(value: Any) -> Any:
    """Return a checkpoint, a spec or a state without class codes, groups, what a fit says of them,
    diagnostics and local residuals."""
    if isinstance(value, Checkpoint):
        return replace(value, spec=stored(value.spec), state=stored(value.state))
    if isinstance(value, RoundsState):
        scores = cast(Any, value.scores)
        scores = scores and replace(scores, diagnostics=())
        fit = value.problem.likelihood.stored(value.fit)
        local = replace(
            value.local, residuals=None, diagnostics=(), left_out=None
        )  # as large as the data, and not used in resumed runs
        value = replace(
            value,
            fit=fit,
            scores=scores,
            local=local,
            best_round=stored(value.best_round),
            class_groups=None,
        )
    return (
        replace(value, problem=replace(value.problem, codes=None, groups=None))
        if isinstance(value, State | FitSpec)
        else value
    )


def resumes(value: Any, n_rows: int) -> bool:
    """Return True if a fit of ``n_rows`` rows can continue from a checkpoint: it must not be the
    checkpoint after the last fit of its rows."""
    if not isinstance(value, Checkpoint):
        return False
    return value.state is None or value.state.end is None or value.spec.problem.n_rows < n_rows


def attached(state: State, problem: Problem, options: Options) -> Any:
    """Return a stored state attached to this problem and these options. Raises ``FormatError`` if
    they do not match."""
    with reading("the checkpoint of this fit", "restore it, or start the job again"):
        problem = problem.with_kernel(state.problem.empty.kernel)
        own: dict[str, Any] = {
            "problem": problem,
            "options": replace(options, sample_rows=state.options.sample_rows),
        }
        if isinstance(state, RoundsState):
            if type(state.fit) is not type(problem.likelihood.start(problem)):
                raise ValueError(
                    f"it belongs to another fit: it holds a {type(state.fit).__name__}"
                )
            if state.best_round is not None:
                own["best_round"] = attached(state.best_round, problem, options)
        return replace(state, **own)
