"""Estimators with boosted trees beside the fit: mixtures of numbers and classes, their uncertainty,
the choice of trees, exports, files, and refusals."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from exported import numpy_export
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from partirvm import RVMClassifier, RVMRegressor, Trees, Warp, load_model, save_model
from partirvm.data import shuffled_rows
from partirvm.errors import FormatError, UsageError
from partirvm.local.tree_share import ShareOfKnown

N = 150
ROUNDS = 4
pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

FIXED = {"gamma": 0.5, "basis": Trees(rounds=ROUNDS), "random_state": 0, "strategy": "basic"}
"""Fits without kernel learning."""

PLAIN = {**FIXED, "noise": "constant", "residual": "none"}
"""Regressions without local noise and residuals."""


def steps(n=N, seed=0):
    """Return rows of three features, and targets with jumps in two of them."""
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    y = 5.0 + 3.0 * (X[:, 0] > 0.2) + 2.0 * (X[:, 1] > -0.3) + 0.1 * rng.normal(size=n)
    return X, y


def slow(case):
    """Return a case of a slow test."""
    return pytest.param(case, marks=pytest.mark.slow)


def stored_steps():
    """Return the rows of ``steps`` in the order in which a fit stores them."""
    X, y = steps()
    order = shuffled_rows(N, 0)
    return X[order], y[order]


def without_trees(model):
    """Return the same fit without trees."""
    return replace(model.model_, trees=None)


def boosting(rounds):
    """Return the options of scikit-learn for these trees."""
    return {
        "max_iter": rounds,
        "learning_rate": 0.3,
        "max_features": 0.5,
        "min_samples_leaf": 10,
        "early_stopping": False,
        "random_state": 0,
    }


@pytest.fixture(scope="module")
def fitted():
    return RVMRegressor(**PLAIN).fit(*steps())


def test_predictions_are_means_of_the_fit_and_of_trees_of_all_rows(fitted):
    X, y = stored_steps()
    new, _ = steps(40, seed=1)
    trees = fitted.model_.trees
    share = trees.share.constant
    rounds = trees.trees.roots.shape[1]
    boosted = HistGradientBoostingRegressor(**boosting(rounds)).fit(X, (y - y.mean()) / y.std())
    by_trees = y.mean() + y.std() * boosted.predict(new)
    alone, variance, _ = without_trees(fitted).predictive.moments(new)
    mean, std = fitted.predict(new, return_std=True)
    assert 0.0 < share < 1.0
    assert_allclose(mean, (1 - share) * alone + share * by_trees, atol=1e-9)
    factor = trees.spreads[0] * (1 - share)
    scale = fitted.model_.calibrated_width / without_trees(fitted).calibrated_width
    assert_allclose(std, scale * np.sqrt(factor * variance), rtol=1e-9)


def test_the_fit_is_the_one_without_trees(fitted):
    alone = RVMRegressor(**{**PLAIN, "basis": None}).fit(*steps())
    assert_array_equal(fitted.model_.mean, alone.model_.mean)
    assert_array_equal(fitted.model_.root, alone.model_.root)
    assert_array_equal(fitted.model_.sparse().predict(steps()[0]), alone.predict(steps()[0]))


def test_jumps_are_predicted_better_with_trees(fitted):
    new, target = steps(500, seed=2)
    errors = [
        np.mean((target - model.predict(new)) ** 2) for model in (fitted, fitted.model_.sparse())
    ]
    assert errors[0] < 0.6 * errors[1]


def test_intervals_are_those_of_the_mixture(fitted):
    """The 95 % intervals cover new rows, and are narrower than those of the fit alone."""
    new, target = steps(1000, seed=3)
    lower, upper = fitted.predict_interval(new, 0.95)
    assert 0.92 < np.mean((lower <= target) & (target <= upper)) < 0.98
    alone, _ = fitted.model_.sparse().interval(0.95)(new)
    assert (upper - lower).mean() < 0.8 * np.diff(alone).mean()
    assert fitted.model_.assessment.figures["rmse"] == pytest.approx(
        np.sqrt(np.mean((target - fitted.predict(new)) ** 2)), rel=0.25
    )


def test_local_residuals_give_certain_rows_a_smaller_share():
    X, y = steps(300)
    model = RVMRegressor(**{**FIXED, "residual": "local"}).fit(X, y).model_
    trees = model.trees
    assert trees.share.varies
    alone = replace(model, trees=None)
    mean, variance, _ = alone.moments(X)
    shares = np.sqrt(variance) / (np.sqrt(variance) + trees.share.halves[0] * y.std())
    by_trees = y.mean() + y.std() * trees.trees(X)[:, 0]
    mixed, spread, _ = model.moments(X)
    assert_allclose(mixed, (1 - shares) * mean + shares * by_trees, rtol=1e-9)
    assert_allclose(spread, trees.spreads[0] * (1 - shares) * variance, rtol=1e-9)
    assert_allclose(model.predictions(std=False, gradient=False)(X)[0][:, 0], mixed, rtol=1e-12)


def test_several_targets_have_trees_each():
    X, y = steps()
    model = RVMRegressor(**PLAIN).fit(X, np.column_stack([y, X[:, 2] > 0]))
    trees = model.model_.trees
    by_trees = y.mean() + y.std() * trees.trees(X)[:, 0]
    alone = without_trees(model).moments(X, variance=False)[0]
    share = trees.share.constant
    assert share > 0.0
    assert_allclose(model.predict(X)[:, 0], (1 - share) * alone[:, 0] + share * by_trees)
    _, std = model.predict(X, return_std=True)
    _, variance, _ = without_trees(model).moments(X)
    assert_allclose(std, np.sqrt((1 - share) * trees.spreads * variance))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_have_the_mean_of_logits(n_classes, tmp_path):
    """The trees are those of scikit-learn; exports have them, too."""
    X, y = stored_steps()
    classes = np.digitize(y, [8.5] if n_classes == 2 else [5.5, 8.5])
    model = RVMClassifier(**FIXED).fit(X, classes)
    trees = model.model_.trees
    order = shuffled_rows(N, 0)
    rounds = trees.trees.roots.shape[1]
    reference = HistGradientBoostingClassifier(**boosting(rounds)).fit(X[order], classes[order])
    alone, _ = without_trees(model).logits(X)
    share = trees.share.constant
    assert share > 0.0
    logits = (1 - share) * alone + share * reference.decision_function(X).reshape(N, -1)
    if n_classes == 2:
        logits = np.column_stack([np.zeros(N), logits])
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert_allclose(model.predict_proba(X), expected, atol=1e-9)
    found = numpy_export(model, tmp_path)(X[:20])
    assert_allclose(found["probabilities"], expected[:20], atol=1e-9)


def test_few_rows_have_no_trees():
    X, y = steps(40)
    model = RVMRegressor(**PLAIN).fit(X, y)
    assert model.model_.trees is None
    assert "need 50 rows" in model.history_[-1]["trees"]["reason"]


def test_auto_leaves_trees_out_that_gain_nothing():
    """A smooth function of few features gains nothing from coarse steps."""
    X, _ = steps()
    model = RVMRegressor(**{**PLAIN, "basis": "auto"}).fit(X, np.sin(X[:, 0]) + X[:, 1])
    assert model.model_.trees is None
    assert "would not clearly lower the loss" in model.history_[-1]["trees"]["reason"]


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
    trees = fitted.model_.trees
    array = getattr(trees.trees, name)
    value = np.full(array.shape, value).astype(array.dtype if name != "missing_left" else float)
    forged = replace(trees, trees=replace(trees.trees, **{name: value}))
    save_model(replace(fitted.model_, trees=forged), tmp_path / "model")
    with pytest.raises(FormatError):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [
        {"constant": 1.5},
        {"constant": -0.1},
        {"halves": np.array([-1.0])},
        {"halves": np.ones(2)},
        {"spreads": np.ones(2)},
        {"spreads": np.zeros(1)},
    ],
    ids=str,
)
def test_files_with_a_forged_share_are_refused(fitted, change, tmp_path):
    trees = fitted.model_.trees
    forged = {"spreads": change.pop("spreads")} if "spreads" in change else {}
    forged = replace(trees, **forged, share=replace(trees.share, **change))
    save_model(replace(fitted.model_, trees=forged), tmp_path / "model")
    with pytest.raises(FormatError):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("scale", [slow(1.0), 1000.0])
def test_noise_is_what_new_targets_have_beyond_the_mean(scale):
    """With a share that varies, the variances of the noise and of the mean add up in any unit."""
    X, y = steps(200)
    model = RVMRegressor(**{**FIXED, "residual": "local"}).fit(X, scale * y).model_
    assert model.trees.share.varies
    new, _ = steps(40, seed=1)
    noise, _ = model.noise_deviations(new)
    of_mean = replace(model, noise_variance=0.0).moments(new)[1]
    assert_allclose(noise[:, 0] ** 2, model.moments(new)[1] - of_mean, rtol=1e-9)


FAR = np.array([[50.0, -50.0, 50.0]])


@pytest.mark.parametrize("scale", [1.0, slow(1e-6), slow(1e6)])
@pytest.mark.parametrize("target", ["none", slow("asinh")])
def test_far_rows_have_the_prior_variance(scale, target, tmp_path):
    """Trees say as little of them as the fit does: its prior applies to the mixture."""
    X, y = steps()
    estimator = RVMRegressor(**PLAIN, warp=Warp(target=target)).fit(X, scale * y)
    model = estimator.model_
    z = model.design.scaling.target(scale * y)
    assert model.trees.share.constant > 0.5
    assert model.moments(FAR)[1] == pytest.approx(z.var(), rel=1e-6)
    of_mean = replace(model, noise_variance=0.0).moments(FAR)[1]
    assert of_mean == pytest.approx(z.var() - model.noise_variance, rel=1e-6)
    drawn = model.samples(4000, default_rng(0))(FAR)[0]
    assert drawn.std() == pytest.approx(np.sqrt(of_mean)[0], rel=0.05)
    found = numpy_export(estimator, tmp_path)(FAR)
    assert_allclose(found["std"], estimator.predict(FAR, return_std=True)[1], rtol=1e-9)


@pytest.mark.parametrize(
    "changes", [{}, slow({"residual": "local"}), slow({"noise": "local"})], ids=str
)
@pytest.mark.parametrize("groups", [None, slow(np.arange(N) // 10)], ids=["rows", "groups"])
def test_the_sparse_model_is_as_uncertain_as_a_fit_without_trees(changes, groups):
    """The calibration of the mixture is not that of the fit."""
    X, y = steps()
    options = {**PLAIN, **changes}
    fitted = RVMRegressor(**options).fit(X, y, groups=groups).model_
    alone = RVMRegressor(**{**options, "basis": None}).fit(X, y, groups=groups).model_
    assert fitted.trees is not None
    for mixed, single in [(fitted, alone), (fitted.of_known_groups(), alone.of_known_groups())]:
        sparse = mixed.sparse()
        assert_array_equal(
            sparse.predict(X, return_std=True), single.sparse().predict(X, return_std=True)
        )
        assert_array_equal(sparse.interval(0.95)(X)[0], single.sparse().interval(0.95)(X)[0])


def test_the_sparse_model_of_classes_has_no_trees():
    X, y = steps()
    model = RVMClassifier(**FIXED).fit(X, y > 8.5).model_
    assert model.trees is not None
    alone = model.sparse()
    assert_array_equal(alone.predict_proba(X), replace(model, trees=None).predict_proba(X))
    assert alone.sparse() is alone


def test_a_given_noise_has_no_trees():
    """No rows are left out, which might judge them."""
    model = RVMRegressor(**{**PLAIN, "noise": 0.01}).fit(*steps())
    assert model.model_.trees is None
    assert "only if the noise is estimated" in model.history_[-1]["trees"]["reason"]


@pytest.mark.parametrize("target", ["log", slow("asinh")])
def test_warped_targets_are_those_of_the_mixture(target, tmp_path):
    """Trees and fit are mixed in the units of the warp, and then mapped back."""
    X, y = stored_steps()
    y = np.exp(y / 3)
    back = np.argsort(shuffled_rows(N, 0))
    estimator = RVMRegressor(**PLAIN, warp=Warp(target=target)).fit(X[back], y[back])
    model = estimator.model_
    warp = model.design.scaling.target
    z = warp(y)
    trees = model.trees
    rounds = trees.trees.roots.shape[1]
    boosted = HistGradientBoostingRegressor(**boosting(rounds)).fit(X, (z - z.mean()) / z.std())
    new, _ = steps(40, seed=1)
    share = trees.share.constant
    alone = replace(model, trees=None)
    middle = (1 - share) * alone.moments(new)[0]
    middle += share * (z.mean() + z.std() * boosted.predict(new))
    width = model.calibrated_width / alone.calibrated_width
    variance = (1 - share) * trees.spreads * width**2 * alone.predictive.moments(new)[1]
    if target == "log":  # moments of the lognormal distribution
        mean = np.exp(middle + variance / 2)
        std = mean * np.sqrt(np.expm1(variance))
        assert_allclose(estimator.predict(new, return_std=True), (mean, std), rtol=1e-7)
    median = estimator.predict_quantiles(new, [0.5])[:, 0]
    assert_allclose(median, warp.back(middle), rtol=1e-7)
    found = numpy_export(estimator, tmp_path)(new)
    assert_allclose(
        (found["mean"], found["std"]), estimator.predict(new, return_std=True), rtol=1e-9
    )


@pytest.mark.parametrize("moderate", [False, slow(True)])
@pytest.mark.parametrize("likelihood", ["auto", slow("multinomial")])
@pytest.mark.parametrize("n_classes", [2, slow(3)])
def test_the_largest_decision_is_the_predicted_class(n_classes, likelihood, moderate):
    X, y = steps()
    classes = np.digitize(y, [8.5] if n_classes == 2 else [5.5, 8.5])
    options = {"likelihood": likelihood, "moderate": moderate}
    model = RVMClassifier(**FIXED, **options).fit(X, classes)
    new, _ = steps(200, seed=4)
    decisions = model.decision_function(new)
    largest = decisions > 0 if n_classes == 2 else decisions.argmax(axis=1)
    assert_array_equal(largest, model.predict(new))
    if not moderate:
        lower, upper = model.predict_interval(new, 0.9, kind="probability")
        probabilities = model.predict_proba(new)
        assert np.all((lower <= probabilities) & (probabilities <= upper))


def test_files_with_a_forged_share_of_known_groups_are_refused(fitted, tmp_path):
    """A model without groups has no share for known ones."""
    trees = fitted.model_.trees
    known = ShareOfKnown(trees.share, trees.spreads, trees.calibration)
    forged = replace(trees, known=known)
    save_model(replace(fitted.model_, trees=forged), tmp_path / "model")
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
    """The trees are learned again, from all rows."""
    X, y = steps(2 * N)
    model = RVMRegressor(**{**PLAIN, "strategy": "working-set", "max_rounds": 1})
    model.partial_fit(X[:N], y[:N])
    before = model.model_.trees.trees.key
    model.partial_fit(X[N:], y[N:])
    assert model.model_.trees.trees.key != before
    assert model.history_[-1]["trees"]["rows"] == 2 * N


@pytest.mark.slow
def test_rows_of_known_groups_have_a_share_and_variance_of_their_own():
    """The fit knows the effects of groups, and the trees do not: in their rows, errors are as large
    as predicted, and no larger than those of the fit alone."""
    squares = []
    errors = []
    for seed in range(2):
        X, y = steps(600, seed)
        groups = np.arange(600) % 20
        rng = default_rng(seed)
        y = y + 0.6 * rng.normal(size=20)[groups] + 0.2 * rng.normal(size=600)
        known = np.arange(600) < 300
        options = {**PLAIN, "residual": "local"}
        model = RVMRegressor(**options).fit(X[known], y[known], groups=groups[known])
        new = {"X": X[~known], "groups": groups[~known]}
        mean, std = model.predict(**new, return_std=True)
        alone = RVMRegressor(**{**options, "basis": None})
        alone.fit(X[known], y[known], groups=groups[known])
        squares.append(np.mean(((y[~known] - mean) / std) ** 2))
        errors.append([np.mean((y[~known] - by) ** 2) for by in (mean, alone.predict(**new))])
    assert 0.7 < np.mean(squares) < 1.4
    assert np.mean(errors, axis=0)[0] < 1.02 * np.mean(errors, axis=0)[1]


def test_groups_have_trees():
    """Rows of a group are left out together, and effects of known groups shrink with the share."""
    X, y = steps(200)
    groups = np.arange(200) // 10
    y = y + 0.5 * default_rng(7).normal(size=20)[groups]
    model = RVMRegressor(**PLAIN).fit(X, y, groups=groups)
    known = np.mean((y - model.predict(X, groups=groups)) ** 2)
    assert model.model_.trees.share.constant > 0.0
    assert known < np.mean((y - model.predict(X)) ** 2)


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
