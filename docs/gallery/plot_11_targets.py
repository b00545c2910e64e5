"""
Several targets
===============

A model can have several targets. This example compares a single fit, in which the targets share
their relevance vectors, with a separate fit for each target.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.multioutput import MultiOutputRegressor

from partirvm import RVMRegressor

# %% The generated data are two quantities measured over a day: a temperature and a power. Both vary
# smoothly with time, but their noise differs.

rng = np.random.default_rng(0)


def truth(hour):
    temperature = 12 + 6 * np.sin(2 * np.pi * (hour - 9) / 24) + 1.5 * np.sin(2 * np.pi * hour / 6)
    power = 300 + 150 * np.sin(2 * np.pi * (hour - 7) / 12)
    return np.column_stack([temperature, power])


names, units, noise = ("temperature", "power"), ("°C", "kW"), np.array([0.8, 40.0])
hour = rng.uniform(0, 24, size=150)
X, Y = hour[:, None], truth(hour) + noise * rng.normal(size=(150, 2))

# %% A fit with several targets selects vectors for all of them together. ``MultiOutputRegressor``
# fits one model per target; the fitted models are in ``estimators_``.

shared = RVMRegressor(kernel="gaussian", random_state=0).fit(X, Y)
alone = MultiOutputRegressor(RVMRegressor(kernel="gaussian", random_state=0)).fit(X, Y)

grid = np.linspace(0, 24, 300)
for form, models in {"shared": [shared], "alone": alone.estimators_}.items():
    mean = np.column_stack([model.predict(grid[:, None]) for model in models])
    error = np.sqrt(np.mean((mean - truth(grid)) ** 2, axis=0))
    found = np.sqrt(np.hstack([model.noise_variance_ for model in models]))
    print(
        f"{form:11}  error of the mean {error[0]:.2f} °C, {error[1]:.1f} kW;  noise "
        f"{found[0]:.2f} °C, {found[1]:.1f} kW;  relevance vectors "
        f"{[model.n_relevance_vectors_ for model in models]}"
    )

# %%
# ``predict`` returns one column per target, in the units of that target.

mean, std = shared.predict(grid[:, None], return_std=True)
print("shape of the mean and of the standard deviation:", mean.shape, std.shape)

# %% Each row of panels shows one target, and each column shows one way of fitting. The circles mark
# the relevance vectors.

figure, axes = plt.subplots(
    2, 2, figsize=(10, 6.5), sharex=True, sharey="row", layout="constrained"
)
for column, form in enumerate(["shared vectors", "each target alone"]):
    for target in range(2):
        model = shared if column == 0 else alone.estimators_[target]
        mean, std = (
            np.atleast_2d(each.T)[target if column == 0 else 0]
            for each in model.predict(grid[:, None], return_std=True)
        )
        axis = axes[target, column]
        low, high = mean - 1.96 * std, mean + 1.96 * std
        vectors = model.relevance_vectors_
        chosen = np.isin(hour, vectors[:, 0])
        axis.fill_between(
            grid,
            low,
            high,
            color="#56B4E9",
            alpha=0.3,
            lw=0,
            label="mean ± 1.96 standard deviations",
        )
        axis.plot(
            grid, truth(grid)[:, target], color="black", ls="--", lw=1.2, label="true function"
        )
        axis.plot(grid, mean, color="#0072B2", lw=2, label="predicted mean")
        axis.plot(hour, Y[:, target], ".", color="#666666", ms=4, label="training rows")
        axis.plot(
            hour[chosen],
            Y[chosen, target],
            "o",
            mfc="none",
            mec="#D55E00",
            ms=9,
            mew=1.8,
            label="vectors",
        )
        axis.set_title(form if target == 0 else "")
for target in range(2):
    axes[target, 0].set_ylabel(f"{names[target]} ({units[target]})")
for axis in axes[1]:
    axis.set(xlabel="hour of the day", xlim=(0, 24), xticks=range(0, 25, 6))
figure.legend(
    *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=9
)
plt.show()

# %% Both approaches follow the true functions. The shared vectors are at the same hours for both
# targets, whereas each separate fit chooses its own vectors.
