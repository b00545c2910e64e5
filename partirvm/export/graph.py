"""A model as a graph of standard operations on rows, from which each format is written.

A value is a quantity of each row, an array (n, width). A node makes one value from others and from constants. Its
operation has the name and meaning of an ONNX operator where there is one, applied row by row:

    elementwise     Add Sub Mul Div Max Min Where(c, a, b), Neg Abs Exp Log Sqrt Sinh Asinh Tanh Cos Sigmoid Softplus;
                    a width of 1 stands for any; conditions are 0 or 1: IsNaN, Equal, Less
    of the row      Gather(x, positions)  Concat(x, …)  MatMul(x, W)  Sum  Softmax  ArgMax
    of M centres    Squares(x, V): Σ_j (x_j − v_mj)²   Steps(x, V): Σ_j |x_j − v_mj|
                    Differ(x, V, g): Σ_j g_j [x_j ≠ v_mj]   Spline(x, V): the linear spline kernel
    of levels       Table(x, T): the row of T (L + 1, r) of the code x, the last one for other and missing codes

**Digits.** Squared distances are sums of squares of differences, which lose no digits far from the origin. The mean Φμ
and φᵀΣφ = ‖φR‖² may be small sums of large terms, where columns are similar or the noise is tiny: a graph of single
precision whose ``amplification`` is large is computed in double precision inside, and only its input and output are
single.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm import kernels
from partirvm.errors import UsageError
from partirvm.kernels.design import TEMPER, Design
from partirvm.kernels.functions import LINEAR
from partirvm.quoting import printable
from partirvm.storage import storing
from partirvm.types import SWEEPS, FeatureMap, Float, Scaling, TargetMap

SINGLE = 100.0
"""Largest ``amplification`` with which single precision keeps four digits of the target's standard deviation."""

TOLERANCE = 1e-4
"""Codes of categories in scaled coordinates that differ by less are equal: single precision rounds them."""


@dataclass(frozen=True)
class Node:
    """An operation on values, given by their numbers, and constants; its own value has this ``width``."""

    op: str
    args: tuple[Any, ...]
    width: int


@dataclass
class Graph:
    """Nodes in order; node 0 is the input X (n, d) in raw units. ``outputs`` are names and numbers of values.

    ``amplification`` is the largest sum of sizes of terms of a mean or a standard deviation, in the target's standard
    deviations.
    """

    features: tuple[str, ...]
    nodes: list[Node]
    outputs: dict[str, int] = field(default_factory=dict)
    labels: tuple[Any, ...] = ()
    amplification: float = 0.0

    def __call__(self, op: str, *args: Any, width: int = 0) -> int:
        """Add a node and return its number; elementwise operations have the largest width of their arguments."""
        given = tuple(each if isinstance(each, int) else np.atleast_1d(np.asarray(each, float)) for each in args)
        wide = [self.nodes[each].width if isinstance(each, int) else each.shape[-1] for each in given]
        self.nodes.append(Node(op, given, width or max(wide)))
        return len(self.nodes) - 1

    def some(self, x: int, columns: Sequence[int] | NDArray[Any]) -> int:
        """Return these columns of a value; the value itself if they are all."""
        if list(columns) == list(range(self.nodes[x].width)):
            return x
        return self("Gather", x, np.asarray(columns, float), width=len(columns))

    def joined(self, parts: Sequence[int]) -> int:
        """Return values side by side."""
        width = sum(self.nodes[each].width for each in parts)
        return self("Concat", *parts, width=width) if len(parts) > 1 else parts[0]


