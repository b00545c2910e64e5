"""Exports to ONNX Runtime, C and NumPy give the same predictions as the model in Python."""

import ctypes
import shutil
import subprocess
from dataclasses import replace
from itertools import product

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from by_default import some
from exported import assert_exported, numpy_export, reader_in, run_alone
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import RVMClassifier, RVMRegressor, kernels
from partirvm.core import Calibration, Correction, LocalQuantiles, Ramp
from partirvm.errors import UsageError
from partirvm.export.graph import SINGLE
from partirvm.kernels import Basis, Design, LocalNoise, OnColumns
from partirvm.model import ClassModel, Model
from partirvm.scaling import FeatureMap, Scaling, TargetMap
from partirvm.types import Columns

KERNELS = [
    kernels.Gaussian((0.3, 0.0, 1.2)),
    kernels.Matern32(0.4),
    kernels.Matern52((0.2, 0.7, 0.1)),
    kernels.Laplacian(0.5),
    kernels.Linear(),
    kernels.LinearSpline(),
    kernels.Polynomial(0.3, degree=2),
    kernels.Directions(kernels.Matern52((0.5, 0.2)), ((1.0, -0.5, 0.3), (0.2, 0.8, 0.0))),
    kernels.Product(
        (OnColumns(kernels.Gaussian(0.5), (0, 1)), OnColumns(kernels.Categorical(0.7), (2,)))
    ),
    kernels.Sum((kernels.Gaussian(0.1), kernels.Matern32(2.0)), (0.7, 0.3)),
    kernels.Several((kernels.Gaussian(0.1), kernels.Laplacian(1.0))),
    kernels.Anova((0.3, 0.0, 1.2), (0.5, 0.2, 2.0)),
    kernels.Anova(0.4, (0.5, 0.0, 2.0), base="matern32", categorical=(2,)),
    kernels.Anova(0.4, (0.5, 1.0, 2.0), base="laplacian", order=2),
]

OF_NUMBERS = ("mean", "std", "lower", "upper")
OF_CLASSES = ("label", "probabilities")

TOLERANCES = {
    "float64": (1e-10, 1e-10),
    "float32": (1e-4, 1e-3),
    "int16": (1e-4, 2 * SINGLE / 65534),
}
"""Maximum errors of means and standard deviations, in deviations of the target; a far row may
itself be large. A column of integers has an error of half a step of 1/32767; at most ``SINGLE`` of
these add up, and intervals double the error.

A column of integers has half a step of 1/32767 as error, at most ``SINGLE`` of them add up, and
intervals double it."""


def random_model(seed):
    """Return a model with random weights; ``seed`` chooses kernel, scaling and observation
    model."""
    rng = default_rng(seed)
    turn = seed // len(KERNELS)
    kernel = KERNELS[seed % (4 if turn % 4 == 3 else len(KERNELS))]
    m = int(rng.integers(3, 9))
    count = len(kernel.kernels) if isinstance(kernel, kernels.Several) else 1
    scaling = random_scaling(rng, seed, turn)
    if scaling.features is not None:
        several = isinstance(kernel, kernels.Several)
        kernel = kernels.Gaussian(0.2) if several else OnColumns(kernel, (0, 1, 2))
        count = 1
    centres = np.column_stack([rng.normal(size=(m, 2)), rng.integers(0, 4, m)])
    labels = np.arange(m * count)[::count] + rng.integers(0, count, m)
    design = Design(kernel, scaling, centres, labels, bool(seed % 2))
    if turn % 4 == 2:
        design = replace(design, functions=Basis((("linear", 3),)), active=np.array([0, 2]))
    M = design.n_columns
    n_classes = 0 if turn % 2 == 0 or scaling.target.kind != "none" else 2 + seed % 3
    root = np.triu(0.2 * rng.normal(size=(M, M)))
    facts = {"alpha": rng.uniform(0.1, 10.0, M), "log_evidence": 0.0, "n_rows": 200}
    if not n_classes:
        return random_regression(rng, turn, design, root, facts)
    return random_classification(rng, seed, n_classes, design, root, facts)


def random_scaling(rng, seed, turn):
    """Return a scaling of three features, the last of them codes, with warps, gaps and a target
    map."""
    features = None
    if turn % 3 == 1:
        features = FeatureMap(np.array([0.3, 0.0, 0.0]), np.array([0.5, 0.0, 0.0]), np.array([1]))
    d = 3 if features is None else 4
    shift = rng.normal(size=d)
    scale = rng.uniform(0.5, 2.0, d)
    shift[2] = 0.0
    scale[2] = 1.0
    kinds = ("none", "asinh", "log") if turn % 4 == 3 else ("none",)
    target = TargetMap(kinds[seed % len(kinds)], 0.2, 1.5)
    filling = None
    if features is not None:
        filling = 0.1 * rng.normal(size=(d, d)) * (1 - np.eye(d))
    of_target = np.array([3.0]), np.array([0.8])
    return Scaling(shift, scale, *of_target, features, target, np.zeros(d), filling)


