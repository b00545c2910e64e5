"""
Submit, abort, resume
=====================

A job is a fit whose state is stored in a folder. This example submits a job, reads its progress
while it runs, aborts it, makes predictions with the model of the last round, and resumes the job.
The final model is bit-identical to that of an uninterrupted fit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor, WorkingSet, ingest, open_job, submit

# %%
# Data
# ----
#
# The target is a wave whose wavelength varies across the plane, with noise of standard deviation 0.1. ``ingest`` writes
# the rows to two datasets: one for the fit and one for computing the validation error after each round.

rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, (n, 2))
    wave = np.sin(8 * np.hypot(X[:, 0] + 1, X[:, 1] + 1) ** 1.5)
    return X, wave + 0.1 * rng.standard_normal(n)


scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
ingest(rows(6_000), folder / "train.zarr")
ingest(rows(2_000), folder / "validation.zarr")

# %%
# Submit
# ------
#
# ``submit`` returns immediately. Without a Dask client, the job runs in a thread of this process; with ``client=``, it
# runs on the cluster, and this process may exit.

model = RVMRegressor(
    gamma=20.0,
    strategy=WorkingSet(fit_rows="full"),
    partition_size=60,
    max_rounds=9,
    residual="none",
)
job = submit(model, folder / "train.zarr", folder / "job", validation=folder / "validation.zarr")
print(job.status())

# %%
# Watch and abort
# ---------------
#
# ``follow`` yields the job's state after each change. ``progress`` returns the key figures of the last round. Any
# process that can read the folder can open the job with ``open_job`` and read its progress; with write access, it can
# also abort the job.

for state in job.follow(timeout=300):
    if sum(entry["kind"] == "round" for entry in state.history) >= 2:
        open_job(folder / "job").abort(reason="enough for a first look")
        break
job.wait(timeout=300)

progress = job.progress()
for name in ("status", "reason", "advice", "vectors", "held_out_rmse", "model"):
    print(f"{name:14} {progress[name]}")

# %%
# Use the model
# -------------
#
# The aborted job keeps the model of its last complete round.

early = job.model()
mean, std = early.predict([[0.5, -0.5], [0.0, 0.0]], return_std=True)
print("vectors", early.n_vectors, " mean", mean.round(3), " std", std.round(3))
rounds_before = len(job.state().history)

# %%
# Resume
# ------
#
# ``resume`` continues from the last checkpoint. It can also change limits such as ``max_rounds``.

job.resume()
print(job.wait(timeout=300), job.progress()["reason"])

# %% The digest of a model is a hash of all its values. A second job with the same settings that
# runs without interruption yields the same digest.

whole = submit(
    model, folder / "train.zarr", folder / "whole", validation=folder / "validation.zarr"
)
whole.wait(timeout=300)
print(job.model().digest())
print(whole.model().digest())
assert job.model().digest() == whole.model().digest()

# %%
# The validation error per round
# ------------------------------

history = job.state().history
errors = [entry["held_out_rmse"] for entry in history if entry["held_out_rmse"] is not None]
n_before = sum(entry["held_out_rmse"] is not None for entry in history[:rounds_before])
numbers = np.arange(1, len(errors) + 1)

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(numbers[:n_before], errors[:n_before], "o-", color="#0072B2", label="before the abort")
ax.plot(
    numbers[n_before - 1 :],
    errors[n_before - 1 :],
    "s--",
    color="#D55E00",
    mfc="white",
    label="after the resume",
)
ax.plot(numbers[n_before - 1], errors[n_before - 1], "o", color="#0072B2")
ax.axhline(0.1, color="0.5", linewidth=1, linestyle=":", label="standard deviation of the noise")
ax.set(
    xlabel="fit of the job",
    ylabel="RMSE of the validation rows",
    ylim=(0, None),
    title="One job, two attempts",
)
ax.legend()
plt.show()
scratch.cleanup()

# %% The error falls from round to round. The second attempt continues the curve from the point
# where the first was aborted.
