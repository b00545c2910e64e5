"""Six tiles on one worker and on three: the tasks differ, the additions do not."""

import matplotlib.pyplot as plt

TILES, LEVELS = 6, 3
COLORS = ["#0072b2", "#d55e00", "#009e73"]

figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.3), layout="constrained")
for axes, title, worker in (
    (panels[0], "one worker", [0] * TILES),
    (panels[1], "three workers, any order of arrival", [0, 2, 1, 0, 2, 1]),
):
    below = {tile: float(tile) for tile in range(TILES)}
    for tile, x in below.items():
        axes.text(
            x,
            0,
            str(tile),
            ha="center",
            va="center",
            color="white",
            bbox={"boxstyle": "square", "fc": COLORS[worker[tile]]},
        )
    for level in range(1, LEVELS + 1):
        above = {}
        for index in range((len(below) + 1) // 2):
            children = [child for child in (2 * index, 2 * index + 1) if child in below]
            x = sum(below[child] for child in children) / len(children)
            above[index] = x
            for child in children:
                axes.plot([below[child], x], [level - 1 + 0.17, level - 0.17], color="0.5", lw=1)
            axes.text(
                x,
                level,
                "+" if children[1:] else "=",
                ha="center",
                va="center",
                bbox={"boxstyle": "circle", "fc": "white"},
            )
        below = above
    axes.text(-0.6, 0, "tile", ha="right", va="center", fontsize=9)
    axes.text(-0.6, LEVELS, "sum", ha="right", va="center", fontsize=9)
    axes.set(xlim=(-1.3, TILES - 0.4), ylim=(-0.5, LEVELS + 0.4), title=title)
    axes.axis("off")
