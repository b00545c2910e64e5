"""Fits of all competitors on the same random splits, alternating in one process.

The result of a *fit* is a dict: data, split, competitor, strategy, likelihood, partition_size,
seconds (of the whole ``fit`` call), rmse on the test rows, vectors, and, from the history, lines
(fits of basic RVMs), iterations, heuristic_seconds and ended.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.ben_shimon.data import Dataset
from benchmarks.datasets import Split
from benchmarks.estimator_parameters import grouped
from benchmarks.measure import say
from partirvm import RVMRegressor
from partirvm.errors import PartirvmWarning
from partirvm.kernels import Gaussian
from partirvm.literature.own_rows import OwnRowsRegressor

Fit = dict[str, Any]


@dataclass(frozen=True)
class Competitor:
    """A competitor in a comparison: its name in the tables, and the options of its fit."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Literal(Competitor):
    """The scheme read literally (``partirvm.literature.own_rows``); options are its own."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run: data folder, splits, maximum training rows, seconds per table."""

    folder: str
    repeats: int
    rows: int | None
    budget: float


def warm_up() -> None:
    """Run a small fit of each kind, so that no measured time includes loading libraries."""
    X = np.random.default_rng(0).uniform(-3, 3, size=(300, 1))
    for strategy in ("basic", "working-set"):
        fit_once(
            Split("warm-up", X, np.sin(X[:, 0]), X, np.sin(X[:, 0])),
            Competitor("", {"strategy": strategy}),
            1.0,
            0,
        )


def fit_once(split: Split, competitor: Competitor, gamma: float, seed: int) -> Fit:
    """Run one fit, and return its cost and its scores."""
    if isinstance(competitor, Literal):
        return literal_once(split, competitor, gamma, seed)
    options = {"gamma": gamma, "noise": "constant", **competitor.options}
    estimator = RVMRegressor(random_state=seed, residual="none", **grouped(options))
    with warnings.catch_warnings():
        # Warnings on duplicate rows and the heuristic's limits concern these data, and all
        # competitors alike.
        warnings.simplefilter("ignore", PartirvmWarning)
        began = time.perf_counter()
        cpu_began = time.process_time()
        estimator.fit(split.X, split.y)
        seconds = time.perf_counter() - began
        cpu_seconds = time.process_time() - cpu_began
        error = estimator.predict(split.X_test) - split.y_test
    history = estimator.history_
    return {
        "data": split.name,
        "split": seed,
        "competitor": competitor.name,
        "strategy": estimator.plan_.schedule.name,
        "likelihood": sorted(
            {line.get("fit_rows", "full") for line in history if line["kind"] != "heuristic"}
        ),
        "partition_size": estimator.plan_.partition_size,
        "gamma": options["gamma"],
        "rows": len(split.y),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rmse": float(np.sqrt(np.mean(error**2))),
        "deviation": split.deviation,
        "vectors": estimator.n_relevance_vectors_,
        "lines": len(history),
        "iterations": sum(line["iterations"] for line in history),
        "heuristic_seconds": sum(
            line["seconds"] for line in history if line["kind"] == "heuristic"
        ),
        "ended": estimator.termination_.value,
    }


def literal_once(split: Split, competitor: Literal, gamma: float, seed: int) -> Fit:
    """Run one fit of the literal scheme, on standardised inputs and target."""
    shift = split.X.mean(axis=0)
    scale = split.X.std(axis=0)
    scale[scale == 0] = 1.0
    mean = split.y.mean()
    model = OwnRowsRegressor(Gaussian(gamma), random_state=seed, **competitor.options)
    began = time.perf_counter()
    cpu_began = time.process_time()
    model.fit((split.X - shift) / scale, (split.y - mean) / split.deviation)
    seconds = time.perf_counter() - began
    cpu_seconds = time.process_time() - cpu_began
    prediction = mean + split.deviation * model.predict((split.X_test - shift) / scale)
    return {
        "data": split.name,
        "split": seed,
        "competitor": competitor.name,
        "strategy": model.strategy,
        "likelihood": ["partition"],
        "partition_size": model.partition_size,
        "gamma": gamma,
        "rows": len(split.y),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rmse": float(np.sqrt(np.mean((prediction - split.y_test) ** 2))),
        "deviation": split.deviation,
        "vectors": model.n_relevance_vectors_,
        "lines": -(-len(split.y) // model.partition_size),
        "iterations": model.n_iter_,
        "heuristic_seconds": 0.0,
        "ended": "converged" if model.converged_ else "iterations",
    }


def compare(
    title: str,
    dataset: Dataset,
    competitors: Sequence[Competitor],
    settings: Settings,
    share: float,
) -> list[Fit]:
    """Fit all competitors on one split after another, in an order that rotates with the split.

    The first split always runs. A further split starts only if it is expected to end within
    ``share`` seconds. Therefore all competitors have the same splits.
    """
    fits: list[Fit] = []
    began = time.perf_counter()
    for seed in range(settings.repeats):
        spent = time.perf_counter() - began
        if seed and spent + spent / seed > share:
            say(
                f"{title}: {dataset.name} stops after {seed} of {settings.repeats} splits, at its "
                f"{share:.0f} s"
            )
            break
        split = dataset.split(settings.folder, seed, settings.rows)
        for competitor in turned(competitors, seed):
            fit = fit_once(split, competitor, dataset.gamma, seed)
            fits.append(fit)
            say(
                f"{title}: {dataset.name} split {seed + 1}/{settings.repeats} {competitor.name}: "
                f"{fit['seconds']:.2f} s, {fit['vectors']} vectors, RMSE {fit['rmse']:.4g}"
            )
    return fits


def compare_all(
    title: str, datasets: Iterable[Dataset], competitors: Sequence[Competitor], settings: Settings
) -> list[Fit]:
    """Run ``compare`` on each set.

    All sets have equal shares of the seconds of a table, and unused seconds go to the next set.
    """
    datasets = list(datasets)
    fits = []
    left = settings.budget
    for number, dataset in enumerate(datasets):
        began = time.perf_counter()
        fits += compare(title, dataset, competitors, settings, left / (len(datasets) - number))
        left -= time.perf_counter() - began
    return fits


def turned(competitors: Sequence[Competitor], by: int) -> list[Competitor]:
    """Return the competitors in cyclic order, starting with the competitor number ``by``."""
    by %= max(len(competitors), 1)
    return [*competitors[by:], *competitors[:by]]
