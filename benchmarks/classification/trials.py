"""Comparisons of our own options that decide their defaults. All variants use the widths chosen for ``partirvm``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.classification.data import DATASETS


@dataclass(frozen=True)
class Trial:
    """Names of the methods, evaluated when it runs, and of the sets for which it is meaningful."""

    methods: Callable[[], list[str]]
    sets: tuple[str, ...] = tuple(DATASETS)


def selections() -> list[str]:
    """A working set with each selection of candidates in the package."""
    from partirvm.strategies.selection import SELECTIONS

    return [f"partirvm strategy=working-set selection={name}" for name in SELECTIONS]


LARGER = ("banana", "german", "cancer", "digits", "moons", "pendigits", "skin_nonskin")
"""Sets with enough rows for a working set to be one."""

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
