"""When local residuals are used: rows left out in folds, and neighbours with errors that exclude
them."""

from types import SimpleNamespace

import numpy as np
import pytest
from naive import posterior, rmse
from numpy.testing import assert_allclose, assert_array_equal
from tables import rough

from partirvm import RVMRegressor
from partirvm.core import FOLDS
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.fit import local_residuals as neighbours
from partirvm.fit.local_residuals import left_out_records
from partirvm.fit.residual_rows import ResidualReader
from partirvm.fit.residual_trials import error_gain, helps, spoils
from partirvm.local import LOG_FACTOR, NUMBER
from partirvm.spec import Spent
from partirvm.types import PANEL_ROWS, RESIDUAL_COLUMNS


@pytest.fixture(scope="module")
def left_out():
    """Return the arguments of ``residual_trials`` in a small regression, the design matrix and the
    target."""
    seen = {}

    with pytest.MonkeyPatch.context() as patch:
        original = neighbours.residual_trials
        patch.setattr(
            neighbours,
            "residual_trials",
            lambda maker: (seen.update(maker=maker), original(maker))[1],
        )
        X, y = rough(300)
        RVMRegressor(
            gamma=0.5, random_state=0, residual="local", noise="constant", reference="none"
        ).fit(X, y)
    maker = seen["maker"]
    request = maker.request
    rows = maker.records[:, NUMBER].astype(int)
    return SimpleNamespace(
        asked=request,
        folds=maker.folds,
        records=maker.records,
        rank=maker.metric.width,
        Phi=request.design.block(X[rows]),
        t=request.design.scaling.targets(y[rows, None])[:, 0],
    )


def without(left_out, places):
    """Return a fold's rows, and Σ (M, M) and residuals (N,) of the fit to the other rows."""
    rows = left_out.folds.rows[places]
    others = np.setdiff1d(np.arange(len(left_out.t)), rows)
    fit = left_out.asked.fit
    mean, Sigma = posterior(left_out.Phi[others], left_out.t[others], fit.alpha, float(fit.beta))
    return rows, Sigma, left_out.t - left_out.Phi @ mean


def test_neighbours_are_outside_the_fold_and_have_errors_without_it(left_out):
    """The errors are leave-one-out errors of a dense fit to rows outside the fold, at the same α
    and β."""
    records = left_out.records
    rank = left_out.rank
    near = left_out.folds.near(records, rank, 5)
    centres = np.isin(left_out.asked.left_out[0].rows, left_out.asked.design.rows)
    for places in left_out.folds.members[:3]:
        rows, Sigma, residuals = without(left_out, places)
        leverage = float(left_out.asked.fit.beta) * (left_out.Phi @ Sigma * left_out.Phi).sum(
            axis=1
        )
        errors = residuals / (1.0 - leverage)
        found = near[places].reshape(-1, records.shape[1])
        order = np.argsort(records[:, NUMBER])
        positions = order[np.searchsorted(records[order, NUMBER], found[:, NUMBER])]
        assert not np.isin(positions, rows).any()
        plain = ~centres[positions]
        assert plain.sum() > 50
        # the leverage of a neighbour comes from the fit to all rows
        assert_allclose(found[plain, rank], errors[positions[plain]], rtol=0.1, atol=0.01)
    assert records.shape[1] == rank + 1 + RESIDUAL_COLUMNS


def test_fold_errors_equal_those_of_a_fit_to_the_other_rows(left_out):
    folds = left_out.folds
    errors = folds.own_records(left_out.records, left_out.rank)[:, left_out.rank]
    for places in folds.members:
        rows, _, residuals = without(left_out, places)
        plain = folds.left_out[0].owner[places] < 0
        assert_allclose(errors[places][plain], residuals[rows][plain], rtol=1e-5, atol=1e-8)
    assert len(folds.members) == FOLDS


ONE = np.ones((1, 400))


@pytest.mark.parametrize(
    ("rise", "after", "expected"),
    [
        (0.03, 1.0, True),
        (0.01, 1.0, False),
        (0.03, 1.2, True),
        (0.0, 0.97, True),
        (0.0, 0.99, False),
        (-0.01, 0.9, False),
    ],
    ids=[
        "denser",
        "hardly denser",
        "denser, larger errors",
        "smaller errors",
        "hardly smaller",
        "less dense",
    ],
)
def test_gains_in_density_or_error_justify_the_correction(rise, after, expected):
    """A smaller error counts only if the density does not fall."""
    assert helps(np.full(400, rise), ONE, after * ONE) is expected


def test_chance_gains_do_not_justify_the_correction():
    """The density rises by less than its standard error, the error falls by less than two standard
    errors."""
    rise = 0.04 + np.where(np.arange(400) % 2, 1.0, -1.0)
    assert rise.std() / 20 > 0.04
    assert not helps(rise, ONE, ONE)
    lucky = np.where(np.arange(400) < 1, 4.0, 1.0)[None]
    gain, error = error_gain(lucky, ONE)
    assert 0.01 < gain < 2 * error


@pytest.mark.parametrize(
    ("nats", "after", "expected"),
    [(0.0, 1.02, False), (0.0, 1.05, True), (0.1, 1.05, False), (0.1, 1.2, True)],
)
def test_larger_errors_can_outweigh_a_gain_in_density(nats, after, expected):
    """They must exceed three per cent, their standard errors, and the gain in nats."""
    assert spoils(nats, ONE, after * ONE) is expected


@pytest.mark.usefixtures("default_fits")
def test_local_residuals_are_used_by_default_where_they_help():
    """With 400 rows, the error on new rows falls by more than a tenth."""
    model = RVMRegressor(
        gamma=0.5, random_state=0, max_vectors=20, strategy="working-set", reference="none"
    )
    model.fit(*rough(400))
    X, y = rough(1000, seed=1)
    assert model.model_.residuals is not None
    assert rmse(y, model.predict(X)) < 0.9 * rmse(y, model.model_.sparse().predict(X))


@pytest.mark.parametrize("n", [100, PANEL_ROWS, 2 * PANEL_ROWS + 7])
def test_the_noise_of_left_out_rows_is_evaluated_in_panels(n):
    """This needs a kernel value for each row and centre, which no plan counts."""
    X, y = rough(n)
    sizes = []

    def noise_factor(rows):
        sizes.append(len(rows))
        return np.exp(rows[:, 0])

    design = SimpleNamespace(
        noise_factor=noise_factor, scaling=SimpleNamespace(inputs=lambda rows: rows)
    )
    left_out = SimpleNamespace(rows=np.arange(n), targets=np.ones((n, 2)), expected=lambda: (y, y))
    asked = SimpleNamespace(left_out=(left_out,), design=design)
    executor = LocalExecutor(1)
    source = ArraySource(X, y, tile_rows=512)
    reader = ResidualReader(source, executor, lambda *_: None, Spent())
    records, rows = left_out_records(asked, lambda points: points, reader)
    executor.close()
    assert sum(sizes) == n
    assert max(sizes) <= PANEL_ROWS
    assert_array_equal(rows, X)
    assert_array_equal(records[:, LOG_FACTOR], np.log(np.exp(X[:, 0])))
