"""How the candidates of a strategy join, as far as memory, time and words depend on it. Pure arithmetic.

Every strategy has one ``Schedule``, which the registry of strategies holds (``strategies.STRATEGIES``). Planning takes
it as an argument; whoever reads a stored plan finds it there by the strategy's name.
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
    """Rounds of P candidates that join the vectors kept so far. Other schedules are its subclasses.

    ``one_fit`` says that all rows are candidates of the only fit; ``whole_partitions`` that every row joins once, with
    all rows of its partition; ``merges`` that the fits of a level run side by side and are merged on the next;
    ``selects`` that candidates are chosen among all rows by the option ``selection``. ``order`` is what stands in a
    plan in place of a selection where there is none.
    """

    name: str

    one_fit: ClassVar[bool] = False
    whole_partitions: ClassVar[bool] = False
    merges: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    order: ClassVar[str] = "order"

    @property
    def has_rounds(self) -> bool:
        """Whether candidates join in rounds, which extend the statistics of the columns kept so far."""
        return not (self.one_fit or self.merges)

    @property
    def every_row_joins(self) -> bool:
        """Whether a run that no limit ends has made every row a candidate."""
        return not self.selects

    @property
    def unit(self) -> Literal["round", "level"]:
        """What progress counts."""
        return "level" if self.merges else "round"

    @property
    def traits(self) -> tuple[str, ...]:
        """What ``Option.applies`` asks of a strategy."""
        having = {SEVERAL_FITS: not self.one_fit, ROUNDS: self.has_rounds, CHOSEN_ROWS: self.selects}
        return tuple(trait for trait, there in having.items() if there)

    def candidates(self, partition_size: int, max_vectors: int | None, n_candidates: int) -> int:
        """Candidates of a fit, of ``n_candidates`` in all: where partitions join whole there is room for as many."""
        most = max_vectors or partition_size
        if max_vectors is not None and self.whole_partitions:
            most = max(max_vectors // 2, 1)
        return min(n_candidates, partition_size, most)

    def costs(
        self, work: Work, candidates: int, stop_fraction: float, max_rounds: int | None, joining: int
    ) -> list[RoundCost]:
        """Rounds or levels expected, where ``joining`` rows have still to join; the last is that of the last fit."""
        partitions = n_partitions(joining, candidates, work.n_kernels)
        assumed = UNLIMITED_ROUNDS if self.open_ended(max_rounds) else partitions
        rounds = min(max_rounds if max_rounds is not None else assumed, partitions)
        return rounds_cost(work, candidates, max(rounds, 1), _stays(stop_fraction) if self.selects else stop_fraction)

    def columns(self, costs: Sequence[RoundCost], stop_fraction: float, most: int) -> int:
        """The most columns M + P that the rounds are expected to have, of the ``most`` that fit.

        A round of more columns than fit is none.
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
        """Whether the number of rounds is not known before the fit."""
        return self.selects and max_rounds is None

    def most_rounds(self, plan: Mapping[str, Any]) -> int | None:
        """The most rounds that there can be, by a plan's JSON; None where that is not known."""
        most: int | None = plan["max_rounds"]
        return most or (plan["partitions"] if self.whole_partitions else None)

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """Which rows become candidates when, in a plan's text; ``P`` is the partition size in words."""
        known = " (no limit set; as many assumed)" if self.open_ended(plan["max_rounds"]) else ""
        return f"{P} per round, {plan['rounds']} rounds{known}"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """Which rows become candidates when, in one line of a report."""
        most = plan["max_rounds"]
        known = not self.open_ended(most)
        rounds = f"up to {counted(most or plan['rounds'], 'round')}" if known else "until the evidence is flat"
        return f"{plan['partition_size']:,} candidates per round, {rounds}"

    def fits_text(self, rounds: int) -> str:
        """How the fits of a run followed each other, in its summary."""
        return " in turn"


@dataclass(frozen=True)
class AtOnce(Schedule):
    """All rows are candidates of one fit."""

    one_fit: ClassVar[bool] = True
    order: ClassVar[str] = "all"

    def candidates(self, partition_size: int, max_vectors: int | None, n_candidates: int) -> int:
        """All of them."""
        return n_candidates

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """As of every schedule."""
        return f"{P}, all rows at once"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """As of every schedule."""
        return "all rows at once" if plan["partition_size"] else "basis functions alone"

    def fits_text(self, rounds: int) -> str:
        """There is one."""
        return ""


@dataclass(frozen=True)
class InOrder(Schedule):
    """One partition after the other joins."""

    whole_partitions: ClassVar[bool] = True

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """As of every schedule."""
        return f"{P}, {_partitions(plan)} in order{_limited(plan)}"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """As of every schedule."""
        return f"{_of_candidates(plan)} in order{_limited(plan)}"


@dataclass(frozen=True)
class ByLevel(Schedule):
    """Partitions are fitted side by side, and their vectors are merged in pairs, level by level."""

    whole_partitions: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    def costs(
        self, work: Work, candidates: int, stop_fraction: float, max_rounds: int | None, joining: int
    ) -> list[RoundCost]:
        """Levels, and the last fit."""
        return levels_cost(work, candidates, stop_fraction)

    def columns(self, costs: Sequence[RoundCost], stop_fraction: float, most: int) -> int:
        """Those of the largest fit."""
        return min(max(cost.kept + cost.candidates for cost in costs), most)

    def in_plan(self, P: str, plan: Mapping[str, Any]) -> str:
        """As of every schedule."""
        levels = plan["rounds"] - 1
        merged = f", merged in pairs on {levels} level" + "s" * (levels > 1) if levels else ""
        return f"{P}, {_partitions(plan)}{merged}"

    def in_report(self, plan: Mapping[str, Any]) -> str:
        """As of every schedule."""
        levels = plan["rounds"] - 1
        return _of_candidates(plan) + (f", merged on {counted(levels, 'level')}" if levels > 0 else "")

    def fits_text(self, rounds: int) -> str:
        """On levels."""
        return f" on {counted(rounds, 'level')}"


@dataclass(frozen=True)
class Chosen(Schedule):
    """Rounds of candidates that are chosen among all rows by ``selection``."""

    selects: ClassVar[bool] = True


def _stays(stop_fraction: float) -> float:
    """The fraction of a round's candidates that is expected to stay.

    A fit may converge before its vectors have fallen to ``stop_fraction`` of its candidates: on kin40k and etopo20
    a fraction halfway between this and 1 stayed.
    """
    return 0.5 * (1.0 + stop_fraction)


def _partitions(plan: Mapping[str, Any]) -> str:
    return "one partition" if plan["partitions"] == 1 else f"{plan['partitions']:,} partitions"


def _of_candidates(plan: Mapping[str, Any]) -> str:
    return f"{counted(plan['partitions'], 'partition')} of {counted(plan['partition_size'], 'candidate')}"


def _limited(plan: Mapping[str, Any]) -> str:
    most = plan["max_rounds"]
    return f", at most {most:,} of them" if most is not None else ""
