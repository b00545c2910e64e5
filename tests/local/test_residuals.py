"""Models with local residuals: exact neighbours, gain, and equal bits."""

import shutil
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from tables import rough

from partirvm import Local, Polynomial, RVMRegressor, ingest, jobs, load_model, save_model
from partirvm.core import Termination
from partirvm.errors import DataWarning, FormatError, LimitWarning, MissingDataError, UsageError
from partirvm.fit import Watcher
from partirvm.fit.residual_trials import mixture_rises
from partirvm.local import CORRELATIONS, LOG_FACTOR, NUMBER, LocalKernel, learned
from partirvm.model.files import CODEC, FORMAT, KIND
from partirvm.options import Request


def distances_to(model, X, new):
    """Return distances (m, n) of new rows from all training rows, in the metric of the Gaussian."""
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


ROWS = 2000


@pytest.fixture(scope="module")
def fitted():
    X, y = rough(ROWS)
    return RVMRegressor(**OPTIONS, residual=Local(neighbours=30, family="matern52")).fit(X, y)


@pytest.mark.usefixtures("default_fits")
def test_local_residuals_are_used_by_default_if_they_help_on_left_out_rows():
    assert RVMRegressor(**OPTIONS).fit(*rough(1000)).model_.residuals is not None


def test_one_row_with_copies_does_not_outweigh_the_others():
    """Each of 999 errors gains 1 nat; the one that the local kernel excludes loses log 1000
    nats."""
    of_alone = default_rng(0).normal(size=1000)
    of_local = of_alone + 1.0 - 1e6 * (np.arange(1000) == 500)
    gain = (999 * np.log(0.999 * np.e + 0.001) - np.log(1000)) / 1000
    assert mixture_rises(of_local - of_alone).mean() == pytest.approx(gain, rel=1e-12)


@pytest.mark.slow
def test_local_residuals_are_used_although_a_few_copies_differ():
    """Pairs of equal rows suggest no noise; one target in 300 differs from that of its copy."""
    X, y = (np.repeat(each, 2, axis=0) for each in rough(1000))
    y[default_rng(1).permutation(2000)[:7]] += 3.0
    model = RVMRegressor(**OPTIONS).fit(X, y)
    assert model.model_.residuals is not None
    new, target = rough(500, seed=1)
    sparse = model.model_.sparse()
    local, alone = (np.median(np.abs(target - one.predict(new))) for one in (model, sparse))
    assert local < 0.5 * alone


@pytest.mark.usefixtures("default_fits")
def test_new_rows_have_smaller_errors_and_calibrated_intervals():
    """Errors fall to a third, and the history records this gain."""
    fitted = RVMRegressor(**OPTIONS, residual=Local(neighbours=30)).fit(*rough(3000))
    X, y = rough(2000, seed=1)
    line = fitted.history_[-1]["residuals"]
    sparse = fitted.model_.sparse()
    assert min(line["rmse_gain"], line["density_gain"]) > 0.5
    assert line["bytes"] > 0
    corrected = rmse(y, fitted.predict(X))
    assert corrected < 0.08
    assert rmse(y, sparse.predict(X)) > 3 * corrected
    lower, upper = fitted.predict_interval(X, 0.95)
    assert 0.925 < np.mean((lower < y) & (y < upper)) < 0.975
    assert sparse.residuals is None
    assert sparse.n_vectors == fitted.n_relevance_vectors_


def test_diagnostics_of_left_out_rows_are_corrected(fitted):
    """Errors and predicted deviations agree with those on new rows."""
    (new, target) = rough(1000, seed=1)
    line = fitted.history_[-1]
    shown = line["diagnostics"][0]
    rows, targets = np.array(shown["largest"]).T[:2]
    assert_allclose(targets, rough(ROWS)[1][rows.astype(int)], rtol=1e-4)
    _, t, mean, std = np.array(shown["sample"]).T
    of_new = rmse(target, fitted.predict(new))
    for found in (rmse(t, mean), rmse(std, 0), line["residuals"]["rmse"]):
        assert 0.8 < found / of_new < 1.25


