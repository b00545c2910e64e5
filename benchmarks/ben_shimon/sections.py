"""The parts of the benchmark. Each part runs its fits and returns the results as headings and
Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ben_shimon import paper
from benchmarks.ben_shimon.data import PUMADYN, SMALL, TABLE_6, Dataset
from benchmarks.ben_shimon.fits import Competitor, Fit, Settings, compare_all
from benchmarks.ben_shimon.tables import (
    RELEVANCE_VECTORS,
    RMSE,
    SECONDS,
    by_competitor,
    heuristic_quality,
    partition_sizes,
    ratios,
    what_was_run,
)
from benchmarks.measure import table

Section = tuple[str, str]
"""A section of the results: a heading and its text."""

Answer = tuple[list[Fit], list[Section]]
"""The result of a part: its fits, and the text of its sections."""

THREE = paper.STRATEGIES[1:]


def size_of(name: str) -> int | str:
    """Return the paper's P of a set: 50, or the heuristic's value for the pumadyn sets."""
    return "auto" if name in PUMADYN else paper.PARTITION_SIZE


def three(name: str) -> list[Competitor]:
    """Return the three partition strategies with the P of a set."""
    return [Competitor(one, {"strategy": one, "partition_size": size_of(name)}) for one in THREE]


def small(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Tables 2–4."""
    competitors = [Competitor("basic", {"strategy": "basic"}), *three("boston")]
    fits = compare_all("tables 2-4", datasets, competitors, settings)
    sections = [
        ("Table 2: RMSE", by_competitor(fits, RMSE)),
        ("Table 3: relevance vectors", by_competitor(fits, RELEVANCE_VECTORS)),
        ("Table 4: seconds", by_competitor(fits, SECONDS)),
        ("Seconds ÷ those of `basic`", ratios(fits)),
        ("Data sets and settings", what_was_run(fits)),
    ]
    return fits, sections


def sizes(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Table 6."""
    named: list[tuple[str, int | str]] = [(str(size), size) for size in paper.PARTITION_SIZES]
    competitors = [
        Competitor(name, {"strategy": "working-set", "partition_size": size})
        for name, size in [*named, ("heuristic", "auto")]
    ]
    fits = compare_all("table 6", datasets, competitors, settings)
    quality = heuristic_quality(fits)
    columns = {key: ".2f" if "÷" in key else "" for key in quality[0]} if quality else {}
    sections = [
        ("Table 6: the working set over P", partition_sizes(fits)),
        ("Time at the heuristic's P ÷ time at the best P", table(quality, columns)),
        ("Data sets and settings", what_was_run(fits)),
    ]
    return fits, sections


def pumadyn(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Tables 7–9."""
    fits = compare_all("tables 7-9", datasets, three("pumadyn_8nm"), settings)
    sections = [
        ("Table 7: RMSE", by_competitor(fits, RMSE)),
        ("Table 8: relevance vectors", by_competitor(fits, RELEVANCE_VECTORS)),
        ("Table 9: seconds", by_competitor(fits, SECONDS)),
        ("Data sets and settings", what_was_run(fits)),
    ]
    return fits, sections


def learned(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Tables 7–9 with the default kernel, which is learned."""
    competitors = [
        Competitor(one.name, {**one.options, "gamma": "learn"}) for one in three("pumadyn_8nm")
    ]
    fits = compare_all("learned", datasets, competitors, settings)
    sections = [
        ("Table 7 with learned kernels: RMSE", by_competitor(fits, RMSE)),
        ("Table 8 with learned kernels: relevance vectors", by_competitor(fits, RELEVANCE_VECTORS)),
        ("Seconds of these fits", by_competitor(fits, SECONDS)),
    ]
    return fits, sections


@dataclass(frozen=True)
class Part:
    """A part of the benchmark: its names for ``--table``, its data sets, the maximum minutes of its
    fits, and its function.

    All parts together take less than half an hour on two cores.
    """

    name: str
    tables: tuple[str, ...]
    sets: tuple[str, ...]
    minutes: float
    run: Callable[[list[Dataset], Settings, Path], Answer]


PARTS = (
    Part("strategies", ("2", "3", "4"), SMALL, 4, small),
    Part("partition_sizes", ("6",), TABLE_6, 8, sizes),
    Part("pumadyn", ("7", "8", "9"), PUMADYN, 7, pumadyn),
    Part("learned", ("learned",), PUMADYN, 30, learned),
)
"""All parts in their order of execution."""
