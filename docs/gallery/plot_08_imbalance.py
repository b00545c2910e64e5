"""
Imbalanced classes
==================

In this example, one of two classes is rare. It shows what ``class_weight="balanced"`` changes: the
classifier finds more of the rare rows, but its probabilities no longer match the class frequencies
in the data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss, precision_recall_curve, precision_score, recall_score

from partirvm import RVMClassifier

# %% About 6 % of the generated rows belong to the class "rare". The first 2,000 rows are used for
# training and the rest for testing.

X, codes = make_classification(
    n_samples=22_000,
    n_features=6,
    n_informative=4,
    n_redundant=0,
    weights=(0.95,),
    class_sep=0.8,
    random_state=3,
)
y = np.where(codes == 1, "rare", "usual")
X_train, X_test, y_train, y_test = X[:2000], X[2000:], y[:2000], y[2000:]
is_rare = y_test == "rare"
print(
    f"rare rows: {np.sum(y_train == 'rare')} of {len(y_train):,} for training, "
    f"{is_rare.mean():.1%} of the test rows"
)

# %%
# With ``class_weight="balanced"``, both classes have the same total weight.

models = {
    weights: RVMClassifier(kernel="matern32", class_weight=weights, random_state=0)
    for weights in (None, "balanced")
}
rare = {
    weights: model.fit(X_train, y_train).predict_proba(X_test)[:, 0]
    for weights, model in models.items()
}
print("column order of predict_proba:", models[None].classes_.tolist())

# %% A balanced fit predicts the odds for data in which both classes are equally frequent. Dividing
# these odds by the ratio of the class weights recovers the probabilities for the original data.

share = np.mean(y_train == "rare")
odds = rare["balanced"] / (1 - rare["balanced"]) * share / (1 - share)
rare["balanced, corrected"] = odds / (1 + odds)

for name, p in rare.items():
    found = p > 0.5
    print(
        f"class_weight={name!s:20} recall {recall_score(is_rare, found):.2f}, "
        f"precision {precision_score(is_rare, found):.2f}, log loss {log_loss(is_rare, p):.3f}"
    )

# %% Lowering the decision threshold also finds more of the rare rows, without any weights. Here,
# the threshold is chosen so that it selects as many test rows as the balanced fit does.

threshold = np.quantile(rare[None], 1 - np.mean(rare["balanced"] > 0.5))
found = rare[None] > threshold
print(
    f"no weights, threshold {threshold:.2f}: recall {recall_score(is_rare, found):.2f}, "
    f"precision {precision_score(is_rare, found):.2f}"
)

# %% The left panel compares predicted probabilities with observed frequencies in ten bins. The
# right panel plots precision against recall for all thresholds, with markers at a threshold of 0.5.
# The correction does not change the ranking of the rows, so the corrected fit has the same curve as
# the balanced fit.

styles = {
    None: ("o-", "#0072B2", "no weights"),
    "balanced": ("s--", "#D55E00", "balanced"),
    "balanced, corrected": ("^:", "#009E73", "balanced, corrected"),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
left.plot([0, 1], [0, 1], color="black", lw=0.8, label="exact")
for name, (style, colour, label) in styles.items():
    observed, stated = calibration_curve(is_rare, rare[name], n_bins=10)
    left.plot(stated, observed, style, color=colour, label=label)
    precision, recall, _ = precision_recall_curve(is_rare, rare[name])
    if label != "balanced, corrected":
        right.plot(recall, precision, style[1:], color=colour)
    at = recall_score(is_rare, rare[name] > 0.5), precision_score(is_rare, rare[name] > 0.5)
    right.plot(*at, style[0], color=colour, ms=8, label=f"{label}, threshold 0.5")
left.set(
    xlabel='predicted probability of "rare"', ylabel='fraction of "rare" rows', title="Calibration"
)
right.set(xlabel="recall", ylabel="precision", title="Precision and recall", ylim=(0, 1.03))
left.legend(fontsize=9, loc="upper left")
right.legend(fontsize=9, loc="lower left")
plt.show()

# %% In effect, class weights shift the decision threshold: the balanced fit finds more of the rare
# rows, but more of the rows that it labels as rare are not. Its probabilities are correct only for
# equally frequent classes. Use weights if you need only labels; adjust the threshold if you also
# need probabilities.
