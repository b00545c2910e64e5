"""
Feature relevance
=================

Friedman's first problem has ten inputs, but its target depends on only five of them. This example
shows how an RVM with one kernel width per feature identifies those five.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from partirvm import RVMRegressor

# %% The target is 10 sin(π x0 x1) + 20 (x2 − 0.5)² + 10 x3 + 5 x4 plus noise of variance 1. The
# inputs x5 to x9 have no effect.

X, y = make_friedman1(n_samples=600, n_features=10, noise=1.0, random_state=0)
X_test, y_test = make_friedman1(n_samples=2000, n_features=10, noise=1.0, random_state=1)

# %% ``gamma="learn-per-feature"`` learns a separate width for each feature from the evidence;
# ``gamma="learn-shared"`` learns one width for all features.

model = RVMRegressor(kernel="gaussian", gamma="learn-per-feature", random_state=0).fit(X, y)
common = RVMRegressor(kernel="gaussian", gamma="learn-shared", random_state=0).fit(X, y)

# %% ``feature_relevance_`` is the share of the variance of the predictions that is due to a
# feature, alone or with others (total Sobol index). It is zero for a feature that is switched off,
# and close to zero for one with little effect. ``get_support`` returns the features with at least a
# given relevance.

print("relevant features:", model.get_support(indices=True, threshold=1e-3).tolist())
for name, fitted in (("one width per feature", model), ("one common width", common)):
    error = np.sqrt(np.mean((fitted.predict(X_test) - y_test) ** 2))
    print(
        f"{name}: RMSE {error:.2f} on new rows, noise {fitted.noise_variance_**0.5:.2f} (true "
        "value: 1.00)"
    )

# %%
# The relevance axis is logarithmic, because the values differ by orders of magnitude.

names = [f"x{j}" for j in range(10)]
relevance = np.maximum(model.feature_relevance_, 1e-6)
colours = np.where(model.get_support(threshold=1e-3), "#0072B2", "#BBBBBB")

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.barh(names, relevance, color=colours)
axis.axvline(1e-3, color="#D55E00", ls="--", label="threshold")
axis.set(
    xscale="log",
    xlim=(1e-6, 2),
    xlabel="relevance (share of the variance of predictions)",
    ylabel="feature",
)
axis.invert_yaxis()
axis.legend(loc="lower right")
plt.show()

# %% The five features that the target depends on are above the threshold, and the other five are
# below it.
