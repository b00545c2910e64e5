"""What decides on local residuals: rows left out in folds, and neighbours whose errors do not
contain them."""

from types import SimpleNamespace

import numpy as np
import pytest

from partirvm import RVMRegressor
from partirvm.core.held_back import FOLDS
from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.fit import local_residuals as neighbours
from partirvm.fit.local_residuals import error_gain, helps, left_out_records, spoils
from partirvm.fit.residual_rows import ResidualReader
from partirvm.local.cells import LOG_FACTOR, NUMBER
from partirvm.spec.history import Spent
from partirvm.types import PANEL_ROWS, RESIDUAL_COLUMNS


def rough(n, seed=0):
    """A function with details that a few wide basis functions cannot describe, and noise of
    deviation .05."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = np.sin(3 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 0]) * np.cos(15 * X[:, 1])
    return X, y + 0.05 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def left_out():
    """The fit, the rows left out in folds, and the records of all rows of a small regression."""
    seen = {}

    with pytest.MonkeyPatch.context() as patch:
        original = neighbours.residual_trials
        patch.setattr(
            neighbours,
            "residual_trials",
            lambda *given: (seen.update(given=given), original(*given))[1],
        )
        X, y = rough(300)
        RVMRegressor(
            gamma=0.5, random_state=0, residual="local", noise="constant", reference="none"
        ).fit(X, y)
    asked, folds, records, rank, _ = seen["given"]
    return X, y, asked, folds, records, rank


def test_neighbours_of_a_row_are_outside_its_fold_and_have_errors_without_it(left_out):
    """Leave-one-out errors, at the same α and β, of the fit to the rows outside the fold: computed
    from Φ directly."""
    X, y, asked, folds, records, rank = left_out
    design = asked.design
    beta = float(asked.fit.beta)
    numbers = records[:, NUMBER].astype(int)
    block = design.block(X[numbers])
    t = design.scaling.targets(y[numbers, None])[:, 0]
    near = folds.near(records, rank, 5)
    own = np.isin(asked.left_out[0].rows, design.rows)
    for places in folds.members[:3]:
        rows = folds.rows[places]
        others = np.setdiff1d(np.arange(len(t)), rows)
        precision = beta * block[others].T @ block[others] + np.diag(asked.fit.alpha)
        covariance = np.linalg.inv(precision)
        leverage = beta * np.einsum("nm,mk,nk->n", block, covariance, block)
        errors = (t - block @ (beta * covariance @ block[others].T @ t[others])) / (1.0 - leverage)
        found = near[places].reshape(-1, records.shape[1])
        positions = np.array([np.flatnonzero(numbers == number)[0] for number in found[:, NUMBER]])
        assert not np.isin(positions, rows).any()
        plain = ~own[positions]
        assert plain.sum() > 50
        # the leverage of a neighbour is that of the whole fit
        np.testing.assert_allclose(
            found[plain, rank], errors[positions[plain]], rtol=0.1, atol=0.01
        )
    assert records.shape[1] == rank + 1 + RESIDUAL_COLUMNS


def test_errors_of_a_fold_are_those_of_a_fit_to_the_other_rows(left_out):
    X, y, asked, folds, records, rank = left_out
    design = asked.design
    beta = float(asked.fit.beta)
    numbers = records[:, NUMBER].astype(int)
    block = design.block(X[numbers])
    t = design.scaling.targets(y[numbers, None])[:, 0]
    errors = folds.own_records(records, rank)[:, rank]
    for places in folds.members:
        rows = folds.rows[places]
        others = np.setdiff1d(np.arange(len(t)), rows)
        precision = beta * block[others].T @ block[others] + np.diag(asked.fit.alpha)
        expected = t[rows] - block[rows] @ np.linalg.solve(
            precision, beta * block[others].T @ t[others]
        )
        plain = folds.left_out[0].owner[places] < 0
        np.testing.assert_allclose(errors[places][plain], expected[plain], rtol=1e-5, atol=1e-8)
    assert len(folds.members) == FOLDS


def constant(value, m=400):
    return np.full((1, m), value)


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
def test_what_justifies_the_correction(rise, after, expected):
    """A gain in the density, or in the error while the density does not fall."""
    assert helps(np.full(400, rise), constant(1.0), constant(after)) is expected


def test_chance_does_not_justify_the_correction():
    """The density rises by .04 nats, less than its standard error; the error falls by less than two
    of its own."""
    rise = 0.04 + np.where(np.arange(400) % 2, 1.0, -1.0)
    assert rise.std() / 20 > 0.04
    assert not helps(rise, constant(1.0), constant(1.0))
    lucky = np.where(np.arange(400) < 1, 4.0, 1.0)[None]
    gain, error = error_gain(lucky, constant(1.0))
    assert 0.01 < gain < 2 * error


@pytest.mark.parametrize(
    ("nats", "after", "expected"),
    [(0.0, 1.02, False), (0.0, 1.05, True), (0.1, 1.05, False), (0.1, 1.2, True)],
)
def test_errors_that_rise_by_more_than_the_density(nats, after, expected):
    """A loss counts if it exceeds three per cent, its standard errors, and the gain in nats."""
    assert spoils(nats, constant(1.0), constant(after)) is expected


def test_a_small_table_gets_them_where_they_help():
    """400 rows: the error of new rows falls by more than a tenth, and nothing asked for it."""
    model = RVMRegressor(
        gamma=0.5, random_state=0, max_vectors=20, strategy="working-set", reference="none"
    )
    model.fit(*rough(400))
    X, y = rough(1000, seed=1)
    assert model.model_.residuals is not None
    errors = [
        np.sqrt(np.mean((y - each.predict(X)) ** 2))
        for each in (model.model_, model.model_.sparse())
    ]
    assert errors[0] < 0.9 * errors[1]


@pytest.mark.parametrize("n", [100, PANEL_ROWS, 2 * PANEL_ROWS + 7])
def test_the_noise_of_left_out_rows_is_evaluated_in_panels(n):
    """It holds a kernel value for each row and centre: 50 MB of 50,000 rows, in no plan."""
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
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(records[:, LOG_FACTOR], np.log(np.exp(X[:, 0])))
