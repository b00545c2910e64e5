"""α of basis functions that stay as they are, by their names."""

from __future__ import annotations

import numpy as np

from partirvm import AlphaPrior, RVMRegressor, load_model, save_model


def test_a_given_precision_is_known_to_intervals(tmp_path):
    """All α and the noise given: the interval is the normal one of Σ, also of a model that was stored."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1))
    y = X[:, 0] + 0.5 * rng.normal(size=30)
    asked = {"kernel": None, "basis": "linear", "fit_intercept": False, "noise_variance": 0.25}
    fit = RVMRegressor(**asked, alpha_prior=AlphaPrior(fixed={"x0": 0.5})).fit(X, y)
    save_model(fit.model_, tmp_path / "model.zarr")
    mean, std = fit.predict(X, return_std=True)
    for model in (fit.model_, load_model(tmp_path / "model.zarr")):
        assert model.known_alpha == (0,)
        ends, _ = model.interval(0.95)(X)
        np.testing.assert_allclose(ends, np.column_stack([mean - 1.959964 * std, mean + 1.959964 * std]), rtol=1e-6)
    free = RVMRegressor(**asked).fit(X, y)
    assert free.model_.known_alpha == ()
    plain = np.diff(free.predict_interval(X, hyperparameters=False), axis=0)
    assert (np.diff(free.predict_interval(X), axis=0) > plain).all()
