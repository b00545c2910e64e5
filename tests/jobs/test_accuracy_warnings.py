"""A finished fit warns if boosted trees predict better."""

import json
import warnings

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng

from partirvm import RVMClassifier, RVMRegressor, ingest, jobs
from partirvm.errors import AccuracyWarning, StorageError
from partirvm.fit import comparison
from partirvm.fit.comparison import COMPARISONS, TREE_ADVICE
from partirvm.fit.remarks import lost, worse
from partirvm.jobs import open_job
from partirvm.options import Request


def steps(n=1500, seed=0):
    """Return a product of signs of five inputs, which trees fit and smooth kernels with few vectors
    do not."""
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 5))
    return X, np.sign(X[:, 0]) * np.sign(X[:, 1] - 0.2) + np.sign(X[:, 2]) + 0.05 * rng.normal(
        size=n
    )


def smooth(n=1500, seed=0):
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def fit_with_warnings(X, y, **options):
    """Return the accuracy warnings of a fit with few vectors, and its model."""
    few = {"kernel": "gaussian", "gamma": "learn-shared", "max_rounds": 2, "random_state": 0}
    few["residual"] = "none"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = RVMRegressor(**few | options).fit(X, y)
    return accuracy_warnings(caught), model


def accuracy_warnings(caught):
    """Return the messages in ``caught`` that are about accuracy."""
    return [str(entry.message) for entry in caught if entry.category is AccuracyWarning]


@pytest.mark.slow
def test_a_comparison_that_cannot_read_its_rows_does_not_fail_the_fit(monkeypatch):
    """The model has already been saved, and its history has no comparison."""

    def unreadable(*arguments):
        raise StorageError("the rows cannot be read")

    monkeypatch.setattr(comparison, "gathered", unreadable)
    messages, model = fit_with_warnings(*steps())
    assert messages == []
    assert model.history_[-1]["kind"] == "final"
    assert "reference" not in model.history_[-1]


def test_a_smooth_function_gives_no_warning():
    """The error in the history equals that on new rows, within chance."""
    messages, model = fit_with_warnings(*smooth())
    assert messages == []
    X, y = smooth(4000, seed=1)
    rmse = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert model.history_[-1]["reference"]["rmse"] == pytest.approx(rmse, rel=0.12)


@pytest.mark.parametrize(
    ("rows", "options"),
    some(
        [
            (999, {}),
            (1500, {"reference": "none"}),
            (1500, {"gamma": 1.0}),
            (1500, {"memory_limit": "1000MiB"}),
        ],
        [(999, {})],
    ),
)
def test_few_rows_given_kernels_and_low_memory_are_not_compared(rows, options):
    _, model = fit_with_warnings(*smooth(rows), **options)
    assert "reference" not in model.history_[-1]


