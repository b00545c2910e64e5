"""Rows in groups: uncertainty of new and of known groups, and groups of every kind of rows."""

import numpy as np
import pandas as pd
import pytest
from by_default import some
from exported import numpy_export
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn import config_context
from sklearn.model_selection import GroupKFold, cross_val_score

from partirvm import Groups, RVMClassifier, RVMRegressor, load_model, save_model
from partirvm.errors import AccuracyWarning, DataError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.* far from every relevance vector")

QUICK = {"effort": "quick", "reference": "none", "random_state": 0}


def visits(n_groups=40, rows=8, seed=0):
    """Patients with an age, whose visits share an effect with sd 1; the noise has sd 0.1."""
    rng = default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rows)
    age = rng.uniform(-1, 1, n_groups)[groups]
    time = rng.uniform(-1, 1, len(groups))
    effects = rng.standard_normal(n_groups)[groups]
    y = age + np.sin(2 * time) + effects + 0.1 * rng.standard_normal(len(groups))
    return np.column_stack([age, time]), y, groups


X, Y, GROUPS = visits(90)
OLD = GROUPS < 50
FEW = GROUPS < 20
LAST = np.tile(np.arange(8) == 7, 90)
"""The last row of each group."""


def coverage(ends, y):
    return float(np.mean((ends[0] < y) & (y < ends[1])))


@pytest.fixture(scope="module")
def fitted():
    """A fit to 50 groups without their last rows."""
    teaches = OLD & ~LAST
    return RVMRegressor(**QUICK).fit(X[teaches], Y[teaches], groups=GROUPS[teaches])


@pytest.fixture(scope="module")
def blind():
    """A fit to the same rows without age: no feature tells groups apart."""
    teaches = OLD & ~LAST
    model = RVMRegressor(gamma="scale", residual="none", **QUICK)
    return model.fit(X[teaches, 1:], Y[teaches], groups=GROUPS[teaches])


def test_intervals_hold_for_rows_of_new_groups(fitted):
    """320 rows of 40 new groups: the standard error of the coverage is 3.4 %, so that .87 is more
    than two of them below .95; by rows, intervals of sd 0.1 would cover a tenth."""
    assert coverage(fitted.predict_interval(X[~OLD]), Y[~OLD]) > 0.87
    _, std = fitted.predict(X[~OLD], return_std=True)
    assert np.median(std) > 0.7


def test_rows_of_known_groups_have_a_smaller_uncertainty(fitted):
    known = OLD & LAST
    ends = fitted.predict_interval(X[known], groups=GROUPS[known])
    widths = np.ptp(ends, axis=0)
    wide = np.ptp(fitted.predict_interval(X[known]), axis=0)
    assert coverage(ends, Y[known]) > 0.8
    assert np.median(widths) < np.median(wide) / 2


def test_rows_of_known_groups_get_the_effects_of_their_groups(blind):
    """Groups differ with sd √(1 + 1/3), rows of a group with sd .1; the mean of seven rows has the
    error .1·√(1/7)."""
    known = OLD & LAST
    mean, std = blind.predict(X[known, 1:], return_std=True, groups=GROUPS[known])
    without = blind.predict(X[known, 1:])
    assert np.sqrt(np.mean((Y[known] - without) ** 2)) > 0.8
    assert np.sqrt(np.mean((Y[known] - mean) ** 2)) < 0.2
    ends = blind.predict_interval(X[known, 1:], groups=GROUPS[known])
    assert 0.86 <= coverage(ends, Y[known]) <= 1.0  # two standard errors of 50 rows
    assert np.median(std) < 0.2


def test_tiles_and_panels_of_rows_are_predicted_by_their_groups(blind):
    """Lazy arrays are predicted by tiles, and gradients by panels."""
    import dask.array as da

    rows = np.tile(X[:, 1:], (6, 1))
    groups = np.tile(GROUPS, 6)
    expected = blind.predict(rows, return_std=True, groups=groups)
    lazy = da.from_array(rows, chunks=(1000, 1))
    for mine, theirs in zip(
        blind.predict(lazy, return_std=True, groups=groups), expected, strict=True
    ):
        assert_array_equal(mine, theirs)
    mean, std, *_ = blind.predict(rows, return_std=True, return_gradient=True, groups=groups)
    assert_allclose(mean, expected[0], rtol=1e-10)
    assert_allclose(std, expected[1], rtol=1e-10)


def test_each_row_is_predicted_by_its_group(blind):
    """Unknown labels, and rows without ``groups``, count as new."""
    rows = X[[0, 0, 0], 1:]
    labels = np.array([0, 89, 3])
    mean, std = blind.predict(rows, return_std=True, groups=labels)
    new_mean, new = blind.predict(rows, return_std=True)
    assert mean[1] == new_mean[1]
    assert std[1] == new[1]
    assert mean[0] != mean[2]
    assert max(std[0], std[2]) < new[0]
    ends = blind.predict_quantiles(rows, [0.025, 0.975], groups=labels)
    wide = blind.predict_quantiles(rows, [0.025, 0.975])
    assert np.ptp(ends[0]) < np.ptp(wide[0])


