"""Experiments from Tipping (2001), §4.1 and §4.2, and the softmax.

    python -m benchmarks.tipping --data DIR [--draws 100] [--output FOLDER]

sinc           100 equidistant points of [−10, 10], linear spline kernel. Without noise σ is fixed at 0.01, and the
               error is the largest one on 1,001 points. With noise, uniform on ±0.2, it is the RMS error to the truth;
               the paper has one draw, and ``share`` is the share of draws whose error is at most the paper's.
ripley         100 random rows of Ripley's 250, a Gaussian kernel of radius 0.5 (γ = 4), errors on 1,000 test rows
as written     the same by ``partirvm.literature``: MacKay's updates, and those of expectation maximisation (EM)
               with a cap of its own; columns are deleted by the threshold of α only. ``gap`` is the log evidence below
               MacKay's on the same draw, ``determined`` the number of weights with γ > 0.01
first draw     the first noisy sinc by MacKay's updates alone
softmax        an α for each vector, beside the default and an α for each class and vector (eq. 28);
               log loss and error on held-out rows of iris, 300 rows of digits and 150 of pendigits

DIR contains ripley_synth.npz and pendigits.npz; if one is missing, its rows are left out.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from benchmarks.family.data import sinc, uniform_noise
from benchmarks.measure import command_line, say, write
from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import PartirvmWarning
from partirvm.kernels import Gaussian, LinearSpline
from partirvm.literature.softmax import TippingClassifier
from partirvm.literature.tipping import TippingRegressor

Float = NDArray[np.float64]
Row = dict[str, Any]

COLUMNS = {
    "case": "", "draws": "d", "printed": "", "vectors": ".1f", "determined": ".1f", "error": ".4f", "error_sd": ".4f",
    "share": ".0%", "gap": ".2f", "seconds": ".2f",
}  # fmt: skip

SOFTMAX_COLUMNS = {
    "data": "", "rows": "d", "likelihood": "", "log_loss": ".4f", "error": ".4f", "vectors": "d", "seconds": ".1f",
}  # fmt: skip

SHARED = {
    "multinomial": "α of each vector",
    "auto": "default",
    "own": "α of each class and vector",
}
"""Values of ``likelihood`` and their names."""


def over(case: str, printed: str, best: float | None, fits: list[tuple[int, float, float]]) -> Row:
    """Return a row of the table: mean vectors and seconds, median and sd of the error."""
    vectors, errors, seconds = (np.array(each) for each in zip(*fits, strict=True))
    row: Row = {
        "case": case,
        "draws": len(fits),
        "printed": printed,
        "vectors": float(vectors.mean()),
    }
    row |= {"error": float(np.median(errors)), "seconds": float(seconds.mean())}
    if len(fits) > 1:
        row["error_sd"] = float(errors.std(ddof=1))
        row["share"] = None if best is None else float(np.mean(errors <= best))
    return row


def timed(model: Any, X: Float, y: Any, error: Callable[[Any], float]) -> tuple[int, float, float]:
    """Fit, and return vectors, error and seconds."""
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    last = model[-1] if isinstance(model, Pipeline) else model
    return last.n_relevance_vectors_, error(model), seconds


def spline(noise: str | float = "constant", **options: Any) -> RVMRegressor:
    """Return an RVM with the linear spline kernel on unscaled inputs."""
    return RVMRegressor(
        kernel="linear-spline", standardize=False, noise=noise, strategy="basic", **options
    )


def regressions(draws: int) -> list[Row]:
    """Return the rows of sinc."""
    X, truth = sinc()
    grid, exact = sinc(1001)

    def largest(model: Any) -> float:
        return float(np.abs(model.predict(grid) - exact).max())

    quiet = timed(spline(noise=1e-4), X, truth, largest)
    rows = [over("sinc, no noise, σ = 0.01", "9 vectors, largest error 0.0070", None, [quiet])]

    def rms(model: Any) -> float:
        return float(np.sqrt(np.mean((model.predict(X) - truth) ** 2)))

    noisy = [timed(spline(), X, truth + uniform_noise(100, seed), rms) for seed in range(draws)]
    rows.append(
        over("sinc, uniform noise ±0.2", "6 vectors, RMS error 0.0245 (one draw)", 0.0245, noisy)
    )
    fit = timed(spline(solver="fixed-point"), X, truth + uniform_noise(100, 0), rms)
    rows.append(over("first draw, mackay alone", "", None, [fit]))
    return rows


EM_DRAWS = 5
"""Number of draws of the noise that EM fits: a fit takes thousands of steps."""


def as_written(draws: int) -> list[Row]:
    """Return the rows of sinc by the literature's own updates."""
    X, truth = sinc()
    grid, exact = sinc(1001)
    rows = []
    for updates in ("mackay", "em"):
        model = TippingRegressor(LinearSpline(), noise_variance=1e-4, updates=updates)
        fit = timed(model, X, truth, lambda model: float(np.abs(model.predict(grid) - exact).max()))
        row = over(f"sinc, no noise, {updates} as written", "9 vectors, 0.0070", None, [fit])
        rows.append({**row, "determined": determined(model)})
    evidence = {}
    for updates, count in (("mackay", draws), ("em", min(draws, EM_DRAWS))):
        fits = []
        models = []
        for seed in range(count):
            model = TippingRegressor(LinearSpline(), updates=updates)
            noisy = truth + uniform_noise(100, seed)
            fits.append(
                timed(
                    model,
                    X,
                    noisy,
                    lambda model: float(np.sqrt(np.mean((model.predict(X) - truth) ** 2))),
                )
            )
            models.append(model)
        evidence[updates] = np.array([model.log_evidence_ for model in models])
        row = over(f"sinc, noisy, {updates} as written", "6 vectors, 0.0245", 0.0245, fits)
        row["determined"] = float(np.mean([determined(model) for model in models]))
        rows.append(row)
    rows[-1]["gap"] = float(np.mean(evidence["mackay"][: len(evidence["em"])] - evidence["em"]))
    return rows


