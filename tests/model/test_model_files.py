"""A model on disk: equal bits, no code inside, and every kind of damage is detected."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import naive
import numpy as np
import pandas as pd
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from waiting import PATIENCE

from partirvm import RVMRegressor, load_model, open_job
from partirvm.core import Calibration, LocalQuantiles
from partirvm.errors import DataError, ExistsError, FormatError, MissingDataError, StorageError
from partirvm.kernels import Design, Gaussian
from partirvm.model import Model, save_model
from partirvm.model.files import CODEC, FORMAT, KIND
from partirvm.scaling import Scaling
from partirvm.storage import read_group
from partirvm.types import Columns


def made(m=6, d=3, bias=True, seed=0):
    """Return a random model."""
    rng = default_rng(seed)
    M = m + bias
    scaling = Scaling(rng.normal(size=d), rng.uniform(0.5, 2, d), np.array([12.3]), np.array([4.5]))
    design = Design(
        Gaussian((0.1, 0.0, 0.7)), scaling, rng.normal(size=(m, d)), rng.permutation(100)[:m], bias
    )
    columns = Columns(("a", "ü b", "c"), "fare", {"c": ("x", "y", 3)}, None)
    root = np.triu(rng.normal(size=(M, M)))
    mean = rng.normal(size=M)
    alpha = rng.uniform(0.1, 1e9, M)
    evidence = -123.456789012345678
    return Model(design, mean, root, alpha, evidence, 10**7, columns, 0.1 + 0.2, 0.7)


def coded_rows(n, seed):
    """Return random rows with codes of the model's category."""
    rng = default_rng(seed)
    return np.column_stack([rng.normal(size=(n, 2)), rng.integers(0, 3, n)])


@pytest.mark.parametrize(("m", "bias"), [(6, True), (6, False), (0, True), (0, False), (1, False)])
def test_a_saved_model_has_the_same_bits(place, m, bias):
    """Every array, number and name is equal, and so are predictions."""
    model = made(m, bias=bias)
    save_model(model, place)
    found = load_model(place)
    assert found.digest() == model.digest()
    assert_array_equal(found.design.labels, model.design.labels)
    assert (found.evidence_noise, found.log_evidence) == (0.7, -123.456789012345678)
    X = coded_rows(20, 1)
    for one, other in zip(found.predict(X), model.predict(X), strict=True):
        assert_array_equal(one, other)


def test_a_missing_value_is_the_mean_with_a_larger_deviation():
    """It includes the variance of the means for the values at the vectors, if gamma is not 0."""
    model = made()
    X = default_rng(1).normal(size=(4, 3))
    gaps = X.copy()
    filled = X.copy()
    gaps[1:, 2] = np.nan
    gaps[0, 1] = np.nan
    filled[1:, 2], filled[0, 1] = model.design.scaling.x_shift[2], model.design.scaling.x_shift[1]
    (mean, variance) = model.moments(gaps)[:2]
    (expected, own) = model.moments(filled)[:2]
    assert_array_equal(mean, expected)
    means = [
        model.moments(np.column_stack([X[:, :2], np.full(4, z)]))[0]
        for z in model.design.centres[:, 2]
    ]
    assert_allclose(variance[1:], own[1:] + np.var(means, axis=0)[1:], rtol=1e-10)
    assert variance[0] == own[0]


def test_a_model_contains_only_what_prediction_needs(tmp_path):
    """Files contain no training data and no code, only JSON and the bytes of numbers."""
    X = default_rng(0).normal(size=(3000, 3))
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1] ** 2 + X[:, 2] % 0.3
    options = {"partition_size": 30, "max_rounds": 1, "random_state": 0}
    estimator = RVMRegressor(gamma=0.3, residual="none", **options).fit(X, y)
    save_model(estimator.model_, str(tmp_path / "model"))
    _, arrays = read_group(str(tmp_path / "model"), KIND, FORMAT)
    assert max(len(array) for array in arrays) <= 64
    assert {str(array.dtype) for array in arrays} <= {"float64", "int64"}
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["000000", "group.json"]
    for path in (tmp_path / "model").iterdir():
        assert b"pickle" not in path.read_bytes()
        assert b"partirvm." not in path.read_bytes()


def test_an_existing_model_is_never_overwritten(place):
    with pytest.raises(MissingDataError, match="no model") as caught:
        load_model(place)
    assert isinstance(caught.value, FileNotFoundError)
    save_model(made(seed=0), place)
    with pytest.raises(ExistsError, match="already"):
        save_model(made(seed=1), place)
    assert_array_equal(load_model(place).mean, made(seed=0).mean)


