"""A likelihood that only a test registers is selected by its name and fitted by every strategy.

Student's t with ν = 4 degrees of freedom, for targets with outliers: a residual r is Gaussian with
the row weight u = (ν + 1) / (ν + β r²) (Dempster, Laird & Rubin 1980). Passes return Gram
statistics of the rows weighted at the last mean; the mean converges to the mode.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from partirvm import RVMRegressor, ingest, jobs
from partirvm.core import GramBlock, GramStatistics, HyperState, StopRule, Termination, maximise
from partirvm.errors import UsageError
from partirvm.kernels import Design
from partirvm.likelihoods import LIKELIHOODS, GaussianLikelihood
from partirvm.options import Request
from partirvm.spec import Pass, PassFit, survivors
from partirvm.strategies import STRATEGIES

NU, UPDATES = 4.0, 30
"""ν, and the number of passes followed by updates of α and β; the same number of passes finds the
mode."""


@dataclass(frozen=True)
class StudentPass(Pass, name="reweighted gram", designs=("design",)):
    """Gram products of all columns, with rows weighted by their residuals from the mean (M,)."""

    design: Design
    mean: np.ndarray
    beta: float

    def of_panel(self, panel, block):
        target = self.design.scaling.targets(panel.t)
        u = (NU + 1) / (NU + self.beta * (target[:, 0] - block @ self.mean) ** 2)
        return GramBlock.of(
            block[:, :0], block, target, u if panel.weights is None else u * panel.weights
        )


@dataclass(frozen=True)
class StudentFit(PassFit):
    """A fit that begins with a mean of zero."""

    design: Design
    current: HyperState
    rule: StopRule
    rows: Any
    passes: int = 0

    @property
    def fit(self):
        return self.current

    @property
    def reason(self):
        return Termination.CONVERGED if self.passes == 2 * UPDATES else None

    @property
    def next_pass(self):
        return StudentPass(
            survivors(self.design, self.fit), self.fit.posterior.mean, self.fit.beta, rows=self.rows
        )

    def advance(self, block, poll=lambda: None):
        fit = self.fit.restarted(
            GramStatistics.of(self.fit.labels, block), self.fit.alpha, self.fit.beta
        )
        if self.passes < UPDATES:
            fit, _ = maximise(fit, replace(self.rule, guard=False, max_iterations=10))
        return replace(self, current=fit, passes=self.passes + 1)


@dataclass(frozen=True)
class StudentLikelihood(GaussianLikelihood):
    """A numeric target with t-distributed noise; the evidence is computed from the weighted
    rows."""

    name: str = "student"
    words: tuple[str, ...] = ("student",)

    def measure(self, *args):
        return ()

    def join(self, problem, fit, *args, **about):
        return fit

    def fit(self, problem, options, design, fit, rule, rows, warm):
        M = design.n_columns
        nothing = GramBlock(
            np.zeros((0, M)), np.zeros((M, M)), np.zeros((M, 1)), np.zeros(1), 0, 0.0
        )
        statistics = GramStatistics.of(design.all_labels, nothing)
        first = fit.restarted(statistics, np.full(M, 1 / fit.target_variance), fit.beta)
        return StudentFit(design, first, rule, rows)

    def settling(self, *args, **about):
        return ()

    def settle(self, fit, *statistics, last):
        return fit


N = 240

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

ASKED = {
    "strategy": "working-set",
    "partition_size": 30,
    "selection": "random",
    "gamma": 1.0,
    "max_rounds": 4,
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Register the likelihood, changing only the package's registry."""
    monkeypatch.setitem(LIKELIHOODS, "student", StudentLikelihood())


@pytest.fixture(scope="module")
def rows():
    """Return a sine with little noise, in which one row in ten is an outlier."""
    rng = default_rng(7)
    X = np.sort(rng.uniform(-4, 4, (N, 1)), axis=0)
    clean = np.sin(1.5 * X[:, 0])
    off = rng.uniform(size=N) < 0.1
    return X, clean + 0.05 * rng.normal(size=N) + off * rng.normal(scale=4.0, size=N), clean


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    """Return the same rows as DATA."""
    place = tmp_path_factory.mktemp("third") / "d.zarr"
    ingest((rows[0], rows[1]), place, tile_rows=64, shuffle=3)
    return str(place)


def assert_mode(model, X, y):
    """Assert that the mean maximises −½(ν + 1) Σ log(1 + β r²/ν) − ½ wᵀAw, as found by BFGS."""
    scaling = model.design.scaling
    Phi = model.design.block(X)
    t = (y - scaling.t_shift) / scaling.t_scale
    beta = float(scaling.t_scale[0]) ** 2 / model.evidence_noise

    def negative(w):
        r = t - Phi @ w
        value = 0.5 * (NU + 1) * np.log1p(beta * r**2 / NU).sum() + 0.5 * model.alpha @ w**2
        return value, model.alpha * w - Phi.T @ ((NU + 1) * beta * r / (NU + beta * r**2))

    dense = minimize(negative, model.mean + 1e-3, jac=True, method="BFGS", options={"gtol": 1e-8})
    assert_allclose(Phi @ model.mean, Phi @ dense.x, atol=1e-4)


@pytest.mark.parametrize(
    ("strategy", "selection"),
    some(
        [
            *((strategy, "random") for strategy in STRATEGIES),
            ("working-set", "error"),
            ("working-set", "gain"),
        ],
        {("basic", "random")},
    ),
)
def test_the_mean_is_the_mode_and_is_robust_to_outliers(rows, data, strategy, selection, tmp_path):
    """The candidates may come from any selection."""
    X, y, clean = rows
    asked = {**ASKED, "strategy": strategy, "selection": selection, "max_rounds": None}
    robust, plain = (
        jobs.fit(data, str(tmp_path / likelihood), Request(likelihood=likelihood, **asked)).model
        for likelihood in ("student", "auto")
    )
    assert_mode(robust, X, y)
    off = np.abs(robust.predict(X) - clean).mean()
    assert off < 0.05
    assert off < 0.5 * np.abs(plain.predict(X) - clean).mean()


def test_an_estimator_uses_a_registered_likelihood_by_name(rows):
    """The kernel is learned with Gaussian noise, the partition size with the likelihood."""
    X, y, clean = rows
    model = RVMRegressor(likelihood="student", random_state=0).fit(X, y)
    assert np.abs(model.predict(X) - clean).mean() < 0.1
    with pytest.raises(UsageError, match=r"likelihood is 'nobody'; known: .*gaussian, student"):
        RVMRegressor(likelihood="nobody").fit(X, y)
