"""Rules that end the dense fits of a strategy."""

from __future__ import annotations

from dataclasses import replace

from partirvm.core.termination import StopRule
from partirvm.strategies.problem import Options

INTERMEDIATE = 100.0
"""Tolerance of intermediate fits, as a multiple of ``tol``; only the last fit converges to ``tol``."""

REBASES = 2
"""Maximum number of passes per fit that compute statistics of the residual target against cancellation."""


def intermediate_rule(options: Options, candidates: int) -> StopRule:
    """Return the rule that ends a fit at ``stop_fraction`` of its initial candidates."""
    return replace(_rule(options, INTERMEDIATE * options.tol), vectors=int(options.stop_fraction * candidates))


def final_rule(options: Options) -> StopRule:
    """Return the rule of a fit that converges and then deletes columns whose deletion raises the evidence."""
    return replace(_rule(options, options.tol), thin=True)


def _rule(options: Options, tol: float) -> StopRule:
    """Return a rule with the options of the solver; an option of another solver has no effect."""
    rule = StopRule(tol, options.max_iterations)
    if options.solver == "fast" and options.actions == "random":
        return replace(rule, order=options.seed)
    return rule
