"""Models with local residuals: exact neighbours, what they bring, and what stays equal bit by
bit."""

import shutil
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from partirvm import Local, Polynomial, RVMRegressor, ingest, jobs, load_model, save_model
from partirvm.core.termination import Termination
from partirvm.errors import DataWarning, FormatError, LimitWarning, MissingDataError, UsageError
from partirvm.fit.driver import Watcher
from partirvm.fit.local_residuals import mixture_rises
from partirvm.local.cells import LOG_FACTOR, NUMBER
from partirvm.local.kriging import CORRELATIONS, LocalKernel, learned
from partirvm.model.files import CODEC, FORMAT, KIND
from partirvm.options import Request


def rough(n, seed=0):
    """A function with details that a few wide basis functions cannot describe, and noise of
    deviation .05."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = np.sin(3 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 0]) * np.cos(15 * X[:, 1])
    return X, y + 0.05 * rng.standard_normal(n)


def distances_to(model, X, new):
    """Distances (m, n) of new rows from all rows of a fit, in the metric of its Gaussian."""
    scale = np.sqrt(model.model_.design.kernel.gamma[0]) / X.std(axis=0)
    return cdist(new * scale, X * scale)


ERROR = LOG_FACTOR - 1
OPTIONS = {
    "gamma": 0.5,
    "max_vectors": 20,
    "strategy": "working-set",
    "random_state": 0,
    "reference": "none",
}


@pytest.fixture(scope="module")
def fitted():
    X, y = rough(3000)
    return RVMRegressor(**OPTIONS, residual=Local(neighbours=30)).fit(X, y)


def test_they_are_taken_unasked_where_rows_left_out_gain():
    assert RVMRegressor(**OPTIONS).fit(*rough(1000)).model_.residuals is not None


def test_one_row_beside_copies_does_not_outweigh_the_others():
    """The local kernel describes 999 errors by 1 nat more, and one not at all: of the latter log
    1000 nats are lost."""
    of_alone = np.random.default_rng(0).normal(size=1000)
    of_local = of_alone + 1.0 - 1e6 * (np.arange(1000) == 500)
    gain = (999 * np.log(0.999 * np.e + 0.001) - np.log(1000)) / 1000
    assert mixture_rises(of_local - of_alone).mean() == pytest.approx(gain, rel=1e-12)


@pytest.mark.slow
def test_they_are_taken_where_few_copies_differ_much():
    """Pairs of equal rows teach that there is no noise; of one row in 300 the target is far from
    that of its copy."""
    X, y = (np.repeat(each, 2, axis=0) for each in rough(1000))
    y[np.random.default_rng(1).permutation(2000)[:7]] += 3.0
    model = RVMRegressor(**OPTIONS).fit(X, y)
    assert model.model_.residuals is not None
    new, target = rough(500, seed=1)
    assert np.median(np.abs(target - model.predict(new))) < 0.5 * np.median(
        np.abs(target - model.model_.sparse().predict(new))
    )


def test_what_new_rows_gain(fitted):
    """Errors of new rows fall to a third and more, intervals stay honest, and the history says what
    was measured."""
    X, y = rough(2000, seed=1)
    line = fitted.history_[-1]["residuals"]
    sparse = fitted.model_.sparse()
    assert min(line["rmse_gain"], line["density_gain"]) > 0.5
    assert line["bytes"] > 0
    with_them, without = (
        np.sqrt(np.mean((y - model.predict(X)) ** 2)) for model in (fitted, sparse)
    )
    assert with_them < 0.08
    assert without > 3 * with_them
    lower, upper = fitted.predict_interval(X, 0.95)
    assert 0.925 < np.mean((lower < y) & (y < upper)) < 0.975
    assert sparse.residuals is None
    assert sparse.n_vectors == fitted.n_relevance_vectors_


def test_rows_left_out_are_shown_corrected(fitted):
    """Errors and predicted deviations are those of new rows, a third of those of the vectors
    alone."""
    (new, target) = rough(2000, seed=1)
    line = fitted.history_[-1]
    shown = line["diagnostics"][0]
    rows, targets = np.array(shown["largest"]).T[:2]
    np.testing.assert_allclose(targets, rough(3000)[1][rows.astype(int)], rtol=1e-4)
    _, t, mean, std = np.array(shown["sample"]).T
    of_new = np.sqrt(np.mean((target - fitted.predict(new)) ** 2))
    for found in (
        np.sqrt(np.mean((t - mean) ** 2)),
        np.sqrt(np.mean(std**2)),
        line["residuals"]["rmse"],
    ):
        assert 0.8 < found / of_new < 1.25


def test_nearest_rows_of_the_largest_errors_are_recorded(fitted):
    """A training row is not its own neighbour; errors of neighbours are in the target's unit."""
    (X, y) = rough(3000)
    found = fitted.history_[-1]["diagnostics"][0]
    cells = fitted.model_.residuals.cells
    near = np.array(found["neighbours"])
    distances = distances_to(fitted, X, X[[row for row, *_ in found["largest"]]])
    np.testing.assert_allclose(near[:, :, 1], np.sort(distances)[:, 1:4], rtol=1e-9)
    np.testing.assert_array_equal(near[:, :, 0], np.argsort(distances)[:, 1:4])
    errors = dict(zip(cells.records[:, NUMBER], cells.records[:, ERROR] * y.std(), strict=True))
    np.testing.assert_allclose(near[:, :, 3], np.vectorize(errors.get)(near[:, :, 0]), rtol=1e-6)


