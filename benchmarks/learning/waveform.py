"""Which features are selected, on Breiman's waveforms: the experiment of the TMB paper's Figure 1.

    python -m benchmarks.learning.waveform --output DIR [--sets 30] [--minutes 15]

Classes 1 and 2 of the three waves of Breiman et al. (1984, "Classification and regression trees", §2.6.2): a row is
u·h1 + (1 − u)·h2 + ε in the one and u·h1 + (1 − u)·h3 + ε in the other, with u uniform in [0, 1], ε standard normal,
and triangular base waves of 21 points (``WAVES``). 19 features of noise, standard normal, follow. 400 rows train, 2,000
fresh ones test; each set has its own draw.

Features 1 and 21 carry almost no signal: the base waves are 0 there. A feature is selected where its relevance is at
least ``threshold``. Reported for each setting: how many of the 21 signal features are selected in more than half of the
sets, the mean and the range of the noise features' frequencies, test error, vectors, evaluations and seconds. Fits stay
in waveform-fits.json, and are not done again. The paper has, read from its figure: KRVM (a width per feature, flat)
more than 0.5 on 13 features of signal with noise between 0.2 and 0.5; PFCVM (half-normal) on 8 of them, with noise
below 0.2.

Measured over 30 sets, the signal features above 0.5 and the noise features' mean, range: flat 17, 0.35, 0.17–0.57, test
error 0.0952; half-normal 8, 0.02, 0–0.07, error 0.0965: more than KRVM's and as many as PFCVM's. Which feature of noise
stays on is a matter of the rows that are centres, so two draws of these tell: with the geometric mean of their
relevances ≥ 0.01 there are 16 of signal and noise 0.18, 0–0.30: more than KRVM's 13, and twice PFCVM's 8 with noise
that is below 0.2 in the mean, if not for each feature. Of one draw, relevance ≥ 0.2 has 10 with noise 0.07, 0–0.17.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure, sheets
from benchmarks.measure import say
from partirvm import Gaussian, RVMClassifier
from partirvm.errors import PartirvmWarning

Float = NDArray[np.float64]

POINTS = np.arange(1, 22)
WAVES = np.array([np.maximum(6 - np.abs(POINTS - peak), 0) for peak in (7, 15, 11)], dtype=float)
"""h1, h2 and h3: triangles of height 6 about points 7, 15 and 11."""

NOISE = 19
DRAWS = 2
LEAST = 1e-6
"""Relevance that counts as 0 in a geometric mean."""

TRAIN, TEST = 400, 2000


@dataclass(frozen=True)
class Setting:
    """How widths are learned, and from which relevance on a feature counts as selected.

    Of several ``draws`` (seeds of the rows that are centres) the geometric mean of the relevances counts.
    """

    name: str
    prior: str
    threshold: float
    draws: int = 1


SETTINGS = (
    Setting("flat", "flat", 1e-3),
    Setting("half-normal", "half-normal", 1e-3),
    Setting("flat, relevance ≥ 0.2", "flat", 0.2),
    Setting("flat, two draws ≥ 0.01", "flat", 0.01, DRAWS),
)
PAPER = {"flat": "KRVM: 13 > 0.5, noise 0.2–0.5", "half-normal": "PFCVM: 8 > 0.5, noise < 0.2"}


def draw(n: int, seed: int) -> tuple[Float, NDArray[np.int64]]:
    """``n`` rows (n, 40), half of each class, and the classes (n,), 1 or 2."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.arange(n) % 2) + 1
    u = rng.random((n, 1))
    signal = u * WAVES[0] + (1 - u) * WAVES[classes] + rng.normal(size=(n, len(POINTS)))
    return np.hstack([signal, rng.normal(size=(n, NOISE))]), classes


def fit(prior: str, number: int, seed: int) -> dict[str, Any]:
    """Fit set ``number`` with this seed; relevances (40,) and what it took."""
    X, y = draw(TRAIN, number)
    X_test, y_test = draw(TEST, 10_000 + number)
    model = RVMClassifier(kernel=Gaussian("learn-per-feature", prior), random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)  # of rows far from all vectors: 40 features
        model.fit(X, y)
        error = 1 - model.score(X_test, y_test)
    return {
        "set": number,
        "prior": prior,
        "seed": seed,
        "relevance": model.feature_relevance_.tolist(),
        "error": error,
        "vectors": model.n_relevance_vectors_,
        "evaluations": sum(entry["iterations"] for entry in model.history_ if entry["kind"] == "kernel"),
        "seconds": time.perf_counter() - began,
    }


