"""Runs of one method on one set. One process chooses the parameters, another process fits, and
results are stored in files.

A *run* is a dict: data, method, rows, test_rows, features, fits (one dict per split), peak_mib
(VmHWM of the process of the fits, including interpreter, libraries and data), tuning_seconds. A run
without fits has a ``note`` with the reason.
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

from benchmarks.classification.data import DATASETS, Split
from benchmarks.classification.methods import Parameters, method_of
from benchmarks.classification.scores import aligned, scores
from benchmarks.classification.tuning import tune
from benchmarks.measure import say, within

Run = dict[str, Any]

HARD = 2
"""A process is stopped after this number times its time limit.

A split starts only if it is expected to end within the limit.
"""


@dataclass(frozen=True)
class Settings:
    """The settings: data folder, output folder, maximum number of splits, seconds of a process, and
    whether to tune again.
    """

    folder: str
    output: Path
    repeats: int
    seconds: float
    keep_widths: bool = False


def warm_up(name: str, parameters: Parameters) -> None:
    """Run a small fit, so that no measured time includes loading libraries."""
    from sklearn.datasets import make_moons

    X, y = make_moons(60, noise=0.3, random_state=0)
    with suppress(
        ValueError
    ):  # fastrvm cannot predict without vectors, and these few rows may give no vectors
        method_of(name).make(parameters, 0).fit(X, y).predict_proba(X)


def fit_once(name: str, split: Split, parameters: Parameters, number: int) -> dict[str, Any]:
    """Run one fit, and return scores on the test rows, vectors, passes and seconds."""
    method = method_of(name)
    estimator = method.make(parameters, number)
    began = time.perf_counter()
    estimator.fit(split.X, split.y)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    probabilities = aligned(
        estimator.predict_proba(split.X_test), estimator.classes_, split.n_classes
    )
    predict_seconds = time.perf_counter() - began
    vectors = method.vectors(estimator, split.X)
    history = getattr(estimator, "history_", None)
    return {
        "split": number,
        "parameters": parameters,
        "seconds": seconds,
        "predict_seconds": predict_seconds,
        **scores(probabilities, split.y_test),
        "vectors": vectors if vectors is None or isinstance(vectors, int) else len(vectors),
        "passes": None if history is None else sum(line["passes"] for line in history),
    }


def fit_splits(
    folder: str, name: str, method: str, chosen: list[Parameters], seconds: float
) -> dict[str, Any]:
    """Run the fits of a method on the splits that have parameters, within the time limit.

    The first split always runs.
    """
    fits: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warm_up(method, chosen[0])
        began = time.perf_counter()
        for number, parameters in enumerate(chosen):
            spent = time.perf_counter() - began
            if number and spent * (number + 1) / number > seconds:
                break
            split = DATASETS[name].split(folder, number).standardised()
            fits.append(fit_once(method, split, parameters, number))
    return {
        "fits": fits,
        "rows": len(split.y),
        "test_rows": len(split.y_test),
        "features": split.X.shape[1],
    }


def place(output: Path, kind: str, name: str, method: str) -> Path:
    """Return the path of the file of one method on one set; ``kind`` is "runs" or "chosen"."""
    return output / kind / f"{name}--{method.replace(' ', '_')}.json"


def chosen_parameters(name: str, method: str, settings: Settings) -> dict[str, Any]:
    """Return the parameters of each split: stored, chosen for another method, or newly chosen by
    cross-validation."""
    owner = method_of(method).borrows or method
    path = place(settings.output, "chosen", name, owner)
    if path.exists() and (settings.keep_widths or owner != method):
        return dict(json.loads(path.read_text()))
    splits = min(settings.repeats, DATASETS[name].n_splits)
    found = within(
        HARD * settings.seconds, tune, settings.folder, name, owner, splits, settings.seconds
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1))
    return found


def run(name: str, method: str, settings: Settings) -> Run:
    """Choose parameters, fit, store and return the run, which may have only a note."""
    about: Run = {"data": name, "method": method}
    try:
        about |= attempt(name, method, settings)
    except (TimeoutError, ChildProcessError) as error:
        about |= {"fits": [], "note": str(error)}
    path = place(settings.output, "runs", name, method)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about))
    say(f"{name}, {method}: {about.get('note') or summary(about)}")
    return about


def attempt(name: str, method: str, settings: Settings) -> Run:
    """Return the fits or a note. Raises TimeoutError or ChildProcessError if a process fails."""
    if method_of(method).missing():
        return {"fits": [], "note": f"{method_of(method).needs} is not installed"}
    rows = len(DATASETS[name].split(settings.folder, 0).y)
    most = method_of(method).max_rows
    if most is not None and rows > most:
        return {"fits": [], "note": f"not run beyond {most:,} rows"}
    tuned = chosen_parameters(name, method, settings)
    chosen = [line["parameters"] for line in tuned["chosen"]][: settings.repeats]
    fitted = within(
        HARD * settings.seconds, fit_splits, settings.folder, name, method, chosen, settings.seconds
    )
    return {**fitted, "tuning_seconds": tuned["wall_seconds"]}


def summary(about: Run) -> str:
    """Return a line of progress."""
    means = {
        key: float(np.mean([fit[key] for fit in about["fits"]]))
        for key in ("error", "log_loss", "seconds")
    }
    return (
        f"{len(about['fits'])} splits, error {means['error']:.4f}, log loss "
        f"{means['log_loss']:.4f}, {means['seconds']:.2f} s, tuning {about['tuning_seconds']:.0f} "
        "s"
    )


def kept(output: Path) -> list[Run]:
    """Read all runs in a folder."""
    return [json.loads(path.read_text()) for path in sorted((output / "runs").glob("*.json"))]
