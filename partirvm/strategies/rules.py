"""Rules that end the dense fits of a strategy."""

from __future__ import annotations

from partirvm.core.updates import StopRule
from partirvm.strategies.problem import STOP_RULES, Options

INTERMEDIATE = 100.0
"""Tolerance of intermediate fits, as a multiple of ``tol``; only the last fit converges to ``tol``."""

REBASES = 2
"""Maximum number of passes per fit that compute statistics of the residual target against cancellation."""


def intermediate_rule(options: Options, candidates: int) -> StopRule:
    """Return the rule that ends a fit at ``stop_fraction`` of its initial candidates, or of the partition size."""
    whole = STOP_RULES[options.stop_rule](candidates, options.partition_size)
    return StopRule(INTERMEDIATE * options.tol, options.max_iterations, int(options.stop_fraction * whole))


def final_rule(options: Options) -> StopRule:
    """Return the rule of a fit that converges and then deletes columns whose deletion raises the evidence."""
    return StopRule(options.tol, options.max_iterations, thin=True)
