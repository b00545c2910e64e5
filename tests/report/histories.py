"""Plans and histories of regression and classification fits, as drivers record them."""

import json
import math
from dataclasses import asdict

import numpy as np
from numpy.random import default_rng

from partirvm.core import Termination
from partirvm.spec import Record

ROWS = 400
CHANCE = math.log(3)
"""Log loss of three classes with equal predicted probabilities."""


def entry(
    seconds, *, kind="round", number=1, vectors=24, passes=17, held_out=True, fade=1.0, **changes
):
    """Return a history line for three classes; ``fade`` is the fraction of the initial log loss."""
    facts = {
        "kind": kind,
        "number": number,
        "rows": ROWS,
        "vectors": vectors,
        "candidates": 2 * vectors,
        "iterations": passes,
        "log_evidence": -ROWS * CHANCE * fade - 3.0 * vectors,
        "selection": "gain",
        "termination": Termination.CONVERGED if kind == "final" else Termination.HALVED,
        "noise_variance": None,
        "train_rmse": None,
        "train_log_loss": CHANCE * fade,
        "train_error": round(0.6 * fade * ROWS) / ROWS,
    }
    if held_out:
        facts["held_out_log_loss"] = 1.1 * CHANCE * fade
        facts["held_out_error"] = round(70 * fade) / 100
    record = Record(**(facts | changes))
    spent = {"pass_seconds": 0.03 * passes, "passes": passes, "pass_rows": passes * ROWS}
    spent["solve_seconds"] = 0.2
    line = {**asdict(record), "termination": record.termination.value, "seconds": seconds, **spent}
    return json.loads(json.dumps({**line, "peak_memory": 300 << 20, "saved": kind != "part"}))


def history(strategy, *, held_out=True):
    """Return a strategy's history; split-merge has 8 partitions, the others except basic 5
    rounds."""
    if strategy == "basic":
        return [entry(0.9, kind="final", vectors=14, passes=31, held_out=held_out, fade=0.2)]
    if strategy == "split-merge":
        parts = []
        seconds = 0.0
        for level, fits in enumerate((8, 4, 2)):
            for number in range(1, fits + 1):
                seconds += 0.3
                fade = 0.5 - 0.1 * level + 0.02 * number
                place = {"kind": "part", "number": number, "level": level}
                parts.append(entry(seconds, **place, held_out=False, fade=fade))
        return [
            *parts,
            entry(6.0, kind="final", vectors=14, passes=33, held_out=held_out, fade=0.2),
        ]
    rounds = [
        entry(0.8 * number, number=number, vectors=5 * number, held_out=held_out, fade=0.9 / number)
        for number in range(1, 6)
    ]
    return [
        *rounds,
        entry(5.5, kind="final", number=5, vectors=14, passes=12, held_out=held_out, fade=0.16),
    ]


def numbers(n=500, spread=0.0):
    """Return targets, means and predicted deviations that vary with ``spread``."""
    rng = default_rng(0)
    mean = rng.normal(10, 3, n)
    std = np.exp(spread * rng.normal(size=n))
    return mean + std * rng.normal(size=n), mean, std


def classes(K, n=500):
    """Return codes drawn from the predicted probabilities (n, K)."""
    rng = default_rng(0)
    p = rng.dirichlet(np.full(K, 0.4), n)
    return np.array([rng.choice(K, p=each) for each in p]), p


def regression(line):
    """Return the same history line for a regression."""
    old = {key: value for key, value in line.items() if not key.endswith(("_log_loss", "_error"))}
    return {**old, "noise_variance": 0.25, "noise_sd": 0.5, "train_rmse": 0.5}


def round_of(number=1, seconds=1.0, **changes):
    """Return a regression round as the driver records it."""
    facts = {
        "number": number,
        "seconds": seconds,
        "kind": "round",
        "level": None,
        "rows": 1000,
        "candidates": 50,
        "vectors": 25,
        "train_rmse": 0.5,
        "held_out_rmse": None,
        "log_evidence": -10.0,
        "pass_rows": 1000,
        "pass_seconds": 0.5,
        "peak_memory": 1 << 28,
    }
    return {**facts, **changes}


def plan(strategy="working-set", **changes):
    """Return the JSON of a plan."""
    facts = {
        "strategy": strategy,
        "rows": 400,
        "features": 2,
        "tile_rows": 100,
        "tiles": 4,
        "selection": "gain",
        "fit_rows": "full",
        "sample_rows": None,
        "notes": [],
        "partition_size": 50,
        "partitions": 8,
        "rho": None,
        "rounds": 9,
        "max_rounds": 9,
        "max_vectors": None,
        "max_columns": 900,
        "passes": 120,
        "threads": 2,
        "workers": 1,
        "seconds": 80.0,
        "memory_limit": 512 << 20,
        "memory_peak": 300 << 20,
        "text": "data        400 rows × 2 features, 4 tiles of 100 rows\n"
        "work        120 passes over the rows",
    }
    return {**facts, **changes}
