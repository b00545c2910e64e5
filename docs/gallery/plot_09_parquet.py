"""
Larger than memory, from Parquet
================================

A table in Parquet is converted to DATA, planned, fitted and evaluated under a memory limit. Rows are read in tiles, so
that the peak memory does not grow with the number of rows. The example repeats the fit with more and more rows.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# %%
# The table has eight columns and is written in six parts of 100,000 rows each, so that this script never holds all rows.

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
rng = np.random.default_rng(0)


def write_part(path, n_rows):
    X = rng.normal(size=(n_rows, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.abs(X[:, 3]) + rng.normal(scale=0.3, size=n_rows)
    path.parent.mkdir(exist_ok=True)
    frame = pd.DataFrame(X, columns=[f"x{column}" for column in range(8)]).assign(y=y)
    frame.to_parquet(path)


for number in range(6):
    write_part(folder / "parts" / f"part-{number}.parquet", 100_000)
write_part(folder / "test.parquet", 20_000)

# %%
# Each step is a command of its own process. The function runs it and prints what it prints.


def run(command, show=True):
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    if show:
        print(f"$ {command}\n{done.stdout}")
    return done.stdout


# %%
# ``ingest`` reads the parts, checks and shuffles the rows, and writes them to Zarr in tiles. The test rows get the same
# columns by ``--like``.

run("partirvm ingest parts all.zarr --target y --memory-limit 512MiB")
run("partirvm ingest test.parquet test.zarr --like all.zarr")

# %%
# ``plan`` states the work, the time and the memory before anything runs.

options = "--kernel gaussian --gamma learn-per-feature --partition-size 100 --max-rounds 3 --memory-limit 400MiB"
run(f"partirvm plan all.zarr {options}")

# %%
# ``fit`` keeps within the limit, or refuses before it starts. A job folder holds the model and the history.

run(f"partirvm fit all.zarr job-all {options} --quiet")

# %%
# ``evaluate`` predicts the test rows, which no fit has used.

run("partirvm evaluate job-all test.zarr --quiet")

# %%
# The same fit of fewer rows shows how the memory depends on their number.

peaks = {}
for parts in (1, 3, 6):
    files = "parts" if parts == 6 else f"parts/part-[0-{parts - 1}].parquet"
    data = f"rows-{parts}.zarr"
    run(f"partirvm ingest {files} {data} --target y", show=False)
    done = json.loads(run(f"partirvm fit {data} job-{parts} {options} --quiet --json", show=False))
    peaks[parts * 100_000] = done["peak_memory"] / 2**20
    print(f"{parts * 100_000:,} rows: peak memory {peaks[parts * 100_000]:.0f} MiB, {done}")
temporary.cleanup()
