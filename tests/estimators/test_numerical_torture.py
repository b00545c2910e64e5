"""Numerically hard data give finite results with known warnings, or a named error."""

import warnings

import numpy as np
import pytest
from by_default import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose
from regressions import plane

from benchmarks.estimator_parameters import grouped
from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import DataError, PartirvmError, PartirvmWarning

seeds = st.integers(0, 2**32 - 1)
scales = st.sampled_from([1e-8, 1.0, 1e8])


@st.composite
def rows(draw):
    """Draw 2 to 30 rows with copies, constant features, tiny and huge scales, and large offsets."""
    rng = default_rng(draw(seeds))
    n = draw(st.sampled_from([2, 3, 12, 30]))
    d = draw(st.integers(1, 3))
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + draw(st.sampled_from([0.0, 0.1, 1.0])) * rng.normal(size=n)
    if draw(st.booleans()):
        X = X[rng.integers(0, max(n // 2, 1), n)]
    if draw(st.booleans()):
        X[:, rng.integers(d)] = draw(st.sampled_from([0.0, -3.0, 1e6]))
    scale = draw(scales)
    return (X + draw(st.sampled_from([0.0, 1e3]))) * scale, y, scale


@st.composite
def options(draw, scale):
    """Draw kernels far too wide and far too narrow, all strategies, and priors."""
    standardize = draw(st.booleans())
    width = draw(st.sampled_from([0.01, 1.0, 100.0])) / (1.0 if standardize else scale**2)
    kernel = draw(st.sampled_from(["gaussian", "gaussian", "matern32", "linear-spline", "linear"]))
    strategy = draw(st.sampled_from(["auto", "basic", "working-set", "split-merge", "incremental"]))
    return {
        "kernel": kernel,
        "standardize": standardize,
        "strategy": strategy,
        "random_state": 0,
        "alpha_prior": draw(st.sampled_from([(0.0, 0.0), (1e-4, 1e-4), (1.0, 0.0), (0.0, 1.0)])),
        **({"gamma": width} if kernel in ("gaussian", "matern32") else {}),
        **(
            {}
            if strategy in ("auto", "basic")
            else {"partition_size": draw(st.sampled_from([1, 3, 10]))}
        ),
    }


def fitted(estimator, X, y):
    """Return the fit, which may give partirvm's warnings; None if partirvm refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PartirvmWarning)
        try:
            return estimator.fit(X, y)
        except PartirvmError:
            return None


@settings(max_examples=examples(15))
@given(st.data(), rows(), scales)
def test_hard_regressions_give_finite_predictions(data, drawn, target_scale):
    """Targets of size 10⁸ and 10⁻⁸ are included, with and without given noise in their unit."""
    X, y, scale = drawn
    noise = data.draw(st.sampled_from(["auto", 1e-8 * target_scale**2, target_scale**2]))
    model = RVMRegressor(noise=noise, **grouped(data.draw(options(scale))))
    model = fitted(model, X, y * target_scale)
    assert model is not None, "all of these can be fitted"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)
        mean, std = model.predict(np.vstack([X, X + 1e3 * scale]), return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(model.log_evidence_)
    assert (std >= 0.999 * np.sqrt(model.noise_variance_)).all()
    assert np.isfinite(std).all()


@settings(max_examples=examples(3))
@given(st.data(), rows(), st.booleans())
def test_hard_classifications_give_probabilities(data, drawn, several):
    X, y, scale = drawn
    labels = np.digitize(y, [-0.5, 0.5] if several else [0.0])
    model = fitted(RVMClassifier(**grouped(data.draw(options(scale)))), X, labels)
    assert (model is None) == (len(np.unique(labels)) == 1)
    if model is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartirvmWarning)
            probabilities = model.predict_proba(np.vstack([X, X + 1e3 * scale]))
        assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
        assert (probabilities >= 0).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize(
    ("X_scale", "y_scale", "shift", "message"),
    [
        (1e200, 1.0, 0.0, r"the column 'x0' has values up to [1-9]e\+200 .*by a power of ten"),
        (1.0, 1e100, 0.0, r"the column 'y' has values up to [1-9]e\+100"),
        (1e-100, 1.0, 0.0, r"the column 'x0' .* standard deviation 1e-100"),
        (1.0, 1e-200, 0.0, r"the column 'y' .* standard deviation 0e\+00"),
        (1.0, 1.0, 1e155, r"the column 'x0' has values up to 1e\+155"),
    ],
)
def test_values_beyond_double_precision_are_refused(X_scale, y_scale, shift, message, standardize):
    """Values whose powers do not fit in a double are refused, without a NumPy warning."""
    X, y = plane(30)
    X = (X - X.mean(axis=0)) / X.std(axis=0) * X_scale + shift
    for kind, target in ((RVMRegressor, y * y_scale), (RVMClassifier, y > y.mean())):
        if y_scale == 1.0 or kind is RVMRegressor:
            with pytest.raises(DataError, match=message):
                kind(gamma=0.3, standardize=standardize).fit(X, target)


@pytest.mark.slow
def test_many_classes_in_few_rows_give_a_warning_or_are_refused():
    """18 classes in 30 rows give a warning about rare classes; 25 in 30 are refused with advice."""
    X = default_rng(0).normal(size=(30, 2))
    y = np.arange(30)
    assert fitted(RVMClassifier(gamma=1.0, max_rounds=1, random_state=0), X, y % 18) is not None
    with pytest.raises(DataError, match=r"25 classes in 30 rows.*merge rare classes"):
        RVMClassifier().fit(X, y % 25)


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize(("seed", "noise"), some([(0, 0.01), (1, 0.0)], {(1, 0.0)}))
def test_smooth_functions_with_little_noise_are_predicted(seed, noise):
    """Learned kernels are so wide that columns are near copies: the result is not just noise."""
    rng = default_rng(seed)
    X = rng.normal(size=(500, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2] + noise * rng.normal(size=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)
        model = RVMRegressor(residual="none", random_state=0).fit(X[:400], y[:400])
    assert np.std(model.predict(X[400:]) - y[400:]) < 0.15 * np.std(y)
