"""Memory of a fit by the formula of the plan, for several numbers of rows, beside that of the
kernel matrix."""

import matplotlib.pyplot as plt
import numpy as np

from partirvm.data.source import tile_rows_for
from partirvm.planning.memory import DataShape, step_bytes

CANDIDATES, THREADS, FEATURES, MIB = 250, 2, 10, 2**20

columns = np.unique(np.geomspace(10, 6000, 60).astype(int))
figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
for rows, color in ((10_000, "#56b4e9"), (1_000_000, "#0072b2"), (100_000_000, "black")):
    shape = DataShape(rows, FEATURES, 1, tile_rows_for(rows, FEATURES))
    peak = [step_bytes(shape, int(M), CANDIDATES, THREADS).peak / MIB for M in columns]
    axes.loglog(columns, peak, color=color, lw=2, label=f"a fit of {rows:,} rows")
for rows, color in ((10_000, "#56b4e9"), (1_000_000, "#0072b2")):
    axes.axhline(
        8 * rows**2 / MIB, color=color, ls=":", lw=2, label=f"kernel matrix of {rows:,} rows"
    )
axes.set_xlabel("kept columns M (P = 250 new ones, 2 threads, 10 features)")
axes.set_ylabel("MiB besides the process")
axes.grid(alpha=0.3)
axes.legend(fontsize=8, framealpha=1)
