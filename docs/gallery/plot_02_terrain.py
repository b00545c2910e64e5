"""
A terrain
=========

This example predicts the elevation of a real landscape from longitude and latitude. It shows the
predicted mean, the predicted standard deviation and the errors, with the last two on a common
colour scale.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data
from matplotlib.ticker import MultipleLocator

from partirvm import Gaussian, RVMRegressor

# %% matplotlib ships with an elevation model of the Jacksboro fault in Tennessee. The example uses
# every third row and column of its grid. A randomly chosen third of these cells are the training
# rows, and the rest are test rows.

with get_sample_data("jacksboro_fault_dem.npz") as sample:
    height = sample["elevation"][::3, ::3].astype(float)
    west, east, south, north = (float(sample[name]) for name in ("xmin", "xmax", "ymax", "ymin"))

n_rows, n_columns = height.shape
longitude = np.linspace(west, east, n_columns)
latitude = np.linspace(north, south, n_rows)
X = np.stack(np.meshgrid(longitude, latitude), axis=-1).reshape(-1, 2)
y = height.ravel()

order = np.random.default_rng(0).permutation(len(y))
train, test = np.split(order, [len(y) // 3])

# %% A landscape is rough at all scales, so the model needs many vectors: each of the three rounds
# adds up to 300. The kernel width is set explicitly, because kernel learning uses only a few
# hundred centres and would choose a width that is too large.

model = RVMRegressor(kernel=Gaussian(gamma=80), partition_size=300, max_rounds=3, random_state=0)
model.fit(X[train], y[train])
mean, std = model.predict(X, return_std=True)
lower, upper = model.predict_interval(X[test], 0.95)

error = mean - y
inside = np.mean((lower <= y[test]) & (y[test] <= upper))
print(f"{len(train):,} training cells, {model.n_relevance_vectors_} relevance vectors")
print(f"standard deviation of the heights: {y.std():.1f} m")
print(f"RMSE on the {len(test):,} test cells: {np.sqrt(np.mean(error[test] ** 2)):.1f} m")
print(f"test cells inside the 95 % interval: {inside:.1%}")

# %% Panels a and b share one scale, and so do panels c and d. Panel d shows absolute errors of the
# test cells, which the fit has not seen, so that they can be compared with the standard deviation;
# training cells are blank. The shared scale of c and d is capped at the 99th percentile of the
# errors.

test_error = np.full(len(y), np.nan)
test_error[test] = np.abs(error[test])

aspect = 1 / np.cos(np.radians((south + north) / 2))
heights = {"cmap": "cividis", "vmin": y.min(), "vmax": y.max()}
errors = {"cmap": "magma", "vmin": 0, "vmax": np.nanquantile(test_error, 0.99)}
panels = [
    ("a  Terrain and relevance vectors", height, heights),
    ("b  Predicted mean", mean.reshape(height.shape), heights),
    ("c  Predicted standard deviation", std.reshape(height.shape), errors),
    ("d  Absolute error of test cells", test_error.reshape(height.shape), errors),
]

figure, axes = plt.subplots(2, 2, figsize=(9, 8), sharex=True, sharey=True, layout="constrained")
for axis, (title, values, scale) in zip(axes.flat, panels, strict=True):
    image = axis.imshow(values, extent=(west, east, south, north), aspect=aspect, **scale)
    axis.set_title(title, loc="left")
    if title[0] in "bd":
        row = axes[0] if title[0] == "b" else axes[1]
        label = "height (m)" if title[0] == "b" else "standard deviation, error (m)"
        figure.colorbar(
            image, ax=row, label=label, extend="neither" if title[0] == "b" else "max", shrink=0.9
        )
axes[0, 0].plot(*model.relevance_vectors_.T, ".", color="#D55E00", ms=2, label="relevance vectors")
axes[0, 0].legend(loc="lower right", markerscale=4)
for axis in axes[:, 0]:
    axis.set_ylabel("latitude (degrees north)")
for axis in axes[1]:
    axis.set_xlabel("longitude (degrees east)")
    axis.xaxis.set_major_locator(MultipleLocator(0.1))
plt.show()

# %% The model reproduces the ridges and smooths out small valleys. The predicted standard deviation
# is largest where the errors are large.