def graph_of(model: Any, outputs: Sequence[str] = (), level: float = 0.95) -> Graph:
    """Return the graph of the predictions of a model, or of a fitted estimator, at raw inputs X (n, d).

    ``outputs`` are some of ``mean``, ``std``, ``lower`` and ``upper`` (the ends of the interval at ``level``), or of
    ``label`` and ``probabilities``; by default mean and std, or both. A missing number is predicted from the others for
    features with gaps in the training; elsewhere its predictions are NaN. Raises ``UsageError`` for other names, and
    for what only Python can compute: local residuals, and functions of the user.
    """
    model = getattr(model, "model_", model)
    known = ("label", "probabilities") if hasattr(model, "classes") else ("mean", "std", "lower", "upper")
    wanted = tuple(outputs) or known[:2]
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"the model has no output {unknown[0]!r}: outputs are {', '.join(known)}")
    features = model.columns.features
    graph = Graph(features, [Node("Input", (), len(features))])
    made = _of_classes(graph, model) if len(known) == 2 else _of_numbers(graph, model, level, wanted)
    graph.outputs = {name: made[name] for name in wanted}
    return graph


def _of_numbers(graph: Graph, model: Any, level: float, wanted: Sequence[str]) -> dict[str, int]:
    """Add mean, standard deviation and interval of a regression."""
    if model.residuals is not None:
        what = "local residuals need the training rows, which no export holds"
        raise UsageError(f"{what}: export model.sparse(), the relevance vectors alone, whose errors are larger")
    scaling, stated = model.design.scaling, model.predictive
    inputs = _inputs(graph, scaling)
    phi = columns_of(graph, model.design, inputs)
    shift, scale = scaling.t_shift, scaling.t_scale
    mean = _linear(graph, model, phi, model.mean.reshape(len(model.mean), -1) * scale, shift)
    if wanted == ("mean",) and scaling.target.kind == "none":
        return {"mean": mean}
    roots = stated.root if stated.root.ndim == 3 else [stated.root]
    variance = graph("Mul", graph.joined([_square(graph, stated, phi, root) for root in roots]), scale**2)
    factor = _noise_factor(graph, stated, inputs)
    noise = np.broadcast_to(stated.noise_variance, scale.shape).astype(float)
    variance = graph("Add", variance, noise if factor is None else graph("Mul", factor, noise))
    half = graph("Mul", graph("Sqrt", variance), model.multiples([level])[:, 0])
    found = {"lower": _back(graph, scaling.target, graph("Sub", mean, half))}
    found["upper"] = _back(graph, scaling.target, graph("Add", mean, half))
    found["mean"], variance = _target_moments(graph, scaling.target, mean, variance)
    return found | {"std": graph("Sqrt", variance)}


def _of_classes(graph: Graph, model: Any) -> dict[str, int]:
    """Add the probabilities of a classification, and the code of the most probable class."""
    graph.labels = model.classes
    phi = columns_of(graph, model.design, _inputs(graph, model.design.scaling))
    f = _linear(graph, model, phi, model.mean, np.zeros(model.mean.shape[1]))
    if model.moderate:
        variances = [_square(graph, model, phi, root) for root in model.root]
        inner = graph("Add", graph("Mul", graph.joined(variances), np.pi / 8.0), 1.0)
        f = graph("Div", f, graph("Sqrt", inner))
    if model.ramp is not None:
        f = graph("Mul", _log_softplus(graph, graph("Div", f, model.ramp.width)), model.ramp.power)
    if graph.nodes[f].width == 1:
        p = graph("Sigmoid", f)
        probabilities = graph.joined([graph("Sub", np.ones(1), p), p])
    else:
        probabilities = graph("Softmax", f)
    return {"probabilities": probabilities, "label": graph("ArgMax", probabilities, width=1)}


def _log_softplus(graph: Graph, z: int) -> int:
    """Return log(log(1 + eᶻ)), of small e = eᶻ by the series z − e/2 + 5e²/24 − e³/8."""
    e = graph("Exp", graph("Min", z, -8.0))
    inner = graph("Sub", 0.5, graph("Mul", e, graph("Sub", 5.0 / 24.0, graph("Mul", e, 0.125))))
    soft = graph("Log", graph("Softplus", graph("Max", z, -8.0)))
    return graph("Where", graph("Less", z, -8.0), graph("Sub", z, graph("Mul", e, inner)), soft)


