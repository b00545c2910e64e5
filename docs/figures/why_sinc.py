"""A relevance vector machine of 120 noisy values of sin(x)/x: the mean, the 95 % interval and the
relevance vectors."""

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(-10, 10, 120))
y = np.sinc(x / np.pi) + rng.normal(scale=0.1, size=len(x))
model = RVMRegressor(random_state=0).fit(x[:, None], y)
grid = np.linspace(-10, 10, 400)
mean = model.predict(grid[:, None])
lower, upper = model.predict_interval(grid[:, None], 0.95)
vectors = model.relevance_vectors_[:, 0]

figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.fill_between(
    grid, lower, upper, color="#56b4e9", alpha=0.35, lw=0, label="95 % interval of a new value"
)
axes.plot(x, y, ".", color="0.45", ms=5, label=f"{len(x)} training rows")
axes.plot(
    grid, np.sinc(grid / np.pi), "--", color="black", lw=1, label="sin(x)/x, the true function"
)
axes.plot(grid, mean, color="#0072b2", lw=2, label="predicted mean")
axes.plot(
    vectors,
    np.interp(vectors, grid, mean),
    "o",
    mfc="white",
    mec="#d55e00",
    mew=2,
    ms=8,
    label=f"{len(vectors)} relevance vectors",
)
axes.set_xlabel("x")
axes.set_ylabel("target")
axes.legend(loc="upper right", fontsize=8, framealpha=1)
