"""How much each number of the kernel search with an exact process matters.

    python -m benchmarks.traps.sensitivity --data DIR [--seeds 3] [--numbers NAME …] [--output FOLDER]

A line of the table is one changed number. ``RVMRegressor()`` is fitted to 200 rows of eight public sets and of the
functions of ``benchmarks.traps``; the columns compare with the numbers as they are:

sets     geometric mean of the RMSE on other rows, relative
largest  largest such ratio of one fit
traps    geometric mean of the RMSE against the signal, relative
lost     number of functions whose RMSE is more than 1.15 times as large
CPU      mean CPU seconds of a fit, relative
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks import datasets, measure
from benchmarks.traps.functions import TRAPS
from partirvm import RVMRegressor
from partirvm.errors import PartirvmWarning
from partirvm.learning import exact_process, process_search

Float = NDArray[np.float64]

SETS = ("auto", "boston", "concrete", "airfoil", "abalone", "pumadyn_8nm", "kin40k", "protein")
ROWS, NEW_ROWS, FIRST_SEED = 200, 4000, 50

NUMBERS: dict[str, tuple[Any, ...]] = {
    "NARROW_SD": (1.0, 4.0, 1e9),
    "NOISE_SD": (1.0, 4.0, 1e9),
    "NOISE_SHARE": (0.03, 0.3),
    "STARTS": ((1.0,), (0.5, 1.0, 2.0), (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
    "FIRST_NOISE": (0.001, 0.1),
    "JITTER": (0.1, 1.0),
    "SCREENED": (0,),
    "KEPT": (1, 4),
    "TURNS": (1, 6),
    "STEPS": (10, 40),
    "FIRST_STEPS": (8, 50),
    "STARTS_CLIMBED": (1, 6),
    "LEFT_OUT": (200, 1000),
}

COLUMNS = {"number": "", "value": "", "sets": ".3f", "largest": ".2f", "traps": ".3f", "lost": "d", "CPU": ".2f"}


@contextmanager
def changed(name: str, value: Any) -> Iterator[None]:
    """Change one number of the search."""
    module = exact_process if hasattr(exact_process, name) else process_search
    with patch.object(module, name, value):
        yield


def cases(folder: str, seeds: int) -> Iterator[tuple[bool, Float, Float, Float, Float]]:
    """Yield whether a case is a trap, and its rows and new rows."""
    for name in SETS:
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            split = datasets.load_random(folder, name, ROWS, 192 if name == "auto" else 300, seed)
            yield False, split.X, split.y, split.X_test, split.y_test
    for trap in TRAPS:
        rng = np.random.default_rng((ROWS, 7))
        (X, _, y), (X_new, signal, _) = trap.draw(ROWS, rng), trap.draw(NEW_ROWS, rng)
        yield True, X, y, X_new, signal


def errors(folder: str, seeds: int) -> tuple[Float, Float, float]:
    """Return the RMSE of each case of the sets and of the traps, and the mean CPU seconds."""
    found: tuple[list[float], list[float]] = ([], [])
    began = time.process_time()
    for is_trap, X, y, X_new, truth in cases(folder, seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartirvmWarning)
            mean = RVMRegressor(random_state=0).fit(X, y).predict(X_new)
        found[is_trap].append(float(np.sqrt(np.mean((mean - truth) ** 2))))
    seconds = (time.process_time() - began) / sum(map(len, found))
    return np.array(found[0]), np.array(found[1]), seconds


def main(arguments: list[str] | None = None) -> None:
    """Change one number after the other; write the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the public sets")
    parser.add_argument("--seeds", type=int, default=3, help="draws of each set (default: 3)")
    parser.add_argument("--numbers", nargs="+", metavar="NAME", help="numbers to change (default: all)")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    sets, traps, seconds = errors(options.data, options.seeds)
    table: list[dict[str, Any]] = []
    for name in options.numbers or NUMBERS:
        for value in NUMBERS[name]:
            with changed(name, value):
                own = errors(options.data, options.seeds)
            table.append(
                {
                    "number": name,
                    "value": str(value),
                    "sets": float(np.exp(np.log(own[0] / sets).mean())),
                    "largest": float((own[0] / sets).max()),
                    "traps": float(np.exp(np.log(own[1] / traps).mean())),
                    "lost": int((own[1] > 1.15 * traps).sum()),
                    "CPU": own[2] / seconds,
                }
            )
            measure.write(options.output, "sensitivity", table, COLUMNS)


if __name__ == "__main__":
    main()
