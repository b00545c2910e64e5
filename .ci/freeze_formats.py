"""Write files in all formats of this version, which the tests of every later version read as the
policy promises.

``python .ci/freeze_formats.py`` replaces ``tests/model/stored/VERSION``: a dataset, a job on it,
which has a checkpoint and a model, and two saved estimators; the ``.npz`` file of each model holds
the numbers from which the tests compute its predictions by formulas. The numbers of the formats go
into the table of ``docs/developers/policy.md``. Run it before a version is released, and never for
a version that is.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import partirvm
from partirvm import Gaussian, RVMClassifier, RVMRegressor
from partirvm.data import zarr_source
from partirvm.jobs import checkpoint, store
from partirvm.model import files

MOST_BYTES = 100_000
"""Largest size of the files of a version: they stay in the repository."""

GAMMA = 0.5

ROOT = Path(__file__).parents[1]
FORMATS = {"model": files, "dataset": zarr_source, "job folder": store, "checkpoint": checkpoint}
"""The module that states the format of each file of the policy."""


def numbers(model: Any, X: Any) -> dict[str, Any]:
    """Return what the predictions of a model at X follow from."""
    design, covariance = model.design, model.root @ np.swapaxes(model.root, -1, -2)
    found = {
        "X": X,
        "gamma": GAMMA,
        "centres": design.centres,
        "bias": design.bias,
        "mean": model.mean,
    }
    found |= {
        name: getattr(design.scaling, name) for name in ("x_shift", "x_scale", "t_shift", "t_scale")
    }
    return {**found, "covariance": covariance.reshape(2 * (len(model.mean),))}


def write(folder: Path) -> None:
    """Write the files of this version to a new folder."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (100, 2))
    y = 3 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(100)
    classes = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    fixed: dict[str, Any] = {"kernel": Gaussian(GAMMA), "warp": "none", "random_state": 0}
    regression = {**fixed, "residual": "none", "noise": "constant", "reference": "none"}

    partirvm.ingest((X, y), folder / "data.zarr")
    rounds = RVMRegressor(strategy="working-set", partition_size=10, max_rounds=1, **regression)
    job = partirvm.submit(rounds, folder / "data.zarr", folder / "job")
    job.wait(timeout=300)
    regressor = RVMRegressor(**regression).fit(X, y).prune(12)
    classifier = RVMClassifier(moderate=True, **fixed).fit(X, classes)
    partirvm.save_model(regressor, folder / "regressor")
    partirvm.save_model(classifier, folder / "classifier")
    for name, model in (
        ("job", job.model()),
        ("regressor", regressor.model_),
        ("classifier", classifier.model_),
    ):
        np.savez_compressed(folder / f"{name}.npz", **numbers(model, X[::7]))


def state_formats(policy: Path) -> None:
    """Write the numbers of the formats into the table of the policy."""
    text = policy.read_text(encoding="utf-8")
    for name, module in FORMATS.items():
        text, found = re.subn(
            rf"^(\| {name}[^|]*\| )\d+( \|)", rf"\g<1>{module.FORMAT}\2", text, flags=re.MULTILINE
        )
        assert found == 1, f"{policy} has {found} rows of the {name}"
    policy.write_text(text, encoding="utf-8")


def main() -> int:
    """Replace the files of this version; return the exit status."""
    warnings.simplefilter("ignore")
    state_formats(ROOT / "docs/developers/policy.md")
    folder = ROOT / "tests/model/stored" / partirvm.__version__
    with tempfile.TemporaryDirectory() as place:  # a job names the place of its dataset
        write(Path(place))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(place, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size:,} bytes, at most {MOST_BYTES:,}")
    return int(size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
