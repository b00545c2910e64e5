"""Warnings of a finished fit beside boosting: where they come, where not, and where they are
told."""

import json
import warnings

import numpy as np
import pytest
from by_default import some

from partirvm import RVMClassifier, RVMRegressor, ingest, jobs
from partirvm.errors import AccuracyWarning, StorageError
from partirvm.fit import comparison
from partirvm.fit.comparison import COMPARISONS
from partirvm.fit.remarks import lost, worse
from partirvm.jobs import open_job
from partirvm.options import Request


def steps(n=1500, seed=0):
    """A product of three signs among five inputs: trees see it, and no smooth kernel of few vectors
    does."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 5))
    return X, np.sign(X[:, 0]) * np.sign(X[:, 1] - 0.2) + np.sign(X[:, 2]) + 0.05 * rng.normal(
        size=n
    )


def smooth(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def told(X, y, **options):
    """The warnings about accuracy, and the model; few vectors keep the model poor where it should
    be."""
    asked = {
        "random_state": 0,
        "max_rounds": 2,
        "kernel": "gaussian",
        "gamma": "learn-shared",
        **options,
    }
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model = RVMRegressor(**asked).fit(X, y)
    return [str(each.message) for each in heard if each.category is AccuracyWarning], model


@pytest.mark.slow
def test_a_comparison_that_cannot_read_its_rows_fails_no_fit(monkeypatch):
    """The model is saved before; its line of history has no comparison."""

    def unreadable(*given):
        raise StorageError("the rows cannot be read")

    monkeypatch.setattr(comparison, "gathered", unreadable)
    found, model = told(*steps())
    assert found == []
    assert model.history_[-1]["kind"] == "final"
    assert "reference" not in model.history_[-1]


def test_a_smooth_function_gets_no_warning():
    """And the error of the model is that on new rows, within chance."""
    found, model = told(*smooth())
    assert found == []
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
        [(999, {}), (1500, {"gamma": 1.0})],
    ),
)
def test_who_is_not_compared(rows, options):
    """Few rows, the option, a given kernel, little memory."""
    _, model = told(*smooth(rows), **options)
    assert "reference" not in model.history_[-1]


@pytest.mark.parametrize("clear", [True, False])
def test_classes_are_compared_by_their_log_loss(clear):
    """A chessboard in two of five inputs, which trees find and few smooth vectors do not, and a
    plane."""
    X, _ = steps()
    labels = (
        np.floor(2 * X[:, :2]).sum(axis=1) % 2 > 0
        if clear
        else X[:, 0] + X[:, 1] > 0.3 * np.random.default_rng(1).normal(size=len(X))
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model = RVMClassifier("gaussian", gamma="learn-shared", random_state=0, max_rounds=2).fit(
            X, labels
        )
    found = model.history_[-1]["reference"]
    assert found["rows"] == 300
    assert bool(found["remarks"]) is clear
    said = [str(each.message) for each in heard if each.category is AccuracyWarning]
    assert said == found["remarks"]
    assert all("HistGradientBoostingClassifier) has a log loss of" in each for each in said)


@pytest.mark.slow
def test_a_job_tells_it_in_its_advice_and_on_its_page(tmp_path, monkeypatch):
    """A warning with both errors and what may help; the same in the status of the job, its report
    and its history, which is plain JSON."""
    X, y = steps()
    ingest((X, y), tmp_path / "data.zarr", tile_rows=400)
    asked = Request(
        kernel="gaussian",
        gamma="learn-shared",
        strategy="working-set",
        max_rounds=2,
        residual="none",
    )
    with pytest.warns(AccuracyWarning, match="HistGradientBoostingRegressor.*this model") as heard:
        fitted = jobs.fit(str(tmp_path / "data.zarr"), str(tmp_path / "job"), asked)
    found = fitted.history[-1]["reference"]
    assert found["remarks"] == [
        str(each.message) for each in heard if each.category is AccuracyWarning
    ]
    assert found["rows"] == 300
    remark = found["remarks"][0]
    job = open_job(tmp_path / "job")
    assert remark in job.progress()["advice"]
    monkeypatch.setattr("partirvm.report.page.find_spec", lambda name: None)  # charts take seconds
    job.report().save(tmp_path / "page.html")
    assert "HistGradientBoostingRegressor" in (tmp_path / "page.html").read_text()
    json.dumps(job.state().history[-1]["reference"])


@pytest.mark.parametrize("key", ["held_out_rmse", "held_out_log_loss"])
def test_a_last_fit_that_is_worse_than_a_round(key):
    """The best round is named."""
    rounds = [
        {"kind": "round", "number": number, key: error}
        for number, error in enumerate((1.0, 0.5, 0.6), 1)
    ]
    for ratio, expected in ((1.02 - 1e-6, False), (1.02 + 1e-6, True)):
        found = worse({"kind": "final", key: 0.5 * ratio}, rounds)
        assert ("of round 2 0.5: try max_rounds=2" in found) is expected


@pytest.mark.slow
def test_row_weights_and_units_of_the_target():
    """Rows of zero weight do not count, and errors are in the units of the target."""
    X, y = smooth(3000)
    w = np.tile([1.0, 0.0], 1500)
    model = RVMRegressor(kernel="gaussian", gamma="learn-shared", random_state=0, max_rounds=2)
    model.fit(X, 1000 * np.where(w > 0, y, 99.0), sample_weight=w)
    found = model.history_[-1]["reference"]
    assert found["rmse"] == pytest.approx(100, rel=0.15)
    assert found["rows"] == 300


def errors(scale, n=1000, seed=0, **outliers):
    """Normal errors, and rows that have others, by their number."""
    found = scale * np.random.default_rng(seed).normal(size=n)
    for every, value in outliers.values():
        found[every] = value
    return found


OWN, FAR = errors(1.0), slice(0, 1000, 125)
LUCK = np.where(np.arange(40) == 0, 4.4, 1.0)
TAILS = errors(1.0, far=(FAR, 15.0)), errors(1.02, seed=1, far=(FAR, 5.0))
WIDER = TAILS[0] * np.where(np.arange(1000) % 2, 1.5, 1.0)


@pytest.mark.parametrize(
    ("own", "other", "better"),
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
def test_who_is_named(own, other, better):
    """Methods that are better by a tenth and surely so, not by one row or a few far ones."""
    if own is LUCK or own is TAILS[0]:
        assert np.sqrt(np.mean(own**2) / np.mean(other**2)) > 1.15, (
            "by the mean of all rows it is better"
        )
    described = COMPARISONS["RMSE"].described(own, other, "")
    assert bool(described["remarks"]) is better


@pytest.mark.slow
def test_a_kernel_that_stays_lost_is_reported():
    """A checkerboard of steps: trees see it, radial kernels do not, and the search says on how many
    rows it tried."""
    rng = np.random.default_rng((2000, 0))
    X = rng.uniform(-3, 3, (2000, 4))
    y = np.sign(np.sin(1.5 * X[:, 0]) * np.sin(1.5 * X[:, 1])) + 0.2 * rng.normal(size=2000)
    with pytest.warns(
        AccuracyWarning, match=r"the search continued on 800 and 1,500 rows|kernel search continued"
    ):
        RVMRegressor(random_state=0).fit(X, y)


def test_a_remark_on_a_lost_kernel_needs_a_clear_difference():
    judged = {
        "rows": 500,
        "error": 0.45,
        "rival": "boosted trees",
        "rival_error": 0.4,
        "lost": True,
        "levels": [800],
    }
    assert "500 rows that taught nothing, the best kernel found 0.45 (+12%)" in lost(judged)
    assert lost(judged | {"error": 0.43}) == ""
    assert lost(judged | {"lost": False}) == ""
    assert lost({}) == ""
