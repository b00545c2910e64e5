"""Evidence and number of columns in a dense fit of 200 rows of sin(x)/x, all of them candidates: both solvers."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from partirvm.core.fast import grow
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
nothing = replace(begin, entered=np.ones(200, bool))
columns = [0]


def note(action):
    """Record the evidence and the number of columns after an action."""
    columns.append(columns[-1] + {"add": 1, "delete": -1, "estimate": 0}[action.kind])
    one_by_one.append(action.log_evidence)


grow(nothing, rule, on_action=note)

figure, panels = plt.subplots(1, 2, figsize=(8, 3.3), layout="constrained", sharex=True)
steps = [info.iteration for info in together]
for axes, first, second, title in (
    (panels[0], [info.log_evidence for info in together], one_by_one, "log evidence, nats"),
    (panels[1], [info.n_vectors for info in together], columns[1:], "columns in the model"),
):
    axes.plot(steps, first, color="#0072b2", lw=2, label="fixed-point: all α in each step")
    axes.plot(range(1, len(second) + 1), second, color="#d55e00", lw=2, ls="--", label="fast: one column in each step")
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
panels[0].set_ylim(130, 175)
panels[1].set_yscale("log")
panels[1].legend(fontsize=8, framealpha=1)
