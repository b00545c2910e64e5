r"""
Choosing the partition size P
=============================

P is the number of candidates in a round. By default, a heuristic chooses it: a basic RVM is fitted
to :math:`\sqrt{N d}` random rows, and P depends on the fraction of these rows that become vectors.
This example compares the error, the number of vectors and the time of working-set fits for several
values of P.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from partirvm import RVMRegressor

# %%
# Data
# ----
#
# The data are 4,000 training rows and 2,000 test rows of a rough function of two features. The noise has a standard
# deviation of 0.2.

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (6_000, 2))
y = np.sin(20 * np.hypot(X[:, 0] + 0.3, X[:, 1])) + np.cos(15 * X[:, 0] * X[:, 1])
y += 0.2 * rng.standard_normal(6_000)
train, test = slice(0, 4_000), slice(4_000, None)

# %%
# What the heuristic chooses
# --------------------------
#
# For N = 4,000 rows and d = 2 features, the heuristic uses :math:`\sqrt{N d}` = 89 rows. The fraction of these rows
# that become vectors is called ρ. P is :math:`\sqrt{N d}` times 0.2 for ρ ≤ 0.25, times 0.6 for ρ ≤ 0.75, and times 1
# for larger ρ. The plan shows the result.

fixed = {
    "kernel": "gaussian",
    "gamma": 20.0,
    "noise": "constant",
    "residual": "none",
    "random_state": 0,
}
chosen = RVMRegressor(**fixed).fit(X[train], y[train])
print(f"ρ = {chosen.plan_.rho:.2f}, P = {chosen.plan_.partition_size}")

# %%
# Several values of P
# -------------------
#
# By default, the rounds end when twice the work would reduce the error only slightly. The fits in a second series end
# after four rounds. All times are CPU times.

sizes = [20, 40, 80, 160, 320]
series = {"rounds end by effort": None, "4 rounds": 4}
results = {}
for name, max_rounds in series.items():
    for size in sizes:
        model = RVMRegressor(partition_size=size, max_rounds=max_rounds, **fixed)
        begin = time.process_time()
        model.fit(X[train], y[train])
        seconds = time.process_time() - begin
        rmse = root_mean_squared_error(y[test], model.predict(X[test]))
        results[name, size] = rmse, model.n_relevance_vectors_, seconds
        print(f"{name:20}  P {size:3}  RMSE {rmse:.3f}  vectors {model.n_relevance_vectors_:3}")

# %%
# The dotted line marks the value of P that the heuristic chooses.

fig, axes = plt.subplots(1, 3, figsize=(9.5, 3.4), layout="constrained")
labels = ("RMSE of test rows", "relevance vectors", "time of the fit (seconds)")
for column, (ax, label) in enumerate(zip(axes, labels, strict=True)):
    for name, style, colour in (
        ("rounds end by effort", "o-", "#0072B2"),
        ("4 rounds", "s--", "#E69F00"),
    ):
        ax.plot(
            sizes, [results[name, size][column] for size in sizes], style, color=colour, label=name
        )
    ax.axvline(chosen.plan_.partition_size, color="0.4", linestyle=":", label="P of the heuristic")
    ax.set(xscale="log", xlabel="partition size P", ylabel=label, ylim=(0, None))
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
axes[0].legend(fontsize="small")
plt.show()

# %% If ``effort`` determines when the rounds end, the error and the number of vectors hardly depend
# on P: a small P takes more rounds. If the number of rounds is limited, P determines the number of
# vectors and therefore the error. The heuristic's value of P needs few rounds without being larger
# than necessary. Fits that end early leave parts of the plane without vectors, and ``predict``
# issues a warning for test rows in those parts.
