"""
Noisy sinc
==========

This example fits a Relevance Vector Machine (RVM) to noisy values of sin(x)/x, the example used by
Tipping (2001). It shows the relevance vectors, the estimated noise and the 95 % interval, together
with the true function.
"""

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor

# %%
# The training data are 100 points with Gaussian noise of standard deviation 0.1.

rng = np.random.default_rng(1)


def sinc(x):
    return np.sinc(x / np.pi)  # numpy's sinc is sin(πx)/(πx)


X = rng.uniform(-10, 10, size=(100, 1))
y = sinc(X[:, 0]) + rng.normal(scale=0.1, size=100)

# %% The kernel width is learned from the evidence. ``noise_variance_`` is estimated from the
# leave-one-out errors.

model = RVMRegressor(kernel="gaussian", random_state=0).fit(X, y)

print(f"relevance vectors: {model.n_relevance_vectors_} of {len(X)} rows")
print(f"noise: {model.noise_variance_**0.5:.3f} (true value: 0.100)")
print(f"log evidence: {model.log_evidence_:.1f} nats")
print(f"end of the fit: {model.termination_.advice}")

# %% ``predict_interval`` returns the bounds of an interval for new noisy values or, with
# ``kind="credible"``, for their mean.

grid = np.linspace(-10, 10, 400)
mean = model.predict(grid[:, None])
lower, upper = model.predict_interval(grid[:, None], 0.95)
below, above = model.predict_interval(grid[:, None], 0.95, kind="credible")

# %% Every relevance vector is one of the training rows, so it has a target value. The figure marks
# the vectors with circles.

is_vector = np.isin(X[:, 0], model.relevance_vectors_[:, 0])

figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
axis.fill_between(
    grid, lower, upper, color="#56B4E9", alpha=0.25, lw=0, label="95 % interval of new values"
)
axis.fill_between(
    grid, below, above, color="#0072B2", alpha=0.35, lw=0, label="95 % interval of the mean"
)
axis.plot(grid, sinc(grid), color="black", ls="--", lw=1.5, label="true function")
axis.plot(grid, mean, color="#0072B2", lw=2, label="predicted mean")
axis.plot(X[:, 0], y, ".", color="#666666", ms=5, label="training rows")
axis.plot(
    X[is_vector, 0],
    y[is_vector],
    "o",
    mfc="none",
    mec="#D55E00",
    mew=2,
    ms=11,
    label="relevance vectors",
)
axis.set(xlabel="x", ylabel="y", xlim=(-10, 10), title="An RVM of the noisy sinc")
axis.legend(fontsize=9, loc="upper left")
plt.show()

# %%
# The predicted mean follows the true function, although it uses only a few of the 100 rows.
