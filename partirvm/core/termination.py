"""The reasons for the end of a fit, as an enumeration with advice.

Rules that end a dense fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Termination(Enum):
    """Reason for the end of a dense fit or of a whole run. ``advice`` is a sentence for the user."""

    CONVERGED = "converged"
    HALVED = "halved"
    ITERATIONS = "iterations"
    CANCELLED = "cancelled"
    EFFORT = "effort"
    EXHAUSTED = "exhausted"
    VALIDATION = "validation"
    ROUNDS = "rounds"
    VECTORS = "vectors"
    TIME = "time"
    MEMORY = "memory"
    ABORTED = "aborted"
    CONSTANT = "constant"

    @property
    def advice(self) -> str:
        """Sentence that states the meaning of the reason and the recommended action."""
        return _ADVICE[self]


_ADVICE = {
    Termination.CONVERGED: "The evidence no longer rises, not even with random candidates: nothing to do.",
    Termination.HALVED: "The vectors fell to the stop fraction of the candidates, as an intermediate fit should.",
    Termination.ITERATIONS: "The fit had not converged at its last iteration: raise tol, or check the kernel width.",
    Termination.CANCELLED: "The residual lost its digits to cancellation: a pass computes it again.",
    Termination.EFFORT: "Twice the work would lower the error by little: for less error, raise effort.",
    Termination.EXHAUSTED: "Every row has been a candidate: this kernel allows no better model.",
    Termination.VALIDATION: "The held-out error (or log loss) stopped falling: the model of the best round was kept.",
    Termination.ROUNDS: "max_rounds was reached: more rounds may lower the error.",
    Termination.VECTORS: "max_vectors was reached: more vectors may lower the error.",
    Termination.TIME: "time_limit was reached: resume, or raise it, for a lower error.",
    Termination.MEMORY: "No further round fits under memory_limit: raise it, or lower partition_size or max_vectors.",
    Termination.ABORTED: "Aborted: the model so far is usable.",
    Termination.CONSTANT: "The target is constant: the model is its mean.",
}


@dataclass(frozen=True)
class StopRule:
    """When a dense fit ends: the evidence changes by less than ``tol``·N nats, or a limit is reached.

    Limits are ``max_iterations``, and a number of kernel columns, ``vectors``, to which pruning reduces the fit; None
    means convergence. With ``guard`` a fit whose residual has cancelled stops and requests a pass. With ``thin``, or if
    ``Prior.keeps_worthless``, it has converged only if no such column is left.
    """

    tol: float
    max_iterations: int
    vectors: int | None = None
    guard: bool = True
    thin: bool = False