def test_an_abort_is_heard_while_the_kernel_is_learned(monkeypatch, tmp_path):
    """By the first search of several; the model of the vectors was saved before."""
    begun, watcher = [], Watcher()

    def search(*given, **how):
        begun.append(len(begun))
        return learned(*given, **how)

    monkeypatch.setattr("partirvm.fit.local_residuals.learned", search)
    monkeypatch.setattr(watcher, "aborted", lambda: bool(begun))
    ingest(rough(600), tmp_path / "d.zarr")
    asked = Request(gamma=0.5, strategy="incremental", residual="local", noise="constant")
    outcome = jobs.fit(str(tmp_path / "d.zarr"), str(tmp_path / "job"), asked, watcher=watcher)
    assert (outcome.reason, begun) == (Termination.ABORTED, [0])
    assert outcome.history[-1]["kind"] == "early"
    assert outcome.model.residuals is None


def test_what_rows_without_room_would_bring(monkeypatch):
    """300 of 1,500 rows are left out, and fit in memory; all, of six numbers, do not, and there is
    no folder."""
    searched = 4096 * 2 * (2 + 6)
    (X, y) = rough(1500)
    monkeypatch.setattr("partirvm.core.held_back.LEFT_OUT_ROWS", 300)
    monkeypatch.setattr(
        "partirvm.resolve.resolve.RESIDUAL_SHARE", 2**30 // (8 * (searched + 2 * 6 * 1400))
    )
    with pytest.warns(LimitWarning, match="residual='local' had no effect: their 70"):
        model = RVMRegressor(**OPTIONS, residual=Local(neighbours=2), memory_limit=2**30).fit(X, y)
    found = model.history_[-1]["residuals"]
    assert (found["bytes"], found["lacking"]) == (0, 8 * 6 * 1500)
    assert found["rmse_gain"] > 0
    assert model.model_.residuals is None


def test_predictions_do_not_depend_on_the_other_rows(fitted, tmp_path):
    """Nor on saving; the mean, the deviation and the ends of intervals have the same bits."""
    X = rough(300, seed=2)[0]
    save_model(fitted, tmp_path / "model")
    whole = fitted.predict(X, return_std=True)
    again = load_model(tmp_path / "model")
    for found, expected in zip(again.predict(X[117:150], return_std=True), whole, strict=True):
        np.testing.assert_array_equal(found, expected[117:150])
    assert again.model_.digest() == fitted.model_.digest() != fitted.model_.sparse().digest()


def test_the_mean_of_a_new_target_varies_less_than_the_target(fitted):
    X = rough(50, seed=3)[0]
    ends = [
        np.diff(fitted.predict_interval(X, 0.9, kind=kind), axis=0)[0]
        for kind in ("credible", "prediction")
    ]
    assert (ends[0] > 0).all()
    assert (ends[0] < ends[1]).all()
    draws = fitted.sample_y(X, 4000, random_state=0, noise=True)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.02)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.1)


def test_the_rows_behind_a_prediction(fitted):
    """They are near, and their weighted errors are the difference to the prediction of the vectors
    alone."""
    X = rough(3000)[0]
    new = rough(40, seed=4)[0]
    found = fitted.nearest_rows(new)
    corrections = fitted.predict(new) - fitted.model_.sparse().predict(new)
    np.testing.assert_allclose(
        (found["weights"] * found["errors"]).sum(axis=1), corrections, rtol=1e-9, atol=1e-9
    )
    expected = np.sort(distances_to(fitted, X, new), axis=1)[:, :30]
    np.testing.assert_allclose(found["distances"], expected, rtol=1e-9)
    np.testing.assert_array_equal(found["rows"][:, 0], distances_to(fitted, X, new).argmin(axis=1))


def test_categories_that_differ_are_far():
    """Two levels have opposite functions of x: neighbours are those of the same level."""
    rng = np.random.default_rng(0)
    numbers = rng.uniform(-1, 1, 800)
    levels = rng.integers(2, size=800)
    y = 0.5 * numbers + np.sin(20 * numbers) * (1 - 2 * levels)
    frame = pd.DataFrame({"x": numbers, "level": pd.Categorical(levels)})
    model = RVMRegressor(**{**OPTIONS, "gamma": 1.0}, residual=Local(neighbours=20))
    model.fit(frame, y + 0.05 * rng.standard_normal(800))
    assert model.model_.residuals.metric.levels
    assert np.sqrt(np.mean((model.predict(frame) - y) ** 2)) < 0.1


@pytest.mark.slow
def test_a_family_may_be_given():
    for family in CORRELATIONS:
        model = RVMRegressor(**OPTIONS, residual=Local(neighbours=10, family=family)).fit(
            *rough(150)
        )
        assert [kernel.family for kernel in model.model_.residuals.kernels] == [family]