def test_a_failed_save_leaves_nothing(place, monkeypatch):
    """After a full disk, another save succeeds."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def full_for_new_objects(self, path, value, mode="overwrite"):
        return full() if mode == "create" else pipe_file(self, path, value, mode)

    pipe_file = MemoryFileSystem.pipe_file
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        patched.setattr(MemoryFileSystem, "pipe_file", full_for_new_objects)
        with pytest.raises(StorageError, match="No space left"):
            save_model(made(), place)
    save_model(made(), place)
    assert_array_equal(load_model(place).mean, made().mean)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "longer"])
def test_damage_is_detected_in_every_part(tmp_path, number, damage):
    """The error names the part; a missing part is never read as numbers."""
    CODEC.write(made(200), str(tmp_path / "model"), KIND, FORMAT, part_bytes=150_000)
    part = tmp_path / "model" / f"{number:06d}"
    data = part.read_bytes()
    changed = data[:-1] + bytes([data[-1] ^ 1])
    part.unlink()
    if damage != "missing":
        part.write_bytes({"cut": data[:5], "changed": changed, "longer": data + b"1"}[damage])
    with pytest.raises(MissingDataError, match=f"part {part.name} of the model"):
        load_model(str(tmp_path / "model"))


@pytest.mark.parametrize(
    "name", ["centres", "labels", "mean", "root", "alpha", "x_shift", "x_scale", "t_shift"]
)
def test_arrays_of_inconsistent_lengths_are_refused_by_name(name, tmp_path):
    """All checksums agree."""
    model = made()
    owner = next(one for one in (model, model.design, model.design.scaling) if hasattr(one, name))
    array = getattr(owner, name)
    changed = replace(owner, **{name: np.concatenate([array, array[:1]])})
    if owner is model.design.scaling:
        changed = replace(model.design, scaling=changed)
    model = changed if owner is model else replace(model, design=changed)
    save_model(model, str(tmp_path / "model"))
    with pytest.raises(FormatError, match="labels" if name == "centres" else name):
        load_model(str(tmp_path / "model"))


def test_predictions_follow_the_formulas():
    """They are t_shift + t_scale·φᵀμ and σ² + t_scale²·φᵀΣφ (Tipping 2001, eqs. 20 to 22)."""
    model = made()
    X = coded_rows(5000, 2)
    s = model.design.scaling
    gamma = np.array([0.1, 0.0, 0.7])
    K = naive.gaussian(
        (X - s.x_shift) / s.x_scale, (model.design.centres - s.x_shift) / s.x_scale, gamma
    )
    Phi = np.hstack([np.ones((5000, 1)), K])
    mean, variance, nearness = model.moments(X)
    assert_allclose(mean, 12.3 + 4.5 * Phi @ model.mean, rtol=1e-10)
    Sigma = model.root @ model.root.T
    assert_allclose(variance, 0.3 + 4.5**2 * np.einsum("nm,mk,nk->n", Phi, Sigma, Phi), rtol=1e-10)
    assert model.moments(X, variance=False)[1] is None
    assert_array_equal(model.predict(X), mean)
    stated = np.sqrt(model.predictive.moments(X)[1])
    assert_array_equal(model.predict(X.tolist(), return_std=True), [mean, stated])
    assert model.intercept == pytest.approx(12.3 + 4.5 * model.mean[0])
    assert_allclose(nearness, K.max(axis=1), rtol=1e-10)
    assert_array_equal(made(m=0).moments(X)[2], 1.0)


class Tall(Gaussian):
    """A Gaussian with a peak of 1e-6 that counts its evaluations."""

    evaluated = 0

    def prepare(self, centres, origin=None):
        inner = super().prepare(centres, origin)

        def evaluate(points, out):
            type(self).evaluated += len(points)
            inner(points, out)
            out *= 1e-6

        return evaluate

    def diagonal(self, points):
        return 1e-6 * super().diagonal(points)


@pytest.mark.parametrize("bias", [True, False])
def test_nearness_is_a_fraction_of_the_peak(bias):
    """The kernel may have any height, and is evaluated once per row."""
    plain = made(bias=bias)
    tall = replace(plain, design=replace(plain.design, kernel=Tall(plain.design.kernel.gamma)))
    X = np.concatenate([plain.design.centres, np.full((3, 3), 1e3)])
    Tall.evaluated = 0
    nearness = tall.moments(X)[2]
    assert Tall.evaluated == len(X)
    assert_allclose(nearness, plain.moments(X)[2], rtol=1e-10)
    assert_array_equal(nearness < 1e-4, [False] * 6 + [True] * 3)


@pytest.mark.parametrize(
    ("X", "says"),
    [
        ([["a", "b", "c"]], "X holds complex numbers, text"),
        ([[1.0, np.inf, 2.0]], "infinite values"),
        ([1.0, 2.0, 3.0], "3 features"),
        (
            pd.DataFrame([[1.0, 2.0, 3.0]], columns=["ü b", "a", "d"]),
            "lacks columns .*: c. It has ü b, a, d",
        ),
    ],
)
def test_invalid_rows_are_refused(X, says):
    with pytest.raises(DataError, match=says):
        made().predict(X)


def test_a_calibration_is_saved_and_is_part_of_the_digest(tmp_path):
    """Other quantiles give other predicted deviations."""
    model = replace(made(), calibration=Calibration(40, 0.3, 1.1, 0.75, (0.5, 1.9)))
    save_model(model, tmp_path / "m")
    found = load_model(tmp_path / "m")
    assert found.calibration == model.calibration
    assert found.digest() == model.digest()
    wider = replace(model, calibration=Calibration(40, 0.3, 1.1, 0.75, (0.5, 2.9)))
    assert wider.digest() != model.digest()
    X = coded_rows(5, 2)
    assert (wider.predict(X, return_std=True)[1] > model.predict(X, return_std=True)[1]).all()


LOCAL = LocalQuantiles(np.log([3.5, 5.6]), np.array([[-3.0, -0.5, 1.0], [-1.0, 0.5, 4.0]]))
"""Quantiles at probabilities ½ − ½ top, ½, and ½ + ½ top, at two standard deviations."""


def test_the_ends_of_intervals_depend_on_the_standard_deviation_and_are_saved(tmp_path):
    """Knots are in the model's units, before the factor on the predicted deviation; quantiles are
    linear in the logarithm between them."""
    calibration = Calibration(500, 0.3, 1.1, 0.75, (0.5, 1.9), LOCAL)
    model = replace(made(), calibration=calibration)
    X = coded_rows(50, 2)
    mean, std = model.predict(X, return_std=True)
    plain = replace(made(), calibration=replace(calibration, local=None))
    assert_array_equal(plain.predict(X, return_std=True)[1], std)
    s = std / calibration.scale
    places = np.clip(np.log(s / (3.5 * 4.5)) / np.log(1.6), 0.0, 1.0)
    assert len(np.unique(places)) > 2
    ends = np.column_stack([-3.0 + 2.0 * places, 1.0 + 3.0 * places])
    found = model.interval(0.75)(X)[0]
    assert_allclose(found, mean[:, None] + ends * s[:, None])
    middle = model.quantiles([0.5])(X)[0][:, 0]
    assert_allclose(middle, mean + (places - 0.5) * s)
    save_model(model, tmp_path / "m")
    assert_array_equal(load_model(tmp_path / "m").interval(0.75)(X)[0], found)


@pytest.mark.parametrize(
    "changed",
    [
        {"knots": np.log([5.6, 3.5])},
        {"knots": np.array([0.0, np.nan])},
        {"knots": np.zeros(1)},
        {"knots": np.zeros(0), "quantiles": np.zeros((0, 3))},
        {"quantiles": np.zeros((2, 4))},
        {"quantiles": np.zeros((2, 1))},
        {"quantiles": np.zeros(2)},
        {"quantiles": np.array([[0.0, 1.0, np.inf]] * 2)},
        {"quantiles": np.array([[0.0, 1.0, 0.5]] * 2)},
    ],
)
def test_local_quantiles_that_are_not_in_order_are_refused(tmp_path, changed):
    calibration = Calibration(500, 0.3, 1.1, 0.75, (0.5, 1.9), replace(LOCAL, **changed))
    wrong = replace(made(), calibration=calibration)
    CODEC.write({"model": wrong, "estimator": None}, f"{tmp_path}/model", KIND, FORMAT)
    with pytest.raises(FormatError):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "version", sorted(Path(__file__).with_name("stored").iterdir()), ids=lambda path: path.name
)
def test_files_from_earlier_versions_are_read(version, tmp_path):
    """Means and probabilities follow the formulas, and a job is resumed."""
    job = open_job(shutil.copytree(version / "job", tmp_path / "job"))
    for name in ("job", "regressor", "classifier"):
        model = load_model(version / name) if name != "job" else job.model()
        own = np.load(version / f"{name}.npz")
        X, centres = (
            (rows - own["x_shift"]) / own["x_scale"] for rows in (own["X"], own["centres"])
        )
        Phi = np.hstack(
            [np.ones((len(X), int(own["bias"]))), naive.gaussian(X, centres, own["gamma"])]
        )
        f = (Phi @ own["mean"]).ravel()
        found = model.predict(own["X"])
        expected = own["t_shift"] + own["t_scale"] * f
        if name == "classifier":
            variance = np.sum(Phi @ own["covariance"] * Phi, axis=1)
            found = model.predict_proba(own["X"])[:, 1]
            expected = 1 / (1 + np.exp(-f / np.sqrt(1 + np.pi * variance / 8)))
        assert_allclose(found, expected, rtol=1e-9)
    job.resume(data=version / "data.zarr", max_rounds=2)
    assert (job.wait(timeout=PATIENCE), job.model().n_rows) == ("done", 100)
