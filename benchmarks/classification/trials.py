"""Comparisons of options of partirvm that decide the defaults. All variants use the widths chosen for ``partirvm``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.classification.data import DATASETS


@dataclass(frozen=True)
class Trial:
    """A trial: a function that returns the names of the methods, and the names of suitable data sets."""

    methods: Callable[[], list[str]]
    sets: tuple[str, ...] = tuple(DATASETS)


def selections() -> list[str]:
    """Return a working set with each selection of candidates in the package."""
    from partirvm.strategies.selection import SELECTIONS

    return [f"partirvm strategy=working-set selection={name}" for name in SELECTIONS]


LARGER = ("banana", "german", "cancer", "digits", "moons", "pendigits", "skin_nonskin")
"""The data sets with enough rows for a working set that is smaller than the data."""

TRIALS = {
    "selection": Trial(selections, LARGER),
    "multiclass": Trial(
        lambda: [f"partirvm multi_class={name}" for name in ("multinomial", "ovr")], ("digits", "pendigits")
    ),
    "moderate": Trial(lambda: [f"partirvm moderate={name}" for name in (True, False)]),
    "strategy": Trial(
        lambda: [f"partirvm strategy={name}" for name in ("basic", "working-set", "incremental", "split-merge")]
    ),
}
