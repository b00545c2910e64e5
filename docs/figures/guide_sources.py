"""MacKay's updates and expectation maximisation of one problem, and the bands of RVM and RVM*."""

import matplotlib.pyplot as plt
import numpy as np

from partirvm.kernels import Gaussian
from partirvm.literature.dense import started, statistics_of, update
from partirvm.literature.kth import rvm_star
from partirvm.literature.tipping import TippingRegressor

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(-6, 6, 60))[:, None]
y = np.sinc(x[:, 0] / np.pi) + rng.normal(scale=0.1, size=len(x))
kernel = Gaussian(0.3)

figure, (steps, bands) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
design = np.hstack([np.ones((len(x), 1)), kernel.values(x, x)])
start = started(statistics_of(np.arange(-1, len(x)), design, y))
for em, label, colour in ((False, "MacKay", "#0072b2"), (True, "EM", "#d55e00")):
    state = start
    evidence = []
    for _ in range(300):
        evidence.append(state.log_evidence)
        alpha, beta = update(state, em=em)
        # without pruning: both updates keep all columns here
        state = state.restarted(state.statistics, np.minimum(alpha, 1e9), beta)
    steps.plot(np.arange(1, 301), evidence, color=colour, label=label)
steps.set_xscale("log")
steps.set_xlabel("update")
steps.set_ylabel("log evidence (nats)")
steps.legend(loc="lower right", fontsize=8)
steps.set_title("Tipping: two updates", fontsize=10)

model = TippingRegressor(kernel).fit(x, y)
grid = np.linspace(-14, 14, 300)[:, None]
mean, std = model.predict(grid, return_std=True)
star_mean, star_std = rvm_star(model, x, y, grid)
bands.fill_between(
    grid[:, 0],
    star_mean - 2 * star_std,
    star_mean + 2 * star_std,
    color="#e69f00",
    alpha=0.3,
    lw=0,
    label="RVM*: mean ± 2 sd",
)
bands.fill_between(
    grid[:, 0],
    mean - 2 * std,
    mean + 2 * std,
    color="#56b4e9",
    alpha=0.6,
    lw=0,
    label="RVM: mean ± 2 sd",
)
bands.plot(x, y, ".", color="0.35", ms=4, label="60 training rows")
bands.set_xlabel("x")
bands.set_ylabel("target")
bands.legend(loc="upper right", fontsize=8)
bands.set_title("KTH report: RVM and RVM*", fontsize=10)
