"""Jumps of single features as basis functions: values, names, gradients, effects, files and
exports."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from exported import reader_in
from numpy.testing import assert_allclose, assert_array_equal
from with_jumps import JUMPS, estimator_with_jumps, rows_with_gaps

from partirvm import Anova, RVMRegressor, load_model, save_model
from partirvm.errors import PartirvmError
from partirvm.fit.assessment import jumps_of
from partirvm.kernels.functions import LINEAR, Basis
from partirvm.kernels.jumps import Jumps
from partirvm.model.feature_effects import effects_of, marginals_of


@pytest.mark.parametrize(
    ("row", "values"),
    [
        ((0.0, 9.0, 0.0), (1, 0, 0)),
        ((-0.4, 9.0, 0.1), (0, 0, 0)),  # a threshold itself is not exceeded
        ((np.nextafter(-0.4, 1), 9.0, 0.2), (1, 0, 1)),
        ((7.0, 9.0, np.nan), (1, 1, 0)),  # a missing value exceeds nothing
        ((np.inf, 9.0, -np.inf), (1, 1, 0)),
    ],
)
def test_a_jump_is_one_above_its_threshold(row, values):
    assert_array_equal(JUMPS(np.array([row])), [values])


def test_jumps_are_sorted_and_named_by_feature_and_threshold():
    mixed = Jumps((2, 0, 0, 2), (0.1, 0.6, -0.4, 0.1)).in_order()
    assert mixed == JUMPS
    basis = Basis(((LINEAR, 3), (mixed, 3)))
    assert list(basis.names(("a", "b", "c")))[3:] == ["a > -0.4", "a > 0.6", "c > 0.1"]
    assert basis.spec() == [["linear", 3], ["jumps", 3]]
    active = np.array([1, 3, 5])
    assert_array_equal(basis.single_features(active, 3), [1, 0, 2])
    assert_array_equal(basis.is_flat(active), [False, True, True])
    assert_array_equal(basis.features(active, 3), [True, True, True])
    assert_array_equal(basis.features(np.array([3, 4]), 3), [True, False, False])


def test_gradients_are_those_of_the_kernel_alone():
    """Between its thresholds, a jump is flat."""
    model = estimator_with_jumps().model_
    X = rows_with_gaps(8)[0]
    step = 1e-6
    gradient = model.predict(X, return_gradient=True)[1]
    for j in range(3):
        moved = step * np.eye(3)[j]
        slopes = (model.predict(X + moved) - model.predict(X - moved)) / (2 * step)
        assert_allclose(gradient[:, j], slopes, atol=1e-6)


def test_shapley_values_of_jumps_are_exact():
    """A jump contributes its weight times its value minus the background's mean."""
    model = estimator_with_jumps().model_
    X = rows_with_gaps(20)[0]
    before = model.explain(X[:5], background=X)["values"]
    assert len(model.design.active) == 3
    first = int(model.design.bias)
    weight = model.mean[first + 2] * model.design.scaling.t_scale
    without = replace(
        model, mean=np.where(np.arange(len(model.mean)) == first + 2, 0.0, model.mean)
    )
    after = without.explain(X[:5], background=X)["values"]
    jump = JUMPS(X)[:, 2]
    assert_allclose((before - after)[:, 2], weight * (jump[:5] - jump.mean()), atol=1e-12)
    assert_allclose(before[:, :2], after[:, :2], atol=1e-12)


def test_effects_of_an_anova_model_contain_its_jumps():
    """The main effect of a feature is the mean prediction, which jumps."""
    X, _ = rows_with_gaps()
    model = estimator_with_jumps(Anova(0.5, shares=0.5)).model_
    model = replace(model, marginals=marginals_of(model, X))
    effects = effects_of(model)
    (main,) = [main for main in effects.main if main.at.feature == "x2"]
    rows = np.repeat(X, len(main.at.values), axis=0)
    rows[:, 2] = np.tile(main.at.values, len(X))
    # the features are independent: all combinations of the values of x0 and x1
    grid = np.meshgrid(X[:, 0], X[:, 1], main.at.values, indexing="ij")
    points = np.stack([axis.ravel() for axis in grid], axis=1)
    means = model.predict(points).reshape(grid[0].shape).mean(axis=(0, 1))
    assert_allclose(np.diff(main.mean), np.diff(means), atol=1e-9)


def test_models_with_jumps_are_stored_and_exported(tmp_path):
    model = estimator_with_jumps().model_
    X = rows_with_gaps(30)[0]
    save_model(model, tmp_path / "model")
    assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))
    model.to_numpy(tmp_path / "model.npz")
    exported = reader_in(tmp_path)(tmp_path / "model.npz")(X)
    assert_allclose(exported["mean"], model.predict(X), rtol=1e-10, atol=1e-12)
    model.to_onnx(tmp_path / "model.onnx", "float64", ("mean",))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (means,) = session.run(["mean"], {"X": X})
    assert_allclose(np.ravel(means), model.predict(X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "forged",
    [
        Jumps((0, 0, 3), JUMPS.thresholds),
        Jumps((0, 0, -1), JUMPS.thresholds),
        Jumps(JUMPS.features, (0.0, np.nan, 1.0)),
        Jumps(JUMPS.features, (0.0, np.inf, 1.0)),
        Jumps(JUMPS.features, (0.0, 1.0)),
        Jumps((0, 0), (0.0, 1.0)),
    ],
)
def test_forged_jumps_are_refused(forged, tmp_path):
    model = estimator_with_jumps().model_
    functions = Basis(((forged, 3),))
    save_model(replace(model, design=replace(model.design, functions=functions)), tmp_path / "m")
    with pytest.raises(PartirvmError):
        load_model(tmp_path / "m")


def test_jumps_of_a_model_are_changes_of_its_predictions():
    """Between two rows on either side of a threshold; the largest change comes first."""
    estimator = estimator_with_jumps()
    jumps = jumps_of(estimator.model_)
    sizes = [abs(change) for _, change in jumps]
    assert sizes == sorted(sizes, reverse=True)
    names = [f"x{j} > {t:.6g}" for j, t in zip(JUMPS.features, JUMPS.thresholds, strict=True)]
    assert sorted(names) == sorted(name for name, _ in jumps)
    for name, j, threshold in zip(names, JUMPS.features, JUMPS.thresholds, strict=True):
        rows = np.full((2, 3), 0.2)
        rows[:, j] = threshold - 1e-9, threshold + 1e-9
        assert_allclose(dict(jumps)[name], np.diff(estimator.predict(rows))[0], atol=1e-6)
    assert jumps_of(RVMRegressor(gamma=0.5, residual="none").fit(*rows_with_gaps()).model_) == ()
