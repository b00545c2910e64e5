"""Estimators with boosted trees as basis functions: columns of new and of training rows, classes,
the choice of trees, exports, files, and refusals."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from exported import numpy_export
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from partirvm import RVMClassifier, RVMRegressor, Trees, load_model, save_model
from partirvm.core.held_back import tree_folds
from partirvm.data import shuffled_rows
from partirvm.errors import FormatError, UsageError

N = 150
ROUNDS = 4
pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

FIXED = {"gamma": 0.5, "basis": Trees(rounds=ROUNDS), "random_state": 0, "strategy": "basic"}
"""Fits without kernel learning."""

PLAIN = {**FIXED, "noise": "constant", "residual": "none"}
"""Regressions without local noise and residuals."""

BOOSTING = {
    "max_iter": ROUNDS,
    "learning_rate": 0.3,
    "max_features": 0.5,
    "min_samples_leaf": 10,
    "early_stopping": False,
    "random_state": 0,
}
"""Options of scikit-learn for these trees."""


def steps(n=N, seed=0):
    """Return rows of three features, and targets with jumps in two of them."""
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    y = 5.0 + 3.0 * (X[:, 0] > 0.2) + 2.0 * (X[:, 1] > -0.3) + 0.1 * rng.normal(size=n)
    return X, y


def stored_steps():
    """Return the rows of ``steps`` in the order in which a fit stores them."""
    X, y = steps()
    order = shuffled_rows(N, 0)
    return X[order], y[order]


def columns(model, X, trees):
    """Return the design of a model at rows X, given the values of its trees there."""
    design = model.model_.design
    scaling = design.scaling
    z, centres = ((rows - scaling.x_shift) / scaling.x_scale for rows in (X, design.centres))
    kernels = np.exp(-0.5 * ((z[:, None] - centres) ** 2).sum(axis=2))
    leading = [{-1: np.ones(len(X)), -2: trees}[label] for label in design.leading.tolist()]
    return np.column_stack([*leading, kernels])


@pytest.fixture(scope="module")
def fitted():
    return RVMRegressor(**PLAIN).fit(*steps())


def test_new_rows_have_the_predictions_of_trees_of_all_rows(fitted):
    X, y = stored_steps()
    new, _ = steps(40, seed=1)
    trees = HistGradientBoostingRegressor(**BOOSTING).fit(X, (y - y.mean()) / y.std())
    linear = columns(fitted, new, trees.predict(new)) @ fitted.model_.mean
    assert_allclose(fitted.predict(new), y.mean() + y.std() * linear, atol=1e-9)
    assert fitted.basis_names_.tolist() == ["bias", "trees"]
    assert fitted.basis_weights_[1] != 0.0


def test_the_share_of_trees_is_their_covariance_with_the_predictions(fitted):
    X, y = stored_steps()
    trees = HistGradientBoostingRegressor(**BOOSTING).fit(X, (y - y.mean()) / y.std())
    of_trees = y.std() * fitted.basis_weights_[1] * trees.predict(X)
    both = np.cov(of_trees, fitted.predict(X))
    assert_allclose(fitted.model_.assessment.tree_share, both[0, 1] / both[1, 1])


def test_training_rows_have_predictions_of_trees_without_their_fold(fitted):
    """Given α and β, the weights are the posterior mean for these columns (Tipping 2001, eqs. 12
    and 13)."""
    X, y = stored_steps()
    t = (y - y.mean()) / y.std()
    folds = tree_folds(np.arange(N))
    column = np.empty(N)
    for fold in range(5):
        left = folds == fold
        trees = HistGradientBoostingRegressor(**BOOSTING).fit(X[~left], t[~left])
        column[left] = trees.predict(X[left])
    design = columns(fitted, X, column)
    model = fitted.model_
    beta = y.var() / model.evidence_noise
    precision = beta * design.T @ design + np.diag(model.alpha)
    assert_allclose(model.mean, beta * np.linalg.solve(precision, design.T @ t), atol=1e-6)


def test_jumps_are_predicted_better_with_trees(fitted):
    new, target = steps(500, seed=2)
    without = RVMRegressor(**{**PLAIN, "basis": None}).fit(*steps())
    errors = [np.mean((target - model.predict(new)) ** 2) for model in (fitted, without)]
    assert errors[0] < 0.6 * errors[1]


def test_several_targets_have_trees_each():
    X, y = steps()
    model = RVMRegressor(**PLAIN).fit(X, np.column_stack([y, X[:, 2] > 0]))
    assert model.basis_names_.tolist() == ["bias", "trees[0]", "trees[1]"]
    assert model.predict(X).shape == (N, 2)


@pytest.mark.parametrize(
    ("n_classes", "names"),
    [(2, ["trees[0]", "trees[1]"]), (3, ["trees[0]", "trees[1]", "trees[2]"])],
)
def test_classes_have_trees(n_classes, names, tmp_path):
    """The trees are those of scikit-learn, and so are the exported ones."""
    X, y = stored_steps()
    classes = np.digitize(y, [8.5] if n_classes == 2 else [5.5, 8.5])
    model = RVMClassifier(**FIXED).fit(X, classes)
    assert model.basis_names_.tolist() == ["bias", *names]
    order = shuffled_rows(N, 0)
    reference = HistGradientBoostingClassifier(**BOOSTING).fit(X[order], classes[order])
    trees = model.model_.design.functions.trees
    last = reference.predict_proba(X)[:, -1]
    shown = trees(X)[:, -1]
    if trees.link == "identity":
        shown = np.exp(shown) / np.exp(trees(X)).sum(axis=1)
    assert_allclose(shown, last, atol=1e-9)
    found = numpy_export(model, tmp_path)(X[:20])
    assert_allclose(found["probabilities"], model.predict_proba(X[:20]), atol=1e-9)


def test_few_rows_have_no_trees():
    X, y = steps(40)
    assert RVMRegressor(**PLAIN).fit(X, y).basis_names_.tolist() == ["bias"]


def test_auto_needs_rows_to_judge_trees():
    X, y = steps()
    assert RVMRegressor(**{**PLAIN, "basis": "auto"}).fit(X, y).basis_names_.tolist() == ["bias"]


def with_gaps(n=N):
    """Return rows of a number and a category with gaps, as arrays for fits and for exports."""
    pandas = pytest.importorskip("pandas")
    X, y = steps(n)
    codes = default_rng(5).integers(-1, 4, n)
    a = np.where(X[:, 0] > 0.9, np.nan, X[:, 0])
    frame = pandas.DataFrame({"a": a, "c": pandas.Categorical.from_codes(codes, list("uvwx"))})
    raw = np.column_stack([a, np.where(codes < 0, np.nan, codes)])
    return frame, raw, y + np.isin(codes, [0, 3])


def test_exports_have_trees(tmp_path):
    frame, raw, y = with_gaps()
    model = RVMRegressor(**PLAIN).fit(frame, y)
    found = numpy_export(model, tmp_path)(raw)
    mean, std = model.predict(frame, return_std=True)
    assert_allclose(found["mean"], mean, atol=1e-9)
    assert_allclose(found["std"], std, atol=1e-9)


@pytest.mark.parametrize(("dtype", "digits"), [("float32", 1e-5), ("float64", 1e-6)])
def test_onnx_has_trees(tmp_path, dtype, digits):
    """Sums of trees are in single precision."""
    runtime = pytest.importorskip("onnxruntime")
    frame, raw, y = with_gaps()
    model = RVMRegressor(**PLAIN).fit(frame, y)
    model.to_onnx(tmp_path / "m.onnx", dtype=dtype)
    session = runtime.InferenceSession((tmp_path / "m.onnx").read_bytes())
    (mean,) = session.run(["mean"], {"X": raw.astype(dtype)})
    assert_allclose(mean[:, 0], model.predict(frame), atol=digits)


def test_copies_and_files_have_the_same_trees(fitted, tmp_path):
    X, _ = steps()
    save_model(fitted, tmp_path / "model")
    for model in (pickle.loads(pickle.dumps(fitted)), load_model(tmp_path / "model")):
        assert_array_equal(model.predict(X), fitted.predict(X))
        assert model.model_.digest() == fitted.model_.digest()


@pytest.mark.parametrize(
    "change",
    [
        {"link": "tangent"},
        {"features": 7},
        {"rights": 0},
        {"rights": 10**6},
        {"roots": 1},
        {"counts": 300},
        {"sets": 2},
        {"thresholds": np.nan},
        {"missing_left": 0.5},
    ],
    ids=lambda change: " ".join(map(str, *change.items())),
)
def test_files_with_forged_trees_are_refused(fitted, change, tmp_path):
    """A value of the wrong kind, or nodes that are no trees."""
    ((name, value),) = change.items()
    model = fitted.model_
    trees = model.design.functions.trees
    if name != "link":
        array = getattr(trees, name)
        value = np.full(array.shape, value).astype(array.dtype if name != "missing_left" else float)
    forged = model.design.functions.with_trees(replace(trees, **{name: value}))
    save_model(replace(model, design=replace(model.design, functions=forged)), tmp_path / "model")
    with pytest.raises(FormatError):
        load_model(tmp_path / "model")


def test_explanations_sum_to_predictions(fitted):
    X, _ = steps()
    explained = fitted.explain(X[:2], X[:15])
    total = explained["values"].sum(axis=1) + explained["base_values"]
    assert_allclose(total, fitted.predict(X[:2]), atol=1e-9)
    assert explained["output_names"].endswith("(sampled)")


def test_trees_have_no_gradient(fitted):
    with pytest.raises(UsageError, match="boosted trees are steps, which have no gradient"):
        fitted.predict(steps()[0][:2], return_gradient=True)


def test_relevance_includes_the_features_of_trees(fitted):
    assert fitted.feature_relevance_[:2].min() > 0.1
    assert fitted.feature_relevance_[2] < 0.1


def test_rows_of_further_calls_have_trees():
    X, y = steps(2 * N)
    model = RVMRegressor(**{**PLAIN, "strategy": "working-set", "max_rounds": 1})
    model.partial_fit(X[:N], y[:N])
    before = model.model_.design.functions.trees.key
    model.partial_fit(X[N:], y[N:])
    assert model.model_.design.functions.trees.key == before
    assert model.model_.n_rows == 2 * N


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        ("tree", "it must be 'linear', 'trees', 'auto'"),
        (["trees", "trees"], "name 'trees' once"),
        (["linear", "auto"], "'auto' cannot be part of a list"),
        (Trees(rounds=0), "Trees.rounds"),
    ],
)
def test_a_wrong_basis_is_refused(basis, words):
    with pytest.raises(UsageError, match=words):
        RVMRegressor(basis=basis).fit(*steps(20))