def test_groups_do_not_depend_on_their_labels(blind):
    """Text and numbers as text are the same groups as numbers."""
    teaches = OLD & ~LAST
    for labels in (GROUPS[teaches].astype(str), GROUPS[teaches].astype(float).tolist()):
        other = RVMRegressor(gamma="scale", residual="none", **QUICK)
        other.fit(X[teaches, 1:], Y[teaches], groups=labels)
        for mine, theirs in zip(
            other.predict(X[:, 1:], return_std=True, groups=GROUPS),
            blind.predict(X[:, 1:], return_std=True, groups=GROUPS),
            strict=True,
        ):
            assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("given", "features"),
    [
        ("patient", ["age", "time"]),
        (Groups("patient"), ["age", "time"]),
        (Groups(["age"], side=1e-9), ["age", "time", "patient"]),
        (Groups(("age", "patient")), ["age", "time", "patient"]),
    ],
    ids=["name", "labels", "blocks", "several columns"],
)
@pytest.mark.usefixtures("default_fits")
def test_columns_of_a_frame_are_groups(given, features):
    """A column of labels is then no feature."""
    frame = pd.DataFrame({"age": X[:, 0], "time": X[:, 1], "patient": GROUPS})[OLD]
    model = RVMRegressor(gamma="scale", **QUICK).fit(frame, Y[OLD], groups=given)
    assert list(model.feature_names_in_) == features
    assert len(model.model_.known.codes) == 50
    _, std = model.predict(frame, return_std=True, groups=given)
    _, new = model.predict(frame, return_std=True)
    assert np.all(std < new)


@pytest.fixture(scope="module")
def of_two_targets():
    """A fit of two targets with different effects, the second of which is missing in 10 groups and
    in some rows."""
    rng = default_rng(5)
    other = X[:, 1] + 3.0 * rng.standard_normal(90)[GROUPS] + 0.1 * rng.standard_normal(len(X))
    targets = np.column_stack([Y, other])
    targets[(GROUPS < 10) | (rng.uniform(size=len(X)) < 0.1), 1] = np.nan
    teaches = OLD & ~LAST
    model = RVMRegressor(gamma="scale", residual="none", **QUICK)
    return model.fit(X[teaches, 1:], targets[teaches], groups=GROUPS[teaches]), targets


def test_each_of_several_targets_has_its_uncertainty(of_two_targets):
    """320 rows of 40 new groups, and one row of each known group, as for one target."""
    model, targets = of_two_targets
    assert len(model.estimators_) == 2
    lower, upper = model.predict_interval(X[:, 1:])
    by_groups = model.predict_interval(X[:, 1:], groups=GROUPS)
    known = OLD & LAST & (GROUPS >= 10)
    for target in range(2):
        present = ~OLD & ~np.isnan(targets[:, target])
        ends = lower[present, target], upper[present, target]
        assert coverage(ends, targets[present, target]) > 0.87
        rows = known & ~np.isnan(targets[:, target])
        ends = by_groups[0][rows, target], by_groups[1][rows, target]
        assert coverage(ends, targets[rows, target]) > 0.8
        assert np.median(np.ptp(ends, axis=0)) < 0.5 * np.median((upper - lower)[rows, target])


def test_a_group_may_be_known_to_one_target_alone(of_two_targets):
    model, _ = of_two_targets
    mean, std = model.predict(X[:, 1:], return_std=True, groups=GROUPS)
    new_mean, new_std = model.predict(X[:, 1:], return_std=True)
    unseen = GROUPS < 10
    assert_array_equal(mean[unseen, 1], new_mean[unseen, 1])
    assert_array_equal(std[unseen, 1], new_std[unseen, 1])
    assert np.all(mean[unseen, 0] != new_mean[unseen, 0])
    assert np.all(std[unseen, 0] < new_std[unseen, 0])
    assert_array_equal(mean[~OLD], new_mean[~OLD])


def test_a_saved_model_knows_its_groups(blind, tmp_path):
    save_model(blind, tmp_path / "model")
    read = load_model(tmp_path / "model")
    for mine, theirs in zip(
        read.predict(X[:, 1:], return_std=True, groups=GROUPS),
        blind.predict(X[:, 1:], return_std=True, groups=GROUPS),
        strict=True,
    ):
        assert_array_equal(mine, theirs)