def test_nearest_rows_to_the_largest_errors_are_recorded(fitted):
    """A training row is not its own neighbour; errors are in the unit of the target."""
    (X, y) = rough(ROWS)
    found = fitted.history_[-1]["diagnostics"][0]
    cells = fitted.model_.residuals.cells
    near = np.array(found["neighbours"])
    distances = distances_to(fitted, X, X[[row for row, *_ in found["largest"]]])
    assert_allclose(near[:, :, 1], np.sort(distances)[:, 1:4], rtol=1e-9)
    assert_array_equal(near[:, :, 0], np.argsort(distances)[:, 1:4])
    errors = dict(zip(cells.records[:, NUMBER], cells.records[:, ERROR] * y.std(), strict=True))
    assert_allclose(near[:, :, 3], np.vectorize(errors.get)(near[:, :, 0]), rtol=1e-6)


def test_an_abort_stops_learning_the_local_kernel(monkeypatch, tmp_path):
    """It is aborted in the first of several searches, after the vector model has been saved."""
    begun = []

    class Aborting(Watcher):
        def aborted(self):
            return bool(begun)

    def search(*given, **how):
        begun.append(len(begun))
        return learned(*given, **how)

    monkeypatch.setattr("partirvm.fit.residual_trials.learned", search)
    ingest(rough(600), tmp_path / "d.zarr")
    asked = Request(gamma=0.5, strategy="incremental", residual="local", noise="constant")
    outcome = jobs.fit(str(tmp_path / "d.zarr"), str(tmp_path / "job"), asked, watcher=Aborting())
    assert (outcome.reason, begun) == (Termination.ABORTED, [0])
    assert outcome.history[-1]["kind"] == "early"
    assert outcome.model.residuals is None


def test_the_gain_is_recorded_if_the_rows_do_not_fit_in_memory(monkeypatch):
    """The memory holds 300 of 1,500 rows of six numbers."""
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
    """Means and deviations have the same bits, also after saving."""
    X = rough(300, seed=2)[0]
    save_model(fitted, tmp_path / "model")
    whole = fitted.predict(X, return_std=True)
    again = load_model(tmp_path / "model")
    for found, expected in zip(again.predict(X[117:150], return_std=True), whole, strict=True):
        assert_array_equal(found, expected[117:150])
    assert again.model_.digest() == fitted.model_.digest() != fitted.model_.sparse().digest()


def test_credible_intervals_are_narrower_and_samples_agree(fitted):
    X = rough(50, seed=3)[0]
    ends = [
        np.diff(fitted.predict_interval(X, 0.9, kind=kind), axis=0)[0]
        for kind in ("credible", "prediction")
    ]
    assert (ends[0] > 0).all()
    assert (ends[0] < ends[1]).all()
    draws = fitted.sample_y(X, 4000, random_state=0, noise=True)
    mean, std = fitted.predict(X, return_std=True)
    assert_allclose(draws.mean(axis=1), mean, atol=0.02)
    assert_allclose(draws.std(axis=1), std, rtol=0.1)


def test_nearest_rows_explain_a_prediction(fitted):
    """Their weighted errors add up to the difference from the vector model's prediction."""
    X = rough(ROWS)[0]
    new = rough(40, seed=4)[0]
    found = fitted.nearest_rows(new)
    corrections = fitted.predict(new) - fitted.model_.sparse().predict(new)
    assert_allclose(
        (found["weights"] * found["errors"]).sum(axis=1), corrections, rtol=1e-9, atol=1e-9
    )
    expected = np.sort(distances_to(fitted, X, new), axis=1)[:, :30]
    assert_allclose(found["distances"], expected, rtol=1e-9)
    assert_array_equal(found["rows"][:, 0], distances_to(fitted, X, new).argmin(axis=1))


def test_neighbours_have_the_same_category():
    """Two levels have opposite functions of x."""
    rng = default_rng(0)
    numbers = rng.uniform(-1, 1, 400)
    levels = rng.integers(2, size=400)
    y = 0.5 * numbers + np.sin(20 * numbers) * (1 - 2 * levels)
    frame = pd.DataFrame({"x": numbers, "level": pd.Categorical(levels)})
    residual = Local(neighbours=20)
    model = RVMRegressor(**{**OPTIONS, "gamma": 1.0}, residual=residual, noise="constant")
    model.fit(frame, y + 0.05 * rng.standard_normal(400))
    assert model.model_.residuals.metric.levels
    assert rmse(model.predict(frame), y) < 0.1


@pytest.mark.slow
def test_the_kernel_family_can_be_chosen():
    for family in CORRELATIONS:
        model = RVMRegressor(**OPTIONS, residual=Local(neighbours=10, family=family)).fit(
            *rough(150)
        )
        assert [kernel.family for kernel in model.model_.residuals.kernels] == [family]