def random_regression(rng, turn, design, root, facts):
    """Return a regression model with local noise or a reach; every third one has intervals that
    depend on the standard deviation."""
    M = len(root)
    if turn % 3 == 1:
        quantiles = np.sort(rng.normal(size=(4, 5)))
        local = LocalQuantiles(np.log([0.1, 0.5, 0.6, 2.0]), quantiles)
        facts |= {"calibration": Calibration(400, 0.01, 1.0, 0.97, (1.0, 2.0), local)}
    if turn % 5 == 4:
        centres = rng.normal(size=(4, len(design.scaling.x_shift)))
        noise = LocalNoise(kernels.Gaussian(0.3), centres, 0.5 * rng.normal(size=4), 0.1)
        design = replace(design, noise=noise)
    elif design.kernel.local:
        facts |= {"reach": 0.7, "prior_variance": 0.5}
    facts |= {"noise_variance": 0.01, "evidence_noise": 0.01, "known_noise": True}
    facts["known_alpha"] = tuple(range(M))  # a random root does not belong to an optimum
    names = Columns(("a", "b", "c"))
    return Model(design, 0.3 * rng.normal(size=M), root, columns=names, **facts)


def random_classification(rng, seed, n_classes, design, root, facts):
    """Return a classifier with one output or one for each class, with a ramp or without."""
    C = 1 if n_classes == 2 and seed % 3 else n_classes
    ramp = None if C == 1 or seed % 2 else Ramp(0.1, 3.0)
    link = "bernoulli" if n_classes == 2 else "multinomial"
    roots = np.stack([root] * C) if ramp is None else root[None]
    if C == 2 and ramp is None:
        ramp = Ramp(0.3, 1.0)
    if ramp is not None and C > 2:
        ramp = replace(ramp, correction=Correction(rng.normal(size=(C, C)), rng.normal(size=C)))
    weights = rng.normal(size=(len(root), C))
    facts |= {"likelihood": link, "moderate": ramp is None, "ramp": ramp}
    names = Columns(("a", "b", "c"), classes=tuple("xyzw"[:n_classes]))
    return ClassModel(design, weights, roots, columns=names, **facts)


def rows_of(model, seed):
    """Return rows near the centres and far away, with gaps if the model was fitted with gaps."""
    rng = default_rng(seed + 1000)
    centres = model.design.centres
    near = centres[rng.integers(0, len(centres), 12)] + np.column_stack(
        [rng.normal(size=(12, 2)), np.zeros(12)]
    )
    X = np.concatenate([near, near[:2] * [50.0, 50.0, 1.0]])
    if model.design.scaling.features is not None:
        X[3, 1] = np.nan
    return X.astype(np.float32).astype(float)


def stated(model, X):
    """Return the model's predictions by name."""
    if isinstance(model, ClassModel):
        return {"probabilities": model.predict_proba(X), "label": model.predict(X)}
    mean, std = model.predict(X, return_std=True)
    lower, upper = model.interval(0.95)(X)[0].T
    return {"mean": mean, "std": std, "lower": lower, "upper": upper}


def agrees(found, model, X, dtype):
    """Assert that outputs by name equal those of the model."""
    unit = 1.0 if isinstance(model, ClassModel) else 0.8
    for name, expected in stated(model, X).items():
        if name == "label":
            top = np.sort(stated(model, X)["probabilities"], axis=1)
            sure = top[:, -1] - top[:, -2] > 1e-3
            assert (found[name].ravel()[sure] == expected[sure]).all()
            continue
        most = TOLERANCES[dtype][name != "mean" and name != "probabilities"]
        size = np.maximum(np.abs(expected), unit)
        assert_allclose(
            found[name].reshape(expected.shape) / size, expected / size, rtol=0, atol=most
        )


def test_missing_values_of_one_row_are_predicted_from_each_other(tmp_path):
    """x0 = .8 x1 + .5 x2 and x1 = .8 x0 + .5 x2 are solved by sweeps: one would not be enough."""
    rng = default_rng(0)
    regressions = np.zeros((5, 5))
    regressions[0, 1:3] = regressions[1, [0, 2]] = 0.8, 0.5
    features = FeatureMap(np.zeros(3), np.zeros(3), np.array([0, 1]))
    scaling = Scaling(
        np.zeros(5), np.ones(5), np.array([3.0]), np.array([0.8]), features, TargetMap(),
        np.zeros(5), regressions,
    )  # fmt: skip
    X = rng.normal(size=(6, 3))
    X[1:3, 0] = X[2:5, 1] = np.nan
    assert scaling.inputs(X)[2, :2] == pytest.approx(2.5 * X[2, 2], rel=0.02)
    model = regression_of(OnColumns(kernels.Gaussian(0.2), (0, 1, 2)), scaling, rng)
    found = numpy_export(model, tmp_path)(X)
    assert_allclose([found["mean"], found["std"]], model.predict(X, return_std=True), rtol=1e-9)


