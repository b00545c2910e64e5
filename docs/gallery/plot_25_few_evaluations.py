"""
Find a minimum with few evaluations
===================================

If each evaluation of a function is expensive, a model of the values obtained so far can suggest
where the next evaluation will be most useful. The expected improvement depends on the predicted
mean and standard deviation, and its gradient depends on their gradients. ``predict`` returns all of
these in closed form, so a standard optimiser can maximise the expected improvement.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm, qmc

from partirvm import RVMRegressor

# %%
# Branin's function has three minima, all with the value 0.397887.

LOW, HIGH = np.array([-5.0, 0.0]), np.array([10.0, 15.0])


def branin(X):
    x, y = X.T
    return (
        (y - 5.1 * x**2 / (4 * np.pi**2) + 5 * x / np.pi - 6) ** 2
        + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x)
        + 10
    )


# %%
# The next point
# --------------
#
# With z = (best − mean) / std, the expected improvement is std · (z Φ(z) + φ(z)), and its gradient is φ(z) ∇std − Φ(z)
# ∇mean. Every second evaluation is at the minimum of the mean itself, because an RVM is overconfident far from its
# vectors, and because close to a minimum the mean is a better guide than the expected improvement. If the chosen point
# has already been evaluated, it is replaced by the point that is farthest from all evaluations.

even = qmc.scale(qmc.Halton(2, scramble=False).fast_forward(1).random(256), LOW, HIGH)


def expected_improvement(model, best, X):
    mean, std, of_mean, of_std = model.predict(X, return_std=True, return_gradient=True)
    z = (best - mean) / std
    value = std * (z * norm.cdf(z) + norm.pdf(z))
    return value, norm.pdf(z)[:, None] * of_std - norm.cdf(z)[:, None] * of_mean


def next_place(model, X, y, greedy):
    def loss(X):
        if greedy:
            return model.predict(X, return_gradient=True)
        value, gradient = expected_improvement(model, y.min(), X)
        return -value, -gradient

    def at_one(x):
        value, gradient = loss(x[None])
        return value[0], gradient[0]

    starts = [*even[np.argsort(loss(even)[0])[[0, 4, 12]]], X[y.argmin()]]
    bounds = list(zip(LOW, HIGH, strict=True))
    found = [
        minimize(at_one, start, jac=True, bounds=bounds, method="L-BFGS-B") for start in starts
    ]
    place = min(found, key=lambda each: each.fun).x
    if np.abs(X - place).max(axis=1).min() < 0.005:
        return even[np.square(even[:, None] - X).sum(axis=-1).min(axis=1).argmax()]
    return place


# %%
# Thirty evaluations
# ------------------
#
# Twelve of the evaluations are spread evenly. The function values are free of noise; a small noise variance is set so
# that the model can leave out vectors. So few values say little about the kernel widths, so these are set as well: the
# function is a wave along the first feature and a parabola along the second.

X = qmc.scale(qmc.Sobol(2, seed=3).random(16)[:12], LOW, HIGH)
y = branin(X)
while len(X) < 30:
    model = RVMRegressor(gamma=[0.5, 0.05], noise=0.001, random_state=0).fit(X, y).model_
    place = next_place(model, X, y, greedy=len(X) % 2 == 1)
    X, y = np.vstack([X, place]), np.append(y, branin(place[None]))
    if y[-1] == y.min():
        print(f"evaluation {len(X)}: {y[-1]:.5f} at ({place[0]:.3f}, {place[1]:.3f})")
assert y.min() - 0.397887 < 0.05

# %% The figure shows the function and the points where it was evaluated. The arrows are the
# negative gradients of the last model's mean.

axis = [np.linspace(low, high, 120) for low, high in zip(LOW, HIGH, strict=True)]
plane = np.column_stack([each.ravel() for each in np.meshgrid(*axis)])
places = plane.reshape(120, 120, 2)[5::11, 5::11].reshape(-1, 2)
slope = model.predict(places, return_gradient=True)[1]
arrows = -slope / np.sqrt(1.0 + np.square(slope).sum(axis=1, keepdims=True))
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
for ax, values, title in zip(
    axes, (branin(plane), model.predict(plane)), ("Branin", "the last model"), strict=True
):
    levels = np.geomspace(0.5, 320, 16)
    ax.contourf(
        *axis,
        np.clip(values, 0.5, 320).reshape(120, 120),
        levels=levels,
        norm="log",
        cmap="viridis_r",
    )
    ax.set(title=title, xlabel="first feature", xlim=(LOW[0], HIGH[0]), ylim=(LOW[1], HIGH[1]))
    ax.plot(
        *X[:12].T,
        "o",
        color="white",
        markeredgecolor="black",
        markersize=5,
        label="12 spread evenly",
    )
    ax.plot(
        *X[12:].T, "o", color="#D55E00", markeredgecolor="black", markersize=5, label="18 chosen"
    )
axes[0].plot([-np.pi, np.pi, 9.42478], [12.275, 2.275, 2.475], "k*", markersize=9, label="minima")
axes[1].quiver(*places.T, *arrows.T, color="black", alpha=0.5, width=0.003, scale=28)
axes[0].legend(loc="upper right", fontsize=8)
plt.show()
