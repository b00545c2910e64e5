"""The log evidence as a function of one α alone: with a finite maximum if q² > s, otherwise largest
at infinity."""

import matplotlib.pyplot as plt
import numpy as np

from partirvm.core.priors import log_contribution, optimum

alpha = np.geomspace(1e-3, 1e4, 500)
figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharex=True)
for axes, s, q, title in (
    (panels[0], 2.0, 3.0, "q² = 9 > s = 2: the column stays"),
    (panels[1], 2.0, 1.0, "q² = 1 < s = 2: the column is deleted"),
):
    value = log_contribution(alpha, np.full(alpha.shape, s), np.full(alpha.shape, q))
    axes.semilogx(alpha, value, color="#0072b2", lw=2)
    axes.axhline(0, color="0.6", lw=1)
    best = float(optimum(np.array([s]), np.array([q]))[0][0])
    if np.isfinite(best):
        top = float(log_contribution(np.array([best]), np.array([s]), np.array([q]))[0])
        axes.plot(best, top, "o", color="#d55e00", ms=8)
        axes.annotate("α = s²/(q² − s)", (best, top), (8 * best, top), va="center", fontsize=9)
    else:
        axes.annotate(
            "rises to 0 for α → ∞",
            (1e2, -0.02),
            (1e0, -0.8),
            fontsize=9,
            arrowprops={"arrowstyle": "->"},
        )
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("precision α of the weight")
panels[0].set_ylabel("ℓ(α), nats")
panels[1].set_ylim(-1.6, 0.3)
panels[0].set_ylim(-1.5, 1.5)