@pytest.mark.parametrize("calibrated", [True, False])
def test_local_noise_is_exported_with_and_without_calibration(tmp_path, calibrated):
    """A calibrated noise variance has the whole factor, one of the evidence has its root."""
    rng = default_rng(0)
    scaling = Scaling(np.zeros(3), np.ones(3), np.array([3.0]), np.array([0.8]))
    model = regression_of(kernels.Gaussian(0.3), scaling, rng)
    noise = LocalNoise(kernels.Gaussian(0.3), rng.normal(size=(4, 3)), rng.normal(size=4), 0.1)
    calibration = Calibration(200, 0.02, 1.5, 0.95, ()) if calibrated else None
    design = replace(model.design, noise=noise)
    model = replace(model, design=design, calibration=calibration)
    X = rng.normal(size=(20, 3))
    found = numpy_export(model, tmp_path)(X)
    assert_allclose([found["mean"], found["std"]], model.predict(X, return_std=True), rtol=1e-9)


def regression_of(kernel, scaling, rng):
    """A model of five centres and a bias with random weights."""
    design = Design(kernel, scaling, rng.normal(size=(5, 3)), np.arange(5), True)
    root = np.triu(0.2 * rng.normal(size=(6, 6)))
    noise = {"noise_variance": 0.01, "evidence_noise": 0.01, "known_noise": True}
    names = Columns(("a", "b", "c"))
    known = {"known_alpha": tuple(range(6)), **noise}
    return Model(design, rng.normal(size=6), root, np.ones(6), 0.0, 200, names, **known)


def compiled(models, dtype, folder, compiler):
    """Return a library with a function ``run<k>`` for each model, compiled with warnings as
    errors."""
    real = "double" if dtype == "float64" else "float"
    text = ""
    for k, model in enumerate(models):
        names = OF_CLASSES if isinstance(model, ClassModel) else OF_NUMBERS
        model.to_c(folder / f"m{k}.h", dtype, names)
        K = len(model.classes) if isinstance(model, ClassModel) else 1
        outputs = ", ".join(f"{'int' if name == 'label' else real} *{name}" for name in names)
        call = ", ".join(
            f"{name} + n{f' * {K}' if name == 'probabilities' else ''}" for name in names
        )
        text += f'#include "m{k}.h"\nvoid run{k}(int N, const {real} *x, {outputs}) {{\n'
        text += f"    for (int n = 0; n < N; n++) m{k}_predict(x + n * 3, {call});\n}}\n"
        text += f"double test{k}(void) {{ return m{k}_self_test(); }}\n"
    (folder / "models.c").write_text(text)
    flags = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-pedantic",
        "-Werror",
        "-O0",
        "-shared",
        "-fPIC",
    ]
    program = folder / f"{dtype}.so"
    subprocess.run([compiler, *flags, folder / "models.c", "-o", program, "-lm"], check=True)
    return ctypes.CDLL(str(program))


def in_c(library, k, model, X, dtype):
    """Return the outputs of a compiled model."""
    self_test = library[f"test{k}"]
    self_test.restype = ctypes.c_double
    assert self_test() <= 10 * TOLERANCES[dtype][1]
    names = OF_CLASSES if isinstance(model, ClassModel) else OF_NUMBERS
    dtype = dtype.replace("int16", "float32")
    X = np.ascontiguousarray(X, dtype)
    widths = {"probabilities": len(model.classes) if isinstance(model, ClassModel) else 1}
    found = {
        name: np.zeros((len(X), widths.get(name, 1)), np.int32 if name == "label" else dtype)
        for name in names
    }
    library[f"run{k}"](
        len(X), *(ctypes.c_void_p(each.ctypes.data) for each in (X, *found.values()))
    )
    if "label" in found:
        found["label"] = np.array(model.classes)[found["label"]]
    return found


FEW = [10, *range(0, 220, 13)]
"""Each kernel, scaling and likelihood occurs once or twice; the columns of model 10 have two
kernels in an order that is not its own inverse."""

SEEDS = some([FEW, range(220)], [FEW])


