"""
Uncertainty far from the data: RVM*
====================================

Far from all relevance vectors, the basis functions of an RVM are zero, so its predicted standard
deviation falls to that of the noise: the prediction looks most certain where nothing is known. RVM*
(Rasmussen & Quiñonero-Candela 2005) adds a basis function at each test row, so that its standard
deviation grows with the distance from the training rows.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor
from partirvm.errors import DataWarning

# %%
# Data
# ----
#
# The rows lie in two intervals with a gap between them.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-6, -1, 60), rng.uniform(3, 6, 40)])
X, y = x[:, None], 10 + np.sin(1.5 * x) + 0.15 * rng.standard_normal(100)
model = RVMRegressor("gaussian", gamma=12.0, noise="constant", random_state=0).fit(X, y)

# %%
# Two standard deviations
# -----------------------
#
# ``predict`` issues a warning about rows that are far from every relevance vector. If the training rows are passed as
# ``augment``, it predicts with RVM*.

grid = np.linspace(-12, 12, 700)[:, None]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", DataWarning)
    mean, std = model.predict(grid, return_std=True)
print(caught[0].message)

mean_star, std_star = model.predict(grid, return_std=True, augment=(X, y))

# %% The upper panels show the means and intervals of ± 1.96 standard deviations; the lower panel
# shows the standard deviations. Far from all rows, the standard deviation of RVM* is √(noise
# variance + variance of the target).

BLUE, ORANGE = "#0072B2", "#D55E00"
limit = np.sqrt(model.noise_variance_ + y.var())
fig, axes = plt.subplots(3, 1, figsize=(7, 8), sharex=True, layout="constrained")
for ax, centre, spread, colour, name in (
    (axes[0], mean, std, ORANGE, "RVM"),
    (axes[1], mean_star, std_star, BLUE, "RVM*"),
):
    ax.plot(x, y, ".", color="0.4", markersize=4, label="rows")
    ax.plot(grid, centre, color=colour, label=f"mean of {name}")
    ax.fill_between(
        grid[:, 0],
        centre - 1.96 * spread,
        centre + 1.96 * spread,
        color=colour,
        alpha=0.25,
        label="95 % interval",
    )
    ax.set(ylabel="target", ylim=(7, 13), title=name)
    ax.legend(loc="upper right", ncols=3, fontsize="small")
axes[2].plot(grid, std, "--", color=ORANGE, label="RVM")
axes[2].plot(grid, std_star, color=BLUE, label="RVM*")
axes[2].axhline(
    limit, color="0.4", linestyle=":", label="√(noise variance + variance of the target)"
)
axes[2].plot(x, np.zeros_like(x), "|", color="0.4", label="rows")
axes[2].set(xlabel="x", ylabel="standard deviation", ylim=(-0.03, 1.3 * limit))
axes[2].legend(loc="upper right", ncols=2, fontsize="small")
plt.show()

# %% In the gap and beyond the outermost rows, the standard deviation of the RVM falls to that of
# the noise, whereas that of RVM* rises to the spread of the target. Near the rows, the two agree.
# RVM* is not the default because every call to ``predict`` then needs passes over the training
# rows.
