"""Rules that end a dense fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StopRule:
    """When a dense fit ends: the evidence changes by less than ``tol``·N nats, or a limit is reached.

    Limits are ``max_iterations``, and a number of kernel columns, ``vectors``, to which pruning reduces the fit; None
    means convergence. With ``guard`` a fit whose residual has cancelled stops and requests a pass. With ``thin``, or if
    the prior keeps worthless columns (``Prior.lingers``), it has converged only if no such column is left. ``order`` is
    the seed of a random order of actions on single columns; None means the action of largest gain.
    """

    tol: float
    max_iterations: int
    vectors: int | None = None
    guard: bool = True
    thin: bool = False
    order: int | None = None
