"""Relevance of features in estimators, selectors and jobs; features that are switched off."""

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from sklearn.feature_selection import SelectFromModel

from partirvm import (
    Gaussian,
    RVMClassifier,
    RVMRegressor,
    Warp,
    ingest,
    jobs,
    kernels,
    load_model,
    open_job,
    save_model,
)
from partirvm.options import Request

GAMMA = (0.2, 0.5, 1e-5, 0.0)
NAMES = ("age", "height", "shoe", "door")
OPTIONS = {"gamma": GAMMA, "standardize": False, "partition_size": 30, "max_rounds": 1}

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")


@pytest.fixture
def frame(rng):
    """Return 120 rows of four features of different scales, and a target."""
    X = rng.normal(size=(120, 4)) * [1.0, 0.5, 2.0, 1.0]
    return pd.DataFrame(X, columns=NAMES), X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(
        size=120
    )


def total_index(predict, X, j, rng):
    """Return Jansen's estimate of the total Sobol index, over 40 permutations of all rows."""
    values = predict(X)
    squares = []
    for _ in range(40):
        changed = X.copy()
        changed[:, j] = rng.permutation(X[:, j])
        squares.append((values - predict(changed)) ** 2)
    return np.mean(squares) / (2 * values.var())


def test_relevance_is_the_total_sobol_index_and_selects_features(frame, rng):
    """Features are selected by position and by the column names of a frame."""
    X, y = frame
    model = RVMRegressor(**OPTIONS).fit(X, y)
    for j, relevance in enumerate(model.feature_relevance_):
        assert relevance == pytest.approx(
            total_index(model.model_.predict, X.to_numpy(), j, rng), rel=0.3
        )
    assert model.get_support().tolist() == [True, True, True, False]
    assert model.get_support(threshold=1e-3).tolist() == [True, True, False, False]
    assert model.get_support(indices=True, threshold=1e-3).tolist() == [0, 1]
    assert model.feature_names_in_[model.get_support()].tolist() == ["age", "height", "shoe"]
    selector = SelectFromModel(
        RVMRegressor(**OPTIONS), importance_getter="feature_relevance_", threshold=1e-3
    ).fit(X, y)
    assert selector.get_feature_names_out().tolist() == ["age", "height"]


def test_class_relevance_is_the_fraction_of_the_variance_of_probabilities(frame, rng):
    X, y = frame
    codes = np.searchsorted(np.quantile(y, [0.3, 0.7]), y)
    model = RVMClassifier(**OPTIONS).fit(X, codes)
    X, p = X.to_numpy(), model.predict_proba(X)
    changed = X[:, None].repeat(4, axis=1)
    for j in range(4):
        changed[:, j, j] = rng.permutation(X[:, j])
    squares = [
        ((p - model.model_.predict_proba(changed[:, j])) ** 2).mean(axis=0).sum() for j in range(4)
    ]
    assert model.feature_relevance_ == pytest.approx(
        np.array(squares) / (2 * p.var(axis=0).sum()), rel=0.5, abs=1e-4
    )
    assert model.get_support().tolist() == [True, True, True, False]


def test_jobs_and_stored_models_keep_the_relevance(frame, tmp_path):
    """Relevance by name equals that of an estimator; a saved or pruned model keeps it."""
    X, y = frame
    ingest((X.to_numpy(), y), str(tmp_path / "data"), shuffle=None)
    jobs.fit(str(tmp_path / "data"), str(tmp_path / "job"), Request(**OPTIONS))
    relevance = open_job(tmp_path / "job").facts()["relevance"]
    model = open_job(tmp_path / "job").model()
    assert list(relevance) == ["x0", "x1", "x2", "x3"]
    assert list(relevance.values()) == model.relevance.tolist()
    assert model.prune(5).relevance.tolist() == model.relevance.tolist()
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").relevance.tolist() == model.relevance.tolist()
    assert relevance["x3"] == 0.0 < relevance["x2"] < 1e-3 < relevance["x1"]


