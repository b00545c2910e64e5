"""A fit that ends at the mean gives a warning with the reason: outliers, noise, a better method."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import RVMRegressor, Warp
from partirvm.data import ArraySource
from partirvm.errors import DataWarning
from partirvm.execution import LocalExecutor
from partirvm.fit.judged import RIVALS, Farthest, RivalLosses, _described, _losses, judged


def oblique_wave(n, frequency, seed=0, d=10):
    rng = default_rng(seed)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    X = rng.normal(size=(n, d))
    return X, np.sin(frequency * (X @ direction)) + 0.02 * rng.normal(size=n)


@pytest.mark.usefixtures("default_fits")
def test_an_oblique_wave_is_found_from_steep_starts():
    """No widths per feature raise the evidence of 400 rows; the deviation of sin is √½."""
    X, y = oblique_wave(2500, 4.0)
    model = RVMRegressor(random_state=0).fit(X[:1500], y[:1500])
    assert model.n_relevance_vectors_
    assert np.std(model.predict(X[1500:]) - y[1500:]) < 0.2


def with_outliers(count=12, n=600, factor=1000.0):
    rng = default_rng(0)
    X = rng.uniform(-3, 3, (n, 3))
    y = 3 * np.sin(X[:, 0]) + X[:, 1] + rng.normal(0, 0.2, n)
    rows = np.sort(rng.choice(np.flatnonzero(np.abs(y) > 0.5), count, replace=False))
    y[rows] *= factor
    return X, y, rows


def messages_with(text, caught):
    """Return the messages of warnings that contain a text."""
    return [str(entry.message) for entry in caught if text in str(entry.message)]


def test_target_outliers_are_reported():
    X, y, rows = with_outliers()
    share = np.floor(1000 * (y[rows] ** 2).sum() / (y**2).sum()) / 10
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"kernel": "gaussian", "gamma": 0.5, "max_rounds": 1, "partition_size": 20}
        options["residual"] = "none"
        RVMRegressor(random_state=0, **options).fit(X, y)
    (message,) = messages_with("sum of squares", caught)
    assert message.startswith(
        f"12 rows carry {min(share, 99.9):.1f} % of the target's sum of squares"
    )
    named = message[message.index("0: ") + 3 : message.index(", …")].replace(",", "").split()
    assert len(named) == 8
    assert set(map(int, named)) <= set(rows.tolist())
    assert "Warp(target='asinh')" in message


def test_a_warped_target_has_no_outliers():
    X, y, _ = with_outliers(n=300, count=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"kernel": "gaussian", "gamma": 0.5, "warp": Warp(target="asinh")}
        options["residual"] = "none"
        RVMRegressor(random_state=0, **options).fit(X, y)
    assert not messages_with("sum of squares", caught)


@pytest.mark.parametrize("tail", ["normal", "exponential", "lognormal", "student"])
def test_long_tails_are_not_outliers(tail):
    rng = default_rng(0)
    draws = {
        "normal": rng.normal(size=5000),
        "exponential": rng.exponential(size=5000),
        "lognormal": rng.lognormal(0.0, 1.5, size=5000),
        "student": rng.standard_t(3, size=5000),
    }
    assert _described(farthest(draws[tail])) == ""


def farthest(target):
    """Return what a pass over one tile collects for a target (n,)."""
    distances = np.abs(target - np.median(target))
    order = np.argsort(-distances)[: 9 + len(target) // 50]
    elsewhere = int(np.count_nonzero(distances))
    return [Farthest(len(target), elsewhere, float((distances**2).sum()), distances[order], order)]


@pytest.mark.parametrize(
    ("count", "factor"), [(1, 1000.0), (1, 100.0), (10, 1000.0), (10, 30.0), (20, 100.0)]
)
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_outliers_of_any_kind_are_reported(count, factor, sides, offset):
    """They are up to 2 % of the rows, on one side or both, and at least 30 times as far as the
    others."""
    rng = default_rng(count)
    target = rng.normal(size=1000)
    rows = np.sort(rng.choice(1000, count, replace=False))
    target[rows] = (
        factor * (1.0 + np.abs(target[rows])) * np.where(np.arange(count) % sides, -1.0, 1.0)
    )
    sentence = _described(farthest(target + offset))
    subject = "1 row carries" if count == 1 else f"{count} rows carry"
    assert sentence.startswith(subject)
    assert ", ".join(map(str, rows[:1])) in sentence or count > 8


@pytest.mark.parametrize("share", [0.002, 0.005, 0.01, 0.02, 0.1])
@pytest.mark.parametrize("kind", ["indicator", "counts"])
def test_rare_events_are_not_outliers(share, kind):
    """The target is 0 except in a few rows, where it is 1 or a count."""
    rng = default_rng(0)
    target = (rng.random(2000) < share) * (
        1.0 if kind == "indicator" else 1.0 + rng.poisson(2.0, size=2000)
    )
    assert _described(farthest(target)) == ""


def test_errors_of_least_squares_and_of_the_mean_follow_their_definitions():
    rng = default_rng(0)
    X = rng.normal(size=(130, 2))
    t = X[:, :1] * 2.0
    new = np.arange(130) >= 100
    losses = _losses(X, t, new)
    assert_allclose(losses["least squares"], 0.0, atol=1e-20)
    assert_allclose(losses["mean"], (t[100:, 0] - t[:100].mean()) ** 2)


@pytest.mark.parametrize(("loss", "better"), [(0.80, "trees"), (0.82, "")])
def test_a_rival_is_clearly_better_from_nine_tenths_of_the_error(monkeypatch, loss, better):
    """The mean has an RMSE of 1 on all left-out rows; √.80 is below .9, √.82 above."""

    def losses(X, t, new):
        return {"mean": np.ones(new.sum()), "trees": np.full(new.sum(), loss)}

    monkeypatch.setitem(RIVALS, "RMSE", RivalLosses(losses, 0.5))
    scaling = SimpleNamespace(inputs=lambda X: X)
    problem = SimpleNamespace(
        likelihood=SimpleNamespace(loss_name="RMSE"), empty=SimpleNamespace(scaling=scaling)
    )
    spec = SimpleNamespace(problem=problem, request=SimpleNamespace(seed=0))
    executor = LocalExecutor(1)
    verdict = judged(spec, ArraySource(np.ones((200, 1)), np.arange(200.0)), executor)
    executor.close()
    assert verdict.better == better
    assert verdict.own == pytest.approx(1.0)
    assert verdict.losses == {"trees": pytest.approx(np.sqrt(loss))}


def test_noise_without_structure_is_reported():
    rng = default_rng(0)
    X = rng.normal(size=(150, 3))
    y = rng.normal(size=150)
    with pytest.warns(DataWarning, match="these features hardly predict the target") as caught:
        model = RVMRegressor(random_state=0).fit(X, y)
    assert model.n_relevance_vectors_ == 0
    assert not messages_with("gamma", caught)
