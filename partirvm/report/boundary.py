"""What a classification of two inputs has learned: probabilities, decision boundary, rows and relevance vectors.

Arrays and a fitted model in, a figure out. Classes differ by colour (Okabe & Ito's, which colour-blind readers tell
apart) and by the shape of their points. Drawn with the Agg canvas and no global state of matplotlib.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.errors import UsageError

Float = NDArray[np.float64]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8B7500", "#666666")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK = "#222222"

SIZE, DPI = (6.6, 5.0), 160
"""Of the picture: inches, and pixels per inch."""

GRID = 240
"""Points along each side at which probabilities are computed."""

MOST_POINTS = 2000
"""Rows that are drawn; more would hide the picture. Others are left out at random."""

STRENGTH = 0.72
"""How much of a class's colour stands for a probability of one."""

STYLE: dict[str, Any] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
STYLE |= {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}


class Classification(Protocol):
    """What is asked of a model: a ``ClassModel``. A fitted estimator will do, as it holds one in ``model_``."""

    design: Any
    columns: Any

    def predict_proba(self, X: Float) -> Float:
        """Probabilities (n, K) at raw inputs X (n, 2)."""
        ...


def draw_boundary(
    model: Classification | Any, X: Any, y: Any, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write a picture of a model of two inputs, with rows X (n, 2) and their labels y (n,), as PNG.

    The ending of ``path`` may ask for another format that matplotlib knows. Raises ``UsageError`` for another number
    of inputs, and as ``plot_boundary``.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.add_subplot()
        plot_boundary(axis, model, X, y)
        if title is not None:
            axis.set_title(title)
        figure.savefig(os.fspath(path), dpi=DPI)


def plot_boundary(axis: Any, model: Classification | Any, X: Any, y: Any) -> None:
    """Draw the same into axes of matplotlib.

    Shading is the probability of the most probable class: white where all are equal, its full colour where it is
    certain. Lines are where two classes are equally probable. Raises ``UsageError`` for labels that the model does
    not know, and for X of another shape.
    """
    model = getattr(model, "model_", model)
    names = tuple(map(str, model.columns.classes))
    rows, codes = _rows(model, X, y, names)
    across, up = _sides(rows, model.design.centres)
    probabilities = model.predict_proba(_points(across, up)).reshape(len(up), len(across), len(names))
    extent = (across[0], across[-1], up[0], up[-1])
    axis.imshow(shading(probabilities), extent=extent, origin="lower", aspect="auto", interpolation="bilinear")
    for margin in margins(probabilities)[int(len(names) == 2) :]:
        if margin.min() < 0 < margin.max():
            axis.contour(across, up, margin, levels=[0.0], colors=[INK], linewidths=1.3)
    for code, colour, marker in zip(range(len(names)), *_styles(len(names)), strict=True):
        mine = rows[codes == code]
        axis.scatter(*mine.T, s=17, c=colour, marker=marker, edgecolors=INK, linewidths=0.4, zorder=3)
    axis.scatter(*model.design.centres.T, s=85, facecolors="none", edgecolors=INK, linewidths=1.4, zorder=4)
    labels = model.columns.features
    axis.set(xlim=extent[:2], ylim=extent[2:], xlabel=labels[0], ylabel=labels[1])
    _legend(axis, names, len(model.design.centres))
    _bar(axis, names)


def shading(probabilities: Float) -> Float:
    """Colours (…, 3) of probabilities (…, K): white where all are 1/K, the most probable class's colour where it is 1.

    >>> shading(np.array([0.5, 0.5])).tolist()
    [1.0, 1.0, 1.0]
    """
    from matplotlib.colors import to_rgb

    n_classes = probabilities.shape[-1]
    colours = np.array([to_rgb(colour) for colour in _styles(n_classes)[0]])
    certainty = (probabilities.max(axis=-1) - 1 / n_classes) / (1 - 1 / n_classes)
    share = STRENGTH * np.clip(certainty, 0.0, 1.0)[..., None]
    return np.asarray(1.0 - share * (1.0 - colours[probabilities.argmax(axis=-1)]))


def margins(probabilities: Float) -> list[Float]:
    """For each class, its probability minus the largest of the others': zero on the boundary of its region.

    >>> [margin.round(2).tolist() for margin in margins(np.array([[0.7, 0.2, 0.1]]))]
    [[0.5], [-0.5], [-0.6]]
    """
    found = []
    for code in range(probabilities.shape[-1]):
        others = np.delete(probabilities, code, axis=-1)
        found.append(np.asarray(probabilities[..., code] - others.max(axis=-1)))
    return found


def _rows(model: Any, X: Any, y: Any, names: tuple[str, ...]) -> tuple[Float, NDArray[np.int64]]:
    """The rows to draw and the codes of their labels."""
    rows, labels = np.asarray(X, dtype=np.float64), [_text(label) for label in np.asarray(y).tolist()]
    if rows.ndim != 2 or rows.shape[1] != 2 or model.design.centres.shape[1] != 2:
        raise UsageError(f"a boundary is drawn of models of two inputs, and of rows of two; X has shape {rows.shape}")
    if len(labels) != len(rows):
        raise UsageError(f"X has {len(rows):,} rows, but y has {len(labels):,}: they must belong together")
    strange = sorted(set(labels) - set(names))
    if strange:
        raise UsageError(f"y holds the label {strange[0]!r}, and the model knows {', '.join(map(repr, names))}")
    place = {name: code for code, name in enumerate(names)}
    codes = np.array([place[label] for label in labels], dtype=np.int64)
    if len(rows) > MOST_POINTS:
        some = np.random.default_rng(0).choice(len(rows), MOST_POINTS, replace=False)
        rows, codes = rows[some], codes[some]
    return rows, codes


def _text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _sides(rows: Float, centres: Float) -> tuple[Float, Float]:
    """Coordinates along both sides: what rows and vectors cover, and a little more."""
    both = np.concatenate([rows, centres])
    low, high = both.min(axis=0), both.max(axis=0)
    room = np.where(high > low, 0.06 * (high - low), 1.0)
    across, up = np.linspace(low - room, high + room, GRID).T
    return across, up


def _points(across: Float, up: Float) -> Float:
    return np.column_stack([each.ravel() for each in np.meshgrid(across, up)])


def _styles(n_classes: int) -> tuple[list[str], list[str]]:
    """Colours and markers of the classes; beyond eight, colours repeat with other markers."""
    colours = [COLOURS[code % len(COLOURS)] for code in range(n_classes)]
    return colours, [MARKERS[(code + code // len(COLOURS)) % len(MARKERS)] for code in range(n_classes)]


def _legend(axis: Any, names: tuple[str, ...], n_vectors: int) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=marker, ls="", ms=5.5, mec=INK, mew=0.4, label=name)
        for name, colour, marker in zip(names, *_styles(len(names)), strict=True)
    ]
    vectors = f"{n_vectors:,} relevance vector{'s' * (n_vectors != 1)}"
    handles.append(Line2D([], [], color=INK, marker="o", ls="", ms=9, mfc="none", mew=1.4, label=vectors))
    handles.append(Line2D([], [], color=INK, lw=1.3, label="equal probability"))
    columns = min(len(handles), 4)
    axis.legend(handles=handles, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)


def _bar(axis: Any, names: tuple[str, ...]) -> None:
    """What the shading means: of two classes the probability of the second, otherwise of the most probable one."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    if len(names) == 2:
        p = np.linspace(0.0, 1.0, 256)
        colours, least, label = shading(np.column_stack([1 - p, p])), 0.0, f"probability of {names[1]}"
    else:
        grey = 1.0 - STRENGTH * 0.8 * np.linspace(0.0, 1.0, 256)
        colours, least, label = np.column_stack([grey] * 3), 1 / len(names), "probability of the most probable class"
    mappable = ScalarMappable(Normalize(least, 1.0), ListedColormap(colours))
    bar = axis.figure.colorbar(mappable, ax=axis, pad=0.02, fraction=0.05)
    bar.set_label(label)
    bar.outline.set_linewidth(0.5)