@pytest.mark.parametrize("kernel", ["linear", "gaussian", "none"])
def test_a_linear_effect_has_its_fraction_of_the_variance(kernel, rng):
    """The fraction is Var(b_j x_j) / Var f, with a linear kernel, wide Gaussians and a linear
    basis."""
    X = rng.normal(size=(2000, 5)) * [1.0, 2.0, 5.0, 1.0, 1.0]
    b = np.array([1.0, -0.4, 0.3, 0.0, 0.1])
    y = X @ b + 0.1 * rng.normal(size=2000)
    choices = {"linear": {"kernel": "linear"}, "gaussian": {"kernel": Gaussian(1e-3)}}
    choices["none"] = {"kernel": None, "basis": "linear"}
    options = {"random_state": 0, "max_rounds": 2, "partition_size": 40, "residual": "none"}
    model = RVMRegressor(**choices[kernel], **({} if kernel == "none" else options)).fit(X, y)
    share = b**2 * X.var(axis=0)
    assert model.feature_relevance_ == pytest.approx(share / share.sum(), rel=0.15, abs=1e-3)


@pytest.mark.usefixtures("default_fits")
def test_a_linear_effect_counts_next_to_a_wave():
    """Its gamma is much smaller than the wave's; features without effect are switched off."""
    rng = default_rng(3)
    X = rng.normal(size=(1500, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.2 * rng.normal(size=1500)
    model = RVMRegressor(random_state=0, effort="quick", residual="none", reference="none").fit(
        X, y
    )
    parts = np.array([(1 - np.exp(-8)) / 2, 1.0, 1.0, 0.25])
    assert model.feature_relevance_[:4] == pytest.approx(parts / 1.75, rel=0.35)
    assert model.get_support(threshold=1e-3).tolist() == [True] * 4 + [False] * 4
    text = str(model.plan_) + "".join(entry.get("text", "") for entry in model.history_)
    assert "switched off" not in text


def mixed_features(n=150):
    """Return seven numbers, one with gaps, two categories, and a target that uses five of these
    features."""
    rng = default_rng(8)
    X = pd.DataFrame(rng.normal(size=(n, 6)), columns=list("abcdef"))
    X["skewed"] = np.exp(2 * rng.normal(size=n))
    X["zone"] = pd.Categorical(rng.choice(list("uvw"), n))
    X["shop"] = pd.Categorical(rng.integers(0, 12, n).astype(str))
    y = (
        np.sin(2 * X["a"])
        + 0.5 * X["b"]
        + (X["zone"] == "u")
        + 0.3 * rng.normal(size=12)[X["shop"].cat.codes]
    )
    y = y + 0.3 * np.log(X["skewed"]) + 0.1 * rng.normal(size=n)
    X.loc[rng.uniform(size=n) < 0.1, "c"] = np.nan
    return X, y.to_numpy()


NUMBERS = list("abdef")
WIDTHS = Gaussian((0.3, 0.01, 0.0, 0.0, 0.0))

KINDS = {
    "learned, all columns": {},
    "learned widths": {"kernel": Gaussian("learn-per-feature")},
    "numbers": {"columns": NUMBERS, "kernel": WIDTHS},
    "linear basis": {"columns": NUMBERS, "kernel": WIDTHS, "basis": "linear"},
    "linear basis alone": {"columns": NUMBERS, "kernel": None, "basis": "linear"},
    "functions": {"columns": NUMBERS, "kernel": WIDTHS, "basis": lambda X: X[:, 3:4] ** 2},
    "a function as kernel": {
        "columns": NUMBERS,
        "kernel": lambda X, Z: np.exp(-((X[:, :1] - Z[:, :1].T) ** 2)),
    },
    "warps": {"columns": ["a", "skewed", "f"], "warp": Warp(target="asinh")},
    "directions": {"columns": NUMBERS, "kernel": Gaussian("learn", metric="directions")},
    "given directions": {
        "columns": NUMBERS,
        "kernel": kernels.Directions(
            Gaussian((0.5, 0.1)), ((1.0, 0.0, 0.5, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 0.0))
        ),
    },
    "columns": {"columns": NUMBERS, "kernel": kernels.OnColumns(Gaussian(0.5), (0, 3))},
    "sum": {
        "columns": NUMBERS,
        "kernel": kernels.Sum(
            (kernels.OnColumns(Gaussian(0.5), (0,)), kernels.OnColumns(kernels.Linear(), (1,)))
        ),
    },
    "several": {"columns": NUMBERS, "kernel": [WIDTHS, Gaussian((0.0, 0.0, 0.1, 0.0, 0.0))]},
    "missing values": {"columns": ["a", "c", "f"], "kernel": Gaussian("learn-per-feature")},
    "categories": {"columns": ["a", "zone", "shop"], "kernel": Gaussian("learn-per-feature")},
    "levels": {"columns": ["a", "b", "shop", "f"]},
    "local residuals": {"columns": NUMBERS, "kernel": WIDTHS, "residual": "local"},
    "local noise": {"columns": NUMBERS, "kernel": WIDTHS, "noise": "local"},
    "several targets": {"columns": NUMBERS, "kernel": WIDTHS, "targets": 2},
    "laplacian": {"kernel": "laplacian"},
    "matern": {"kernel": "matern32"},
    "polynomial": {"kernel": "polynomial"},
    "levels and a linear basis": {"basis": "linear"},
    "levels and local noise": {"noise": "local"},
    "levels and two targets": {"targets": 2},
    "levels and three classes": {"classes": 3},
    "two classes": {"columns": NUMBERS, "kernel": WIDTHS, "classes": 2},
    "three classes": {"columns": NUMBERS, "kernel": WIDTHS, "classes": 3},
}


@pytest.mark.parametrize(
    "kind",
    some(
        [*KINDS],
        {
            "linear basis",
            "functions",
            "missing values",
            "local residuals",
            "three classes",
        },
    ),
)
def test_features_that_are_switched_off_do_not_change_predictions(kind):
    """Even unknown labels move predictions by at most 1e-6 deviations; relevant features move them
    more."""
    X, y = mixed_features()
    options = {"random_state": 0, "effort": "quick", "reference": "none"} | KINDS[kind]
    X = X[options.pop("columns", [*X])]
    classes = options.pop("classes", 0)
    targets = options.pop("targets", 1)
    if classes:
        options.pop("reference")
        y = np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)
    model = (RVMClassifier if classes else RVMRegressor)(**options)
    model.fit(X, np.column_stack([y, y**2]) if targets > 1 else y)

    def predicted(rows):
        if classes:
            return model.predict_proba(rows)
        return np.stack(model.predict(rows, return_std=True))

    before = predicted(X)
    off = [name for name, on in zip(X, model.get_support(), strict=True) if not on]
    if "kernel" in options and options["kernel"] is WIDTHS and not {"basis", "noise"} & {*options}:
        assert off == ["d", "e", "f"]
    for name, relevance in zip(X, model.feature_relevance_, strict=True):
        permuted = X.assign(**{name: X[name].sample(frac=1, random_state=0).array})
        assert (np.abs(predicted(permuted) - before).max() > 0) or relevance < 1e-9
    for name in off:
        values = [*X[name].cat.categories, "never"] if X[name].dtype == "category" else [1e3]
        if X[name].dtype.kind == "f":
            values += [X[name].mean(), X[name].min(), X[name].max()]
        for value in values:
            difference = np.abs(predicted(X.assign(**{name: value})) - before).max()
            assert difference < 1e-6 * (1.0 if classes else y.std())


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize("d", [300, 1000])
def test_relevant_features_among_many_are_found(d):
    rng = default_rng(0)
    X = rng.normal(size=(200, d))
    y = X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=200)
    gamma = np.full(d, 1e-9)
    gamma[:2] = 0.05, 0.05
    model = RVMRegressor(kernel=Gaussian(gamma), strategy="basic", residual="none").fit(X, y)
    assert np.argsort(-model.feature_relevance_)[:2].tolist() == [0, 1]
    assert model.feature_relevance_[:2] == pytest.approx([0.8, 0.2], rel=0.5)
    assert (model.feature_relevance_[2:] < 1e-3).all()
