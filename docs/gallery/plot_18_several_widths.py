"""
Several widths at once
======================

Some targets have structure at several scales. With ``Gaussian(multiples=...)``, each candidate row
offers one basis function for each multiple of the width parameter gamma, and the fit keeps the
functions that it needs. This example compares such a kernel with kernels that have a single width.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from partirvm import Gaussian, RVMRegressor

# %%
# Data
# ----
#
# The target is a slow oscillation with two narrow peaks and noise of standard deviation 0.05.

rng = np.random.default_rng(0)


def signal(x):
    return (
        np.sin(0.8 * x)
        + 1.2 * np.exp(-(((x - 3) / 0.12) ** 2))
        - 0.9 * np.exp(-(((x - 7) / 0.08) ** 2))
    )


x = np.sort(rng.uniform(0, 10, 600))
X, y = x[:, None], signal(x) + 0.05 * rng.standard_normal(600)
grid = np.linspace(0, 10, 2_000)[:, None]

# %%
# Three kernels
# -------------
#
# gamma is in 1/unit² of the standardised feature: a value of 1 gives a wide kernel, and 625 gives a narrow one. The
# third kernel combines the gamma values 1, 25 and 625.

kernels = {
    "gamma = 1": Gaussian(gamma=1.0),
    "gamma = 625": Gaussian(gamma=625.0),
    "gamma = 1, 25, 625": Gaussian(gamma=1.0, multiples=(1, 25, 625)),
}
models = {}
for name, kernel in kernels.items():
    models[name] = RVMRegressor(kernel=kernel, partition_size=150, random_state=0).fit(X, y)
    error = root_mean_squared_error(signal(grid[:, 0]), models[name].predict(grid))
    print(
        f"{name:18}  vectors {models[name].n_relevance_vectors_:3}  RMSE against the signal "
        f"{error:.3f}"
    )

# %%
# Means and relevance vectors
# ---------------------------
#
# Each tick marks a relevance vector. ``model_.design.which`` contains the index of the multiple that each vector uses.

colours = ("#0072B2", "#E69F00", "#CC79A7")
fig, axes = plt.subplots(3, 1, figsize=(7, 7.5), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ax.plot(x, y, ".", color="0.7", markersize=3, label="rows")
    ax.plot(grid, model.predict(grid), color="black", linewidth=1, label="mean")
    vectors, which = model.relevance_vectors_[:, 0], model.model_.design.which
    for number in np.unique(which):
        mine = vectors[which == number]
        label = (
            f"{len(mine)} vectors of gamma "
            f"{kernels[name].gamma[0] * kernels[name].multiples[number]:g}"
        )
        ax.plot(
            mine,
            np.full(len(mine), -2.0 - 0.3 * number),
            "|",
            color=colours[number],
            markersize=9,
            label=label,
        )
    ax.set(ylabel="target", title=f"{name}: {model.n_relevance_vectors_} vectors")
    ax.legend(loc="upper right", ncols=2, fontsize="small")
axes[-1].set_xlabel("x")
axes[0].set_ylim(-2.9, 3.2)
plt.show()

# %% The wide kernel misses the peaks. The narrow kernel finds them, but it needs many vectors for
# the slow oscillation, and its mean is rough between the peaks. The kernel with three widths has
# the smallest error with half as many vectors: a few wide functions describe the slow oscillation,
# and most of the narrow ones are at the peaks or make small local corrections to the mean.