@pytest.mark.parametrize("clear", some([True, False], {True}))
def test_classes_are_compared_by_log_loss(clear):
    """Trees fit a chessboard in two of five inputs, which smooth kernels do not, and a plane."""
    X, _ = steps()
    labels = (
        np.floor(2 * X[:, :2]).sum(axis=1) % 2 > 0
        if clear
        else X[:, 0] + X[:, 1] > 0.3 * default_rng(1).normal(size=len(X))
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = RVMClassifier("gaussian", gamma="learn-shared", random_state=0, max_rounds=2).fit(
            X, labels
        )
    comparison = model.history_[-1]["reference"]
    assert comparison["rows"] == 300
    assert bool(comparison["remarks"]) is clear
    assert accuracy_warnings(caught) == comparison["remarks"]
    for message in comparison["remarks"]:
        assert "HistGradientBoostingClassifier) has a log loss of" in message


@pytest.mark.slow
def test_the_accuracy_warning_is_in_advice_page_and_history(tmp_path, monkeypatch):
    """It has both errors and advice; the comparison in the history is plain JSON."""
    X, y = steps()
    ingest((X, y), tmp_path / "data.zarr", tile_rows=400)
    options = {"kernel": "gaussian", "gamma": "learn-shared", "max_rounds": 2}
    request = Request(**options, strategy="working-set", residual="none")
    with pytest.warns(AccuracyWarning, match="HistGradientBoostingRegressor.*this model") as caught:
        fitted = jobs.fit(str(tmp_path / "data.zarr"), str(tmp_path / "job"), request)
    comparison = fitted.history[-1]["reference"]
    assert comparison["remarks"] == accuracy_warnings(caught)
    assert comparison["rows"] == 300
    remark = comparison["remarks"][0]
    job = open_job(tmp_path / "job")
    assert remark[1:] in job.progress()["advice"], "a sentence there, with a capital letter"
    job.report().save(tmp_path / "page.html")
    assert "HistGradientBoostingRegressor" in (tmp_path / "page.html").read_text()
    json.dumps(job.state().history[-1]["reference"])


@pytest.mark.parametrize("key", ["held_out_rmse", "held_out_log_loss"])
def test_a_last_fit_that_is_worse_than_a_round_names_the_best_round(key):
    rounds = [
        {"kind": "round", "number": number, key: error}
        for number, error in enumerate((1.0, 0.5, 0.6), 1)
    ]
    for ratio, expected in ((1.02 - 1e-6, False), (1.02 + 1e-6, True)):
        remark = worse({"kind": "final", key: 0.5 * ratio}, rounds)
        assert ("of round 2 0.5: try max_rounds=2" in remark) is expected


@pytest.mark.slow
def test_the_comparison_uses_row_weights_and_units_of_the_target():
    """Rows of zero weight are ignored."""
    X, y = smooth(3000)
    w = np.tile([1.0, 0.0], 1500)
    model = RVMRegressor(kernel="gaussian", gamma="learn-shared", random_state=0, max_rounds=2)
    model.fit(X, 1000 * np.where(w > 0, y, 99.0), sample_weight=w)
    comparison = model.history_[-1]["reference"]
    assert comparison["rmse"] == pytest.approx(100, rel=0.15)
    assert comparison["rows"] == 300


def errors(scale, n=1000, seed=0, **outliers):
    """Return normal errors, some of which (rows, value) pairs replace."""
    values = scale * default_rng(seed).normal(size=n)
    for rows, value in outliers.values():
        values[rows] = value
    return values


OWN, FAR = errors(1.0), slice(0, 1000, 125)
LUCK = np.where(np.arange(40) == 0, 4.4, 1.0)
TAILS = errors(1.0, far=(FAR, 15.0)), errors(1.02, seed=1, far=(FAR, 5.0))
WIDER = TAILS[0] * np.where(np.arange(1000) % 2, 1.5, 1.0)


@pytest.mark.parametrize(
    ("ours", "other", "better"),
    [
        (OWN, OWN / 1.3, True),
        (OWN, OWN / 1.05, False),
        (OWN, 2 * OWN, False),
        (LUCK, np.ones(40), False),
        (TAILS[0], TAILS[1], False),
        (WIDER, TAILS[1], True),
        (np.zeros(10), np.zeros(10), False),
    ],
    ids=[
        "better",
        "by less than a tenth",
        "worse",
        "by chance",
        "few far targets",
        "more than these",
        "no errors",
    ],
)
def test_a_rival_must_be_better_by_a_tenth_and_significantly(ours, other, better):
    """One row or a few outliers are not enough."""
    if ours is LUCK or ours is TAILS[0]:
        assert np.sqrt(np.mean(ours**2) / np.mean(other**2)) > 1.15, (
            "by the mean of all rows it is better"
        )
    described = COMPARISONS["RMSE"].described(ours, other, "")
    assert bool(described["remarks"]) is better


@pytest.mark.slow
def test_a_kernel_that_cannot_fit_is_reported():
    """The target is a checkerboard of steps; the warning gives the search's numbers of rows."""
    rng = default_rng((2000, 0))
    X = rng.uniform(-3, 3, (2000, 4))
    y = np.sign(np.sin(1.5 * X[:, 0]) * np.sin(1.5 * X[:, 1])) + 0.2 * rng.normal(size=2000)
    with pytest.warns(
        AccuracyWarning, match=r"the search continued on 800 and 1,500 rows|kernel search continued"
    ):
        RVMRegressor(random_state=0).fit(X, y)


def test_a_warning_about_a_lost_kernel_needs_a_clear_difference():
    judgement = {
        "rows": 500,
        "error": 0.45,
        "rival": "boosted trees",
        "rival_error": 0.4,
        "lost": True,
        "levels": [800],
    }
    text = lost(judgement)
    assert "500 rows that taught nothing, the best kernel found 0.45 (+12%)" in text
    assert f"{TREE_ADVICE}transformed features" in text
    assert TREE_ADVICE not in lost(judgement | {"rival": "nearest rows"})
    assert lost(judgement | {"error": 0.43}) == ""
    assert lost(judgement | {"lost": False}) == ""
    assert lost({}) == ""
