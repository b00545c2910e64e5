"""Small fits have the recorded digests: restructuring the code must not change their bits.

Eleven are commands on DATA of several tiles, two are estimators on arrays. Results depend on NumPy,
SciPy and the kernels that these choose for the processor, so that ``rebuild.json`` has digests by
``key()``. A change that is meant to change results records them anew, with each kind of kernel that
OpenBLAS has for the processor:

    for kind in Prescott Nehalem Sandybridge Haswell SkylakeX; do
        RECORD=1 OPENBLAS_CORETYPE=$kind python -m pytest -m "slow or not slow"
        tests/bits/test_rebuild.py
    done
"""

import json
import os
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import threadpoolctl
from by_default import some
from numpy.random import default_rng

from partirvm import RVMClassifier, RVMRegressor, ingest, load_model
from partirvm.cli import main

pytestmark = pytest.mark.bits

RECORD = Path(__file__).with_name("rebuild.json")

TILE = 256

FITS = {
    "working set, sums of widths": (
        "numbers",
        "--gamma 0.5 --gamma-multiples 1,8 --partition-size 40 --max-rounds 3",
    ),
    "working set by gain, learned widths": (
        "numbers",
        "--kernel matern52 --gamma learn-per-feature --selection gain --partition-size 30 "
        "--max-rounds 2 --seed 3",
    ),
    "families and directions": (
        "numbers",
        "--metric directions --partition-size 40 --max-rounds 2",
    ),
    "incremental": (
        "numbers",
        "--strategy incremental --gamma 1 --fit-rows sample --max-rounds 5",
    ),
    "split-merge": (
        "numbers",
        "--strategy split-merge --gamma 1 --partition-size 60 --fit-rows sample --sample-rows 200",
    ),
    "basic with priors": (
        "few",
        "--strategy basic --gamma learn-shared --alpha-prior 1e-3,1e-4 --noise-prior 2,0.1 "
        "--fixed-alpha bias=1e-4",
    ),
    "basis functions": (
        "few",
        "--kernel linear-spline --basis linear --solver fast --no-standardize",
    ),
    "several targets": (
        "targets",
        "--gamma 0.5 --partition-size 40 --max-rounds 2 --selection random",
    ),
    "two classes": (
        "two",
        "--gamma learn-shared --partition-size 30 --max-rounds 2 --class-weight balanced",
    ),
    "three classes": (
        "three",
        "--gamma 0.5 --strategy incremental --partition-size 80 --max-rounds 3",
    ),
    "three classes, one softmax": (
        "three",
        "--gamma 0.5 --strategy split-merge --likelihood multinomial --partition-size 150",
    ),
}
"""The DATA and the options of each fit."""

ESTIMATORS = {
    "regressor": (
        "numbers",
        lambda: RVMRegressor(
            "auto", "learn-shared", partition_size=30, max_rounds=2, random_state=5
        ),
    ),
    "classifier": (
        "two",
        lambda: RVMClassifier(gamma=0.5, partition_size=40, max_rounds=2, random_state=6),
    ),
}
"""The points to which each estimator is fitted."""


def key():
    """Return everything that the bits depend on: the numerical libraries and their chosen
    kernels."""
    libraries = [one for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]
    architectures = {one.get("architecture", one["internal_api"]) for one in libraries}
    simd = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    kernels = [
        f"BLAS {' and '.join(sorted(architectures))}",
        f"SIMD {' '.join(simd) or 'baseline'}",
    ]
    return ", ".join([f"numpy {np.__version__}", f"scipy {scipy.__version__}", *kernels])


def points():
    """Return inputs (n, 3) and targets of each DATA, whose last tile is not full."""
    rng = default_rng(16)
    X = rng.uniform(-2, 2, size=(700, 3))
    f = np.sin(3 * X[:, 0]) + 0.5 * X[:, 1] ** 2
    y = f + 0.1 * rng.normal(size=len(X))
    targets = np.column_stack([y, np.cos(2 * X[:, 1]) + X[:, 2] + 0.2 * rng.normal(size=len(X))])
    three = np.digitize(f + 0.3 * rng.normal(size=len(X)), [0.2, 1.2])
    return {
        "numbers": (X, y),
        "few": (X[:130], y[:130]),
        "targets": (X, targets),
        "two": (X[:600], three[:600] > 0),
        "three": (X[:500], three[:500]),
    }


def outcome(model):
    """Return two figures of a fit, and a digest of its parameters and predictions."""
    X = default_rng(61).uniform(-2.5, 2.5, size=(50, 3))
    if hasattr(model, "predict_proba"):
        predictions = [model.predict_proba(X)]
    else:
        predictions = [*model.predict(X, return_std=True), np.asarray(model.noise_variance)]
    digest = sha256()
    for array in (model.design.centres, model.mean, model.alpha, *predictions):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return (
        f"{model.n_vectors} vectors, log evidence {model.log_evidence!r}, {digest.hexdigest()[:32]}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with all DATA."""
    folder = tmp_path_factory.mktemp("rebuild")
    for name, (X, y) in points().items():
        ingest((X, y), folder / name, classes=y.dtype.kind in "ib", tile_rows=TILE)
    return folder


LONG = {
    "families and directions",
    "regressor",
    "three classes, one softmax",
    "working set by gain, learned widths",
}


@pytest.mark.parametrize("fit", some([*FITS, *ESTIMATORS], {*FITS, *ESTIMATORS} - LONG))
def test_a_fit_has_the_recorded_bits(fit, folder):
    if fit in ESTIMATORS:
        data, estimator = ESTIMATORS[fit]
        model = estimator().fit(*points()[data]).model_
    else:
        data, options = FITS[fit]
        words = ["fit", str(folder / data), str(folder / fit), *options.split(), "--quiet"]
        assert main(words) == 0
        model = load_model(folder / fit)
    known = json.loads(RECORD.read_text())
    if "RECORD" in os.environ:
        known.setdefault(key(), {})[fit] = outcome(model)
        RECORD.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    elif fit not in known.get(key(), {}):
        pytest.skip(f"{RECORD.name} holds no digest of this fit for {key()}")
    else:
        assert outcome(model) == known[key()][fit]
