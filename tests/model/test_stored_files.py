"""Files of each version in ``stored``, which ``.ci/freeze_formats.py`` made, are read and predict by formula."""

import shutil
from pathlib import Path

import naive
import numpy as np
import pytest

from partirvm import load_model, open_job


@pytest.mark.parametrize("version", sorted(Path(__file__).with_name("stored").iterdir()), ids=lambda path: path.name)
def test_they_are_read(version, tmp_path):
    """Means t_shift + t_scale·φᵀμ, P(second class) = 1/(1 + exp(−φᵀμ/√(1 + πφᵀΣφ/8))); a job is resumed."""
    job = open_job(shutil.copytree(version / "job", tmp_path / "job"))
    for name in ("job", "regressor", "classifier"):
        model, own = load_model(version / name) if name != "job" else job.model(), np.load(version / f"{name}.npz")
        X, centres = ((rows - own["x_shift"]) / own["x_scale"] for rows in (own["X"], own["centres"]))
        Phi = np.hstack([np.ones((len(X), int(own["bias"]))), naive.gaussian(X, centres, own["gamma"])])
        f = (Phi @ own["mean"]).ravel()
        found, expected = model.predict(own["X"]), own["t_shift"] + own["t_scale"] * f
        if name == "classifier":
            variance = np.sum(Phi @ own["covariance"] * Phi, axis=1)
            found, expected = (
                model.predict_proba(own["X"])[:, 1],
                1 / (1 + np.exp(-f / np.sqrt(1 + np.pi * variance / 8))),
            )
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    job.resume(data=version / "data.zarr", max_rounds=2)
    assert (job.wait(timeout=120), job.model().n_rows) == ("done", 100)
