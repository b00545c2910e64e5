"""Floating-point work and seconds of a fit, as closed formulas over measured rates.

Per row, a gram pass of M kept columns and P candidates evaluates M + P kernel elements and multiplies 2MP + P² times;
a residual pass evaluates M elements, a pass for Q columns on trial M + Q elements with 2MQ products; one dense
iteration takes M³ (Cholesky and inverse together). Vectors are expected to fall to ``stop_fraction`` of each round's
candidates, as in the paper's analysis (P, 1.5P, 1.75P … 2P).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ITERATIONS = 30
"""Dense iterations expected in an intermediate fit."""

UNLIMITED_ROUNDS = 10
"""Rounds that an estimate assumes where the user sets no limit."""


@dataclass(frozen=True)
class Rates:
    """What one thread does: seconds to read a row, seconds per kernel element, floating-point operations per second."""

    read: float
    element: float
    product: float


@dataclass(frozen=True)
class RoundCost:
    """One round: columns kept M, candidates P, passes over the rows, and its expected seconds."""

    kept: int
    candidates: int
    passes: int
    gram_flops: float
    pass_seconds: float
    solve_seconds: float


@dataclass(frozen=True)
class Looking:
    """How candidates are found: by the residuals of ``rows`` rows, or a pass for ``pool`` columns on trial."""

    rows: int = 0
    pool: int = 0


NOT_LOOKING = Looking()
"""Candidates at random: nothing to read for them."""


def round_cost(n_rows: int, kept: int, candidates: int, looking: Looking, rates: Rates, threads: int) -> RoundCost:
    """Cost of one round: a look for candidates, a gram pass, a dense fit."""
    looked = n_rows if looking.pool else looking.rows
    elements = n_rows * (kept + candidates) + looked * (kept + looking.pool)
    flops = n_rows * (2.0 * kept * candidates + candidates**2) + looked * 2.0 * kept * looking.pool
    seconds = ((n_rows + looked) * rates.read + elements * rates.element + flops / rates.product) / threads
    solve = ITERATIONS * (kept + candidates) ** 3 / rates.product
    return RoundCost(kept, candidates, 2 if looked == n_rows else 1, flops, seconds, solve)


def working_set_cost(
    n_rows: int,
    partition_size: int,
    rounds: int,
    stop_fraction: float,
    *,
    looking: Looking,
    rates: Rates,
    threads: int,
) -> list[RoundCost]:
    """Cost of each round of the working set, and the last residual pass counted into the last."""
    costs, kept = [], 1
    for number in range(rounds):
        look = looking if number else NOT_LOOKING
        costs.append(round_cost(n_rows, kept, partition_size, look, rates, threads))
        kept = 1 + int(stop_fraction * (kept - 1 + partition_size))
    settle = n_rows * (rates.read + kept * rates.element) / threads
    last = costs[-1]
    costs[-1] = replace(last, passes=last.passes + 1, pass_seconds=last.pass_seconds + settle)
    return costs
