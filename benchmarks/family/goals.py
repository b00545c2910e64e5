"""Small problems with published figures: vectors, error and noise of our fits, and reasons for differences.

Fits have default options except where a case states others; the linear spline kernel, which has no width, is used on
unscaled inputs. A row is: case, draws, vectors (median over the draws), most (maximum of vectors), error (median),
noise (median of the estimated sd, or the variance for mcycle), goal, met, published, why.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.family.data import Float, gaussian_noise, read, sinc, uniform_noise
from partirvm import RVMRegressor
from partirvm.errors import PartirvmWarning

Row = dict[str, Any]

FIXED_NOISE = 0.01
"""Standard deviation that Tipping (2001) fixes for sinc without noise."""

COLUMNS = {
    "case": "",
    "draws": "d",
    "vectors": ".3g",
    "most": "d",
    "error": ".4g",
    "noise": ".4g",
    "goal": "",
    "met": "",
    "published": "",
    "seconds": ".2f",
}


@dataclass(frozen=True)
class Fit:
    """Results of one fit: vectors, error, noise in the case's measure, CPU seconds."""

    vectors: int
    error: float | None
    noise: float
    seconds: float


@dataclass(frozen=True)
class Goal:
    """A case: its fits given folder and draws, the condition of its goal, the published figure, the difference."""

    name: str
    run: Callable[[str, int], Sequence[Fit]]
    text: str
    meets: Callable[[Row], bool]
    published: str
    why: str

    def row(self, folder: str, draws: int) -> Row:
        """The line of the table."""
        fits = self.run(folder, draws)
        errors = [fit.error for fit in fits if fit.error is not None]
        row: Row = {
            "case": self.name,
            "draws": len(fits),
            "vectors": float(np.median([fit.vectors for fit in fits])),
            "most": max(fit.vectors for fit in fits),
            "error": float(np.median(errors)) if errors else None,
            "noise": float(np.median([fit.noise for fit in fits])),
            "seconds": float(np.median([fit.seconds for fit in fits])),
        }
        met = ("yes" if self.meets(row) else "NO") if self.text else ""
        return row | {"goal": self.text, "met": met, "published": self.published, "why": self.why}


def timed(model: RVMRegressor, X: Float, y: Float) -> float:
    """Fit; returns CPU seconds."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)  # mcycle has equal inputs
        model.fit(X, y)
    return time.process_time() - began


def spline(**options: Any) -> RVMRegressor:
    """An RVM with the linear spline kernel on unscaled inputs."""
    return RVMRegressor(kernel="linear-spline", standardize=False, random_state=0, **options)


def without_noise(folder: str, draws: int) -> list[Fit]:
    """Largest error on 1,001 points for 100 training points."""
    X, y = sinc()
    model = spline(noise_variance=FIXED_NOISE**2)
    seconds = timed(model, X, y)
    grid, truth = sinc(1001)
    error = float(np.abs(model.predict(grid) - truth).max())
    return [Fit(model.n_relevance_vectors_, error, model.noise_variance_**0.5, seconds)]


def with_noise(noise: Callable[[int, int], Float]) -> Callable[[str, int], list[Fit]]:
    """RMS error to the true function at the 100 points, one fit per draw of the noise."""

    def run(folder: str, draws: int) -> list[Fit]:
        X, truth = sinc()
        fits = []
        for seed in range(draws):
            model = spline()
            seconds = timed(model, X, truth + noise(len(X), seed))
            error = float(np.sqrt(np.mean((model.predict(X) - truth) ** 2)))
            fits.append(Fit(model.n_relevance_vectors_, error, model.noise_variance_**0.5, seconds))
        return fits

    return run


def motorcycle(bias: bool) -> Callable[[str, int], list[Fit]]:
    """mcycle with kernlab's sigma = 0.1; noise is the variance."""

    def run(folder: str, draws: int) -> list[Fit]:
        model = RVMRegressor(gamma=0.1, standardize=False, fit_intercept=bias, random_state=0)
        seconds = timed(model, *read(folder, "mcycle"))
        return [Fit(model.n_relevance_vectors_, None, model.noise_variance_, seconds)]

    return run


GOALS = (
    Goal(
        "sinc, no noise, σ = 0.01 fixed",
        without_noise,
        "≤ 13 vectors, largest error ≤ 0.015",
        lambda row: row["most"] <= 13 and row["error"] <= 0.015,
        "Tipping (2001): 9, 0.0070",
        "As many vectors; the error is measured on 1,001 points. The evidence, 305.0 nats, hardly tells such fits "
        "apart: other strategies and seeds end with 8 to 11 vectors at 302.8 to 305.8 nats, errors of 0.0064 to 0.012.",
    ),
    Goal(
        "sinc, uniform noise ±0.2",
        with_noise(uniform_noise),
        "median ≤ 9 vectors, RMS error ≤ 0.04",
        lambda row: row["vectors"] <= 9 and row["error"] <= 0.04,
        "Tipping (2001), one draw: 6, 0.0245",
        "One draw against the median of many; the sd of the noise is 0.1155.",
    ),
    Goal(
        "sinc, Gaussian noise of sd 0.2",
        with_noise(gaussian_noise),
        "",
        lambda row: True,
        "KTH report, one draw: 11, σ̂ = 0.205",
        "One draw against the median of many. Here a fit ends when the evidence stands still, and then drops columns "
        "that it would rather be without; when the report's ended is not known.",
    ),
    Goal(
        "mcycle, gamma = 0.1",
        motorcycle(True),
        "4–8 vectors, noise variance 440–520",
        lambda row: 4 <= row["vectors"] <= 8 and 440 <= row["noise"] <= 520,
        "kernlab: 5, 497",
        "kernlab has no bias and leaves the target's mean in it; here the mean is removed and a bias offered.",
    ),
    Goal(
        "mcycle, no bias",
        motorcycle(False),
        "",
        lambda row: True,
        "kernlab: 5, 497",
        "Not kernlab's model either: the mean (−25.5) is removed all the same, and vectors must hold the flat part "
        "before 14 ms at +25.5. On the target as it is a dense MacKay iteration ends with 6 vectors (4 places), 475.",
    ),
)
