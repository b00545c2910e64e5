"""
Append rows and update a model
==============================

Rows that arrive later can be added to the data and the model without refitting from scratch. On
disk, ``ingest(..., append=True)`` adds rows to a dataset and ``Job.update`` continues the job. In
memory, ``partial_fit`` updates an estimator.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor, ingest, submit

# %%
# Data
# ----
#
# The data are 12 days of sensor readings. The first 8 days are available at the start; the last 4 days arrive later.

rng = np.random.default_rng(1)
days = np.sort(rng.uniform(0, 12, 3_000))
signal = np.sin(2 * days) + 0.5 * np.sin(0.7 * days**1.3)
values = signal + 0.15 * rng.standard_normal(len(days))
X, first = days[:, None], days < 8

# %%
# Update a job
# ------------
#
# The job is fitted to the first 8 days. It predicts the last 4 days poorly, because it has no relevance vectors there.
# (Nor does its standard deviation grow there: see :ref:`sphx_glr_gallery_built_plot_20_far_from_data.py`.)

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
ingest((X[first], values[first]), folder / "sensor.zarr")
model = RVMRegressor(gamma=20.0, partition_size=60, residual="none", random_state=0)
job = submit(model, folder / "sensor.zarr", folder / "job")
job.wait(timeout=300)
before = job.model()

# %% The new rows are appended to the dataset, and the job is updated. The update keeps the vectors
# and runs further rounds with new candidates. For regression, it reuses the statistics of the old
# rows.

ingest((X[~first], values[~first]), folder / "sensor.zarr", append=True)
job.update(max_rounds=3)
job.wait(timeout=300)
after = job.model()
print(
    f"vectors {before.n_vectors} -> {after.n_vectors}, rows {before.n_rows:,} -> {after.n_rows:,}"
)

# %%
# The bands show the mean ± 1.96 standard deviations.

grid = np.linspace(0, 12, 600)[:, None]
fig, axes = plt.subplots(2, 1, figsize=(7, 5.5), sharex=True, sharey=True, layout="constrained")
for ax, fitted, title in zip(
    axes, (before, after), ("Fit to 8 days", "After the update"), strict=True
):
    mean, std = fitted.predict(grid, return_std=True)
    ax.plot(days[::5], values[::5], ".", color="0.6", markersize=3, label="every fifth row")
    ax.fill_between(
        grid[:, 0], mean - 1.96 * std, mean + 1.96 * std, color="#56B4E9", alpha=0.4, linewidth=0
    )
    ax.plot(grid[:, 0], mean, color="#0072B2", label="mean and 95 % interval")
    ax.axvline(8, color="#D55E00", linestyle="--", linewidth=1, label="first new row")
    ax.set(ylabel="value", title=title)
axes[1].set_xlabel("time (days)")
axes[0].legend(loc="lower left", fontsize="small")
plt.show()

# %%
# Update an estimator
# -------------------
#
# ``partial_fit`` takes batches of rows in memory. The first call estimates the kernel and the scaling, and later calls
# reuse them. Here, the rows are shuffled and passed in batches of 500. The last 500 rows are held out for testing.

order = rng.permutation(len(days))
train, test = order[:-500], order[-500:]
stream = RVMRegressor(gamma=20.0, residual="none", random_state=0)
rmse, vectors = [], []
for batch in np.split(train, 5):
    stream.partial_fit(X[batch], values[batch])
    rmse.append(np.sqrt(np.mean((stream.predict(X[test]) - signal[test]) ** 2)))
    vectors.append(stream.n_relevance_vectors_)

together = RVMRegressor(gamma=20.0, residual="none", random_state=0).fit(X[train], values[train])
reference = np.sqrt(np.mean((together.predict(X[test]) - signal[test]) ** 2))
print(
    f"error with partial_fit {rmse[-1]:.4f}, with one fit to all rows {reference:.4f}; vectors "
    f"{vectors[-1]}"
)

# %%
# The error is measured between the predicted mean and the noise-free signal.

fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.plot(500 * np.arange(1, 6), rmse, "o-", color="#0072B2", label="partial_fit, batch by batch")
ax.axhline(reference, color="#D55E00", linestyle="--", label="one fit to all rows")
ax.set(xlabel="rows so far", ylabel="RMSE against the signal", ylim=(0, None))
ax.legend()
plt.show()
scratch.cleanup()

# %% After the update, the mean follows the signal on the new days, and the interval is as narrow
# there as on the first days. With ``partial_fit``, the error falls from batch to batch until it is
# about that of a single fit to all rows.
