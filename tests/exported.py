"""The exported NumPy function of a model, in this process and without the package."""

import subprocess
import sys

from numpy.testing import assert_allclose


def reader_in(folder):
    """Return the function ``load`` of the module that was written with ``model.npz``."""
    names = {}
    exec((folder / "model_predict.py").read_text(), names)
    return names["load"]


def numpy_export(model, folder):
    """Return the exported function of a model, loaded by the module that was written with it."""
    model.to_numpy(folder / "model.npz")
    return reader_in(folder)(folder / "model.npz")


def assert_exported(estimator, folder, rows):
    """Assert that the exported function predicts the means and deviations of the estimator's
    model."""
    found = numpy_export(estimator, folder)(rows)
    mean, std = estimator.model_.predictive.values(rows)[0].T
    assert_allclose(found["mean"], mean, rtol=1e-9, atol=1e-9)
    assert_allclose(found["std"], std, rtol=1e-9)


def run_alone(code, folder):
    """Return the output of a Python program that runs in a folder and can import modules from
    there."""
    program = f"import sys; sys.path.insert(0, '.'); {code}"
    command = [sys.executable, "-I", "-B", "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
