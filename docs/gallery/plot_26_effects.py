"""
Effects and interactions
========================

A model with the ANOVA kernel is a sum of effects of single features and of their interactions. This
example draws the effects with their uncertainty and their shares of the variance.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from partirvm import EffectsDisplay, RVMRegressor

# %%
# The rent of a flat per square metre depends on its distance from the centre, its area and, without a lift, its floor.
# The year in which a flat was last painted has no effect.

rng = np.random.default_rng(0)
n = 500
flats = pd.DataFrame(
    {
        "distance": rng.uniform(0, 12, n),
        "floor": rng.integers(0, 7, n).astype(float),
        "lift": rng.choice(["no", "yes"], n),
        "area": rng.uniform(30, 120, n),
        "painted": rng.integers(1995, 2025, n).astype(float),
    }
)
rent = (
    25
    - 6 * np.sqrt(flats["distance"] / 3)
    - 1.2 * flats["floor"] * (flats["lift"] == "no")
    + 30 / np.sqrt(flats["area"])
    + rng.normal(size=n)
)

# %%
# ``kernel="anova"`` always uses this kernel; ``kernel="auto"`` chooses it where it predicts left-out rows better.

model = RVMRegressor(kernel="anova", residual="none", random_state=0).fit(flats, rent)

# %%
# Each effect is the mean prediction for a value of the feature, minus the overall mean, and an interaction is what two
# main effects leave of the mean prediction for both values. The bands contain 95 % of the posterior; they and the
# shares are exact for independent features with the values of the training rows.

display = EffectsDisplay.from_estimator(model)
plt.show()

# %%
# ``display.effects`` has the numbers. A share "with others" includes interactions; ``feature_relevance_`` is this
# share, the total Sobol index.

for main in display.effects.main:
    print(f"{main.at.feature:>9}: {main.share:6.1%} alone, {main.total:6.1%} with others")
for pair in display.effects.interactions:
    print(f"{pair.first.feature} with {pair.second.feature}: {pair.share:.1%}")
for name, share in zip(flats.columns, model.feature_relevance_, strict=True):
    print(f"{name:>9}: {share:6.1%}")
