"""A likelihood that a test alone registers is asked for by its word, and fitted by every strategy and estimators."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from student import NU, StudentLikelihood

from partirvm import RVMRegressor, ingest, jobs
from partirvm.errors import UsageError
from partirvm.likelihoods import LIKELIHOODS
from partirvm.options import Request

N = 240

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

ASKED = {"strategy": "working-set", "partition_size": 30, "selection": "random", "gamma": 1.0, "max_rounds": 4}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Nothing of the package is changed but the registry."""
    monkeypatch.setitem(LIKELIHOODS, "student", StudentLikelihood())


@pytest.fixture(scope="module")
def rows():
    """A sine with little noise, one row in ten far off."""
    rng = np.random.default_rng(7)
    X = np.sort(rng.uniform(-4, 4, (N, 1)), axis=0)
    clean = np.sin(1.5 * X[:, 0])
    off = rng.uniform(size=N) < 0.1
    return X, clean + 0.05 * rng.normal(size=N) + off * rng.normal(scale=4.0, size=N), clean


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    """The same as DATA."""
    place = tmp_path_factory.mktemp("third") / "d.zarr"
    ingest((rows[0], rows[1]), place, tile_rows=64, shuffle=3)
    return str(place)


def assert_mode(model, X, y):
    """log p(w | t) = −½(ν + 1) Σ log(1 + β r² / ν) − ½ wᵀAw + const, maximised densely by BFGS, has its mode there."""
    scaling = model.design.scaling
    Phi, t = model.design.block(X), (y - scaling.t_shift) / scaling.t_scale
    beta = float(scaling.t_scale[0]) ** 2 / model.evidence_noise

    def negative(w):
        r = t - Phi @ w
        value = 0.5 * (NU + 1) * np.log1p(beta * r**2 / NU).sum() + 0.5 * model.alpha @ w**2
        return value, model.alpha * w - Phi.T @ ((NU + 1) * beta * r / (NU + beta * r**2))

    dense = minimize(negative, model.mean + 1e-3, jac=True, method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(Phi @ model.mean, Phi @ dense.x, atol=1e-4)


@pytest.mark.parametrize(
    ("strategy", "selection"),
    [
        ("basic", "random"),
        ("working-set", "random"),
        ("working-set", "error"),
        ("working-set", "gain"),
        ("incremental", "random"),
        ("split-merge", "random"),
    ],
)
def test_the_mean_is_the_mode_and_outliers_do_not_move_it(rows, data, strategy, selection, tmp_path):
    """By every strategy, with candidates that are chosen by the verbs of the likelihood."""
    X, y, clean = rows
    asked = {**ASKED, "strategy": strategy, "selection": selection, "max_rounds": None}
    robust, plain = (
        jobs.fit(data, str(tmp_path / noise), Request(noise_variance=noise, **asked)).model
        for noise in ("student", "estimate")
    )
    assert_mode(robust, X, y)
    off = np.abs(robust.predict(X) - clean).mean()
    assert off < 0.05
    assert off < 0.5 * np.abs(plain.predict(X) - clean).mean()


def test_an_estimator_asks_for_it_and_everything_is_automatic(rows):
    """The kernel is learned and the partition size measured by the likelihood that stands for it."""
    X, y, clean = rows
    model = RVMRegressor(noise_variance="student", random_state=0).fit(X, y)
    assert np.abs(model.predict(X) - clean).mean() < 0.1
    with pytest.raises(UsageError, match=r"noise_variance is 'nobody'; known: .*estimate, student"):
        RVMRegressor(noise_variance="nobody").fit(X, y)
