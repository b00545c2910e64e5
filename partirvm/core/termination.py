"""Why something stopped: a value that carries its advice."""

from __future__ import annotations

from enum import Enum


class Termination(Enum):
    """Reason for which a dense fit or a whole run ended. ``advice`` is a sentence for the person who reads it."""

    CONVERGED = "converged"
    HALVED = "halved"
    ITERATIONS = "iterations"
    CANCELLED = "cancelled"
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
        """What it means and what to do next, one sentence."""
        return _ADVICE[self]


_ADVICE = {
    Termination.CONVERGED: "The evidence no longer rises, not even with random candidates: nothing to do.",
    Termination.HALVED: "The vectors fell to the stop fraction of the candidates, as an intermediate fit should.",
    Termination.ITERATIONS: "The fit still moved at its last iteration: raise tol, or look at the kernel width.",
    Termination.CANCELLED: "The residual lost its digits to cancellation: it has to be measured by a pass.",
    Termination.EXHAUSTED: "Every row has been a candidate: the model is as good as this kernel allows.",
    Termination.VALIDATION: "The held-out error (or log loss) stopped falling: the model of the best round was kept.",
    Termination.ROUNDS: "max_rounds was reached: more rounds may lower the error.",
    Termination.VECTORS: "max_vectors was reached: more of them may lower the error.",
    Termination.TIME: "time_limit was reached: resume, or give it more time, for a lower error.",
    Termination.MEMORY: "No further round fits under memory_limit: raise it, or lower partition_size or max_vectors.",
    Termination.ABORTED: "Aborted: the model so far is usable.",
    Termination.CONSTANT: "The target is constant: the model is its mean.",
}
