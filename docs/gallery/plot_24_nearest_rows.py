"""
Vectors for the overall shape, nearest rows for the details
===========================================================

A few hundred relevance vectors describe the smooth part of a landscape. The errors that remain are
similar for neighbouring rows, so local residuals predict them from the errors of the nearest
training rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor

# %%
# The data are a landscape with broad hills and narrow ridges, measured at 3,000 random points.

rng = np.random.default_rng(0)


def height(X):
    ridges = np.sin(14 * X[:, 0] + 4 * np.sin(3 * X[:, 1]))
    return np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.4 * ridges * np.exp(
        -np.square(X).sum(axis=1) / 3
    )


X = rng.uniform(-2, 2, size=(3000, 2))
y = height(X) + 0.03 * rng.standard_normal(3000)
model = RVMRegressor(max_vectors=100, reference="none", random_state=0).fit(X, y)
print(model.history_[-1]["residuals"])

# %% The figure compares the predictions of the 100 vectors alone with the same predictions
# corrected by the errors of the nearest rows.

axis = np.linspace(-2, 2, 150)
grid = np.column_stack([each.ravel() for each in np.meshgrid(axis, axis)])
alone, corrected = model.model_.sparse().predict(grid), model.predict(grid)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for place, values, title in zip(
    axes,
    (height(grid), alone, corrected),
    ("true", "vectors alone", "with nearest rows"),
    strict=True,
):
    error = np.sqrt(np.mean((values - height(grid)) ** 2))
    place.imshow(
        values.reshape(150, 150),
        origin="lower",
        extent=(-2, 2, -2, 2),
        cmap="terrain",
        vmin=-1.4,
        vmax=1.4,
    )
    place.set_title(f"{title}, RMSE {error:.3f}" if title != "true" else title)
axes[1].plot(*model.relevance_vectors_.T, ".", color="black", markersize=2)

# %% To explain a single prediction, the next figure shows the rows whose errors correct it,
# coloured by their weights.

place = np.array([[0.5, 0.3]])
behind = model.nearest_rows(place)
rows, weights = behind["rows"][0], behind["weights"][0]
figure, axes = plt.subplots(figsize=(4.4, 3.6), layout="constrained")
points = axes.scatter(
    *X[rows].T, c=weights, cmap="coolwarm", vmin=-abs(weights).max(), vmax=abs(weights).max()
)
axes.plot(*place.T, "k*", markersize=12)
axes.set_title("Neighbours of ★ and their weights")
figure.colorbar(points)
