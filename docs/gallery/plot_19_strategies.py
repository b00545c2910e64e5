"""
Comparing strategies
====================

A strategy decides which rows become candidates, and when. This example fits the same dataset with
each of the four strategies and compares their errors, numbers of vectors and running times.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.metrics import root_mean_squared_error

from partirvm import RVMRegressor

# %%
# Data
# ----
#
# The data are 2,000 training rows and 2,000 test rows of Friedman's first function, with 5 relevant and 5 irrelevant
# features and noise of standard deviation 1.

X, y = make_friedman1(4_000, n_features=10, noise=1.0, random_state=0)
train, test = slice(0, 2_000), slice(2_000, None)

# %%
# Four strategies
# ---------------
#
# - ``basic``: all rows are candidates at once. This strategy is the reference and is suitable for a few thousand rows
#   at most.
# - ``split-merge``: partitions of P rows are fitted in parallel, and their vectors are merged in pairs.
# - ``incremental``: the partitions are added to the vectors kept so far, one partition at a time.
# - ``working-set``: in each round, the P most promising rows are added to the vectors kept so far. The rounds can end
#   early.
#
# All fits use the same kernel, and all but ``basic`` use P = 60. The times are CPU times.

widths = np.where(np.arange(10) < 5, 0.08, 0.0)
results = {}
for strategy in ("basic", "split-merge", "incremental", "working-set"):
    size = {} if strategy == "basic" else {"partition_size": 60}
    begin = time.process_time()
    model = RVMRegressor(
        "gaussian", gamma=widths, strategy=strategy, residual="none", random_state=0, **size
    )
    model.fit(X[train], y[train])
    seconds = time.process_time() - begin
    rmse = root_mean_squared_error(y[test], model.predict(X[test]))
    results[strategy] = (rmse, model.n_relevance_vectors_, seconds)
    print(
        f"{strategy:12}  RMSE {rmse:.4f}  vectors {results[strategy][1]:3}  log evidence "
        f"{model.log_evidence_:.1f}"
    )

# %%
# Figure
# ------

fig, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True, layout="constrained")
labels = ("RMSE of test rows", "relevance vectors", "time of the fit (seconds)")
colours = ("#0072B2", "#009E73", "#D55E00")
formats = ("%.3f", "%d", "%.1f")
for ax, values, label, colour, form in zip(
    axes, zip(*results.values(), strict=True), labels, colours, formats, strict=True
):
    bars = ax.barh(list(results), values, color=colour)
    ax.bar_label(bars, fmt=form, padding=3)
    ax.set_xlabel(label)
    ax.margins(x=0.3)
axes[0].invert_yaxis()
plt.show()

# %% All four fits have about the same error, which is close to the noise, and a similar number of
# vectors. The working set takes the least time. ``basic`` takes the most, because its time grows
# with the cube of the number of rows.