def _linear(graph: Graph, model: Any, phi: int | None, weights: Float, shift: Float) -> int:
    """Return Φw + shift, (n, C); the bias is the first weight."""
    bias, sizes = int(model.design.bias), np.abs(weights[int(model.design.bias) :]).sum(axis=0)
    constant = shift + (weights[0] if bias else 0.0)
    unit = 1.0 if graph.labels else model.design.scaling.t_scale
    graph.amplification = max(graph.amplification, float(np.max(sizes / unit, initial=0.0)))
    return graph("Add", _times(graph, phi, weights[bias:]), constant)


def _square(graph: Graph, model: Any, phi: int | None, root: Float) -> int:
    """Return ‖φR‖², (n, 1), of an upper triangular root."""
    bias = int(model.design.bias)
    graph.amplification = max(graph.amplification, float(np.abs(root).sum(axis=0).max(initial=0.0)))
    moved = _times(graph, phi, root[bias:])
    moved = graph("Add", moved, root[0]) if bias else moved
    return graph("Sum", graph("Mul", moved, moved), width=1)


def _times(graph: Graph, phi: int | None, matrix: Float) -> int:
    """Return φ times a matrix (M, k); zeros without columns."""
    if phi is None:
        zero = graph("Mul", graph("IsNaN", graph.some(0, [0])), 0.0)
        return graph("Add", zero, np.zeros(matrix.shape[1]))
    return graph("MatMul", phi, matrix, width=matrix.shape[1])


def _noise_factor(graph: Graph, model: Any, inputs: int) -> int | None:
    """Return the noise factor (n, 1) as the model states it; None if it is one."""
    noise = model.design.noise
    if noise is None:
        return None
    values = kernel_values(graph, noise.kernel, inputs, noise.centres)
    logs = graph("Sub", _times(graph, values, noise.weights[:, None]), float(noise.shift))
    return graph("Exp", graph("Mul", logs, 1.0 if model.calibration is not None else TEMPER))


def _back(graph: Graph, target: TargetMap, z: int) -> int:
    """Return the target of z, as ``TargetMap.back``."""
    if target.kind == "none":
        return z
    if target.kind == "log":
        return graph("Exp", z)
    return graph("Add", graph("Mul", graph("Sinh", z), target.spread), target.centre)


def _target_moments(graph: Graph, target: TargetMap, mean: int, variance: int) -> tuple[int, int]:
    """Return mean and variance of the target, as ``TargetMap.moments``; exp(v) − 1 is 2 sinh(v/2) exp(v/2)."""
    if target.kind == "none":
        return mean, variance
    half = graph("Mul", variance, 0.5)
    grown = graph("Exp", half)
    tail = graph("Mul", graph("Mul", graph("Sinh", half), grown), 2.0)
    middle = graph("Mul", grown, graph("Exp" if target.kind == "log" else "Sinh", mean))
    square = graph("Mul", tail, graph("Mul", middle, middle))
    if target.kind == "log":
        return middle, square
    # ½ (exp(2v) − 1) is sinh(v) exp(v)
    square = graph("Add", square, graph("Mul", graph("Sinh", variance), graph("Exp", variance)))
    mean = graph("Add", graph("Mul", middle, target.spread), target.centre)
    return mean, graph("Mul", square, target.spread**2)


def _inputs(graph: Graph, scaling: Scaling) -> int:
    """Return the inputs (n, d') in the kernel's coordinates, as ``Scaling.inputs``."""
    found = 0 if scaling.features is None else _mapped(graph, scaling.features)
    found = graph("Div", graph("Sub", found, scaling.x_shift), scaling.x_scale)
    gaps = [] if scaling.features is None else scaling.features.gaps.tolist()
    if not gaps:
        return found
    fillable = np.isin(np.arange(scaling.n_inputs), gaps).astype(float)
    missing = graph("Mul", graph("IsNaN", found), fillable)
    blank = np.zeros(scaling.n_inputs) if scaling.blank is None else scaling.blank
    found = graph("Where", missing, blank, found)
    if scaling.regressions is None:
        return found
    for j in [j for _ in range(SWEEPS) for j in gaps if scaling.regressions[j].any()]:
        own = graph("Mul", missing, (np.arange(scaling.n_inputs) == j).astype(float))
        found = graph("Where", own, _times(graph, found, scaling.regressions[j][:, None]), found)
    return found


