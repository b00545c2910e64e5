"""Runs of one method on one set of one size, each in a separate process and with its own results
file.

A *run* is a dict: data, rows, method, seconds (of the fit), cpu_seconds, predict_seconds, fit_mib
(peak of the process, including interpreter, libraries and data, without the check of the evidence),
rmse (in units of the sd of the training target), nlpd (mean, for the standardised target), coverage
(of the central 95 % interval), vectors, evidence (nats, for the standardised target). A run without
a result has a ``note`` with the reason.
"""

from __future__ import annotations

import json
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import say, within
from benchmarks.peers.data import DATASETS
from benchmarks.peers.methods import METHODS

Run = dict[str, Any]

NORMAL_95 = 1.959964
"""Half the width of the central 95 % interval of the normal distribution, in sd."""


@dataclass(frozen=True)
class Settings:
    """The settings: data folder, output folder, time limit of a process in seconds."""

    folder: str
    output: Path
    seconds: float


def scores(mean: Any, sd: Any, y: Any) -> dict[str, float]:
    """Compute RMSE, mean negative log density, and the fraction of y in the central 95 % interval
    of normal predictions (n,).
    """
    square = ((y - mean) / sd) ** 2
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "nlpd": float(np.mean(0.5 * (square + np.log(2 * np.pi * sd**2)))),
        "coverage": float(np.mean(square < NORMAL_95**2)),
    }


def measured(folder: str, name: str, rows: int, method: str) -> Run:
    """Run a fit, and return its scores, or a note if the estimator does not support the method."""
    from partirvm.errors import UsageError
    from partirvm.process import peak_memory

    dataset = DATASETS[name]
    chosen = METHODS[method]
    split = dataset.split(folder, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fits that do not converge show bad scores
        try:
            warm_up(method)
            began, cpu_began = time.perf_counter(), time.process_time()
            fitted = chosen.fit(split.X, split.y, dataset.gamma)
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        except UsageError as error:
            return {"note": f"not there: {error}"}
        began = time.perf_counter()
        mean, sd = fitted.predict(split.X_test)
        predict_seconds = time.perf_counter() - began
        peak = peak_memory() / 2**20
        found = {"vectors": fitted.vectors, "fit_mib": peak, "predict_seconds": predict_seconds}
        if fitted.evidence is not None:
            found["evidence"] = fitted.evidence()
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        **found,
        **scores(mean, sd, split.y_test),
    }


def warm_up(method: str) -> None:
    """Run a small fit, so that no measured time includes loading libraries.

    The real fit repeats any error of this fit.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(40, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(40)
    with suppress(ValueError, RuntimeError):
        METHODS[method].fit(X, y, 1.0).predict(X)


def place(output: Path, name: str, rows: int, method: str) -> Path:
    """Return the path of the file of a run."""
    return output / "runs" / f"{name}--{rows}--{method.replace(' ', '_')}.json"


def run(name: str, rows: int, method: str, settings: Settings) -> Run:
    """Return the stored run, or run and store it. A time-out is stored; a missing package or a
    crash is not stored."""
    path = place(settings.output, name, rows, method)
    if path.exists():
        return dict(json.loads(path.read_text()))
    about: Run = {"data": name, "rows": rows, "method": method}
    keep = True
    try:
        about |= within(settings.seconds, measured, settings.folder, name, rows, method)
        keep = "note" not in about
    except TimeoutError:
        about["note"] = f"more than {settings.seconds:.0f} s"
    except ChildProcessError:
        about["note"] = "died"
        keep = False
    if keep:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(about))
    return about


def run_sizes(name: str, sizes: list[int], method: str, settings: Settings) -> list[Run]:
    """Run a method on increasing sizes. Stops if the next size would exceed the time limit for a
    cost of N²."""
    runs: list[Run] = []
    for rows in sizes:
        last = runs[-1] if runs else None
        if last and (
            "note" in last or last["seconds"] * (rows / last["rows"]) ** 2 > settings.seconds
        ):
            say(
                f"{name}, {rows} rows, {method}: skipped, {last['rows']} rows "
                f"{last.get('note', 'took too long')}"
            )
            break
        runs.append(run(name, rows, method, settings))
        say(f"{name}, {rows} rows, {method}: {summary(runs[-1])}")
    return runs


def summary(about: Run) -> str:
    """Return a line of progress."""
    if "note" in about:
        return str(about["note"])
    return "{seconds:.2f} s, RMSE {rmse:.3f}, NLPD {nlpd:.3f}, {vectors} vectors".format_map(about)


def kept(output: Path) -> list[Run]:
    """Read all runs in a folder, sorted by set, size and method."""
    runs = [json.loads(path.read_text()) for path in (output / "runs").glob("*.json")]
    sets = list(DATASETS)
    methods = list(METHODS)
    return sorted(
        runs, key=lambda one: (sets.index(one["data"]), one["rows"], methods.index(one["method"]))
    )
