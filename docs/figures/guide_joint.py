"""Bands of RVM_TMB with and without uncertain hyperparameters, and γ of KRVM_TMB and PFCVM_TMB."""

import matplotlib.pyplot as plt
import numpy as np

from partirvm.literature.tmb import TMBRegressor

rng = np.random.default_rng(1)
x = np.sort(rng.uniform(-3, 1, 80))[:, None]
y = np.cos(x[:, 0]) + rng.normal(scale=0.15, size=len(x))

figure, (bands, widths) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
model = TMBRegressor("rvm").fit(x, y)
grid = np.linspace(-4, 4, 200)[:, None]
for uncertain, colour, label in (
    (True, "#e69f00", "uncertain weights and hyperparameters"),
    (False, "#0072b2", "uncertain weights"),
):
    low, high = model.predict_interval(grid, hyperparameters=uncertain, noise=False).T
    bands.fill_between(grid[:, 0], low, high, color=colour, alpha=0.5, lw=0, label=label)
bands.plot(grid, model.predict(grid), color="0.2", lw=1)
bands.plot(x, y, ".", color="0.35", ms=4)
bands.plot(model.relevance_vectors_, y[model.relevance_], "o", mfc="none", mec="k", ms=9)
bands.set_xlabel("x")
bands.set_ylabel("f")
bands.legend(loc="lower right", fontsize=8)
bands.set_title("RVM_TMB: 95 % bands of f", fontsize=10)

features = rng.normal(size=(150, 8))
target = np.sin(1.5 * features[:, 0]) + np.cos(1.5 * features[:, 1])
target = target + rng.normal(scale=0.2, size=len(target))
places = np.arange(8)
for shift, system, colour in ((-0.2, "krvm", "#009e73"), (0.2, "pfcvm", "#d55e00")):
    gamma = TMBRegressor(system).fit(features, target).gamma_
    widths.bar(places + shift, gamma, width=0.4, color=colour, label=f"{system.upper()}_TMB")
widths.set_xticks(places, places + 1)
widths.set_xlabel("feature; the target depends on 1 and 2")
widths.set_ylabel("γ of the feature")
widths.legend(fontsize=8)
widths.set_title("Widths per feature", fontsize=10)