def of(fits: list[dict[str, Any]], setting: Setting) -> list[list[dict[str, Any]]]:
    """The fits of this setting, those of a set together; sets that lack some are left out."""
    mine = [one for one in fits if one["prior"] == setting.prior and one["seed"] < setting.draws]
    sets = [[one for one in mine if one["set"] == number] for number in sorted({one["set"] for one in mine})]
    return [together for together in sets if len(together) == setting.draws]


def frequencies(fits: list[dict[str, Any]], setting: Setting) -> Float:
    """How often each feature (40,) is selected."""
    relevance = np.array([[one["relevance"] for one in together] for together in of(fits, setting)])
    mean = np.exp(np.log(np.maximum(relevance, LEAST)).mean(axis=1))
    return np.asarray((mean >= setting.threshold).mean(axis=0))


def row(fits: list[dict[str, Any]], setting: Setting) -> dict[str, Any]:
    """A setting's line of the table."""
    sets = of(fits, setting)
    mine = [one for together in sets for one in together]
    often = frequencies(fits, setting)
    signal, noise = often[: len(POINTS)], often[len(POINTS) :]
    return {
        "setting": setting.name,
        "sets": len(sets),
        "signal > 0.5": int((signal > 0.5).sum()),
        "noise mean": float(noise.mean()),
        "noise least": float(noise.min()),
        "noise most": float(noise.max()),
        "features 1, 21": f"{signal[0]:.2f}, {signal[-1]:.2f}",
        "test error": float(np.mean([one["error"] for one in mine])),
        "vectors": float(np.mean([one["vectors"] for one in mine])),
        "evaluations": float(np.mean([one["evaluations"] for one in mine])),
        "seconds": float(np.median([one["seconds"] for one in mine])),
        "paper": PAPER.get(setting.name, ""),
    }


COLUMNS = {"setting": "", "sets": "d", "signal > 0.5": "d", "noise mean": ".2f", "noise least": ".2f"}
COLUMNS |= {"noise most": ".2f", "features 1, 21": "", "test error": ".4f", "vectors": ".1f", "evaluations": ".0f"}
COLUMNS |= {"seconds": ".1f", "paper": ""}


def figure(fits: list[dict[str, Any]], path: Path) -> None:
    """Bars of the selection frequency by feature, a panel for each setting."""
    title = f"Waveform: how often features are selected in {len({one['set'] for one in fits})} sets"
    drawn, axes = sheets.sheet(len(SETTINGS), title, 1, (8, 2.0))
    for axis, setting in zip(axes, SETTINGS, strict=True):
        often = frequencies(fits, setting)
        colours = ["#357a5b"] * len(POINTS) + ["#9a9a9a"] * NOISE
        axis.bar(np.arange(1, len(often) + 1), often, color=colours, width=0.75)
        axis.axhline(0.5, color=sheets.INK, linewidth=0.7, linestyle=":")
        axis.set(ylim=(0, 1), xlim=(0.2, len(often) + 0.8), ylabel="frequency", xticks=[1, *range(5, 41, 5)])
        axis.set_title(setting.name, fontsize=9, loc="left")
    axes[-1].set_xlabel("feature (1–21: waves and noise; 22–40: noise alone)")
    sheets.save(drawn, path)


def main(arguments: list[str] | None = None) -> None:
    """Run it and write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="benchmarks/results", help="folder of what comes out (benchmarks/results)")
    parser.add_argument("--sets", type=int, default=30, help="sets (30)")
    parser.add_argument("--minutes", type=float, default=15, help="begin no fit after so long (15)")
    options = parser.parse_args(arguments)
    kept = Path(options.output, "waveform-fits.json")
    kept.parent.mkdir(parents=True, exist_ok=True)
    fits = json.loads(kept.read_text()) if kept.exists() else []
    began, done = time.perf_counter(), {(one["prior"], one["seed"], one["set"]) for one in fits}
    for prior, seed in (("flat", 0), ("half-normal", 0), *(("flat", seed) for seed in range(1, DRAWS))):
        for number in range(options.sets):
            if (prior, seed, number) in done or time.perf_counter() - began > 60 * options.minutes:
                continue
            fits.append(fit(prior, number, seed))
            kept.write_text(json.dumps(fits))
            say(f"set {number}, {prior}: error {fits[-1]['error']:.4f}, {fits[-1]['seconds']:.1f} s")
    rows = [row(fits, setting) for setting in SETTINGS]
    measure.write(options.output, "waveform", rows, COLUMNS)
    figure(fits, Path(options.output, "waveform.png"))


if __name__ == "__main__":
    main()