@pytest.mark.slow
def test_weights_may_have_any_unit():
    """Each input occurs twice, with noise of known deviation r and the weight 1/r², in units of 1
    and of a thousandth.

    A row without weight is absent: errors of all other rows stay those left out.
    """
    (X, y) = rough(250)
    r = np.random.default_rng(1).uniform(0.02, 0.2, size=(2, 250))
    X = np.concatenate([X, X])
    y = (y + r * np.random.default_rng(2).standard_normal((2, 250))).ravel()
    r = r.ravel()
    options = {**OPTIONS, "residual": Local(neighbours=10)}
    found = []
    for unit in (1.0, 1e-3):
        model = RVMRegressor(**options).fit(X, unit * y, sample_weight=1 / (unit * r) ** 2)
        found.append(model.predict(rough(50, seed=3)[0]) / unit)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-3)
    fits = [
        RVMRegressor(**options).fit(X[:n], y[:n], sample_weight=np.arange(n) < 490)
        for n in (490, 491)
    ]
    errors = (np.sqrt(np.mean(each.model_.residuals.cells.records[:, 2] ** 2)) for each in fits)
    assert next(errors) == pytest.approx(next(errors), rel=0.02)


@pytest.mark.slow
def test_weights_divide_the_noise_of_a_row():
    """Rows of weight 1/100 have ten times the noise; with the weights their errors count less."""
    X, y = rough(900)
    bad = np.arange(900) % 3 == 0
    y[bad] += 0.5 * np.random.default_rng(5).standard_normal(bad.sum())
    weights = np.where(bad, 0.01, 1.0)
    (new, target) = rough(500, seed=1)
    options = {**OPTIONS, "residual": Local(neighbours=20)}
    errors = [
        target - RVMRegressor(**options).fit(X, y, sample_weight=w).predict(new)
        for w in (weights, None)
    ]
    assert np.mean(errors[0] ** 2) < 0.5 * np.mean(errors[1] ** 2)


@pytest.mark.parametrize("options", [{"gamma": 0.5}, {"kernel": Polynomial(0.5)}])
def test_they_are_left_out_where_nothing_is_left_and_without_distances(options):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1500, 2))
    model = RVMRegressor(**{**OPTIONS, "gamma": "learn", **options}).fit(
        X, X[:, 0] + 0.3 * rng.standard_normal(1500)
    )
    assert model.model_.residuals is None


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("cells", {"records": np.zeros((2999, 6))}),
        *(
            ("cells", {"records": None, "place": place})
            for place in ("", "https://x.org/y", "zip::https://x.org/y")
        ),
        ("cells", {"records": None, "place": "cells", "hashes": ("", "")}),
        ("cells", {"boxes": np.zeros((1, 2, 3))}),
        *(("cells", {"n_rows": n}) for n in (0, 2999, 10**15)),
        ("cells", {"records": None, "place": "cells", "n_rows": 10**15}),
        ("cells", {"width": 0}),
        ("", {"kernels": (LocalKernel("posix", 1.0, 1.0, 1.0, 0.0, 1.0),)}),
        ("", {"kernels": ()}),
        ("", {"calibrations": ()}),
        ("metric", {"axes": np.ones((1, 2)), "levels": ((99, 0.0, 1.0),)}),
        ("", {"neighbours": 10**12}),
    ],
)
def test_a_file_with_fields_that_do_not_belong_together_is_refused(fitted, tmp_path, part, changed):
    residuals = fitted.model_.residuals
    changed = {part: replace(getattr(residuals, part), **changed)} if part else changed
    wrong = replace(fitted.model_, residuals=replace(residuals, **changed))
    CODEC.write({"model": wrong, "estimator": None}, f"{tmp_path}/model", KIND, FORMAT)
    with pytest.raises((FormatError, UsageError)):
        load_model(tmp_path / "model")


def test_a_copy_predicts_after_the_folder_of_the_rows_is_removed(fitted, tmp_path):
    """A model that refers to the folder names it, and its error says what to do."""
    residuals = fitted.model_.residuals
    new = rough(50, seed=7)[0]
    model = copy(fitted)
    model.model_ = replace(
        model.model_,
        residuals=replace(residuals, cells=residuals.cells.copied(f"{tmp_path}/cells")),
    )
    for name, saved in (("estimator", model), ("model", model.model_)):
        save_model(saved, tmp_path / name, copy=True)
    with pytest.warns(DataWarning, match="copy"):
        save_model(model, tmp_path / "refers", copy=False)
    shutil.rmtree(tmp_path / "cells")
    for name in ("estimator", "model"):
        np.testing.assert_array_equal(load_model(tmp_path / name).predict(new), fitted.predict(new))
    refers = load_model(tmp_path / "refers")
    assert f"{tmp_path}/cells" in repr(refers.model_)
    for use in (refers.predict, lambda X: save_model(refers, tmp_path / "again", copy=True)):
        with pytest.raises(
            MissingDataError, match=r"of the local residuals is missing.*copy=True.*sparse\(\)"
        ):
            use(new)
    assert not (tmp_path / "again").exists()
