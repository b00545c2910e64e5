"""The parts of the benchmark. Each part runs its fits, and returns the results as headings and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.ben_shimon import figures, paper
from benchmarks.ben_shimon.data import DATASETS, FRIEDMAN_NOISE, PUMADYN, SMALL, TABLE_6, Dataset
from benchmarks.ben_shimon.fits import Competitor, Fit, Settings, compare_all
from benchmarks.ben_shimon.tables import (
    RELEVANCE_VECTORS,
    RMSE,
    SECONDS,
    by_competitor,
    heuristic_quality,
    mean_and_spread,
    partition_sizes,
    printed,
    ratios,
    values,
    what_was_run,
)
from benchmarks.ben_shimon.traces import trace_basic, traces
from benchmarks.measure import table
from partirvm.literature.classical import classical

Section = tuple[str, str]
"""A section of the results: a heading and its text."""

Answer = tuple[list[Fit], list[Section]]
"""The result of a part: its fits, and the text of its sections."""

THREE = paper.STRATEGIES[1:]

LIKELIHOODS: dict[str, dict[str, Any]] = {
    "full": {"fit_rows": "full"},
    "sample": {"fit_rows": "sample"},
    "partition": {"fit_rows": "partition"},
    "auto": {"fit_rows": "auto"},
    "literal": {"fit_rows": "partition", "last_rows": "partition", "stop_rule": "partition"},
}

OF_LIKELIHOODS = ("boston", "abalone", "pumadyn_8nm", "pumadyn_32nm")

OF_FIGURES = ("boston", "friedman_1", "abalone", "pumadyn_8nm", "pumadyn_32nm")


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
    competitors = [Competitor(one.name, {**one.options, "gamma": "auto"}) for one in three("pumadyn_8nm")]
    fits = compare_all("learned", datasets, competitors, settings)
    sections = [
        ("Table 7 with learned kernels: RMSE", by_competitor(fits, RMSE)),
        ("Table 8 with learned kernels: relevance vectors", by_competitor(fits, RELEVANCE_VECTORS)),
        ("Seconds of these fits", by_competitor(fits, SECONDS)),
    ]
    return fits, sections


def likelihoods(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run every likelihood with every strategy."""
    fits: list[Fit] = []
    for dataset in datasets:
        competitors = [
            Competitor(f"{one.name}, {name}", {**one.options, **likelihood})
            for one in three(dataset.name)
            for name, likelihood in LIKELIHOODS.items()
        ]
        share = replace(settings, budget=settings.budget / len(datasets))
        fits += compare_all("likelihoods", [dataset], competitors, share)
    sections = [
        (f"{quantity.title}, {strategy}", by_competitor(_only(fits, strategy), quantity, strategies=False))
        for quantity in (RMSE, RELEVANCE_VECTORS, SECONDS)
        for strategy in THREE
    ]
    return fits, [*sections, ("Data sets and settings", what_was_run(fits))]


PARTITION = {"fit_rows": "partition", "last_rows": "partition", "stop_rule": "partition"}

READINGS: dict[str, tuple[dict[str, Any], float]] = {
    "own rows in all fits": (PARTITION, 1.0),
    "the same, α ≤ 10³ alone": ({**PARTITION, "solver": "limit 1e3"}, 1.0),
    "the same, α ≤ 10⁹ alone": ({**PARTITION, "solver": "limit 1e9"}, 1.0),
    "the same, true noise given": ({**PARTITION, "noise_variance": FRIEDMAN_NOISE**2}, 1.0),
    "the same, gamma ÷ 4": (PARTITION, 0.25),
    "the same, gamma × 4": (PARTITION, 4.0),
    "own rows, all rows in the last fit": ({"fit_rows": "partition", "stop_rule": "partition"}, 1.0),
    "all rows in all fits": ({"fit_rows": "full", "stop_rule": "partition"}, 1.0),
    "all rows, no fit stops early": ({"fit_rows": "full", "stop_fraction": 0.0}, 1.0),
}
"""What §2 of the paper may mean: options, and the factor of gamma; ``readings`` makes the solvers with limits."""


def readings(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run each reading of §2 with every strategy."""
    classical("limit 1e3", alpha_limit=1e3)
    classical("limit 1e9", alpha_limit=1e9)
    fits: list[Fit] = []
    for dataset in datasets:
        gamma = settings.gammas[dataset.name]
        competitors = [
            Competitor(f"{one.name}, {name}", {**one.options, **options, "gamma": factor * gamma})
            for one in three(dataset.name)
            for name, (options, factor) in READINGS.items()
        ]
        fits += compare_all("readings", [dataset], competitors, settings)
    rows = [
        {"reading": name}
        | {
            f"{strategy}{what}": mean_and_spread(values(fits, key, competitor=f"{strategy}, {name}"))
            for strategy in THREE
            for what, key in (("", "rmse"), (", vectors", "vectors"))
        }
        for name in READINGS
    ]
    printed_row = {"reading": "paper"}
    for strategy in THREE:
        printed_row[strategy] = printed(paper.rmse("friedman_1", strategy))
        printed_row[f"{strategy}, vectors"] = printed(paper.vectors("friedman_1", strategy))
    return fits, [("Friedman#1: readings of §2", table([printed_row, *rows], dict.fromkeys(rows[0], "")))]


def _only(fits: list[Fit], strategy: str) -> list[Fit]:
    """Return the fits of one strategy, named only by their likelihood."""
    own = [fit for fit in fits if fit["competitor"].startswith(f"{strategy}, ")]
    return [{**fit, "competitor": fit["competitor"].removeprefix(f"{strategy}, ")} for fit in own]


def pictures(datasets: list[Dataset], settings: Settings, output: Path) -> Answer:
    """Run the fits of Figures 1 and 2, and draw these."""
    lines = traces(datasets, {dataset.name: size_of(dataset.name) for dataset in datasets}, settings)
    boston = DATASETS["boston"]
    basic = trace_basic(boston.split(settings.folder, 0, settings.rows), float(boston.gamma or 0.0))
    figures.basic(basic, output / "ben_shimon_figure_1.png")
    for name, key in (("2_vectors", "vectors"), ("2_rmse", "rmse")):
        figures.over_time(lines, key, output / f"ben_shimon_figure_{name}.png")
    text = "\n\n".join(f"![](ben_shimon_figure_{name}.png)" for name in ("1", "2_vectors", "2_rmse"))
    return [*lines, {"data": "boston", "strategy": "basic", **basic}], [("Figures 1 and 2", text)]


@dataclass(frozen=True)
class Part:
    """A part of the benchmark: its names for ``--table``, its data sets, the maximum minutes of its fits, and its
    function.

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
    Part("figures", ("figures",), OF_FIGURES, 1, pictures),
    Part("likelihoods", ("likelihoods",), OF_LIKELIHOODS, 4, likelihoods),
    Part("readings", ("readings",), ("friedman_1",), 4, readings),
)
"""All parts in their order of execution."""
