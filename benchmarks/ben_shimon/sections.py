"""The parts of the benchmark. Each part runs its fits and returns the results as headings and
Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.ben_shimon import paper
from benchmarks.ben_shimon.data import PUMADYN, SMALL, TABLE_6, Dataset
from benchmarks.ben_shimon.fits import Competitor, Fit, Literal, Settings, compare_all
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


NOISE = {
    "literal": {},
    "sample": {"noise_rows": 500},
    "every 5": {"noise_every": 5},
    "own rows": {"noise_rows": 0},
}
"""Rows and updates of σ² in the literal scheme: all rows, 500 of them, all rows at every fifth
update, and the rows of each fit."""

PRINTED_SIZES = {"8": 45, "32": 89}
"""The heuristic's P by the number of inputs, as the paper prints it for 8fh, 32fh and 32nm; 134 for
8nm. The other sets have that of the same number of inputs."""


def literal_size(name: str) -> int:
    """Return the paper's P of a set."""
    if name == "pumadyn_8nm":
        return 134
    return PRINTED_SIZES[name.removeprefix("pumadyn_")[:-2]] if name in PUMADYN else 50


def literal_small(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Tables 2–4 by the literal scheme, with σ² from all rows."""
    competitors = [Literal(one, {"strategy": one, "partition_size": 50}) for one in THREE]
    fits = compare_all("literal 2-4", datasets, competitors, settings)
    sections = [
        ("Table 2, read literally: RMSE", by_competitor(fits, RMSE)),
        ("Table 3, read literally: relevance vectors", by_competitor(fits, RELEVANCE_VECTORS)),
        ("Table 4, read literally: seconds", by_competitor(fits, SECONDS)),
        ("Data sets and settings", what_was_run(fits)),
    ]
    return fits, sections


def literal_noise(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Compare the rows and updates of σ² in the literal scheme."""
    competitors = [
        Literal(f"{one}, {noise}", {"strategy": one, "partition_size": 50, **options})
        for one in ("incremental", "working-set")
        for noise, options in NOISE.items()
    ]
    fits = compare_all("literal noise", datasets, competitors, settings)
    sections = [
        ("σ² of the literal scheme: RMSE", by_competitor(fits, RMSE, strategies=False)),
        ("Relevance vectors", by_competitor(fits, RELEVANCE_VECTORS, strategies=False)),
        ("Seconds", by_competitor(fits, SECONDS, strategies=False)),
    ]
    return fits, sections


def literal_sizes(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Table 6 by the literal scheme."""
    fits = []
    share = settings.budget / max(len(datasets), 1)
    for dataset in datasets:
        named = [(str(size), size) for size in paper.PARTITION_SIZES]
        named.append(("heuristic", literal_size(dataset.name)))
        competitors = [Literal(name, {"partition_size": size}) for name, size in named]
        fits += compare_all("literal 6", [dataset], competitors, replace(settings, budget=share))
    return fits, [("Table 6, read literally: the working set over P", partition_sizes(fits))]


def literal(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Tables 7–9 by the literal scheme."""
    fits = []
    share = settings.budget / max(len(datasets), 1)
    for dataset in datasets:
        size = literal_size(dataset.name)
        competitors = [Literal(one, {"strategy": one, "partition_size": size}) for one in THREE]
        fits += compare_all("literal 7-9", [dataset], competitors, replace(settings, budget=share))
    sections = [
        ("Table 7, read literally: RMSE", by_competitor(fits, RMSE)),
        ("Table 8, read literally: relevance vectors", by_competitor(fits, RELEVANCE_VECTORS)),
        ("Table 9, read literally: seconds", by_competitor(fits, SECONDS)),
        ("Data sets and settings", what_was_run(fits)),
    ]
    return fits, sections


@dataclass(frozen=True)
class Part:
    """A part of the benchmark: its names for ``--table``, its data sets, the maximum minutes of its
    fits, and its function.

    The parts of the library take less than half an hour on two cores, those of the literal scheme as
    long again.
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
    Part("literal_small", ("literal-small",), SMALL, 6, literal_small),
    Part("literal_noise", ("literal-noise",), SMALL, 4, literal_noise),
    Part("literal_sizes", ("literal-sizes",), TABLE_6, 8, literal_sizes),
    Part("literal", ("literal",), PUMADYN, 10, literal),
)
"""All parts in their order of execution."""
