"""Models with forged arrays and numbers but valid checksums are refused, or they predict.

The default run changes a few values in each kind of model, the slow tests change all values.
"""

import copy
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm import RVMClassifier, RVMRegressor, load_model, save_model
from partirvm.errors import FormatError, PartirvmError
from partirvm.model import files
from partirvm.model.files import FORMAT, KIND
from partirvm.storage import read_group, write_group

RNG = default_rng(0)
X = RNG.normal(size=(80, 3))
GAPS = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
CODES = np.column_stack([X[:, :2], RNG.integers(0, 3, 80)])
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=80)
LABELS = pd.DataFrame(CODES, columns=["a", "b", "c"]).assign(
    c=pd.Categorical(RNG.integers(0, 10, 80))
)
EFFECTS = LABELS.c.cat.codes * (1.0 + LABELS.a)
QUICK = {"max_rounds": 1, "random_state": 0, "gamma": 0.3}

MODELS = {
    "regression": lambda: RVMRegressor(**QUICK, residual="none").fit(X, Y),
    "basis": lambda: RVMRegressor(**QUICK, residual="none", basis="linear").fit(X, Y),
    "targets": lambda: RVMRegressor(**QUICK, residual="none").fit(
        X, np.column_stack([Y, X[:, 1] + 0.1 * Y])
    ),
    "local residuals": lambda: RVMRegressor(**QUICK, residual="local").fit(X, Y),
    "local noise": lambda: RVMRegressor(**QUICK, residual="none", noise="local").fit(X, Y),
    "gaps": lambda: RVMRegressor(**QUICK, residual="none").fit(GAPS, Y),
    "two classes": lambda: RVMClassifier(**QUICK).fit(X, Y > 0),
    "three classes": lambda: RVMClassifier(**QUICK).fit(X, np.digitize(Y, [-0.3, 0.3])),
    "learned": lambda: RVMRegressor(max_rounds=1, random_state=0, residual="none").fit(
        np.exp(X), np.exp(Y)
    ),
    "levels": lambda: RVMRegressor(max_rounds=1, random_state=0, residual="none").fit(
        LABELS, EFFECTS + Y
    ),
}


def changed(array):
    """Yield an array in each form that an attacker may give it."""
    for kind in ("c16", "f4", "i4", "?", "i8", "f8"):
        yield kind, array.astype(kind)
    flat = np.atleast_1d(array)
    for value in (np.nan, np.inf, -np.inf, -1.0, 0.0, 0.5, 1e300, 2**40):
        other = flat.astype(float)
        if other.size:
            other.reshape(-1)[other.size // 2] = value
            if array.dtype.kind == "i" and np.isfinite(value):
                other = other.astype(array.dtype)
            yield f"value {value}", other.reshape(array.shape)
    yield "empty", flat[:0]
    yield "longer", np.concatenate([flat, flat])
    yield "wider", np.repeat(flat, 2, axis=-1)
    yield "flat", flat.reshape(-1)
    yield "deeper", flat[None]


NUMBERS = [None, True, -1, 0, 3, 10**12, 0.5, 1e300, np.nan, np.inf, "a", [], {"tuple": []}]


def leaves(tree, path=()):
    """Yield the path of each number in a JSON value; of lists only the first two entries."""
    items = []
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = list(enumerate(tree))[:2]
    for key, part in items:
        yield from leaves(part, (*path, key))
    if isinstance(tree, int | float) and "arrays" not in path:
        yield path


def forgeries(tree, arrays):
    """Yield every forged model: one array or one number in the JSON is changed."""
    for k, array in enumerate(arrays):
        for name, other in changed(array):
            yield f"array {k} {array.shape} {name}", tree, [*arrays[:k], other, *arrays[k + 1 :]]
    for path in leaves(tree["value"]):
        for value in NUMBERS:
            other = copy.deepcopy(tree)
            part = other["value"]
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
            yield f"number {path} {value!r}", other, arrays


def outcome(place, rows):
    """Return "refused" or "predicts", depending on the model's result for these rows; anything else
    fails."""
    try:
        model = load_model(place)
    except FormatError:
        return "refused"
    try:
        if isinstance(model, RVMRegressor):
            mean, std = model.predict(rows, return_std=True)
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
        else:
            assert np.isfinite(model.predict_proba(rows)).all()
            model.predict(rows)
    except PartirvmError:
        return "refused"
    return "predicts"


@pytest.mark.usefixtures("forgeries")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "share"),
    some(
        [(name, share) for name in MODELS for share in (100, 1)],
        [(name, 100) for name in MODELS if name != "learned"],
    ),
)
def test_a_forged_model_is_refused_or_predicts(name, share, tmp_path):
    model = MODELS[name]()
    save_model(model, tmp_path / "m")
    rows = LABELS if name == "levels" else CODES
    assert outcome(tmp_path / "m", rows[:5]) == "predicts"
    assert_array_equal(load_model(tmp_path / "m").predict(rows), model.predict(rows))
    tree, arrays = read_group(str(tmp_path / "m"), KIND, FORMAT)
    raw = []
    found = {"refused": 0, "predicts": 0}
    for number, (what, other, others) in enumerate(forgeries(tree, arrays)):
        if number % share:
            continue
        place = tmp_path / "forged"
        write_group(other, others, str(place), KIND, FORMAT)
        try:
            found[outcome(place, rows[:5])] += 1
        except Exception as error:
            raw.append(f"{what}: {type(error).__name__} {error}")
        shutil.rmtree(place)
    print(name, found, len(raw))
    assert raw == []
    assert found["refused"] > found["predicts"] / 5