def determined(model: TippingRegressor) -> float:
    """Return the number of weights with γ above 0.01."""
    gamma = 1 - model.alpha_ * np.diag(model.covariance_)
    return float(np.sum(gamma[model.labels_ >= 0] > 0.01))


def ripley(folder: str, draws: int) -> list[Row]:
    """Return the row of Ripley's classes."""
    path = Path(folder, "ripley_synth.npz")
    if not path.exists():
        return []
    with np.load(path) as file:
        X = file["X"]
        y = file["y"]
        train = file["train_idx"][0]
        test = file["test_idx"][0]
    rows = []
    for name, make in (
        ("Ripley, r = 0.5", lambda: RVMClassifier(gamma=4.0, standardize=False, strategy="basic")),
        ("Ripley, as written", lambda: TippingClassifier(Gaussian(4.0))),
    ):
        fits = []
        for seed in range(draws):
            sample = np.random.default_rng(seed).permutation(train)[:100]
            fits.append(
                timed(
                    make(),
                    X[sample],
                    y[sample],
                    lambda model: float(np.mean(model.predict(X[test]) != y[test])),
                )
            )
        rows.append(over(name, "4 vectors, error 0.093 (one draw)", 0.093, fits))
    return rows


def sets(folder: str) -> dict[str, tuple[Float, Any]]:
    """Return inputs and labels of the sets of several classes."""
    from sklearn.datasets import load_digits, load_iris

    found = {"iris": load_iris(return_X_y=True), "digits": load_digits(return_X_y=True)}
    if Path(folder, "pendigits.npz").exists():
        with np.load(Path(folder, "pendigits.npz")) as file:
            found["pendigits"] = file["X"], file["y"]
    return found


MOST_ROWS = {"digits": 300, "pendigits": 150}
"""Maximum number of training rows: with an α for each class and vector, the first Newton steps
solve a system of rows × classes unknowns."""


def own_alpha(X: Float) -> Any:
    """Return the classifier with an α for each class and vector, on standardised inputs; γ is 1/d
    for inputs of unit variance, as scikit-learn's "scale"."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    varying = int(np.sum(X.std(axis=0) > 0))
    classifier = TippingClassifier(Gaussian(1.0 / varying), max_iter=100)
    return make_pipeline(StandardScaler(), classifier)


def softmax(folder: str) -> list[Row]:
    """Return the rows of the classes."""
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    rows = []
    for name, (X, y) in sets(folder).items():
        size = min(MOST_ROWS.get(name, 1500), int(0.6 * len(y)))
        X, new, y, truth = train_test_split(X, y, train_size=size, random_state=0, stratify=y)
        for likelihood, title in SHARED.items():
            model = (
                own_alpha(X)
                if likelihood == "own"
                else RVMClassifier(likelihood=likelihood, random_state=0)
            )
            vectors, error, seconds = timed(
                model,
                X,
                y,
                lambda model, new=new, truth=truth: float(np.mean(model.predict(new) != truth)),
            )
            loss = float(log_loss(truth, model.predict_proba(new), labels=model.classes_))
            row = {
                "data": name,
                "rows": size,
                "likelihood": title,
                "log_loss": loss,
                "error": error,
            }
            rows.append(row | {"vectors": vectors, "seconds": seconds})
            say(f"{name}, {title}: log loss {loss:.4f}")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the experiments and write the tables."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--draws", type=int, default=100, help="number of draws of noise and of rows (default: 100)"
    )
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", PartirvmWarning)
    rows = [*regressions(options.draws), *as_written(options.draws)]
    rows += ripley(options.data, min(options.draws, 20))
    write(options.output, "tipping", rows, COLUMNS)
    write(options.output, "softmax", softmax(options.data), SOFTMAX_COLUMNS)


if __name__ == "__main__":
    main()
