"""
Categories
==========

This example fits a pandas data frame that has a numeric column and a categorical column. The kernel
has a separate factor for the categories, and the evidence determines how much rows of different
categories have in common.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from partirvm import RVMRegressor

# %% The generated data are the yield of a chemical reaction as a function of temperature, for
# twelve catalysts. All curves have the same shape, but each catalyst shifts its curve up or down.
# The order of the catalyst names says nothing about the shift.

rng = np.random.default_rng(0)
catalysts = [f"cat-{number:02}" for number in range(1, 13)]
shift = dict(zip(catalysts, rng.normal(scale=8, size=12), strict=True))


def curve(temperature):
    return 60 - 0.03 * (temperature - 60) ** 2 + 4 * np.sin(temperature / 5)


def measured(n):
    catalyst = rng.choice(catalysts, size=n)
    temperature = rng.uniform(30, 90, size=n)
    clean = curve(temperature) + np.array([shift[name] for name in catalyst])
    frame = pd.DataFrame(
        {"temperature": temperature, "catalyst": pd.Categorical(catalyst, categories=catalysts)}
    )
    return frame, clean + rng.normal(scale=2.0, size=n)


X, y = measured(240)
X_test, y_test = measured(2000)
print(X.dtypes.to_string())

# %% No option is needed: ``fit`` and ``predict`` recognise the categorical columns of a data frame.
# For comparison, a second model is given the catalysts as the numbers 0 to 11, and a third is given
# only the temperature.


def as_numbers(frame):
    return frame.assign(catalyst=frame["catalyst"].cat.codes.astype(float))


def left_out(frame):
    return frame[["temperature"]]


models = {}
for name, columns in (
    ("category", lambda frame: frame),
    ("number", as_numbers),
    ("left out", left_out),
):
    models[name] = model = RVMRegressor(random_state=0).fit(columns(X), y)
    error = np.sqrt(np.mean((model.predict(columns(X_test)) - y_test) ** 2))
    print(
        f"catalyst {name:9} RMSE {error:.2f} % on new rows, {model.n_relevance_vectors_} "
        "relevance vectors"
    )
print("standard deviation of the noise: 2.00 %")

# %% The left panel shows the predictions for four catalysts with their 95 % intervals. The right
# panel compares the mean prediction for each catalyst, relative to the overall mean, with its true
# shift.

model = models["category"]
grid = np.linspace(30, 90, 200)


def rows_of(name):
    return pd.DataFrame(
        {"temperature": grid, "catalyst": pd.Categorical([name] * 200, categories=catalysts)}
    )


figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.5), width_ratios=(3, 2), layout="constrained"
)
by_shift = sorted(catalysts, key=shift.get, reverse=True)
styles = zip(
    by_shift[::3], ("#0072B2", "#E69F00", "#009E73", "#CC79A7"), ("o", "s", "^", "D"), strict=True
)
for name, colour, marker in styles:
    lower, upper = model.predict_interval(rows_of(name), 0.95)
    left.fill_between(grid, lower, upper, color=colour, alpha=0.2, lw=0)
    left.plot(grid, model.predict(rows_of(name)), color=colour, lw=2)
    chosen = (X["catalyst"] == name).to_numpy()
    left.plot(X["temperature"][chosen], y[chosen], marker, color=colour, ms=5, label=name)
left.set(xlabel="temperature (°C)", ylabel="yield (%)", title="Predictions and training rows")
left.legend(title="catalyst", fontsize=9)

found = np.array([model.predict(rows_of(name)).mean() for name in catalysts])
true = np.array([shift[name] for name in catalysts])
right.axline((0, 0), slope=1, color="black", ls="--", lw=1, label="equal")
right.plot(true - true.mean(), found - found.mean(), "o", color="#0072B2", label="catalyst")
right.set(
    xlabel="true shift (%)",
    ylabel="predicted shift (%)",
    title="Shift of each catalyst",
    aspect="equal",
)
right.legend(loc="upper left", fontsize=9)
plt.show()

# %% Each curve follows the twenty or so rows of its catalyst, and all curves share the same shape.
# The predicted shifts are close to the true ones.