@pytest.fixture(scope="module")
def embedded_model():
    """Return a fitted model whose third feature has a table, effects of numbers, and
    uncertainties."""
    model = MODELS["levels"]()
    features = model.model_.design.scaling.features
    assert [j for j, _ in features.tables] == [j for j, _ in features.doubts] == [2]
    return model


def with_features(model, **changes):
    """Return the model with other fields in its feature map."""
    scaling = model.model_.design.scaling
    scaling = replace(scaling, features=replace(scaling.features, **changes))
    return replace(model.model_, design=replace(model.model_.design, scaling=scaling))


TABLE = np.zeros((9, 12, 1))
DOUBTS = np.zeros((9, 12))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changes",
    [
        {"doubts": ((2, np.where(np.arange(12) == 4, -1e-3, DOUBTS)),)},
        {"doubts": ((2, np.where(np.arange(12) == 4, np.nan, DOUBTS)),)},
        {"doubts": ((2, DOUBTS[0]),)},
        {"doubts": ((2, DOUBTS[:0]),)},
        {"doubts": ((2, DOUBTS[:, :2]),)},
        {"doubts": ((2, DOUBTS.astype(np.int64)),)},
        {"doubts": ((3, DOUBTS),)},
        {"doubts": ((-1, DOUBTS),)},
        {"doubts": ((2, DOUBTS), (2, DOUBTS))},
        {"share": -0.5},
        {"share": 0.0},
        {"share": float("nan")},
        {"share": float("inf")},
        {"tables": ((2, TABLE[0]),)},
        {"tables": ((2, TABLE[:, :, :0]),)},
        {"tables": ((2, np.full_like(TABLE, np.nan)),)},
        {"tables": ((0, TABLE), (0, TABLE))},
        {"tables": ()},
        {"effects": ((2, TABLE[0]),)},
        {"effects": ((2, TABLE[:, :, [0, 0]]),)},
        {"effects": ((7, TABLE),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_forged_level_tables_are_refused(changes, embedded_model, tmp_path):
    """Their dimensions are folds, levels and coordinates; ``doubts`` are variances."""
    files.save_model(with_features(embedded_model, **changes), tmp_path / "m")
    with pytest.raises(FormatError):
        files.load_model(tmp_path / "m")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["two classes", "three classes"])
@pytest.mark.parametrize(
    "forge", [lambda labels: labels[:0], lambda labels: labels[:1], lambda labels: labels[None]]
)
def test_an_estimator_has_as_many_labels_as_its_model(name, forge, tmp_path):
    """``classes_`` is stored separately, in the dtype of y."""
    model = MODELS[name]()
    save_model(model, tmp_path / "m")
    tree, arrays = read_group(str(tmp_path / "m"), KIND, FORMAT)
    labels = model.classes_
    (place,) = [
        k
        for k, array in enumerate(arrays)
        if array.dtype == labels.dtype and np.array_equal(array, labels)
    ]
    arrays[place] = forge(arrays[place])
    write_group(tree, arrays, str(tmp_path / "f"), KIND, FORMAT)
    with pytest.raises(FormatError, match="classes_ have another number"):
        load_model(tmp_path / "f")
