"""A frozen driver loses its lease: what it writes after that is ignored."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

BLUE, ORANGE = "#0072b2", "#d55e00"

figure, axes = plt.subplots(figsize=(8.5, 2.9), layout="constrained")
axes.set(xlim=(-6, 51), ylim=(-1.2, 3.5))
axes.axis("off")


def bar(start, end, y, color, text, **style):
    """Draw a span of time with its text."""
    axes.add_patch(Rectangle((start, y), end - start, 0.7, fc=color, ec="white", **style))
    axes.text(
        (start + end) / 2, y + 0.35, text, ha="center", va="center", fontsize=8.5, color="white"
    )


axes.text(-0.7, 2.35, "driver A\nepoch 1", ha="right", va="center", fontsize=9, color=BLUE)
axes.text(-0.7, 0.85, "driver B\nepoch 2", ha="right", va="center", fontsize=9, color=ORANGE)
bar(0, 12, 2, BLUE, "rounds 1 and 2")
bar(12, 37, 2, "0.55", "frozen: no heartbeat")
bar(37, 43, 2, BLUE, "wakes up")
bar(28, 50, 0.5, ORANGE, "takes the lease, resumes after round 2")
axes.annotate("", (27, 1.75), (12, 1.75), arrowprops={"arrowstyle": "<->", "color": "0.3"})
axes.text(
    19.5, 1.35, "15 s: the lease expires", ha="center", va="center", fontsize=8.5, color="0.3"
)
axes.annotate(
    "its next write has epoch 1:\nreaders ignore it, and A ends",
    (41, 2.75),
    (44.5, 3.15),
    fontsize=8.5,
    va="center",
    arrowprops={"arrowstyle": "->", "color": "0.3"},
)
for number, x in ((1, 5), (2, 11)):
    axes.plot(x, -0.5, "v", color=BLUE, ms=9)
    axes.text(x, -1.1, f"model {number}", ha="center", fontsize=8)
axes.plot(41, -0.5, "x", color=BLUE, ms=9, mew=2)
axes.text(41, -1.1, "void", ha="center", fontsize=8)
for number, x in ((3, 34), (4, 47)):
    axes.plot(x, -0.5, "v", color=ORANGE, ms=9)
    axes.text(x, -1.1, f"model {number}", ha="center", fontsize=8)
