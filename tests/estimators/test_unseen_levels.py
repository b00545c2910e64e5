"""A label that the training rows do not have counts as a missing label of its column, in every
prediction, with one warning a call."""

import re
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import RVMClassifier, RVMRegressor, ingest, submit
from partirvm.errors import UnseenLevelWarning
from partirvm.predict import evaluate, predict

QUICK = {"effort": "quick", "reference": "none", "residual": "none", "random_state": 0}
KNOWN_KERNEL = {**QUICK, "kernel": "gaussian", "gamma": 1.0}
KERNELS = {"learned": QUICK, "given": KNOWN_KERNEL}

pytestmark = pytest.mark.usefixtures("quick_learning")


def frame(levels: int, gaps: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with effects of ``levels`` levels, and a second category; every ``gaps``-th label is
    missing."""
    n = 12 * levels if levels > 5 else 60
    rng = default_rng(3)
    codes = rng.integers(0, levels, n)
    x = rng.normal(size=n)
    labels = np.array([f"s{code:02d}" for code in codes], dtype=object)
    if gaps:
        labels[::gaps] = None
    colours = rng.choice(["red", "blue"], n)
    y = 2.0 * rng.normal(size=levels)[codes] + np.sin(2 * x) + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"shop": labels, "x": x, "colour": colours}), y


def rows(label: object) -> pd.DataFrame:
    return pd.DataFrame(
        {"shop": ["s01", label, "s02"], "x": [0.1, 0.2, 0.3], "colour": ["red"] * 3}
    )


def said(call, *arguments, **options):
    """Return the value of a call and the messages of its warnings about unseen levels."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = call(*arguments, **options)
    return value, [str(w.message) for w in caught if w.category is UnseenLevelWarning]


@pytest.mark.parametrize(
    ("levels", "gaps", "kernel"),
    some(product([3, 6, 20], [0, 9], KERNELS), {(3, 0, "learned"), (3, 9, "given")}),
)
def test_an_unseen_level_is_predicted_as_a_missing_label(levels, gaps, kernel):
    """Levels stay codes, become indicators, or become coordinates; with and without missing labels
    in training; with a learned and a given kernel."""
    X, y = frame(levels, gaps=gaps)
    model, _ = said(RVMRegressor(**KERNELS[kernel]).fit, X, y)
    wanted, nothing = said(model.predict, rows(None), return_std=True)
    found, messages = said(model.predict, rows("new"), return_std=True)
    assert_array_equal(found, wanted)
    assert nothing == []
    (message,) = messages
    assert "1 of 3 rows" in message
    assert re.search(r"'shop': 'new'$", message)
    for call in (model.predict_interval, model.predict_quantiles, model.sample_y):
        found, messages = said(call, rows("new"))
        assert_array_equal(found, said(call, rows(None))[0])
        assert len(messages) == 1
    gradient, messages = said(model.predict, rows("new"), return_std=True, return_gradient=True)
    wanted, _ = said(model.predict, rows(None), return_std=True, return_gradient=True)
    for part, other in zip(gradient, wanted, strict=True):
        assert_array_equal(part, other)
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("levels", "kernel"), some([(3, "given"), (20, "learned")], {(3, "given")})
)
def test_gradients_at_a_missing_label_match_differences(levels, kernel):
    X, y = frame(levels)
    model, _ = said(RVMRegressor(**KERNELS[kernel]).fit, X, y)
    _, _, slopes, slopes_of_std = model.predict(rows(None), return_std=True, return_gradient=True)
    step = 1e-5
    ends = []
    for sign in (-1, 1):
        moved = rows(None)
        moved["x"] += sign * step
        ends.append(model.predict(moved, return_std=True))
    for part, gradient in enumerate((slopes, slopes_of_std)):
        difference = (ends[1][part] - ends[0][part]) / (2 * step)
        np.testing.assert_allclose(gradient[:, 1], difference, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("levels", "gaps", "gamma"),
    some(product([3, 20], [0, 9], ["learn", 1.0]), {(3, 9, 1.0)}),
)
def test_classes(levels, gaps, gamma):
    X, y = frame(levels, gaps=gaps)
    model = RVMClassifier(gamma=gamma, effort="quick", random_state=0).fit(X, y > 0)
    found, messages = said(model.predict_proba, rows("new"))
    assert_array_equal(found, said(model.predict_proba, rows(None))[0])
    assert len(messages) == 1


def test_several_columns_and_many_labels_are_named_once():
    X, y = frame(6)
    model = RVMRegressor(**KERNELS["given"]).fit(X, y)
    new = pd.DataFrame({"shop": [f"n{k:02d}" for k in range(12)], "x": 0.0, "colour": "teal"})
    new.loc[0, ["shop", "colour"]] = ["s01", "red"]
    _, (message,) = said(model.predict, new)
    assert "11 of 12 rows" in message
    assert "'shop': 'n01', 'n02'" in message
    assert "… (11 labels)" in message
    assert message.endswith("'colour': 'teal'")


