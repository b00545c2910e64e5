"""Sizes of exported models, and microseconds per row compared with Python and an exact Gaussian
process.

    python -m benchmarks.exports [--vectors 100] [--output FOLDER]

A model with 8 features predicts the mean and standard deviation of 20,000 rows on one thread: with
ONNX Runtime, in C (gcc -O2), with the NumPy reader, with ``predict``, and with scikit-learn's
GaussianProcessRegressor of 5,000 rows. ``kb`` is the size of the file (the library, the pickle),
``single`` the microseconds per call for one row. If ``arm-none-eabi-gcc`` is on the path, the
header's ``size`` (flash) and the stack (RAM) on a Cortex-M4 are printed.
"""

from __future__ import annotations

import ctypes
import pickle
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import command_line, say, write
from benchmarks.prediction import fitted, seconds_of

COLUMNS = {"form": "", "precision": "", "kb": ".1f", "microseconds": ".2f", "single": ".0f"}


def in_c(model: Any, folder: Path, dtype: str) -> Any:
    """Return a function of rows that a compiled header predicts."""
    real = {"float64": "double", "float32": "float"}[dtype]
    model.to_c(folder / "m.h", dtype)
    loop = (
        f"for (int n = 0; n < N; n++) m_predict(x + {model.design.centres.shape[1]} * n, mean + n, "
        "std + n);"
    )
    (folder / "m.c").write_text(
        f'#include "m.h"\nvoid run(int N, {real} *x, {real} *mean, {real} *std) {{ {loop} }}\n'
    )
    name = f"{dtype}.so"
    subprocess.run(
        ["gcc", "-std=c99", "-O2", "-shared", "-fPIC", "m.c", "-o", name, "-lm"],
        cwd=folder,
        check=True,
    )
    library = ctypes.CDLL(str(folder / name))
    found = np.empty((2, 1 << 20), dtype)
    return lambda X: library.run(
        len(X), *(ctypes.c_void_p(each.ctypes.data) for each in (X, *found))
    )


def forms(model: Any, folder: Path) -> Any:
    """Yield name, precision, file and function of rows of each form."""
    import onnxruntime
    from sklearn.gaussian_process import GaussianProcessRegressor

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    for dtype in ("float32", "float64"):
        model.to_onnx(folder / "m.onnx", dtype)
        session = onnxruntime.InferenceSession(folder / "m.onnx", settings)
        yield "ONNX", dtype, "m.onnx", lambda X, session=session: session.run(None, {"X": X})
        yield "C", dtype, f"{dtype}.so", in_c(model, folder, dtype)
        model.to_numpy(folder / "m.npz", dtype)
        names: dict[str, Any] = {}
        exec((folder / "m_predict.py").read_text(), names)
        yield "NumPy", dtype, "m.npz", names["load"](folder / "m.npz")
    X = np.random.default_rng(0).normal(size=(5000, 8))
    process = GaussianProcessRegressor(alpha=0.01, optimizer=None).fit(X, np.sin(X[:, 0]))
    for name, each in (("predict", model), ("GaussianProcessRegressor", process)):
        (folder / "pickle").write_bytes(pickle.dumps(each))
        yield name, "float64", "pickle", lambda X, each=each: each.predict(X, return_std=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and write the table."""
    parser = command_line(__doc__, data=False)
    parser.add_argument("--vectors", type=int, default=100, metavar="M")
    options = parser.parse_args(arguments)
    table = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = fitted(options.vectors)
        for form, dtype, file, run in forms(model, folder):
            X = np.random.default_rng(1).normal(size=(20_000, 8)).astype(dtype)
            size = (folder / file).stat().st_size / 1000
            one = X[:1].copy()
            run(one)
            whole = median(seconds_of(lambda X=X, run=run: run(X)) for _ in range(3)) / len(X)
            single = median(seconds_of(lambda one=one, run=run: run(one)) for _ in range(101))
            row = {
                "form": form,
                "precision": dtype,
                "kb": size,
                "microseconds": 1e6 * whole,
                "single": 1e6 * single,
            }
            table.append(row)
        if shutil.which("arm-none-eabi-gcc"):
            how = [
                "-std=c99",
                "-Os",
                "-mcpu=cortex-m4",
                "-mfpu=fpv4-sp-d16",
                "-mfloat-abi=hard",
                "-fstack-usage",
            ]
            subprocess.run(["arm-none-eabi-gcc", *how, "-c", "m.c"], cwd=folder, check=True)
            say(
                subprocess.run(
                    ["arm-none-eabi-size", "m.o"], cwd=folder, capture_output=True, text=True
                ).stdout
            )
            say((folder / "m.su").read_text())
    write(options.output, "exports", table, COLUMNS)


if __name__ == "__main__":
    main()
