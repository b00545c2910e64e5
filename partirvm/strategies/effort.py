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

LEAST_WORK = 1e11
"""Multiplications of a second or two, which count as done before the first round: less is not worth saving.

Without them, the first rounds double the work again and again: a fit of 3,000 rows of etopo20 with P = 40 ended after
.1 s, with an error 7 % above that of a fit of .6 s.
"""

SLOW_ROUNDS = 2
"""Number of consecutive slow rounds that ends the run."""


def is_slow(effort: str, work: float, before: float, gain: float, loss: float | None) -> bool:
    """Return whether a round was slow that raised the work of all rounds from ``before`` to ``work``.

    ``gain`` is the gain of the round in nats per row. ``loss`` is −log evidence per row of a classification before the
    round, and None for a regression.

    >>> is_slow("balanced", 2e9, 1e9, 0.05, None), is_slow("balanced", 4e9, 1e9, 0.05, None)
    (False, True)
    >>> is_slow("quick", 2e9, 1e9, 0.06, None), is_slow("quick", 2e9, 1e9, 0.06, 0.2)
    (True, False)
    """
    least = LEAST_GAIN[effort] * (1.0 if loss is None else max(loss, 0.0))
    return least > 0 and gain < least * log2(work / before)


def work_before_rounds(rows: int, centres: int) -> float:
    """Return the expected multiplications of kernel learning with this number of centres, at least ``LEAST_WORK``.

    An evaluation takes three multiplications for each row and pair of centres.

    >>> work_before_rounds(20_000, 500), work_before_rounds(1000, 0)
    (600000000000.0, 100000000000.0)
    """
    return max(float(EVALUATIONS * 3 * min(rows, LEARNING_ROWS) * centres**2), LEAST_WORK)


def work_of_round(rows: int, columns: int, new: int) -> float:
    """Return the expected multiplications of a round with ``columns`` columns, of which ``new`` are new.

    >>> work_of_round(1000, 20, 10)
    428000.0
    """
    return float(rows * new * (2 * columns - new) + ITERATIONS * columns**3)
