"""
Exporting predictions and models
================================

``partirvm predict`` writes predictions for any number of rows to CSV, Parquet or Zarr.
``save_model`` writes a fitted estimator or a model to a folder of Zarr arrays and JSON, and
``load_model`` reads it back. This example produces each kind of output and shows what it contains.
"""

import contextlib
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import zarr

from partirvm import RVMRegressor, ingest, load_model, save_model, submit
from partirvm.cli import main

# %%
# A job, and rows to predict
# --------------------------
#
# ``like=`` gives the new dataset the same columns as the training dataset. The new rows need no target.

rng = np.random.default_rng(0)
table = pd.DataFrame({"depth": rng.uniform(0, 40, 900), "salinity": rng.uniform(30, 38, 900)})
table["temperature"] = (
    18 * np.exp(-table.depth / 12) + 0.4 * (table.salinity - 34) + 0.3 * rng.standard_normal(900)
)
new = pd.DataFrame({"depth": np.linspace(0, 40, 200), "salinity": 34.0})

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
ingest(table, folder / "train.zarr", target="temperature")
ingest(new, folder / "new.zarr", like=folder / "train.zarr")
estimator = RVMRegressor(gamma="learn-shared", partition_size=60, random_state=0)
job = submit(estimator, folder / "train.zarr", folder / "job")
job.wait(timeout=300)

# %%
# Predictions as a table
# ----------------------
#
# The file extension selects the format. Row i of the output corresponds to row i of the source, regardless of how
# ``ingest`` shuffled the rows. ``--interval`` adds the bounds of a prediction interval. The rows are predicted tile by
# tile, so they need not fit in memory. The output file appears under its final name only once it is complete.

with contextlib.chdir(folder):
    for ending in ("csv", "parquet", "zarr"):
        main(
            ["predict", "job", "new.zarr", f"predictions.{ending}", "--interval", "0.95", "--quiet"]
        )

# %%
# All three files contain the same values.

from_csv = pd.read_csv(folder / "predictions.csv")
from_parquet = pd.read_parquet(folder / "predictions.parquet")
from_zarr = zarr.open_group(folder / "predictions.zarr", mode="r")
print(from_csv.head(3).round(3))
for name in from_csv:
    assert np.array_equal(from_csv[name], from_parquet[name])
    assert np.array_equal(from_zarr[name][:], from_parquet[name])

# %%
# In Python, the ``predict`` method of a model or an estimator returns the same values as arrays.

mean, std = job.model().predict(new.to_numpy(), return_std=True)
assert np.array_equal(mean, from_parquet["mean"])

# %%
# A model in a folder
# -------------------
#
# ``save_model`` accepts a job's model or a fitted estimator. Nothing is pickled, so ``load_model`` runs no code from
# the files. ``load_model`` can also load the model from a job folder.

fitted = RVMRegressor(gamma="learn-shared", random_state=0)
fitted.fit(table[["depth", "salinity"]], table["temperature"])
save_model(fitted, folder / "estimator")
loaded = load_model(folder / "estimator")
assert np.array_equal(loaded.predict(new), fitted.predict(new))
assert load_model(folder / "job").digest() == job.model().digest()

# %% The arrays in the folder and their shapes are listed below. ``centres`` contains the relevance
# vectors in the units of the features, ``mean`` and ``root`` describe the posterior distribution of
# the weights, and ``alpha`` contains their prior precisions. Every array has a checksum, which
# ``load_model`` verifies.

for path in sorted((folder / "estimator").rglob("zarr.json")):
    about = json.loads(path.read_text())
    if about["node_type"] == "array":
        print(f"{path.parent.name:10} {about['data_type']:8} {about['shape']}")

# %%
# The predictions
# ---------------

depth = new.depth
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
near = (table.salinity - 34).abs() < 0.5
ax.plot(
    table.depth[near],
    table.temperature[near],
    ".",
    color="0.6",
    markersize=4,
    label="salinity 33.5 to 34.5",
)
ax.fill_between(
    depth,
    from_csv["lower"],
    from_csv["upper"],
    color="#56B4E9",
    alpha=0.4,
    label="lower to upper (95 %)",
)
ax.plot(depth, from_csv["mean"], color="#0072B2", label="mean")
ax.set(
    xlabel="depth (m)",
    ylabel="temperature (°C)",
    title="Predictions from predictions.csv, salinity 34",
)
ax.legend()
plt.show()
scratch.cleanup()

# %% For each row, the table contains the mean, the standard deviation and the interval bounds. The
# figure is drawn from these columns.
