"""Evidence and number of columns in a dense fit of 200 rows of sin(x)/x, all of them candidates:
both solvers."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from partirvm.core.fast import Greedy
from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.termination import StopRule
from partirvm.core.updates import HyperState, maximise
from partirvm.kernels import Gaussian

rng = np.random.default_rng(3)
x = rng.uniform(-10, 10, (200, 1))
t = np.sinc(x / np.pi) + rng.normal(scale=0.1, size=x.shape)
t = t - t.mean()
Phi = np.empty((200, 200))
Gaussian(0.15).prepare(x)(x, Phi)
block = GramBlock.of(np.zeros((200, 0)), Phi, t)
statistics = GramStatistics.of(np.arange(200), block)
begin = HyperState(statistics, np.ones(200), 10.0, target_variance=float(t.var()))
rule = StopRule(1e-7, 1000)

together, one_by_one = [], []
maximise(begin, rule, together.append)
greedy = Greedy(replace(begin, entered=np.ones(200, bool)))
while len(one_by_one) < 1000 and (action := greedy.best(rule.tol * 200, thin=False)):
    greedy.do(action)
    one_by_one.append(greedy.refresh())

figure, panels = plt.subplots(1, 2, figsize=(8, 3.3), layout="constrained", sharex=True)
steps = [info.iteration for info in together]
for axes, name, title in zip(
    panels,
    ("log_evidence", "n_vectors"),
    ("log evidence, nats", "columns in the model"),
    strict=True,
):
    first, second = ([getattr(info, name) for info in infos] for infos in (together, one_by_one))
    axes.plot(steps, first, color="#0072b2", lw=2, label="fixed-point: all α in each step")
    axes.plot(
        range(1, len(second) + 1),
        second,
        color="#d55e00",
        lw=2,
        ls="--",
        label="fast: one column in each step",
    )
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
panels[0].set_ylim(130, 175)
panels[1].set_yscale("log")
panels[1].legend(fontsize=8, framealpha=1)
