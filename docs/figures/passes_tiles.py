"""One pass: each tile gives a block of the design matrix and a statistic, and the statistics are
added in a tree."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
TILES = 4

figure, axes = plt.subplots(figsize=(8.5, 3.9), layout="constrained")
axes.set(xlim=(0, 17), ylim=(-0.7, 8.6), aspect="equal")
axes.axis("off")


def box(x, y, width, height, color, text=""):
    """Draw a rectangle with a text in its middle."""
    axes.add_patch(Rectangle((x, y), width, height, fc=color, ec="white", lw=1.5))
    axes.text(
        x + width / 2, y + height / 2, text, ha="center", va="center", color="white", fontsize=9
    )


def arrow(start, end):
    """Draw an arrow."""
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color="0.35", lw=1)
    )


middle = [6.9 - 2 * k for k in range(TILES)]
for number, y in enumerate(middle):
    box(0.2, y - 0.8, 1.6, 1.6, "0.45", f"tile {number}")
    box(4.2, y - 0.8, 3.2, 1.6, BLUE, "block of Φ")
    box(9.6, y - 0.55, 1.1, 1.1, ORANGE, f"$G_{number}$")
    arrow((1.9, y), (4.1, y))
    arrow((7.5, y), (9.5, y))
pairs = [(middle[0] + middle[1]) / 2, (middle[2] + middle[3]) / 2]
for number, y in enumerate(pairs):
    box(12.0, y - 0.55, 1.7, 1.1, ORANGE, f"$G_{2 * number}+G_{2 * number + 1}$")
    for child in middle[2 * number : 2 * number + 2]:
        arrow((10.8, child), (11.9, y))
root = sum(pairs) / 2
box(15.1, root - 0.7, 1.4, 1.4, GREEN, "ΦᵀΦ")
for y in pairs:
    arrow((13.8, y), (15.0, root))
for x, text in (
    (1.0, "rows of X, t"),
    (5.8, "kernel at M + P columns"),
    (10.15, "statistic"),
    (14.2, "sum in a fixed tree"),
):
    axes.text(x, 8.1, text, ha="center", va="bottom", fontsize=9)
axes.text(1.0, -0.35, "discarded after use", ha="center", fontsize=8, color="0.35")
axes.text(5.8, -0.35, "discarded after use", ha="center", fontsize=8, color="0.35")
axes.text(15.8, -0.35, "kept: M + P columns", ha="center", fontsize=8, color="0.35")