def _mapped(graph: Graph, features: FeatureMap) -> int:
    """Return the inputs (n, d') of the features, before scaling, as ``FeatureMap``."""
    d, warped = len(features.spreads), features.spreads > 0
    plain = 0
    if warped.any():
        moved = graph("Div", graph("Sub", 0, features.centres), np.where(warped, features.spreads, 1.0))
        plain = graph("Where", warped.astype(float), graph("Asinh", moved), 0)
    tables = [graph("Table", graph.some(0, [j]), table, width=table.shape[1]) for j, table in features.tables]
    effects = [_effect(graph, features, j, weights) for j, weights in features.effects]
    gaps = [graph("IsNaN", graph.some(0, features.gaps))] if len(features.gaps) else []
    parts, order, further = [plain, *tables, *effects, *gaps], list(range(d)), list[int]()
    place = d
    for j, table in features.tables:
        order[j], place = place, place + table.shape[1]
        further += range(order[j] + 1, place)
    return graph.some(graph.joined(parts), [*order, *further, *range(place, place + len(effects) + len(features.gaps))])


def _effect(graph: Graph, features: FeatureMap, j: int, weights: Float) -> int:
    """Return the effect (n, 1) of a categorical feature, as ``level_functions`` times the weights of its level."""
    of_level = graph("Table", graph.some(0, [j]), weights, width=weights.shape[1])
    numbers, curves = graph.some(0, features.numbers), list[int]()
    z = graph("Div", graph("Sub", numbers, features.moments[0]), features.moments[1])
    z = graph("Max", graph("Min", graph("Where", graph("IsNaN", z), np.zeros(1), z), 4.0), -4.0)
    quantile = graph("Add", graph("Mul", graph("Tanh", graph("Mul", z, 0.8)), 0.5), 0.5)
    for k in range((weights.shape[1] - 1) // max(len(features.numbers), 1)):
        curves.append(graph("Cos", graph("Mul", quantile, np.pi * k)) if k else z)
    first = graph.some(of_level, [0])
    if not curves:
        return first
    functions = graph.joined(curves)
    rest = graph.some(of_level, range(1, 1 + graph.nodes[functions].width))
    return graph("Add", first, graph("Sum", graph("Mul", functions, rest), width=1))


def columns_of(graph: Graph, design: Design, inputs: int) -> int | None:
    """Return the columns of the design without the bias, (n, M); None if there are none.

    Raises ``UsageError`` for basis functions other than the features.
    """
    parts = list[int]()
    if len(design.active):
        assert design.functions is not None
        if any(function != LINEAR for function, _ in design.functions.parts):
            raise UsageError("a basis of Python functions cannot be exported: only basis='linear' can")
        d = len(graph.features)
        parts.append(graph.some(inputs, design.active % d))
    centres = design.scaling.inputs(design.centres)
    if isinstance(design.kernel, kernels.Several) and len(centres):
        groups = [np.flatnonzero(design.which == k) for k in range(len(design.kernels))]
        pairs = [(kernel, mine) for kernel, mine in zip(design.kernels, groups, strict=True) if len(mine)]
        found = graph.joined([kernel_values(graph, kernel, inputs, centres[mine]) for kernel, mine in pairs])
        parts.append(graph.some(found, np.argsort(np.concatenate([mine for _, mine in pairs]))))
    elif len(centres):
        parts.append(kernel_values(graph, design.kernel, inputs, centres))
    return graph.joined(parts) if parts else None


def kernel_values(graph: Graph, kernel: kernels.Kernel, x: int, Z: Float) -> int:
    """Return k(x, z) of the M centres Z (M, d), (n, M). Raises ``UsageError`` for a function of the user."""
    M = len(Z)
    if isinstance(kernel, kernels.OnColumns):
        columns = list(kernel.columns)
        return kernel_values(graph, kernel.kernel, graph.some(x, columns), Z[:, columns])
    if isinstance(kernel, kernels.Product | kernels.Sum):
        parts = [kernel_values(graph, part, x, Z) for part in kernel.parts]
        if isinstance(kernel, kernels.Product):
            return reduce(lambda a, b: graph("Mul", a, b), parts)
        weighted = [graph("Mul", part, float(weight)) for part, weight in zip(parts, kernel.weights, strict=True)]
        return reduce(lambda a, b: graph("Add", a, b), weighted)
    if isinstance(kernel, kernels.Directions):
        middle = Z.mean(axis=0)
        turned = graph("MatMul", graph("Sub", x, middle), kernel.matrix.T, width=len(kernel.axes))
        return kernel_values(graph, kernel.kernel, turned, (Z - middle) @ kernel.matrix.T)
    if isinstance(kernel, kernels.Linear):
        return graph("MatMul", x, Z.T, width=M)
    if isinstance(kernel, kernels.LinearSpline):
        return graph("Spline", x, Z, width=M)
    if isinstance(kernel, kernels.Polynomial):
        inner = graph("Add", graph("MatMul", x, (Z * kernel.widths(Z.shape[1])).T, width=M), float(kernel.coef0))
        return reduce(lambda power, _: graph("Mul", power, inner), range(kernel.degree - 1), inner)
    if isinstance(
        kernel, kernels.Gaussian | kernels.Matern32 | kernels.Matern52 | kernels.Laplacian | kernels.Categorical
    ):
        return _decreasing(graph, kernel, x, Z)
    raise UsageError(f"the kernel {kernel.name!r} is a Python function, which cannot be exported")


def _decreasing(graph: Graph, kernel: Any, x: int, Z: Float) -> int:
    """Return the values of a kernel that decreases with a distance; features of gamma 0 are left out."""
    widths, M = kernel.widths(Z.shape[1]), len(Z)
    used = np.flatnonzero(widths)
    x, Z, widths = graph.some(x, used), Z[:, used], widths[used]
    if isinstance(kernel, kernels.Categorical):
        return graph("Exp", graph("Neg", graph("Differ", x, Z, widths, width=M)))
    if isinstance(kernel, kernels.Laplacian):
        return graph("Exp", graph("Neg", graph("Steps", graph("Mul", x, widths), Z * widths, width=M)))
    root = np.sqrt(widths)
    squares = graph("Squares", graph("Mul", x, root), Z * root, width=M)
    if isinstance(kernel, kernels.Gaussian):
        return graph("Exp", graph("Neg", squares))
    s = graph("Sqrt", graph("Mul", squares, 3.0 if isinstance(kernel, kernels.Matern32) else 5.0))
    rising = graph("Add", s, 1.0)
    if isinstance(kernel, kernels.Matern52):
        rising = graph("Add", rising, graph("Mul", graph("Mul", s, s), 1.0 / 3.0))
    return graph("Mul", rising, graph("Exp", graph("Neg", s)))


def dtypes(graph: Graph, dtype: str) -> tuple[str, str]:
    """Return the types of inner values and of input and output. Raises ``UsageError`` for other names."""
    if dtype not in ("float32", "float64"):
        raise UsageError(f"dtype is {dtype!r}: it must be 'float32' or 'float64'")
    return "float64" if graph.amplification > SINGLE else dtype, dtype


def write(path: str | Path, content: bytes) -> None:
    """Write a file that is whole or absent. Raises ``StorageError`` if it cannot be written."""
    part = Path(path).with_name(f".{Path(path).name}.partial")
    with storing(str(path)):
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def template(name: str, **filters: Any) -> Any:
    """Return a template of this folder with these filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("partirvm.export", "."), undefined=StrictUndefined)
    environment.filters |= {"printable": printable, **filters}
    return environment.get_template(name)