@pytest.mark.parametrize(
    ("code", "kernel"), some(product([-1.0, 6.0, 77.0, 0.5], KERNELS), {(6.0, "given")})
)
def test_codes_that_are_no_level_count_as_missing_labels(code, kernel):
    X, y = frame(6)
    model = RVMRegressor(**KERNELS[kernel]).fit(X, y)
    codes = np.array([[1.0, 0.2, 0.0], [code, 0.2, 0.0]])
    found, messages = said(model.predict, codes, return_std=True)
    codes[1, 0] = np.nan
    assert_array_equal(found, said(model.predict, codes, return_std=True)[0])
    assert len(messages) == 1
    assert_array_equal(found[0], said(model.model_.predict, codes)[0])


def test_explanations():
    X, y = frame(6)
    model = RVMRegressor(**KERNELS["given"]).fit(X, y)
    found, messages = said(model.explain, rows("new"), X[:40])
    wanted, _ = said(model.explain, rows(None), X[:40])
    assert_array_equal(found["values"], wanted["values"])
    assert len(messages) == 1


@pytest.mark.usefixtures("default_fits")
def test_jobs_predict_and_evaluate(tmp_path):
    """A table is read with the model's columns, DATA have their unseen labels counted by
    ``ingest``."""
    X, y = frame(6)
    train = ingest((X, y), tmp_path / "train.zarr")
    job = submit(RVMRegressor(**KERNELS["given"]), tmp_path / "train.zarr", tmp_path / "job")
    job.wait()
    new = rows("new").assign(y=[0.1, 0.2, 0.3])
    new.to_csv(tmp_path / "new.csv", index=False)
    rows(None).assign(y=[0.1, 0.2, 0.3]).to_csv(tmp_path / "gap.csv", index=False)
    in_order = {"like": train, "shuffle": None}  # scores are sums over rows in the files' order
    data, messages = said(ingest, tmp_path / "new.csv", tmp_path / "new.zarr", **in_order)
    assert len(messages) == 1
    assert data.unseen.labels == {"shop": ("new",)}
    wanted = predicted(tmp_path, "gap.csv", 0)
    for name in ("new.csv", "new.zarr"):
        assert_array_equal(predicted(tmp_path, name, 1), wanted)
        scores, messages = said(evaluate, str(tmp_path / "job"), str(tmp_path / name))
        assert len(messages) == 1
        assert scores == said(evaluate, str(tmp_path / "job"), str(tmp_path / "gap.csv"))[0]
    model = RVMRegressor(**KERNELS["given"]).fit(tmp_path / "train.zarr")
    found, messages = said(model.predict, tmp_path / "new.zarr", return_std=True)
    assert_array_equal(np.transpose(found), wanted)
    assert len(messages) == 1


def predicted(folder, name, n_messages):
    """Return a job's predictions, after checking the number of warnings."""
    output = folder / f"{name}.parquet"
    _, messages = said(predict, str(folder / "job"), str(folder / name), str(output))
    assert len(messages) == n_messages
    return pd.read_parquet(output).to_numpy()


def test_appended_rows_with_new_labels(tmp_path):
    X, y = frame(6)
    ingest((X, y), tmp_path / "train.zarr")
    table = rows("new").assign(y=[0.1, 0.2, 0.3])
    data, messages = said(ingest, table, tmp_path / "train.zarr", append=True)
    assert len(messages) == 1
    assert "1 of 3 rows" in messages[0]
    assert int(np.isnan(data.tile(0).X[:, 0]).sum()) == 1
    assert int(data.moments.inputs.missing[0]) == 1
    assert data.unseen.rows == 1


def test_held_out_rows_and_updates():
    X, y = frame(6)
    _, messages = said(
        RVMRegressor(**KERNELS["given"]).fit, X, y, X_val=rows("new"), y_val=[0.0, 0.1, 0.2]
    )
    assert len(messages) == 1
    model = RVMRegressor(**KERNELS["given"]).partial_fit(X, y)
    _, messages = said(model.partial_fit, rows("new"), [0.0, 0.1, 0.2])
    assert len(messages) == 1


def test_without_noise_the_spread_of_effects_is_not_a_multiple_of_nothing():
    """The variance of a level's effect is stored relative to a noise that may be 1e-9 of the final
    one."""
    rng = default_rng(0)
    codes = rng.integers(0, 5, 60)
    x = rng.normal(size=60)
    X = pd.DataFrame({"shop": [f"s{code}" for code in codes], "x": x})
    y = codes + np.sin(x)
    model, _ = said(RVMRegressor(**QUICK).fit, X, y)
    new = pd.DataFrame({"shop": ["s1", "new", None], "x": [0.1, 0.1, 0.2]})
    (_, std), _ = said(model.predict, new, return_std=True)
    assert std[0] < 0.2
    assert (std[1:] > 0.5 * y.std()).all()
    assert (std[1:] < 7.0 * y.std()).all()
