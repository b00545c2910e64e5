"""The reasons why a fit ends, as an enumeration with advice, and the rule that ends a dense fit."""

from dataclasses import dataclass
from enum import Enum


class Termination(Enum):
    """Reason why a dense fit or a run ended, with advice for the user."""

    _value_: str
    advice: str

    def __new__(cls, value: str, advice: str = "") -> "Termination":
        """Return a member with this value and advice."""
        member = object.__new__(cls)
        member._value_ = value
        member.advice = advice
        return member

    def __reduce__(self) -> tuple[type["Termination"], tuple[str]]:
        return Termination, (self.value,)  # skops supports no other kind of enumeration

    CONVERGED = "converged", "The fit is complete: no other row would improve it."
    HALVED = (
        "halved",
        "An intermediate fit ended early, as it should: few vectors were left, or after few steps.",
    )
    ITERATIONS = (
        "iterations",
        "The fit had not converged at its last iteration: raise tol, or check the kernel width.",
    )
    CANCELLED = (
        "cancelled",
        "The residual lost its digits to cancellation: a pass computes it again.",
    )
    EFFORT = (
        "effort",
        "The fit is complete: twice the work would lower the error only a little. "
        "To continue nevertheless, resume with effort='thorough'.",
    )
    EXHAUSTED = (
        "exhausted",
        "The fit is complete: every row has been tried as a relevance vector.",
    )
    VALIDATION = (
        "validation",
        "The error on the validation data stopped falling: the model of the best round was kept. "
        "To continue nevertheless, resume with a larger max_rounds.",
    )
    ROUNDS = "rounds", "max_rounds was reached: more rounds may lower the error."
    VECTORS = "vectors", "max_vectors was reached: more vectors may lower the error."
    TIME = "time", "time_limit was reached: resume, or raise it, for a lower error."
    MEMORY = (
        "memory",
        "No further round fits under memory_limit: raise it, or lower partition_size or "
        "max_vectors.",
    )
    ABORTED = "aborted", "Aborted: the model so far is usable."
    CONSTANT = "constant", "The target is constant: the model is its mean."


@dataclass(frozen=True)
class StopRule:
    """Rule that ends a dense fit: the evidence changes by less than ``tol``·N nats, or a limit is
    reached.

    Attributes:
        tol: change of the evidence at convergence, in nats per row
        max_iterations: maximum number of iterations
        vectors: number of kernel columns at which pruning ends the fit, or None
        guard: if True, a fit whose residual has cancelled stops
        thin: if True, the fit converges only once every column gains something, as with
            ``Prior.keeps_worthless``
    """

    tol: float
    max_iterations: int
    vectors: int | None = None
    guard: bool = True
    thin: bool = False
