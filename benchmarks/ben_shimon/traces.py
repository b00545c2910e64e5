"""Traces of a fit for Figures 1 and 2: number of vectors and test RMSE over seconds.

Every model that a run saves is kept and scored after the run, so that scoring takes no time of the run. Of
split-and-merge the vectors are counted at the end of each level. Its errors come from a second run with the
same bits, in which every fit is scored during the run.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.ben_shimon.data import Dataset
from benchmarks.ben_shimon.fits import Settings, say
from benchmarks.datasets import Split
from benchmarks.estimator_parameters import grouped
from partirvm import RVMRegressor
from partirvm.backends import executor_for
from partirvm.core.entering import entry_precision
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.stopping import StopRule
from partirvm.core.updates import HyperState, init, step, verdict
from partirvm.data import as_source
from partirvm.errors import PartirvmWarning
from partirvm.jobs.driver import MemoryJournal
from partirvm.jobs.run import run
from partirvm.kernels import Gaussian
from partirvm.model import Model
from partirvm.setup.resolve import resolve

FIRST_NOISE = 0.1
"""Noise variance before the first iteration of ``basic``, in units of the target's variance."""

STRATEGIES = ("split-merge", "incremental", "working-set")


@dataclass
class KeepingJournal(MemoryJournal):
    """A journal that keeps every model with the time of its saving."""

    began: float = field(default_factory=time.perf_counter)
    kept: list[tuple[float, Model]] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)

    def save(self, model: Model) -> None:
        """Keep the model and the time."""
        super().save(model)
        self.kept.append((time.perf_counter() - self.began, model))

    def record(self, entry: dict[str, Any]) -> None:
        """Keep the time of a history line."""
        super().record(entry)
        self.moments.append(time.perf_counter() - self.began)


def _run(split: Split, gamma: float, seed: int, options: dict[str, Any], *, score: bool = False) -> KeepingJournal:
    """Run one whole fit as the estimator does, with a journal that keeps every model."""
    parameters = RVMRegressor(gamma=gamma, random_state=seed, **grouped(options)).parameters()
    executor, journal = executor_for(None), KeepingJournal()
    held_out = as_source(split.X_test, split.y_test) if score else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)
        source = as_source(split.X, split.y, seed=parameters.seed)
        run(resolve(source, parameters, executor, held_out), source, executor, journal, held_out=held_out)
    executor.close()
    return journal


def _rmse(model: Model, split: Split) -> float:
    return float(np.sqrt(np.mean((model.predict(split.X_test).ravel() - split.y_test) ** 2)))


def trace_rounds(split: Split, gamma: float, seed: int, options: dict[str, Any]) -> dict[str, list[float]]:
    """Return seconds, vectors and test RMSE after every round."""
    journal = _run(split, gamma, seed, options)
    return {
        "seconds": [moment for moment, _ in journal.kept],
        "vectors": [model.n_vectors for _, model in journal.kept],
        "rmse": [_rmse(model, split) for _, model in journal.kept],
    }


def trace_levels(split: Split, gamma: float, seed: int, options: dict[str, Any]) -> dict[str, list[float]]:
    """Return seconds, the number of vectors of all parts, and their mean test RMSE, at the end of every level."""
    journal = _run(split, gamma, seed, options)
    scored = _run(split, gamma, seed, options, score=True).history
    seconds, vectors, rmse = [], [], []
    waiting: list[int] = []
    for level in sorted({line["level"] for line in journal.history if line["kind"] == "part"}):
        parts = [k for k, line in enumerate(journal.history) if line["kind"] == "part" and line["level"] == level]
        # A part without a partner is not merged at this level, but its vectors count.
        waiting = [journal.history[k]["vectors"] for k in parts] + waiting[2 * len(parts) :]
        seconds.append(journal.moments[parts[-1]])
        vectors.append(float(sum(waiting)))
        rmse.append(
            fmean(line["held_out_rmse"] for line in scored if line["kind"] == "part" and line["level"] == level)
        )
    moment, model = journal.kept[-1]
    return {"seconds": [*seconds, moment], "vectors": [*vectors, model.n_vectors], "rmse": [*rmse, _rmse(model, split)]}


def trace_basic(split: Split, gamma: float) -> dict[str, list[float]]:
    """Return seconds, vectors and test RMSE of ``basic`` after every iteration, from dense statistics of all rows."""
    shift, scale = split.X.mean(axis=0), split.X.std(axis=0)
    scale[scale == 0] = 1.0
    centre, unit = split.y.mean(), split.y.std()
    X, new = (split.X - shift) / scale, (split.X_test - shift) / scale
    kernel, t, bias = Gaussian(gamma).prepare(X), (split.y - centre) / unit, np.ones((len(X), 1))
    Phi, Phi_new = np.empty((len(X), len(X)), order="F"), np.empty((len(new), len(X)), order="F")
    kernel(X, Phi)
    kernel(new, Phi_new)
    Phi, Phi_new = np.hstack([bias, Phi]), np.hstack([np.ones((len(new), 1)), Phi_new])
    began = time.perf_counter()
    block = GramBlock.of(np.zeros((len(X), 0)), Phi, t[:, None])
    statistics = GramStatistics.empty("").extend(np.arange(-1, len(X)), block, "")
    beta = 1 / FIRST_NOISE
    alpha = entry_precision(beta * statistics.diagonal, beta * statistics.projection[:, 0], beta * statistics.diagonal)
    fits: list[tuple[float, HyperState]] = []
    state = init(statistics, alpha, beta, target_variance=1.0)
    rule = StopRule(1e-7, 500)
    state = replace(state, found=state.posterior)
    reason = None
    while reason is None:
        before = state
        state, info = step(state)
        fits.append((time.perf_counter() - began, state))
        reason = verdict(before, state, info, rule)
    errors = [unit * (Phi_new[:, 1 + fit.labels] @ fit.posterior.mean) + centre - split.y_test for _, fit in fits]
    return {
        "seconds": [moment for moment, _ in fits],
        "vectors": [fit.n_vectors for _, fit in fits],
        "rmse": [float(np.sqrt(np.mean(error**2))) for error in errors],
    }


def traces(datasets: list[Dataset], sizes: dict[str, Any], settings: Settings) -> list[dict[str, Any]]:
    """Return one line per set and strategy, on split 0."""
    lines = []
    for dataset in datasets:
        split, gamma = dataset.split(settings.folder, 0, settings.rows), settings.gammas[dataset.name]
        for strategy in STRATEGIES:
            options = {"strategy": strategy, "partition_size": sizes[dataset.name]}
            trace = trace_levels if strategy == "split-merge" else trace_rounds
            line = {"data": dataset.name, "strategy": strategy, **trace(split, gamma, 0, options)}
            lines.append(line)
            say(f"figures: {dataset.name} {strategy}: {line['seconds'][-1]:.2f} s, RMSE {line['rmse'][-1]:.4g}")
    return lines