def test_rows_of_weight_0_lose_their_groups():
    """A group without weight is not known."""
    weights = np.where(GROUPS < 15, 1.0, 0.0)
    model = RVMRegressor(gamma="scale", **QUICK).fit(
        X[OLD], Y[OLD], weights[OLD], groups=GROUPS[OLD]
    )
    assert len(model.model_.known.codes) == 15


def test_scikit_learn_routes_groups():
    """``cross_val_score`` passes groups to the splitter and, on request, to ``fit``."""
    with config_context(enable_metadata_routing=True):
        model = RVMRegressor(gamma="scale", **QUICK).set_fit_request(groups=True)
        scores = cross_val_score(
            model, X[FEW], Y[FEW], cv=GroupKFold(2), params={"groups": GROUPS[FEW]}
        )
    assert np.isfinite(scores).all()


def labelled(n_classes, seed=1):
    """Classes of the visits: patients differ by effects of sd 2 on the logit of each class."""
    rng = default_rng(seed)
    f = np.column_stack([np.zeros(len(X)), *(np.roll(X, k, axis=1) @ [1, 3] for k in range(2))])
    f = f + 2.0 * rng.standard_normal((90, 3))[GROUPS]
    return np.argmax((f + rng.gumbel(size=f.shape))[:, :n_classes], axis=1)


@pytest.fixture(
    scope="module",
    params=some(["multinomial 2", "pooled 2", "pooled 3"], {"pooled 3"}),
)
def classified(request):
    """A fit to 50 groups without their last rows, with a kernel that tells groups apart by their
    age; and the classes of all rows."""
    likelihood, n_classes = request.param.split()
    y = labelled(int(n_classes))
    model = RVMClassifier(gamma=30.0, likelihood=likelihood, effort="quick", random_state=0)
    teaches = OLD & ~LAST
    return model.fit(X[teaches], y[teaches], groups=GROUPS[teaches]), y


def log_loss(probabilities, y):
    return float(-np.mean(np.log(probabilities[np.arange(len(y)), y])))


def test_probabilities_hold_for_new_groups(classified):
    """At 40 new groups, no common factor of the logits lowers the log loss by much; for a model of
    all rows as rows of a known group without effects, one does."""
    model, y = classified

    def excess(probabilities):
        logs = np.log(probabilities)
        losses = [
            -log_softmax(factor * logs, axis=1)[np.arange(len(logs)), y[~OLD]].mean()
            for factor in np.geomspace(0.1, 3, 30)
        ]
        return log_loss(probabilities, y[~OLD]) - min(losses)

    stated = excess(model.predict_proba(X[~OLD]))
    assert stated < 0.04
    assert stated < excess(model.model_.of_known_groups().predict_proba(X[~OLD]))


def test_probabilities_of_known_groups_include_their_effects(classified):
    model, y = classified
    known = OLD & LAST
    stated = log_loss(model.predict_proba(X[known], groups=GROUPS[known]), y[known])
    assert stated < log_loss(model.predict_proba(X[known]), y[known]) - 0.1
    widths = np.ptp(model.predict_interval(X[known], groups=GROUPS[known]), axis=0)
    assert np.mean(widths) < np.mean(np.ptp(model.predict_interval(X[known]), axis=0))
    labels = model.predict(X[known], groups=GROUPS[known])
    assert np.mean(labels == y[known]) > np.mean(model.predict(X[known]) == y[known])


