"""Compare default fits of twelve sets and twelve functions with stored figures: run it before
changing a default.

    python -m benchmarks.watch [--data DIR] [--only NAME …] [--update REASON]

Every case is fitted by the default estimator with one seed, in about five minutes on one core. A
*set* is red if its error (RMSE ÷ sd of y; for classes, the log loss) is more than 2 % larger than
the stored one, or its NLPD more than .02 nats higher. A *function* of ``benchmarks.traps`` is red
if it is lost now, but was not when the figures were stored: its error against the signal exceeds
``LOST`` times the smaller error of its two rivals, boosting and an exact Gaussian process of 800
rows with two starts. The exit status is 1 if any case is red.

Without ``--data``, only the functions are fitted: the nightly workflow runs these.

``--update`` stores today's figures with the reason for the change, and the errors of the rivals,
which take longer. The figures are those of the last resolved change of a search or a default: lower
accuracy needs a reason in the file.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks import measure
from benchmarks.datasets import read
from benchmarks.traps.functions import TRAPS, Trap, constant
from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import AccuracyWarning, PartirvmWarning

Float = NDArray[np.float64]

STORED = Path(__file__).with_suffix(".json")
"""The stored figures."""

WORSE = 1.02
"""Ratio of a set's error to the stored one from which it is red."""

NATS = 0.02
"""Rise of a set's NLPD from which it is red."""

LOST = 1.15
"""Ratio of a function's error to that of the better rival from which it counts as lost."""

TEST_ROWS = 4000
"""Maximum number of test rows of a set, and the number of new rows of a function."""

PROCESS_ROWS, STEPS = 800, 40
"""Number of rows of the exact Gaussian process, and maximum number of steps from each of its two
starts."""


@dataclass(frozen=True)
class SetCase:
    """A public set.

    Attributes:
        name: the file's name, see ``benchmarks.datasets``. rows: the maximum number of training
        rows; at most four fifths of the rows are training rows. classes: whether the targets are
        classes. options: options of the estimator.
    """

    name: str
    rows: int = 2000
    classes: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def figures(self, folder: str) -> dict[str, float]:
        """Fit random training rows; return the error, the NLPD of numbers, and CPU seconds."""
        X, y = read(folder, self.name)
        order = np.random.default_rng(11).permutation(len(y))
        n_rows = min(self.rows, int(0.8 * len(y)))
        train = order[:n_rows]
        test = order[n_rows : n_rows + TEST_ROWS]
        estimator = RVMClassifier if self.classes else RVMRegressor
        began = time.process_time()
        model = estimator(random_state=0, **self.options).fit(X[train], y[train])
        seconds = time.process_time() - began
        if self.classes:
            return {"error": log_loss(model, X[test], y[test]), "seconds": seconds}
        unit = float(y[train].std())
        mean, std = model.predict(X[test], return_std=True)
        return {**scores((y[test] - mean) / unit, std / unit), "seconds": seconds}


@dataclass(frozen=True)
class TrapCase:
    """A function of ``benchmarks.traps``.

    Attributes:
        trap: the function.
        rows: the number of training rows.
        seed: the seed of the rows.
    """

    trap: Trap
    rows: int = 2000
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the function, with ", turned" if its inputs are rotated, and the seed."""
        return f"{self.trap.name}{', turned' if self.trap.turned else ''}, seed {self.seed}"

    def drawn(self) -> tuple[Float, Float, Float, Float]:
        """Return the training inputs and targets, and new inputs with their signal."""
        rng = np.random.default_rng((self.rows, self.seed))
        X, _, y = self.trap.draw(self.rows, rng)
        X_new, signal, _ = self.trap.draw(TEST_ROWS, rng)
        return X, y, X_new, signal

    def figures(self, folder: str) -> dict[str, float]:
        """Fit the training rows; return the error against the signal, CPU seconds, and 1 if the fit
        warned."""
        X, y, X_new, signal = self.drawn()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PartirvmWarning)
            began = time.process_time()
            model = RVMRegressor(random_state=0).fit(X, y)
            seconds = time.process_time() - began
        warned = any(issubclass(warning.category, AccuracyWarning) for warning in caught)
        return {
            "error": rmse(model.predict(X_new) - signal),
            "seconds": seconds,
            "warned": float(warned),
        }

    def rival(self) -> float:
        """Return the smaller error of boosting and of an exact Gaussian process."""
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        X, y, X_new, signal = self.drawn()
        widths = RBF(np.full(self.trap.d, np.sqrt(self.trap.d)), (1e-2, 1e4))
        kernel = ConstantKernel(1.0) * widths + WhiteKernel(0.1, (1e-6, 2.0))
        options: dict[str, Any] = {
            "optimizer": few_steps,
            "n_restarts_optimizer": 1,
            "random_state": 0,
        }
        process = GaussianProcessRegressor(kernel, normalize_y=True, **options)
        boosting = HistGradientBoostingRegressor(random_state=0).fit(X, y)
        process.fit(X[:PROCESS_ROWS], y[:PROCESS_ROWS])
        return min(rmse(rival.predict(X_new) - signal) for rival in (boosting, process))


def few_steps(objective: Any, start: Float, bounds: Float) -> tuple[Float, float]:
    """Minimise an objective as scikit-learn does, but in at most ``STEPS`` steps."""
    found = minimize(
        objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": STEPS}
    )
    return found.x, found.fun


def rmse(errors: Float) -> float:
    """Return the root mean square of errors (n,)."""
    return float(np.sqrt(np.mean(errors**2)))


def scores(errors: Float, std: Float) -> dict[str, float]:
    """Return the RMSE and the NLPD of errors (n,) with predicted deviations (n,), both in units of
    the target's sd."""
    nats = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * (errors / std) ** 2
    return {"error": rmse(errors), "nlpd": float(nats.mean())}


