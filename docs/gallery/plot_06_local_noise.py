"""
A time series whose noise varies
================================

The noise in a time series may vary over time. This example compares a fit with constant noise to
one with local noise. The data are generated and resemble the well-known motorcycle data (the
acceleration of a rider's head after an impact).
"""

import matplotlib.pyplot as plt
import numpy as np

from partirvm import RVMRegressor

# %% The series is flat at first; then it falls, rises and decays. The standard deviation of its
# noise grows from 3 g to 20 g.


def acceleration(t):
    return -70 * np.exp(-(((t - 24) / 6) ** 2)) + 30 * np.exp(-(((t - 40) / 8) ** 2))


def noise(t):
    return 3 + 17 / (1 + np.exp(-(t - 18) / 2.0))


def measured(n, rng):
    t = np.sort(rng.uniform(0, 60, size=n))
    return t[:, None], acceleration(t) + noise(t) * rng.normal(size=n)


X, y = measured(250, np.random.default_rng(0))
X_test, y_test = measured(5000, np.random.default_rng(1))

# %% ``noise="auto"``, the default, tests whether the leave-one-out errors depend on the inputs.
# Here, both noise models are requested explicitly.

models = {
    form: RVMRegressor(noise=form, random_state=0).fit(X, y) for form in ("constant", "local")
}

# %% The coverage of the 95 % interval is measured on 5,000 new rows, separately before and after
# the impact.

calm = X_test[:, 0] < 12
for form, model in models.items():
    lower, upper = model.predict_interval(X_test, 0.95)
    inside = (lower <= y_test) & (y_test <= upper)
    mean, std = model.predict(X_test, return_std=True)
    nlpd = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y_test - mean) / std) ** 2)
    print(
        f"{form:8}  inside 95 %: {inside[calm].mean():.1%} before 12 ms, "
        f"{inside[~calm].mean():.1%} after, {inside.mean():.1%} of all; negative log predictive "
        f"density {nlpd:.2f}"
    )

# %%
# Both panels use the same scale.

grid = np.linspace(0, 60, 400)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), sharey=True, layout="constrained")
for axis, (form, model) in zip(axes, models.items(), strict=True):
    lower, upper = model.predict_interval(grid[:, None], 0.95)
    ends = acceleration(grid) - 1.96 * noise(grid), acceleration(grid) + 1.96 * noise(grid)
    axis.fill_between(grid, lower, upper, color="#56B4E9", alpha=0.35, lw=0, label="95 % interval")
    axis.plot(grid, ends[0], color="black", ls=":", lw=1, label="true 95 % interval")
    axis.plot(grid, ends[1], color="black", ls=":", lw=1)
    axis.plot(grid, model.predict(grid[:, None]), color="#0072B2", lw=2, label="predicted mean")
    axis.plot(X[:, 0], y, ".", color="#D55E00", ms=4, label="training rows")
    axis.set(title=f'noise="{form}"', xlabel="time (ms)", xlim=(0, 60))
axes[0].set_ylabel("acceleration (g)")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
plt.show()

# %% With constant noise, the interval is too wide before the impact and too narrow after it. With
# local noise, it follows the true interval throughout, and the predictive density is better.
