"""
Custom kernels and basis functions
==================================

Kernels from ``partirvm.kernels`` can be combined into sums and products, and any suitable Python
function can serve as a kernel. Additional basis functions express prior knowledge about the target,
such as a trend. Without a kernel, the model is a sparse sum of basis functions only.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error
from sklearn.preprocessing import PolynomialFeatures

from partirvm import RVMRegressor
from partirvm.kernels import Categorical, Gaussian, OnColumns, Product, Sum

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.6"
rng = np.random.default_rng(0)

# %%
# Sums and products of kernels on some columns
# --------------------------------------------
#
# Columns 0 and 1 are numeric, and column 2 contains category codes. Each category adds a constant to the target. A sum
# of kernels expresses this: a smooth effect of the numeric columns plus an effect of the category. With a product, each
# category has its own smooth effect. In this section, the kernels receive standardised features.

X = np.column_stack([rng.uniform(-2, 2, (900, 2)), rng.integers(0, 5, 900)])
y = (
    np.sin(2 * X[:, 0]) * X[:, 1]
    + np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[[3, 0, 4, 1, 2]][X[:, 2].astype(int)]
)
y += 0.1 * rng.standard_normal(900)
train, test = slice(0, 300), slice(300, None)

smooth, category = OnColumns(Gaussian(1.0), (0, 1)), OnColumns(Categorical(1.0), (2,))
kernels = {
    "Gaussian, all columns": Gaussian(1.0),
    "product": Product((smooth, category)),
    "sum": Sum((smooth, category)),
}
rmse = {}
for name, kernel in kernels.items():
    model = RVMRegressor(kernel=kernel, strategy="basic").fit(X[train], y[train])
    rmse[name] = root_mean_squared_error(y[test], model.predict(X[test]))
    print(f"{name:22} RMSE {rmse[name]:.3f}, log evidence {model.log_evidence_:8.1f}")

fig, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
ax.barh(list(rmse), list(rmse.values()), color=BLUE)
ax.axvline(0.1, color=ORANGE, linestyle="--", label="standard deviation of the noise")
ax.set(xlabel="RMSE of test rows", title="Kernels for numbers and a category")
ax.legend(loc="upper right")
plt.show()

# %%
# A Python function as kernel
# ---------------------------
#
# A kernel may be any function that takes points of shape (n, d) and centres of shape (m, d) and returns an array of
# shape (n, m). A function object works only for fits in the current process. For jobs and clusters, pass the function's
# name as ``"module:function"``, which every worker imports. ``standardize=False`` leaves the feature in its own unit,
# so that the period is 1 year.


def yearly(points, centres):
    """Periodic kernel with a period of 1."""
    return np.exp(-2 * np.sin(np.pi * (points[:, :1] - centres[:, 0])) ** 2)


years = np.sort(rng.uniform(0, 4, 300))[:, None]
season = np.sin(2 * np.pi * years[:, 0]) + 0.4 * np.cos(4 * np.pi * years[:, 0])
level = season + 0.8 * years[:, 0] + 0.2 * rng.standard_normal(300)

# %%
# Basis functions in addition to the kernel
# -----------------------------------------
#
# ``basis="linear"`` adds a linear term for each feature. Together with the periodic kernel, it models a trend and a
# seasonal pattern, both of which continue beyond the last row. A Gaussian kernel also fits the rows, but beyond the
# last row, far from every relevance vector, its prediction reverts to a constant, and a warning says so.

seasonal = RVMRegressor(kernel=yearly, basis="linear", standardize=False, random_state=0).fit(
    years, level
)
gaussian = RVMRegressor(kernel="gaussian", gamma=10.0, standardize=False, random_state=0).fit(
    years, level
)
for name, weight in zip(seasonal.basis_names_, seasonal.basis_weights_, strict=True):
    print(f"{name}: {weight:.3f}")

grid = np.linspace(0, 6, 500)[:, None]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(years, level, ".", color=GREY, label="rows")
ax.plot(grid, gaussian.predict(grid), "--", color=ORANGE, label="Gaussian kernel")
ax.plot(grid, seasonal.predict(grid), color=BLUE, label="periodic kernel and linear term")
ax.set(xlabel="time (years)", ylabel="level", title="A trend and a seasonal pattern")
ax.legend()
plt.show()

# %%
# A sparse polynomial
# -------------------
#
# With ``kernel=None``, the model consists only of the basis functions that ``basis`` specifies. Each of them has its
# own prior precision α, so functions without an effect are deleted. Here, the model can choose from 34 monomials of
# four features, three of which make up the target. ``basis_relevance_`` is the evidence, in nats, that would be lost by
# removing each function.

X = rng.uniform(-1, 1, (200, 4))
y = 2 * X[:, 0] - 3 * X[:, 1] * X[:, 2] + X[:, 3] ** 3 + 0.1 * rng.standard_normal(200)
monomials = PolynomialFeatures(degree=3, include_bias=False).set_output(transform="pandas")
polynomial = RVMRegressor(kernel=None, basis="linear", standardize=False).fit(
    monomials.fit_transform(X), y
)

kept = np.flatnonzero(polynomial.basis_relevance_ > 0)
kept = kept[np.argsort(polynomial.basis_relevance_[kept])]
for number in kept[::-1]:
    print(f"{polynomial.basis_names_[number]:10} weight {polynomial.basis_weights_[number]:6.3f}")

fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.barh(
    [polynomial.basis_names_[number] for number in kept],
    polynomial.basis_relevance_[kept],
    color=GREEN,
)
ax.set(
    xlabel="evidence lost without the function (nats)",
    xscale="log",
    title="Functions that were kept",
)
plt.show()

# %% The sum of kernels has the smallest error, because it matches the structure of the target. The
# periodic model continues the trend and the seasonal pattern. The polynomial model contains the
# three monomials of the target, with weights close to the true ones. The other functions that
# remain have small weights, and removing any one of them would lose little evidence.