@pytest.mark.parametrize(
    ("seeds", "dtype"),
    some(
        product([range(0, 220, 52), FEW, range(220)], ["float64", "float32"]),
        [(FEW, "float64"), (range(0, 220, 52), "float32")],
    ),
)
def test_onnx_and_numpy_predictions_equal_those_of_the_model(seeds, dtype, tmp_path):
    load = None
    for seed in seeds:
        model = random_model(seed)
        X = rows_of(model, seed)
        names = OF_CLASSES if isinstance(model, ClassModel) else OF_NUMBERS
        model.to_numpy(tmp_path / "model.npz", dtype, names)
        load = load or reader_in(tmp_path)
        agrees(load(tmp_path / "model.npz")(X), model, X, dtype)
        model.to_onnx(tmp_path / "model.onnx", dtype, names)
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        outputs = session.run(list(names), {"X": X.astype(dtype)})
        agrees(dict(zip(names, outputs, strict=True)), model, X, dtype)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("dtype", some(["float64", "float32", "int16"], {"float32"}))
@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("compiler", some(["gcc", "clang"], {"gcc"}))
def test_c_predictions_equal_those_of_the_model(seeds, dtype, compiler, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed: the C form is not compiled")
    models = [random_model(seed) for seed in seeds]
    library = compiled(models, dtype, tmp_path, compiler)
    for k, (seed, model) in enumerate(zip(seeds, models, strict=True)):
        X = rows_of(model, seed)
        agrees(in_c(library, k, model, X, dtype), model, X, dtype)


@pytest.mark.usefixtures("processes")
@pytest.mark.usefixtures("quick_learning")
def test_an_export_does_not_need_partirvm_and_refusals_give_advice(tmp_path):
    rng = default_rng(0)
    X = rng.normal(size=(60, 2))
    classes = np.array(["no", "yes"])
    model = RVMClassifier(random_state=0).fit(X, classes[(X[:, 0] > 0).astype(int)])
    model.to_numpy(tmp_path / "model.npz")
    code = (
        "from model_predict import load; "
        f"print(load('model.npz')({X[:5].tolist()})['label'].tolist()); "
        "assert 'partirvm' not in sys.modules"
    )
    assert run_alone(code, tmp_path).strip() == str(model.predict(X[:5]).tolist())
    with pytest.raises(UsageError, match=r"no output 'mean': outputs are label, probabilities"):
        model.to_onnx(tmp_path / "model.onnx", outputs=("mean",))
    with pytest.raises(UsageError, match="begin the file name with a letter"):
        model.to_c(tmp_path / "1.h")
    local = RVMRegressor("gaussian", gamma=0.3, residual="local", random_state=0).fit(
        X, X[:, 0] + rng.normal(size=60)
    )
    with pytest.raises(UsageError, match=r"export model\.sparse\(\)"):
        local.to_c(tmp_path / "model.h")
    assert {each.name for each in tmp_path.iterdir()} == {"model.npz", "model_predict.py"}


@pytest.mark.usefixtures("processes")
@pytest.mark.usefixtures("quick_learning")
def test_the_self_test_of_a_header_uses_levels_without_folds(tmp_path):
    """Vectors encode the fold, which a header does not know."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed: the C form is not compiled")
    rng = default_rng(0)
    codes = rng.integers(0, 12, 300)
    effects = 2.0 * rng.normal(size=12)
    frame = pd.DataFrame(
        {"a": rng.normal(size=300), "b": rng.normal(size=300), "c": pd.Categorical(codes)}
    )
    y = effects[codes] + frame.a + 0.2 * rng.normal(size=300)
    model = (
        RVMRegressor(random_state=0, residual="none", reference="none", max_rounds=1)
        .fit(frame, y)
        .model_
    )
    assert model.design.scaling.features.folded
    X = np.array([[0.1, 0.2, 3.0], [0.1, 0.2, 77.0]])
    found = in_c(compiled([model], "float64", tmp_path, "gcc"), 0, model, X, "float64")
    agrees(found, model, np.where(X == 77.0, np.nan, X), "float64")


@pytest.mark.usefixtures("default_fits")
def test_a_missing_label_in_an_embedded_column_is_exported_like_an_unknown_one(tmp_path):
    """The variance of a level unseen in training counts once."""
    rng = default_rng(0)
    codes = rng.integers(0, 12, 400)
    labels = [f"l{code:02d}" for code in codes]
    x = rng.normal(size=400)
    y = rng.normal(0.0, 2.0, 12)[codes] + np.sin(2 * x) + 0.1 * rng.normal(size=400)
    options = {"residual": "none", "reference": "none", "noise": "constant", "random_state": 0}
    model = RVMRegressor(**options).fit(pd.DataFrame({"x": x, "label": labels}), y)
    rows = np.array([[0.3, 2.0], [0.3, np.nan], [0.3, 17.0]])
    _, std = model.model_.predictive.values(rows)[0].T
    assert std[1] == pytest.approx(std[2])
    assert_exported(model, tmp_path, rows)