def test_each_row_is_classified_by_its_group(classified, tmp_path):
    """Unknown labels count as new; tiles of lazy rows and a saved model give equal bits."""
    import dask.array as da

    model, _ = classified
    expected = model.predict_proba(X, groups=GROUPS)
    new = model.predict_proba(X)
    assert_array_equal(expected[~OLD], new[~OLD])
    assert np.all(expected[OLD] != new[OLD])
    assert_allclose(expected.sum(axis=1), 1.0)
    lazy = da.from_array(X, chunks=(500, 2))
    assert_array_equal(model.predict_proba(lazy, groups=GROUPS), expected)
    save_model(model, tmp_path / "model")
    read = load_model(tmp_path / "model")
    assert_array_equal(read.predict_proba(X, groups=GROUPS), expected)
    assert_array_equal(read.predict_proba(X), new)
    assert_allclose(np.exp(model.predict_log_proba(X, groups=GROUPS)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "case",
    some(
        [
            "two groups, pooled",
            "two groups, multinomial",
            "one class a group, pooled",
            "one class a group, multinomial",
            "one row a group, pooled",
            "one row a group, multinomial",
        ],
        {"two groups, pooled", "one class a group, pooled"},
    ),
)
@pytest.mark.filterwarnings("ignore:no relevance vector is left")
def test_extreme_groups_of_classes_are_fitted(case):
    """Refits may lack a group or a class; a group of one row is always left out as a whole."""
    shape, likelihood = case.split(", ")
    rows = X[:160]
    n_groups = {"two groups": 2, "one class a group": 4, "one row a group": 160}[shape]
    groups = np.arange(160) % n_groups
    y = groups % 2 if shape == "one class a group" else (rows[:, 1] > 0.0).astype(int)
    model = RVMClassifier(gamma=1.0, likelihood=likelihood, effort="quick", random_state=0)
    model.fit(rows, y, groups=groups)
    new = model.predict_proba(rows)
    known = model.predict_proba(rows, groups=groups)
    assert_allclose(new.sum(axis=1), 1.0)
    assert_allclose(known.sum(axis=1), 1.0)
    if shape == "one class a group":
        assert np.mean(known[np.arange(160), y]) > 0.88
        assert np.abs(new - 0.5).max() < 0.3


def test_exports_state_the_uncertainty_of_new_groups(classified, tmp_path):
    model, _ = classified
    exported = numpy_export(model, tmp_path)(X)
    assert_allclose(exported["probabilities"], model.predict_proba(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("groups", "kind", "message"),
    [
        (GROUPS[:5], DataError, "must have the shape"),
        (np.zeros(len(Y)), DataError, "all rows belong to one group"),
        ([None, *GROUPS[1:].astype(str)], DataError, "1 missing values, the first in row 0"),
        ("station", UsageError, "pass the labels themselves"),
        (Groups("x9", 1.0), UsageError, "without a column 'x9'"),
    ],
    ids=["short", "one group", "missing", "no frame", "no column"],
)
def test_unusable_groups_are_refused(groups, kind, message):
    with pytest.raises(kind, match=message):
        RVMRegressor(**QUICK).fit(X, Y, groups=groups)


@pytest.mark.usefixtures("default_fits")
def test_groups_that_were_not_named_are_found():
    """Age is constant in a group, and so is a second column of each patient."""
    weight = default_rng(1).uniform(size=90)[GROUPS]
    with pytest.warns(AccuracyWarning, match=r"90 groups of about 8 rows .* 'x0', 'x2'"):
        RVMRegressor(**QUICK).fit(np.column_stack([X, weight]), Y)


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize("repeated", [False, True], ids=["unique", "repeated"])
def test_rows_without_effects_of_groups_give_no_warning(repeated):
    """Warnings are errors here: a smooth function of values that repeat is no group."""
    rng = default_rng(3)
    rows = rng.uniform(-1, 1, (400, 3))
    if repeated:
        rows = rows[np.arange(400) // 8]
        rows[:, 2] = rng.uniform(-1, 1, 400)
    y = rows[:, 0] + rows[:, 1] + np.sin(2 * rows[:, 2]) + 0.1 * rng.standard_normal(400)
    RVMRegressor(**QUICK).fit(rows, y)


def stations(n_groups=40, rows=12, seed=0):
    """Stations at random places, whose effects hardly depend on the place, and a wave in time."""
    rng = default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rows)
    place = rng.uniform(0, 10, (n_groups, 2))[groups]
    time = rng.uniform(0, 1, len(groups))
    effects = 0.2 * place[:, 0] + rng.standard_normal(n_groups)[groups]
    y = effects + np.sin(2 * np.pi * time) + 0.1 * rng.standard_normal(len(groups))
    return np.column_stack([place, time]), y, groups


@pytest.mark.usefixtures("default_fits")
def test_a_kernel_does_not_explain_the_effects_of_groups():
    """At new stations, the error of the true function is the standard deviation 1 of the effects,
    and at known ones, it is that of the noise, .1. A kernel of the coordinates that explains the
    effects of 20 stations would have √2 or more at new ones."""
    X, y, groups = stations()
    old = groups < 20
    model = RVMRegressor(reference="none", random_state=0).fit(X[old], y[old], groups=groups[old])
    assert np.sqrt(np.mean((model.predict(X[~old]) - y[~old]) ** 2)) < 1.3
    known = np.arange(len(y)) % 12 == 0
    again = RVMRegressor(reference="none", random_state=0)
    again.fit(X[old & ~known], y[old & ~known], groups=groups[old & ~known])
    errors = again.predict(X[old & known], groups=groups[old & known]) - y[old & known]
    assert np.sqrt(np.mean(errors**2)) < 0.2


def test_the_plan_says_whether_groups_have_effects(fitted):
    """More groups than columns have none."""
    assert any("50 groups have effects" in note for note in fitted.plan_.notes)
    X, y, groups = visits(600, rows=2)
    model = RVMRegressor(gamma="scale", residual="none", strategy="working-set", **QUICK)
    model.fit(X, y, groups=groups)
    assert any("600 groups are more than 512" in note for note in model.plan_.notes)
    _, std = model.predict(X[:5], return_std=True)
    assert np.median(std) > 0.7
