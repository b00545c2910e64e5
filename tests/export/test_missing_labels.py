"""Exported models treat a code that is no level, and a missing label, as Python treats a missing
label."""

import shutil
import subprocess
import warnings
from itertools import product

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from by_default import some
from exported import numpy_export
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm import RVMClassifier, RVMRegressor

QUICK = {"effort": "quick", "random_state": 0}
LEARNED = {**QUICK, "residual": "none", "reference": "none"}
GIVEN = {**LEARNED, "kernel": "gaussian", "gamma": 1.0}


def frame(levels, gaps):
    """Rows with two categories, the first of which has ``levels`` levels and perhaps gaps."""
    rng = default_rng(3)
    n = 120
    codes = rng.integers(0, levels, n)
    labels = np.array([f"s{code:02d}" for code in codes], dtype=object)
    if gaps:
        labels[::gaps] = None
    x = rng.normal(size=n)
    colours = rng.choice(["red", "blue"], n)
    y = 2.0 * rng.normal(size=levels)[codes] + np.sin(2 * x) + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"shop": labels, "x": x, "colour": colours}), y


def rows(levels):
    """Codes of known levels, gaps, and numbers that are no level, in one or both columns."""
    shops = [1.0, np.nan, levels, -1.0, 77.0, 1.0, np.nan]
    colours = [0.0, 0.0, 1.0, 1.0, 0.0, 5.0, np.nan]
    return np.column_stack([shops, np.linspace(-1, 1, 7), colours])


def quietly(call, *arguments, **options):
    """Return the value of a call without its warnings, which other tests read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


@pytest.mark.parametrize(
    "options", [pytest.param(LEARNED, marks=pytest.mark.slow), GIVEN], ids=["learned", "given"]
)
@pytest.mark.parametrize(("levels", "gaps"), some(product([3, 6, 20], [0, 9]), {(3, 0), (20, 9)}))
def test_numpy(levels, gaps, options, tmp_path):
    model = quietly(RVMRegressor(**options).fit, *frame(levels, gaps))
    X = rows(levels)
    found = numpy_export(model, tmp_path)(X)
    mean, std = quietly(model.predict, X, return_std=True)
    assert_allclose(found["mean"].ravel(), mean, rtol=1e-9, atol=1e-9)
    assert_allclose(found["std"].ravel(), std, rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [pytest.param(QUICK, marks=pytest.mark.slow), {**QUICK, "kernel": "gaussian", "gamma": 1.0}],
    ids=["learned", "given"],
)
@pytest.mark.parametrize("levels", some([3, 20], {3}))
def test_classes(levels, options, tmp_path):
    X, y = frame(levels, 0)
    model = quietly(RVMClassifier(**options).fit, X, y > 0)
    found = numpy_export(model, tmp_path)(rows(levels))
    expected = quietly(model.predict_proba, rows(levels))
    assert_allclose(found["probabilities"], expected, rtol=1e-9, atol=1e-9)


def test_onnx(tmp_path):
    model = quietly(RVMRegressor(**GIVEN).fit, *frame(3, 0))
    model.to_onnx(tmp_path / "model.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    found = session.run(["mean", "std"], {session.get_inputs()[0].name: rows(3)})
    expected = quietly(model.predict, rows(3), return_std=True)
    for part, values in zip(found, expected, strict=True):
        assert_allclose(part.ravel(), values, rtol=1e-9, atol=1e-9)


PROGRAM = """
#include <math.h>
#include <stdio.h>
#include "model.h"
int main(void) {
    double x[7][3] = {ROWS};
    for (int n = 0; n < 7; n++) {
        double mean, std;
        model_predict(x[n], &mean, &std);
        printf("%.17g %.17g\\n", mean, std);
    }
    return 0;
}
"""


@pytest.mark.usefixtures("processes")
def test_c(tmp_path):
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed: the C form is not compiled")
    model = quietly(RVMRegressor(**GIVEN).fit, *frame(3, 0))
    model.to_c(tmp_path / "model.h", dtype="float64")
    values = (", ".join("NAN" if x != x else repr(x) for x in row) for row in rows(3).tolist())
    text = PROGRAM.replace("ROWS", ", ".join(f"{{{row}}}" for row in values))
    (tmp_path / "program.c").write_text(text)
    command = ["gcc", "-std=c99", "program.c", "-o", "program", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    output = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    found = np.array([line.split() for line in output.stdout.splitlines()], dtype=np.float64)
    expected = quietly(model.predict, rows(3), return_std=True)
    assert_allclose(found, np.transpose(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("default_fits")
def test_an_effect_without_noise(tmp_path):
    """Its variance is bounded as in Python."""
    X, _ = frame(6, 0)
    y = X["shop"].str[1:].astype(float) + np.sin(X["x"])
    model = quietly(RVMRegressor(**LEARNED).fit, X, y)
    found = numpy_export(model, tmp_path)(rows(6))
    _, std = quietly(model.predict, rows(6), return_std=True)
    assert_allclose(found["std"].ravel(), std, rtol=1e-9)
