"""
Larger than memory, from Parquet
================================

This example converts a Parquet table to a dataset, then plans, runs and evaluates a fit under a
memory limit. Rows are read in tiles, so peak memory does not grow with the number of rows. To show
this, the fit is repeated with fewer rows.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from partirvm import open_job

# %% The table has four features. It is written in four parts of 30,000 rows each, so that this
# script never holds all of the rows in memory.

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
rng = np.random.default_rng(0)


def write_part(path, n_rows):
    X = rng.normal(size=(n_rows, 4))
    y = (
        np.sin(2 * X[:, 0])
        + X[:, 1] * X[:, 2]
        + 0.5 * np.abs(X[:, 3])
        + rng.normal(scale=0.3, size=n_rows)
    )
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"]).assign(y=y).to_parquet(path)


for number in range(4):
    write_part(folder / "parts" / f"part-{number}.parquet", 30_000)
write_part(folder / "test.parquet", 20_000)

# %% Each step runs as a command in a process of its own, so that its peak memory can be measured
# separately. This function runs a command in the temporary folder and returns its output.


def run(command):
    program = [sys.executable, "-m", *command.split()]
    return subprocess.run(program, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


# %% ``ingest`` reads the parts, checks and shuffles the rows, and writes them to Zarr in tiles.
# ``--like`` gives the test dataset the same columns as the training dataset.

print(run("partirvm ingest parts rows-120000.zarr --target y --memory-limit 512MiB --quiet"))
print(run("partirvm ingest test.parquet test.zarr --like rows-120000.zarr --quiet"))

# %%
# ``plan`` shows the expected work, time and memory before anything runs.

options = (
    "--kernel gaussian --gamma scale --partition-size 100 --max-rounds 2 --residual none "
    "--memory-limit 400MiB"
)
print(run(f"partirvm plan rows-120000.zarr {options}"))

# %% ``fit`` stays within the memory limit or refuses to start. The job folder contains the model
# and the history.

print(run(f"partirvm fit rows-120000.zarr job-120000 {options} --quiet"))

# %% ``evaluate`` predicts the test rows, which were not used for fitting, and prints the scores as
# one line of JSON.

scores = json.loads(run("partirvm evaluate job-120000 test.zarr --quiet"))
print(json.dumps(scores, indent=2))

# %% The same fit with a quarter of the rows shows how memory use depends on the number of rows. The
# peak memory of a job is the largest value in its history.


def peak(job):
    history = open_job(folder / job).state().history
    return max(entry["peak_memory"] for entry in history if entry.get("peak_memory")) / 2**20


run("partirvm ingest parts/part-0.parquet rows-30000.zarr --target y --quiet")
run(f"partirvm fit rows-30000.zarr job-30000 {options} --quiet")

peaks = {n_rows: peak(f"job-{n_rows}") for n_rows in (30_000, 120_000)}
for n_rows, mebibytes in peaks.items():
    print(f"{n_rows:,} rows: peak memory of the fit {mebibytes:.0f} MiB")
temporary.cleanup()

# %% The left panel shows the peak memory of both fits and the memory limit. The right panel shows
# the percentage of test rows inside the prediction intervals at five levels.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.bar(
    [f"{n_rows:,}" for n_rows in peaks],
    list(peaks.values()),
    width=0.5,
    color="#0072B2",
    label="peak of the fit",
)
left.axhline(400, color="#D55E00", ls="--", label="memory limit")
left.set(xlabel="training rows", ylabel="resident memory (MiB)", ylim=(0, 480), title="Memory")
left.legend(loc="upper left", ncols=2, fontsize=9)
levels = [50, 80, 90, 95, 99]
right.plot([45, 100], [45, 100], color="black", ls="--", lw=1, label="exact")
right.plot(
    levels,
    [100 * scores[f"coverage_{level}"] for level in levels],
    "o",
    color="#0072B2",
    label="20,000 test rows",
)
right.set(xlabel="nominal level (%)", ylabel="rows inside the interval (%)", title="Coverage")
right.legend(fontsize=9)
plt.show()

# %% The fit needs about the same amount of memory for four times as many rows, so a table that is
# larger than memory does not need more either. Most of this memory is used by the Python
# interpreter and its libraries. The coverage of the intervals matches the nominal levels.  In
# Python, the corresponding calls are ``ingest("parts", "rows.zarr", target="y")``, ``plan(model,
# "rows.zarr")`` and ``model.fit("rows.zarr")``, with ``model =
# RVMRegressor(memory_limit="400MiB")``. The limit then applies to the whole Python process.
