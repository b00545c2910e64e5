"""
Calibrated intervals: RVM, Gaussian process and boosting
========================================================

A 90 % interval should contain 90 % of new targets, and it should be narrow. This example compares
the intervals of an RVM with those of scikit-learn's Gaussian process and of boosted quantile
regression, on rows that were not used for fitting.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from partirvm import RVMRegressor

# %% The data are the 442 patients in scikit-learn's diabetes dataset: ten measurements each, and
# the progression of the disease a year later. Each of three random splits holds out 30 % of the
# rows, which gives 399 predictions.

X, y = load_diabetes(return_X_y=True)
splits = list(ShuffleSplit(n_splits=3, test_size=0.3, random_state=0).split(X))
levels = (0.5, 0.7, 0.8, 0.9, 0.95)

# %% Each function fits a model to the training rows and returns the interval bounds for the test
# rows at every level. Boosting uses only a few shallow trees, because the dataset is small: with
# scikit-learn's defaults, its intervals contain fewer of the test rows.


def rvm(X, y, X_test):
    model = RVMRegressor(reference="none", random_state=0).fit(X, y)
    return [model.predict_interval(X_test, level) for level in levels]


def gaussian_process(X, y, X_test):
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel()
    model = make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # a width at its bound means that the feature is irrelevant
        mean, std = model.fit(X, y).predict(X_test, return_std=True)
    return [
        (mean - norm.ppf((1 + level) / 2) * std, mean + norm.ppf((1 + level) / 2) * std)
        for level in levels
    ]


def boosting(X, y, X_test):
    def quantile(q):
        trees = {"max_iter": 30, "max_depth": 2, "min_samples_leaf": 40}
        model = HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0, **trees)
        return model.fit(X, y).predict(X_test)

    return [(quantile((1 - level) / 2), quantile((1 + level) / 2)) for level in levels]


# %% Coverage is the fraction of test rows whose target lies inside the interval. The width is
# averaged over the test rows.

methods = {"RVM": rvm, "Gaussian process": gaussian_process, "boosted quantiles": boosting}
rows = []
for name, method in methods.items():
    for train, test in splits:
        for level, (lower, upper) in zip(levels, method(X[train], y[train], X[test]), strict=True):
            inside = np.mean((lower <= y[test]) & (y[test] <= upper))
            rows.append((name, level, inside, np.mean(upper - lower)))
scores = pd.DataFrame(rows, columns=["method", "level", "coverage", "width"])
table = scores.groupby(["method", "level"], sort=False).mean()
print(table.unstack("method").round(2).to_string())

# %% The left panel compares the coverage with the nominal level; the dashed line is exact coverage.
# If the true coverage equals the nominal level, the observed coverage of 399 rows falls in the grey
# band with a probability of 95 %. The right panel shows the price, which is the mean width.

styles = {
    "RVM": ("o-", "#0072B2"),
    "Gaussian process": ("s--", "#E69F00"),
    "boosted quantiles": ("^:", "#009E73"),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
x = np.linspace(0.45, 0.99, 100)
spread = 1.96 * np.sqrt(x * (1 - x) / sum(len(test) for _, test in splits))
left.fill_between(x, x - spread, x + spread, color="#BBBBBB", alpha=0.5, lw=0, label="chance, 95 %")
left.plot(x, x, color="black", ls="--", lw=1, label="exact")
for name, (style, colour) in styles.items():
    one = table.loc[name]
    left.plot(one.index, one["coverage"], style, color=colour, label=name)
    right.plot(one.index, one["width"], style, color=colour, label=name)
left.set(xlabel="nominal level", ylabel="fraction of test rows inside", title="Coverage")
right.set(
    xlabel="nominal level", ylabel="mean width (units of the target)", title="Width", ylim=(0, None)
)
left.legend(fontsize=9)
right.legend(fontsize=9)
plt.show()

# %% The coverage of all three methods is close to the nominal level. The intervals of the RVM and
# of the Gaussian process are about equally wide; those of the boosted quantiles are wider at most
# levels.
