"""Schedules: how the candidates of a strategy join, for estimates of memory and time and for texts. Pure arithmetic.

Every strategy has one ``Schedule`` in the registry ``strategies.STRATEGIES``. Planning takes the schedule as an
argument. A stored plan contains only the name of the strategy, from which the schedule is found in the registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from partirvm.options.table import CHOSEN_ROWS, ROUNDS, SEVERAL_FITS
from partirvm.planning.cost import UNLIMITED_ROUNDS, RoundCost, Work, levels_cost, n_partitions, rounds_cost
from partirvm.planning.units import counted


@dataclass(frozen=True)
class Schedule:
    """A schedule of rounds: the candidates of each round join the vectors kept so far. Subclasses differ from this.

    ``one_fit``: all rows are candidates of a single fit. ``whole_partitions``: every row joins exactly once, together
    with all rows of its partition. ``merges``: the fits of a level run in parallel and are merged on the next level.
    ``selects``: the option ``selection`` chooses the candidates among all rows. ``order`` is the value of ``selection``
    in a plan if the schedule does not select.
    """

    name: str

    one_fit: ClassVar[bool] = False
    whole_partitions: ClassVar[bool] = False
    merges: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    order: ClassVar[str] = "order"

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
        most = max_vectors or partition_size
        if max_vectors is not None and self.whole_partitions:
            most = max(max_vectors // 2, 1)
        return min(n_candidates, partition_size, most)

    def costs(
        self, work: Work, candidates: int, stop_fraction: float, max_rounds: int | None, joining: int
    ) -> list[RoundCost]:
        """Estimate each round or level for ``joining`` rows that have yet to join; the last element is the last fit."""
        partitions = n_partitions(joining, candidates, work.n_kernels)
        assumed = UNLIMITED_ROUNDS if self.open_ended(max_rounds) else partitions
        rounds = min(max_rounds if max_rounds is not None else assumed, partitions)
        return rounds_cost(work, candidates, max(rounds, 1), _stays(stop_fraction) if self.selects else stop_fraction)

    def columns(self, costs: Sequence[RoundCost], stop_fraction: float, most: int) -> int:
        """Return the expected maximum number of columns of a round, at most ``most``.

        A round with more than ``most`` columns is not run.
        """
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

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates for the text of a plan; ``P`` is the partition size as text."""
        known = " (an assumption: max_rounds is not set)" if self.open_ended(plan["max_rounds"]) else ""
        return f"{P} per round, {plan['rounds']} rounds{known}"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates in one line for a report."""
        most = plan["max_rounds"]
        known = not self.open_ended(most)
        rounds = f"up to {counted(most or plan['rounds'], 'round')}" if known else "until the evidence stops rising"
        return f"{plan['partition_size']:,} candidates per round, {rounds}"

    def fits_text(self, rounds: int) -> str:
        """Describe the order of the fits for the summary of a run."""
        return " in turn"


@dataclass(frozen=True)
class AtOnce(Schedule):
    """The schedule of a single fit: all rows are its candidates."""

    one_fit: ClassVar[bool] = True
    order: ClassVar[str] = "all"

    def candidates(self, partition_size: int, max_vectors: int | None, n_candidates: int) -> int:
        """Return ``n_candidates``: all candidates join at once."""
        return n_candidates

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates for the text of a plan."""
        return f"{P}, all rows at once"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates in one line for a report."""
        return "all rows at once" if plan["partition_size"] else "basis functions alone"

    def fits_text(self, rounds: int) -> str:
        """Return an empty text, because there is only one fit."""
        return ""


@dataclass(frozen=True)
class InOrder(Schedule):
    """The schedule of partitions that join one after the other."""

    whole_partitions: ClassVar[bool] = True

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates for the text of a plan."""
        return f"{P}, {_partitions(plan)} in order{_limited(plan)}"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates in one line for a report."""
        return f"{_of_candidates(plan)} in order{_limited(plan)}"


@dataclass(frozen=True)
class ByLevel(Schedule):
    """The schedule of split-and-merge: partitions are fitted in parallel and merged in pairs, level by level."""

    whole_partitions: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    def costs(
        self, work: Work, candidates: int, stop_fraction: float, max_rounds: int | None, joining: int
    ) -> list[RoundCost]:
        """Estimate the levels and the last fit."""
        return levels_cost(work, candidates, _stays(stop_fraction))

    def columns(self, costs: Sequence[RoundCost], stop_fraction: float, most: int) -> int:
        """Return the number of columns of the largest fit, at most ``most``."""
        return min(max(cost.kept + cost.candidates for cost in costs), most)

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates for the text of a plan."""
        levels = plan["rounds"] - 1
        merged = f", merged in pairs on {levels} level" + "s" * (levels > 1) if levels else ""
        return f"{P}, {_partitions(plan)}{merged}"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """Describe the order of candidates in one line for a report."""
        levels = plan["rounds"] - 1
        return _of_candidates(plan) + (f", merged on {counted(levels, 'level')}" if levels > 0 else "")

    def fits_text(self, rounds: int) -> str:
        """Return the number of levels as text."""
        return f" on {counted(rounds, 'level')}"


@dataclass(frozen=True)
class Chosen(Schedule):
    """The schedule of rounds whose candidates are chosen among all rows by ``selection``."""

    selects: ClassVar[bool] = True


def _stays(stop_fraction: float) -> float:
    """Return the expected fraction of a round's candidates that is kept: the mean of ``stop_fraction`` and 1.

    A fit may converge before its vectors have fallen to ``stop_fraction`` of its candidates. On kin40k and etopo20 the
    kept fraction was about this mean.
    """
    return 0.5 * (1.0 + stop_fraction)


def _partitions(plan: Mapping[str, Any]) -> str:
    return "one partition" if plan["partitions"] == 1 else f"{plan['partitions']:,} partitions"


def _of_candidates(plan: Mapping[str, Any]) -> str:
    return f"{counted(plan['partitions'], 'partition')} of {counted(plan['partition_size'], 'candidate')}"


def _limited(plan: Mapping[str, Any]) -> str:
    most = plan["max_rounds"]
    return f", at most {most:,} of them" if most is not None else ""
