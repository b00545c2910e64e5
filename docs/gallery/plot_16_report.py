"""
Reading a report
================

``Job.report`` creates a single page that contains everything known about a job: the plan, the
learning curves, predictions plotted against targets, the table of fits and the parameters. This
example shows such a page, explains its parts, and compares two jobs.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor, ingest, submit
from partirvm.cli import main

# %%
# Two jobs
# --------
#
# The target depends on two of the four features. The third feature is noise, and the fourth is a noisy copy of the
# first. The first job learns one width for all features; the second job learns one width per feature.

rng = np.random.default_rng(0)


def rows(n):
    X = rng.uniform(-1, 1, (n, 4))
    X[:, 3] = X[:, 0] + 0.3 * rng.standard_normal(n)
    return X, np.sin(4 * X[:, 0]) * np.exp(X[:, 1]) + 0.2 * rng.standard_normal(n)


scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
ingest(rows(3_000), folder / "train.zarr")
ingest(rows(1_000), folder / "validation.zarr")

jobs = {}
for name, gamma in (("one-width", "learn-shared"), ("per-feature", "learn-per-feature")):
    model = RVMRegressor(
        kernel="gaussian",
        gamma=gamma,
        partition_size=80,
        residual="none",
        reference="none",
        random_state=0,
    )
    data = {"data": folder / "train.zarr", "validation": folder / "validation.zarr"}
    jobs[name] = submit(model, job=folder / name, **data)
    jobs[name].wait(timeout=300)

# %%
# The page
# --------
#
# In a notebook, a cell that ends with ``job.report()`` shows the page below the cell, as here.

jobs["per-feature"].report()

# %%
# The parts of the page, from top to bottom, are:
#
# - **Head**: the status and why the fit ended, with advice.
# - **Figures**: the model's vectors, errors, noise and evidence.
# - **Worth knowing**: choices made before the fit, and values that a limit reduced, with the reasons.
# - **Curves**: the error, vectors and evidence of each fit. Once the held-out error is flat, further rounds gain
#   nothing.
# - **Predictions of held-out rows**: predicted against actual values, residuals, interval coverage and the largest
#   errors. These panels are a check on the predicted uncertainty. In a job without validation rows, they show the
#   leave-one-out predictions of the training rows.
# - **Features**: the relevance of each feature. **Directions** and **Basis functions** follow if the model has any.
# - **History**: a table of the fits.
# - **Plan**: the output of ``partirvm plan``, with the planned work, time and memory next to the measured values.
# - **Parameters**: the parameters, starting with those that differ from their defaults, and the datasets.

# %%
# Save it
# -------
#
# The file extension selects the format: an HTML page that needs neither scripts nor network access, or all values as
# JSON.

report = jobs["per-feature"].report()
for ending in ("html", "json"):
    report.save(str(folder / f"report.{ending}"))
    print(f"report.{ending}: {(folder / f'report.{ending}').stat().st_size / 1024:.0f} KiB")

# %%
# In a terminal, ``partirvm report JOB report.html`` does the same.
#
# Compare jobs
# ------------
#
# ``partirvm compare JOB JOB ...`` prints the jobs side by side, including the parameters that differ.

main(["compare", str(folder / "one-width"), str(folder / "per-feature")])

# %%
# The report's values are plain JSON, so you can draw other plots from them.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for (name, job), colour, marker in zip(jobs.items(), ("#0072B2", "#D55E00"), "os", strict=True):
    fits = [entry for entry in job.report().values["history"] if entry["held_out_rmse"] is not None]
    errors = [entry["held_out_rmse"] for entry in fits]
    ax.plot(np.arange(1, len(fits) + 1), errors, marker=marker, color=colour, label=name)
ax.axhline(0.2, color="0.5", linestyle=":", linewidth=1, label="standard deviation of the noise")
ax.set(xlabel="fit", ylabel="RMSE of held-out rows", ylim=(0, None), title="Two jobs")
ax.legend()
plt.show()
scratch.cleanup()

# %% Both jobs ended because the held-out error stopped falling. The job with one width per feature
# has the smaller held-out error and needs fewer vectors.