@pytest.mark.slow
def test_weights_may_have_any_unit():
    """A known deviation r means the weight 1/r². A row without weight does not change the errors of
    others."""
    (X, y) = rough(250)
    r = default_rng(1).uniform(0.02, 0.2, size=(2, 250))
    X = np.concatenate([X, X])
    y = (y + r * default_rng(2).standard_normal((2, 250))).ravel()
    r = r.ravel()
    options = {**OPTIONS, "residual": Local(neighbours=10)}
    found = []
    for unit in (1.0, 1e-3):
        model = RVMRegressor(**options).fit(X, unit * y, sample_weight=1 / (unit * r) ** 2)
        found.append(model.predict(rough(50, seed=3)[0]) / unit)
    assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-3)
    fits = [
        RVMRegressor(**options).fit(X[:n], y[:n], sample_weight=np.arange(n) < 490)
        for n in (490, 491)
    ]
    errors = [rmse(each.model_.residuals.cells.records[:, 2], 0) for each in fits]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)


@pytest.mark.slow
def test_weights_divide_the_noise_of_a_row():
    """Rows of weight 1/100 have ten times the noise."""
    X, y = rough(900)
    bad = np.arange(900) % 3 == 0
    y[bad] += 0.5 * default_rng(5).standard_normal(bad.sum())
    weights = np.where(bad, 0.01, 1.0)
    (new, target) = rough(500, seed=1)
    options = {**OPTIONS, "residual": Local(neighbours=20)}
    errors = [
        rmse(target, RVMRegressor(**options).fit(X, y, sample_weight=w).predict(new))
        for w in (weights, None)
    ]
    assert errors[0] ** 2 < 0.5 * errors[1] ** 2


@pytest.mark.parametrize("options", [{"gamma": 0.5}, {"kernel": Polynomial(0.5)}])
def test_local_residuals_need_a_gain_and_distances(options):
    rng = default_rng(0)
    X = rng.uniform(-1, 1, size=(1000, 2))
    model = RVMRegressor(**{**OPTIONS, "gamma": "learn", **options}, noise="constant")
    model.fit(X, X[:, 0] + 0.3 * rng.standard_normal(1000))
    assert model.model_.residuals is None


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("cells", {"records": np.zeros((ROWS - 1, 6))}),
        *(
            ("cells", {"records": None, "place": place})
            for place in ("", "https://x.org/y", "zip::https://x.org/y")
        ),
        ("cells", {"records": None, "place": "cells", "hashes": ("", "")}),
        ("cells", {"boxes": np.zeros((1, 2, 3))}),
        *(("cells", {"n_rows": n}) for n in (0, ROWS - 1, 10**15)),
        ("cells", {"records": None, "place": "cells", "n_rows": 10**15}),
        ("cells", {"width": 0}),
        ("", {"kernels": (LocalKernel("posix", 1.0, 1.0, 1.0, 0.0, 1.0),)}),
        ("", {"kernels": ()}),
        ("", {"calibrations": ()}),
        ("metric", {"axes": np.ones((1, 2)), "levels": ((99, 0.0, 1.0),)}),
        ("", {"neighbours": 10**12}),
    ],
)
def test_a_file_with_inconsistent_fields_is_refused(fitted, tmp_path, part, changed):
    residuals = fitted.model_.residuals
    changed = {part: replace(getattr(residuals, part), **changed)} if part else changed
    wrong = replace(fitted.model_, residuals=replace(residuals, **changed))
    CODEC.write({"model": wrong, "estimator": None}, f"{tmp_path}/model", KIND, FORMAT)
    with pytest.raises((FormatError, UsageError)):
        load_model(tmp_path / "model")


def test_a_copy_predicts_after_the_folder_with_the_rows_is_removed(fitted, tmp_path):
    """A model that refers to the folder names it, and its error advises making a copy."""
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
        assert_array_equal(load_model(tmp_path / name).predict(new), fitted.predict(new))
    refers = load_model(tmp_path / "refers")
    assert f"{tmp_path}/cells" in repr(refers.model_)
    for use in (refers.predict, lambda X: save_model(refers, tmp_path / "again", copy=True)):
        with pytest.raises(
            MissingDataError, match=r"of the local residuals is missing.*copy=True.*sparse\(\)"
        ):
            use(new)
    assert not (tmp_path / "again").exists()
