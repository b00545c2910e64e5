"""When the dense fits of a strategy end."""

from __future__ import annotations

from partirvm.core.updates import StopRule
from partirvm.strategies.problem import STOP_RULES, Options

INTERMEDIATE = 100.0
"""Intermediate fits stop at this × tol; only the last fit converges to ``tol``."""

REBASES = 2
"""Maximum number of requests of one fit for statistics of the residual target."""


def intermediate_rule(options: Options, candidates: int) -> StopRule:
    """Stop at ``stop_fraction`` of the candidates that the fit began with, or of P by the literal rule."""
    whole = STOP_RULES[options.stop_rule](candidates, options.partition_size)
    return StopRule(INTERMEDIATE * options.tol, options.max_iterations, int(options.stop_fraction * whole))


def final_rule(options: Options) -> StopRule:
    """Converge, and delete columns whose deletion raises the evidence."""
    return StopRule(options.tol, options.max_iterations, thin=True)
