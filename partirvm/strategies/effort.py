"""The end of a working set's rounds by their gain for a given amount of work. Pure.

Later rounds have more columns, cost more and gain less, and the evidence rises by ever smaller steps for a long time.
The gain is therefore compared with the work: a round is *slow* if, at its rate, twice the work would raise the evidence
by less than ``LEAST_GAIN`` nats per row. A gain of g nats per row of a regression lowers the error by about a fraction
g. Gains of a classification are fractions of the loss so far, −log evidence per row. The work is the number of
multiplications of kernel learning and of all rounds, by the formulas of ``planning.cost``, and not the time, so that
results can be repeated.
"""

from __future__ import annotations

from math import log2

from partirvm.types import LEARNING_ROWS

LEAST_GAIN = {"quick": 0.2, "balanced": 0.03, "thorough": 0.0}
"""Values of ``effort``: the least gain for twice the work, in nats per row or as a fraction of the log loss."""

EVALUATIONS, ITERATIONS = 100, 16
"""Typical numbers of evaluations of the evidence in kernel learning, and of dense iterations of all columns in a round.

They are part of the rule, and therefore not those of the plan, which follow measured seconds.
"""

SLOW_ROUNDS = 2
"""Number of consecutive slow rounds that ends the run."""


def is_slow(effort: str, work: float, before: float, gain: float, loss: float | None) -> bool:
    """Return whether a round was slow that raised the work of all rounds from ``before`` to ``work``.

    ``gain`` is the gain of the round in nats per row. ``loss`` is −log evidence per row of a classification before the
    round, and None for a regression. A first round is never slow.

    >>> is_slow("balanced", 2e9, 1e9, 0.05, None), is_slow("balanced", 4e9, 1e9, 0.05, None)
    (False, True)
    >>> is_slow("quick", 2e9, 1e9, 0.06, None), is_slow("quick", 2e9, 1e9, 0.06, 0.2)
    (True, False)
    """
    least = LEAST_GAIN[effort] * (1.0 if loss is None else max(loss, 0.0))
    return before > 0 and least > 0 and gain < least * log2(work / before)


def work_of_learning(rows: int, centres: int) -> float:
    """Return the expected multiplications of kernel learning: three per row and pair of centres in an evaluation.

    >>> work_of_learning(1000, 10), work_of_learning(1000, 0)
    (30000000.0, 0.0)
    """
    return float(EVALUATIONS * 3 * min(rows, LEARNING_ROWS) * centres**2)


def work_of_round(rows: int, columns: int, new: int) -> float:
    """Return the expected multiplications of a round with ``columns`` columns, of which ``new`` are new.

    >>> work_of_round(1000, 20, 10)
    428000.0
    """
    return float(rows * new * (2 * columns - new) + ITERATIONS * columns**3)
