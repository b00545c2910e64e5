"""Fits with and without an active set: time, accuracy and vectors, as in Table 6 of the TMB paper.

    python -m benchmarks.learning.active_set --data DIR --output DIR [--repeats 3] [--minutes 5]

The sets are small, so that all N rows can be candidates at once (``basic``: no active set). The other fits are working
sets that differ only in ``selection``: algorithm 1 of the paper as ``partirvm.literature.active_set`` interprets it,
with the paper's bound ν = e⁵ or with α = 1 outside the active set, and the selections of this library. All fits of a
split have the same width, which is learned once and not counted in the times, and P = 50 candidates a round. Regression
uses 70 % of the rows as training rows (1,000 rows of abalone); the error is RMSE in units of the sd of the training
target. Classification uses the public splits of Ripley's sets; the error is the fraction of wrong classes. Every line
is a mean over random splits, or the result of the public split. ``candidates`` is the number of rows that were
candidates, over all rounds.

Measured on two random splits (algorithm 1 on one), or on the public split; error and number of candidates:

    ========  =====  ===========  ===================  ==========================  ===========  ===========
    set       rows   all rows     algorithm 1, ν = e⁵  algorithm 1, α = 1 outside  gain         error
    ========  =====  ===========  ===================  ==========================  ===========  ===========
    boston      354  0.350        0.356, 20            0.327, 47                   0.340, 350   0.349, 350
    concrete    721  0.375        0.456, 20            0.456, 21                   0.372, 690   0.373, 704
    airfoil   1,052  0.378        0.642, 20            0.551, 84                   0.393, 875   0.396, 825
    abalone   1,000  0.685        0.704, 20            0.704, 20                   0.701, 675   0.833, 625
    ripley      250  0.102        0.088, 20            0.088, 20                   0.101, 250   0.092, 250
    pima        200  0.202        0.208, 20            0.208, 20                   0.214, 150   0.211, 150
    ========  =====  ===========  ===================  ==========================  ===========  ===========

With the bound, the literal algorithm ends after its first set: the weights of all other rows are held at almost zero by
α = ν, and none exceeds δ = 0.5 standard deviations of the target. Its evidence is 45 to 325 nats below that of all rows
on boston, concrete and airfoil. With α = 1 outside it goes on for up to 4 rounds, and on concrete and airfoil it stops
before it reaches the error of the other fits. On abalone one test row, far from all others, makes the difference
between 0.70 and 0.83.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from benchmarks import measure
from benchmarks.measure import say
from partirvm import Basic, RVMClassifier, RVMRegressor, WorkingSet
from partirvm.errors import PartirvmWarning
from partirvm.literature.active_set import active_set

Float = NDArray[np.float64]

SETS = {"boston": 0.7, "concrete": 0.7, "airfoil": 0.7, "abalone": 1000, "ripley_synth": None, "pima_ripley": None}
"""The training rows of each set: a fraction, a number, or None for the public split."""

NU = math.exp(5)
"""The paper's bound of α, in its units."""

WAYS: dict[str, Any] = {
    "none: all rows at once": Basic(),
    "algorithm 1, ν = e⁵": NU,
    "algorithm 1, α = 1 outside": None,
    **{selection: WorkingSet(selection) for selection in ("gain", "error", "largest-error", "random")},
}
"""Strategies by the names of the table; for algorithm 1 the bound."""

P = 50
MOST_TEST = 2000


def split(folder: str, name: str, repeat: int) -> tuple[Float, Any, Float, Any]:
    """Return the training and test rows of split number ``repeat`` of a set."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        X, y, share = file["X"], file["y"], SETS[name]
        if share is None:
            train, test = file["train_idx"][0], file["test_idx"][0]
            return X[train], y[train], X[test], y[test]
    order = np.random.default_rng(repeat).permutation(len(y))
    n = int(share) if share > 1 else int(share * len(y))
    return X[order[:n]], y[order[:n]], X[order[n:][:MOST_TEST]], y[order[n:][:MOST_TEST]]


def compare(folder: str, name: str, repeat: int) -> list[dict[str, Any]]:
    """Return one line for each variant on this split."""
    X, y, X_test, y_test = split(folder, name, repeat)
    kind = RVMClassifier if SETS[name] is None else RVMRegressor
    gamma = kind(gamma="learn", max_rounds=1, random_state=repeat).fit(X, y).gamma_
    rows = []
    for way, strategy in WAYS.items():
        began = time.perf_counter()
        literal = strategy is None or isinstance(strategy, float)
        if literal:
            found = active_set(kind(random_state=repeat), X, y, gamma=gamma, bound=strategy, most=P)
            model = found.estimator
        else:
            model = kind(gamma=gamma, partition_size=P, random_state=repeat, strategy=clone(strategy, safe=False))
            model.fit(X, y)
        seconds = time.perf_counter() - began
        answer = model.predict(X_test)
        wrong = np.mean(answer != y_test) if SETS[name] is None else np.sqrt(np.mean((answer - y_test) ** 2)) / y.std()
        fits = [entry for entry in model.history_ if entry["kind"] in ("round", "final")]
        vectors = [0, *(entry["vectors"] for entry in fits)]
        new = [max(entry["candidates"] - before, 0) for entry, before in zip(fits, vectors, strict=False)]
        rows.append(
            {
                "set": name,
                "rows": len(X),
                "way": way,
                "error": float(wrong),
                "vectors": len(found.active) if literal else model.n_relevance_vectors_,
                "candidates": found.candidates if literal else sum(new),
                "rounds": found.rounds if literal else fits[-1]["number"],
                "passes": sum(entry.get("passes", 0) for entry in model.history_),
                "log evidence": model.log_evidence_,
                "seconds": seconds,
            }
        )
    return rows


def mean(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average the lines of each set and variant."""
    keys = list(dict.fromkeys((row["set"], row["way"]) for row in rows))
    groups = [[row for row in rows if (row["set"], row["way"]) == key] for key in keys]
    return [
        {
            name: value if isinstance(value, str) else float(np.mean([row[name] for row in group]))
            for name, value in group[0].items()
        }
        | {"splits": len(group)}
        for group in groups
    ]


COLUMNS = {"set": "", "rows": ".0f", "splits": "d", "way": "", "error": ".4f", "vectors": ".1f", "candidates": ".0f"}
COLUMNS |= {"rounds": ".1f", "passes": ".0f", "log evidence": ".1f", "seconds": ".2f"}


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    parser.add_argument("--repeats", type=int, default=3, help="number of splits of each set (default: 3)")
    parser.add_argument("--minutes", type=float, default=5, help="minutes after which no split starts (default: 5)")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    names = [name for name in SETS if Path(options.data, f"{name}.npz").exists()]
    warnings.simplefilter("ignore", PartirvmWarning)
    for repeat in range(options.repeats):
        for name in names:
            if (SETS[name] is None and repeat) or time.perf_counter() - began > 60 * options.minutes:
                continue
            rows += compare(options.data, name, repeat)
            say(f"{name}, split {repeat}: {time.perf_counter() - began:.0f} s")
    order = {name: place for place, name in enumerate(SETS)}
    measure.write(options.output, "active_set", sorted(mean(rows), key=lambda row: order[row["set"]]), COLUMNS)


if __name__ == "__main__":
    main()
