"""The Gram matrix of M kept and P new columns: a pass computes only the part that is new."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

KEPT, NEW = 5.0, 2.0
GREY, ORANGE, LIGHT = "0.6", "#d55e00", "#f0b48c"

figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
axes.set(xlim=(-0.9, 11.4), ylim=(-0.3, 8), aspect="equal")
axes.axis("off")


def box(x, y, width, height, color, text, ink="white"):
    """Draw a rectangle with a text in its middle."""
    axes.add_patch(Rectangle((x, y), width, height, fc=color, ec="white", lw=2))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=ink, fontsize=9)


box(0, NEW, KEPT, KEPT, GREY, "kept: M × M\nfrom earlier passes", "black")
box(KEPT, NEW, NEW, KEPT, ORANGE, "new\nM × P")
box(KEPT, 0, NEW, NEW, ORANGE, "new\nP × P")
box(0, 0, KEPT, NEW, LIGHT, "by symmetry: P × M", "black")
box(8.3, NEW, 0.9, KEPT, GREY, "M", "black")
box(8.3, 0, 0.9, NEW, ORANGE, "P")
box(10.2, NEW + KEPT - 0.9, 0.9, 0.9, GREY, "1", "black")
for x, text in ((3.5, "ΦᵀΦ"), (8.75, "Φᵀt"), (10.65, "tᵀt")):
    axes.text(x, 7.25, text, ha="center", fontsize=11)