def log_loss(model: Any, X: Float, y: Float) -> float:
    """Return the mean log loss of a classifier on rows X (n, d) with labels y (n,)."""
    probabilities = model.predict_proba(X)
    codes = np.searchsorted(model.classes_, y)
    return float(-np.log(np.maximum(probabilities[np.arange(len(y)), codes], 1e-15)).mean())


TWO_WAVES = Trap(
    "product of two waves", 8, lambda X: np.sin(2 * X[:, 0]) * np.sin(2 * X[:, 1]), constant(0.1)
)
"""A function that no single feature shows: its mean over either feature is zero."""


def trap(name: str, *, turned: bool = False, seed: int = 0) -> TrapCase:
    """Return the case of a function by its name."""
    (found,) = [each for each in (*TRAPS, TWO_WAVES) if each.name == name and each.turned == turned]
    return TrapCase(found, seed=seed)


SETS = (
    SetCase("abalone"),
    SetCase("airfoil"),
    SetCase("concrete"),
    SetCase("kin40k", 4000),
    SetCase("protein", 4000),
    SetCase("pol", 8000, options={"residual": "none"}),
    SetCase("pumadyn_32nm"),
    SetCase("census_house_8H"),
    SetCase("used_cars"),
    SetCase("energy"),
    SetCase("phoneme", classes=True),
    SetCase("satimage", classes=True),
)

FUNCTIONS = (
    trap("product of waves"),
    trap("product of waves", seed=1),
    trap("product of two waves"),
    trap("product of two waves", seed=1),
    trap("wave of products"),
    trap("ridge", turned=True),
    trap("wave of a ridge", turned=True),
    trap("fast wave of few"),
    trap("two waves"),
    trap("rings"),
    trap("products among twenty"),
    trap("wave among fifty"),
)


def judged(
    case: SetCase | TrapCase, figures: dict[str, float], stored: dict[str, float] | None
) -> str:
    """Return why a case is red, or an empty string."""
    if stored is None:
        return ""
    if isinstance(case, TrapCase):
        lost = figures["error"] > LOST * stored["rival"]
        was_lost = stored["error"] > LOST * stored["rival"]
        return "lost" if lost and not was_lost else ""
    if figures["error"] > WORSE * stored["error"]:
        return f"error {figures['error'] / stored['error'] - 1:+.1%}"
    if "nlpd" in figures and figures["nlpd"] > stored["nlpd"] + NATS:
        return f"NLPD {figures['nlpd'] - stored['nlpd']:+.3f}"
    return ""


COLUMNS = {
    "case": "",
    "error": ".4f",
    "stored": ".4f",
    "nlpd": ".3f",
    "stored nlpd": ".3f",
    "rival": ".3f",
}
COLUMNS |= {"seconds": ".1f", "stored seconds": ".1f", "red": ""}


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, print the table, and return the exit status."""
    parser = measure.command_line(__doc__, required=False)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="names of sets and functions (default: all)"
    )
    parser.add_argument(
        "--update", metavar="REASON", help="store the figures, with the reason for the change"
    )
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", PartirvmWarning)
    file = json.loads(STORED.read_text()) if STORED.exists() else {"reason": "", "figures": {}}
    stored = file["figures"]
    table: list[dict[str, Any]] = []
    cases: tuple[SetCase | TrapCase, ...] = (*SETS, *FUNCTIONS)
    if not options.data:
        measure.say("the sets are left out: --data names the folder of their files")
        cases = FUNCTIONS
    for case in cases:
        if options.only is not None and not any(
            case.name.startswith(name) for name in options.only
        ):
            continue
        figures = case.figures(options.data)
        before = stored.get(case.name)
        red = judged(case, figures, before)
        measure.say(f"{case.name}: {figures['error']:.4f}, {figures['seconds']:.1f} s  {red}")
        old = (
            {} if before is None else {"stored": before["error"], "stored nlpd": before.get("nlpd")}
        )
        seconds = None if before is None else before["seconds"]
        rival = None if before is None else before.get("rival")
        table.append(
            {
                "case": case.name,
                **figures,
                **old,
                "rival": rival,
                "stored seconds": seconds,
                "red": red,
            }
        )
        if options.update is not None:
            stored[case.name] = figures | (
                {"rival": case.rival()} if isinstance(case, TrapCase) else {}
            )
    if options.update is not None:
        file = {"reason": options.update, "machine": measure.machine(), "figures": stored}
        STORED.write_text(json.dumps(file, indent=1) + "\n")
    measure.write(options.output, "watch", table, COLUMNS)
    return int(options.update is None and any(row["red"] for row in table))


if __name__ == "__main__":
    sys.exit(main())
