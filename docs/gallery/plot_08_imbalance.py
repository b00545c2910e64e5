"""
Imbalanced classes
==================

One class is rare. The example shows what ``class_weight="balanced"`` changes: more rare rows are found, and the
probabilities are no longer the frequencies of the data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss, precision_score, recall_score

from partirvm import RVMClassifier

# %%
# About 6 % of the generated rows belong to the class "rare". 2,000 rows are for training, all others for the test.

X, codes = make_classification(
    n_samples=22_000, n_features=6, n_informative=4, n_redundant=0, weights=(0.95,), class_sep=0.8, random_state=3
)
y = np.where(codes == 1, "rare", "usual")
X_train, X_test, y_train, y_test = X[:2000], X[2000:], y[:2000], y[2000:]
is_rare = y_test == "rare"
print(f"rare rows: {np.sum(y_train == 'rare')} of {len(y_train):,} for training, {is_rare.mean():.1%} of the test rows")

# %%
# With "balanced" both classes have the same total weight.

models = {weights: RVMClassifier(class_weight=weights, random_state=0) for weights in (None, "balanced")}
rare = {weights: model.fit(X_train, y_train).predict_proba(X_test)[:, 0] for weights, model in models.items()}
print("order of the columns of predict_proba:", models[None].classes_.tolist())

# %%
# A balanced fit states the odds of data in which both classes are equally frequent. Dividing these odds by the ratio of
# the weights gives probabilities of the original data again.

share = np.mean(y_train == "rare")
odds = rare["balanced"] / (1 - rare["balanced"]) * share / (1 - share)
rare["balanced, corrected"] = odds / (1 + odds)

for name, p in rare.items():
    found = p > 0.5
    print(
        f"class_weight={name!s:20} recall {recall_score(is_rare, found):.2f}, "
        f"precision {precision_score(is_rare, found):.2f}, log loss {log_loss(is_rare, p):.3f}"
    )

# %%
# The same recall is possible without weights: a lower threshold selects more rows.

for threshold in (0.5, share):
    found = rare[None] > threshold
    print(
        f"no weights, threshold {threshold:.2f}: recall {recall_score(is_rare, found):.2f}, "
        f"precision {precision_score(is_rare, found):.2f}"
    )

# %%
# The left panel compares stated probabilities with observed frequencies, for ten groups of equally many test rows. The
# right panel shows the distribution of the probabilities.

styles = {
    None: ("o-", "#0072B2", "no weights"),
    "balanced": ("s--", "#D55E00", "balanced"),
    "balanced, corrected": ("^:", "#009E73", "balanced, corrected"),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
left.plot([0, 1], [0, 1], color="black", ls="--", lw=1, label="exact")
for name, (style, colour, label) in styles.items():
    observed, stated = calibration_curve(is_rare, rare[name], n_bins=10, strategy="uniform")
    left.plot(stated, observed, style, color=colour, label=label)
    right.hist(rare[name], bins=np.linspace(0, 1, 26), histtype="step", color=colour, ls=style[1:], lw=1.5, label=label)
left.set(xlabel='stated probability of "rare"', ylabel='fraction of "rare" rows', title="Calibration")
right.set(xlabel='stated probability of "rare"', ylabel="test rows", yscale="log", title="Distribution")
left.legend(fontsize=9, loc="upper left")
right.legend(fontsize=9, loc="upper center")
plt.show()
