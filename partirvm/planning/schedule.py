"""Schedules: how the candidates of a strategy join, for estimates of memory and time and for texts. Pure arithmetic.

Every strategy has one ``Schedule`` in the registry ``strategies.STRATEGIES``. Planning takes the schedule as an
argument. A stored plan names the strategy, from which the schedule is found in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from partirvm.options.table import CHOSEN_ROWS, ROUNDS, SEVERAL_FITS
from partirvm.planning.cost import UNLIMITED_ROUNDS, RoundCost, Work, levels_cost, n_partitions, rounds_cost
from partirvm.planning.units import counted


@dataclass(frozen=True)
class Schedule:
    """The schedule of a strategy; by default rounds, whose candidates join the vectors kept so far.

    ``one_fit``: all rows are candidates of a single fit. ``whole_partitions``: every row joins exactly once, together
    with all rows of its partition. ``merges``: the partitions of a level are fitted in parallel and merged in pairs on
    the next level. ``selects``: the option ``selection`` chooses the candidates among all rows.
    """

    name: str
    one_fit: bool = False
    whole_partitions: bool = False
    merges: bool = False
    selects: bool = False

    @property
    def order(self) -> str:
        """The value of ``selection`` in a plan if the schedule does not select."""
        return "all" if self.one_fit else "order"

    @property
    def has_rounds(self) -> bool:
        """True if candidates join in rounds, which extend the statistics of the kept columns."""
        return not (self.one_fit or self.merges)

    @property
    def every_row_joins(self) -> bool:
        """True if every row becomes a candidate in a run without limits."""
        return not self.selects

    @property
    def unit(self) -> Literal["round", "level"]:
        """Unit in which progress is counted."""
        return "level" if self.merges else "round"

    @property
    def traits(self) -> tuple[str, ...]:
        """Traits of the strategy that ``Option.applies`` compares."""
        having = {SEVERAL_FITS: not self.one_fit, ROUNDS: self.has_rounds, CHOSEN_ROWS: self.selects}
        return tuple(trait for trait, there in having.items() if there)

    def candidates(self, partition_size: int, max_vectors: int | None, n_candidates: int) -> int:
        """Return the number of candidates of a fit; whole partitions take at most half of ``max_vectors``."""
        if self.one_fit:
            return n_candidates
        most = max_vectors or partition_size
        if max_vectors is not None and self.whole_partitions:
            most = max(max_vectors // 2, 1)
        return min(n_candidates, partition_size, most)

    def costs(
        self, work: Work, candidates: int, stop_fraction: float, max_rounds: int | None, joining: int
    ) -> list[RoundCost]:
        """Estimate each round or level for ``joining`` rows that have yet to join; the last element is the last fit."""
        if self.merges:
            return levels_cost(work, candidates, _stays(stop_fraction))
        partitions = n_partitions(joining, candidates, work.shape.n_kernels)
        assumed = UNLIMITED_ROUNDS if self.open_ended(max_rounds) else partitions
        rounds = min(max_rounds if max_rounds is not None else assumed, partitions)
        return rounds_cost(work, candidates, max(rounds, 1), _stays(stop_fraction) if self.selects else stop_fraction)

    def columns(self, costs: Sequence[RoundCost], stop_fraction: float, most: int) -> int:
        """Return the expected maximum number of columns of a fit, at most ``most``; larger rounds are not run."""
        if self.merges:
            return min(max(cost.kept + cost.candidates for cost in costs), most)
        kept, stays, columns = costs[0].kept, _stays(stop_fraction), 0
        for cost in costs:
            kept = max(kept, cost.kept)
            if columns and kept + cost.candidates > most:
                break
            columns = max(columns, kept + cost.candidates)
            kept = costs[0].kept + int(stays * (kept + cost.candidates - costs[0].kept))
        return min(columns, most)

    def open_ended(self, max_rounds: int | None) -> bool:
        """True if the number of rounds is unknown before the fit."""
        return self.selects and max_rounds is None

    def most_rounds(self, plan: Mapping[str, Any]) -> int | None:
        """Return the maximum number of rounds from the JSON of a plan, or None if it is unknown."""
        most: int | None = plan["max_rounds"]
        return most or (plan["partitions"] if self.whole_partitions else None)

    def text(self, plan: Mapping[str, Any]) -> str:
        """Describe how candidates join, from the JSON of a plan, for plans and reports."""
        most = plan["max_rounds"]
        if self.one_fit:
            return "all rows at once" if plan["partition_size"] else "basis functions alone"
        if not self.whole_partitions:
            rounds = "until the evidence stops rising"
            if not self.open_ended(most):
                rounds = f"up to {counted(most or plan['rounds'], 'round')}"
            return f"{plan['partition_size']:,} candidates per round, {rounds}"
        found = f"{counted(plan['partitions'], 'partition')} of {counted(plan['partition_size'], 'candidate')}"
        if self.merges:
            levels = plan["rounds"] - 1
            return found + (f", merged on {counted(levels, 'level')}" if levels > 0 else "")
        return f"{found} in order" + (f", at most {most:,} of them" if most is not None else "")


def _stays(stop_fraction: float) -> float:
    """Return the expected fraction of a round's candidates that is kept: the mean of ``stop_fraction`` and 1.

    A fit may converge before its vectors have fallen to ``stop_fraction`` of its candidates. On kin40k and etopo20 the
    kept fraction was about this mean.
    """
    return 0.5 * (1.0 + stop_fraction)
