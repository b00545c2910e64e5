"""
Pipelines and grid search
=========================

The estimators follow scikit-learn's conventions: they work in pipelines, parameter searches and
cross-validation, in one process or several. Strategies and kernels can be objects with options of
their own, which a search can set through nested parameter names.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.feature_selection import SelectFromModel
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import QuantileTransformer

from partirvm import Gaussian, RVMRegressor, WorkingSet

# %% scikit-learn's diabetes dataset has 442 rows and 10 features. The target is the progression of
# the disease after one year.

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
folds = KFold(3, shuffle=True, random_state=0)

# %%
# A search over nested names
# --------------------------
#
# The last step of the pipeline is an RVM whose kernel and strategy are such objects. ``rvm__kernel__gamma`` is the
# kernel's width parameter, and ``rvm__strategy__selection`` determines how candidates are selected. ``gamma="learn"``
# would learn the widths from the evidence, without a search.

steps = Pipeline(
    [
        ("quantiles", QuantileTransformer(n_quantiles=100, output_distribution="normal")),
        (
            "rvm",
            RVMRegressor(
                kernel=Gaussian(), strategy=WorkingSet(), partition_size=60, random_state=0
            ),
        ),
    ]
).set_output(transform="pandas")

widths = [0.003, 0.01, 0.03, 0.1, 0.3]
search = GridSearchCV(
    steps,
    {"rvm__kernel__gamma": widths, "rvm__strategy__selection": ["random", "error"]},
    scoring="neg_root_mean_squared_error",
    cv=folds,
)
search.fit(X, y)
print(search.best_params_, f"RMSE {-search.best_score_:.1f}")

# %%
# ``set_output`` makes the steps pass data frames to each other, so the RVM knows the feature names.

best = search.best_estimator_[-1]
print(best.feature_names_in_, best.n_relevance_vectors_)

# %% The figure shows the error as a function of the width parameter for each selection method. The
# error bars are one standard deviation across the folds.

found = search.cv_results_
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for selection, colour, marker, shift in (
    ("random", "#0072B2", "o", 0.97),
    ("error", "#D55E00", "s", 1.03),
):
    mine = found["param_rvm__strategy__selection"] == selection
    ax.errorbar(
        shift * np.array(widths),
        -found["mean_test_score"][mine],
        found["std_test_score"][mine],
        color=colour,
        marker=marker,
        capsize=3,
        label=f"selection={selection!r}",
    )
ax.set(
    xscale="log",
    xlabel="gamma (1/unit² of standardised features)",
    ylabel="RMSE of 3 folds (target's unit)",
)
ax.legend()
plt.show()

# %%
# Select features in a pipeline
# -----------------------------
#
# ``feature_relevance_`` shows how much of the predictions' variance is due to each feature. ``SelectFromModel`` passes
# only the relevant features to the next step.

selected = SelectFromModel(
    RVMRegressor(gamma="learn-per-feature", effort="quick", reference="none", random_state=0),
    importance_getter="feature_relevance_",
    threshold=1e-3,
)
pipeline = make_pipeline(
    selected, RVMRegressor(gamma="learn-shared", effort="quick", reference="none", random_state=0)
).set_output(transform="pandas")
pipeline.fit(X, y)
print(list(pipeline[-1].feature_names_in_))

# %%
# Predictions of left-out rows
# ----------------------------
#
# ``cross_val_predict`` predicts each row with a model that was fitted without the fold containing that row.

predicted = cross_val_predict(pipeline, X, y, cv=folds)
print(f"RMSE {root_mean_squared_error(y, predicted):.1f}, R² {r2_score(y, predicted):.2f}")

fig, ax = plt.subplots(figsize=(5, 5), layout="constrained")
ax.plot(predicted, y, ".", color="#0072B2", alpha=0.6, label="row, predicted without its fold")
ax.axline((150, 150), slope=1, color="#D55E00", linestyle="--", label="predicted = observed")
ax.set(xlabel="predicted progression", ylabel="observed progression", aspect="equal")
ax.legend(loc="upper left")
plt.show()

# %%
# Intervals
# ---------
#
# The last step of a pipeline can predict intervals and quantiles for rows that the earlier steps have transformed.
# ``cross_val_predict`` only calls ``predict``, so the example defines a subclass whose ``predict`` method returns
# quantiles.

rows = pipeline.fit(X, y)[:-1].transform(X)
lower, upper = pipeline[-1].predict_interval(rows, 0.9)
print(f"mean width of the 90 % intervals: {np.mean(upper - lower):.0f}")


class Quantiles(RVMRegressor):
    def predict(self, X):
        return self.predict_quantiles(X, [0.05, 0.5, 0.95])


intervals = make_pipeline(selected, Quantiles(gamma="learn", random_state=0))
low, median, high = cross_val_predict(intervals, X, y, cv=folds).T
print(f"left-out rows inside their 90 % intervals: {np.mean((low < y) & (y < high)):.1%}")

# %% The error hardly depends on the selection method, and it changes little over a tenfold range of
# the width parameter. The pipeline that learns its features and widths from the evidence has about
# the same error as the best grid point, but needs no search.
