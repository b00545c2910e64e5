"""Figure 1: how often KRVM_TMB and PFCVM_TMB choose each of 40 features of the waveforms.

The data are those of ``benchmarks.learning.waveform``: waves 1 and 2, 400 rows of a draw, 21
features of signal and 19 of noise, standardised. The paper does not say when γ_d counts as chosen;
the table has several thresholds of γ_d. At threshold 0 a feature is chosen if its γ_d is not at the
bound 0.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.learning.waveform import POINTS, TEST, TRAIN, draw
from benchmarks.tmb.stored import Row, fits
from partirvm.literature.tmb import TMBClassifier

THRESHOLDS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)
"""The last is about 1/√ν, at which β_d reaches its bound."""

PAPER = {
    "krvm": "13 of 21, noise 0.2–0.5",
    "pfcvm": "8 of 21, noise below 0.2",
}

COLUMNS = {
    "system": "", "draws": "d", "threshold": ".2f", "signal > 0.5": "d", "noise mean": ".2f",
    "noise least": ".2f", "noise most": ".2f", "error": ".4f", "vectors": ".1f", "seconds": ".1f", "paper": "",
}  # fmt: skip


def fit(system: str, number: int) -> Row:
    """Fit one draw; return γ (40,), test error and cost."""
    X, y = draw(TRAIN, number)
    X_test, y_test = draw(TEST, 10_000 + number)
    began = time.process_time()
    model = TMBClassifier(system).fit(X, y)
    seconds = time.process_time() - began
    return {
        "gamma": model.gamma_.tolist(),
        "error": 1 - model.score(X_test, y_test),
        "vectors": model.n_relevance_vectors_,
        "seconds": seconds,
    }


def row(system: str, draws: list[Row], threshold: float) -> Row:
    """Return the table row of one threshold."""
    chosen = np.mean([np.array(one["gamma"]) > threshold for one in draws], axis=0)
    signal = chosen[: len(POINTS)]
    noise = chosen[len(POINTS) :]
    return {
        "system": system,
        "draws": len(draws),
        "threshold": threshold,
        "signal > 0.5": int((signal > 0.5).sum()),
        "noise mean": float(noise.mean()),
        "noise least": float(noise.min()),
        "noise most": float(noise.max()),
        "error": float(np.mean([one["error"] for one in draws])),
        "vectors": float(np.mean([one["vectors"] for one in draws])),
        "seconds": float(np.median([one["seconds"] for one in draws])),
        "paper": PAPER[system],
    }


def run(options: Any) -> None:
    """Fit the draws, and write the table."""
    cases = [(system, number) for number in range(options.splits) for system in PAPER]
    rows = fits(Path(options.output, "tmb-figure1-fits.json"), cases, fit, options.minutes)
    table = []
    for system in PAPER:
        draws = [one for one in rows if one["case"][0] == system]
        table += [row(system, draws, threshold) for threshold in THRESHOLDS]
    measure.write(options.output, "tmb_figure1", table, COLUMNS)
