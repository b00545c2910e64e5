"""A model as a graph of standard operations on rows, from which every export format is written.

A value is a quantity for each row, an array (n, width). A node computes one value from others and
from constants. Where possible, its operation has the name and meaning of an ONNX operator, applied
row by row:

    elementwise     Add Sub Mul Div Pow Max Min LogAddExp Where(c, a, b), Neg Exp Expm1 Log Sqrt
                    Sinh Asinh Tanh Cos
                    Sigmoid; a width of 1 broadcasts; conditions are 0 or 1: IsNaN, Less
    per row         Gather(x, positions)  Concat(x, …)  MatMul(x, W)  Sum  Softmax  ArgMax
    M centres       Squares(x, V): Σ_j (x_j − v_jm)²   Steps(x, V): Σ_j |x_j − v_jm|
                    Differ(x, V, g): Σ_j g_j [x_j ≠ v_jm]   Spline(x, V): the linear spline kernel
    levels          Table(x, T): the row of T (L + 1, r) for the code x, the last row for other and
                    missing codes
    boosted trees   Trees(x, c, features, thresholds, rights, missing_left, roots): output k is c_k
                    plus the leaves of the trees with the roots roots[k]; a leaf has the feature −1
                    and its value as threshold, an inner node's left child is the next node, and a
                    missing value goes left if missing_left is 1

NumPy operators and functions of a ``Quantity`` add such nodes, so the model's own formulas can be
applied to it.

**Digits.** Squared distances are sums of squared differences, which lose no digits far from the
origin. Φμ and φᵀΣφ = ‖φR‖² may be small sums of large terms (similar columns, tiny noise): a
single-precision graph with a large ``amplification`` is computed in double precision internally;
only input and output are single.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from partirvm.errors import UsageError
from partirvm.export.forests import values_of_jumps, values_of_trees
from partirvm.kernels.design import MOST_CERTAIN, TEMPER, Design
from partirvm.kernels.functions import LINEAR, Basis
from partirvm.kernels.jumps import Jumps
from partirvm.kernels.trees import mixed
from partirvm.quoting import printable
from partirvm.scaling.levels import known_levels
from partirvm.scaling.maps import SWEEPS, FeatureMap, Scaling
from partirvm.storage import Folder, Where, open_folder, require_replaceable, storing
from partirvm.types import Float, Int

SINGLE = 100.0
"""Maximum ``amplification`` at which single precision keeps four digits of the target's standard
deviation."""

TOLERANCE = 1e-4
"""Category codes, in scaled coordinates, that differ by less count as equal: single precision
rounds them."""

NAMES = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "matmul": "MatMul",
    "maximum": "Max",
    "minimum": "Min",
    "negative": "Neg",
    "absolute": "Abs",
    "arcsinh": "Asinh",
    "isnan": "IsNaN",
    "logaddexp": "LogAddExp",
}
"""Operations whose names differ from NumPy's function names."""

OPERATIONS = {
    "Input",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Pow",
    "Max",
    "Min",
    "LogAddExp",
    "Where",
    "Neg",
    "Exp",
    "Expm1",
    "Log",
    "Sqrt",
    "Sinh",
    "Asinh",
    "Tanh",
    "Cos",
    "Sigmoid",
    "IsNaN",
    "Less",
    "Gather",
    "Concat",
    "MatMul",
    "Sum",
    "Softmax",
    "ArgMax",
    "Squares",
    "Steps",
    "Differ",
    "Spline",
    "Table",
    "Trees",
}
"""All operations in the table above, which every format supports."""

REPLACING = {"Abs", "Sign", "Sin", "Greater"}
"""Additional operations that replace those that a format lacks."""

WIDTH_ONE = {"Sum", "ArgMax"}
"""Operations whose result has width 1."""

WIDTH_OF_CONSTANT = {"Gather", "MatMul", "Squares", "Steps", "Differ", "Spline", "Table", "Trees"}
"""Operations whose result has the width of the second argument."""


@dataclass(frozen=True, eq=False)
class Quantity(NDArrayOperatorsMixin):
    """A value (n, width): an operation on other quantities and constants.

    Attributes:
        graph: the graph that contains this node
        number: the number of the node
        op: the name of the operation
        args: quantities, and arrays of constants
        width: the number of columns
    """

    graph: "Graph"
    number: int
    op: str
    args: tuple[Any, ...]
    width: int

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any) -> Any:
        return self.graph(NAMES.get(ufunc.__name__, ufunc.__name__.capitalize()), *args)

    def __array_function__(self, function: Any, types: Any, args: Any, how: Any) -> Any:
        return self.graph(function.__name__.capitalize(), *args)  # np.where

    def take(self, columns: Sequence[int] | NDArray[Any]) -> Any:
        """Return these columns, or the value itself if they are all of its columns."""
        if list(columns) == list(range(self.width)):
            return self
        return self.graph("Gather", self, columns)


@dataclass
class Graph:
    """The nodes of a model. Calling the graph adds a node.

    Attributes:
        features: the names of the d inputs
        lacking: functions that replace the operations that a format lacks, by name
        levels: numbers of levels of the categorical features, by position
        nodes: the nodes in order; node 0 is the input X (n, d) in raw units
        outputs: the output values by name
        labels: the classes
        amplification: the largest sum of the absolute terms of a mean or a standard deviation, in
            standard deviations of the target
    """

    features: tuple[str, ...]
    lacking: Mapping[str, Any]
    levels: Mapping[int, int] = field(default_factory=dict)
    nodes: list[Quantity] = field(default_factory=list)
    outputs: dict[str, Quantity] = field(default_factory=dict)
    labels: tuple[Any, ...] = ()
    amplification: float = 0.0

    def __post_init__(self) -> None:
        self.rows = Quantity(self, 0, "Input", (), len(self.features))
        self.nodes.append(self.rows)

    def __call__(self, op: str, *args: Any) -> Any:
        """Add a node for an operation on values and constants, and return its value."""
        if op in self.lacking:
            return self.lacking[op](*args)
        if op not in OPERATIONS and not (self.lacking and op in REPLACING):
            raise UsageError(
                f"the operation {op!r} is in no export: use those that partirvm.export.graph lists"
            )
        arguments = [
            arg if isinstance(arg, Quantity) else np.atleast_1d(np.asarray(arg, float))
            for arg in args
        ]
        width = _width(op, arguments)
        self.nodes.append(Quantity(self, len(self.nodes), op, tuple(arguments), width))
        return self.nodes[-1]

    def amplify(self, size: float) -> None:
        """Record the sum of the absolute terms of a mean or a standard deviation."""
        self.amplification = max(self.amplification, size)

    def joined(self, parts: Sequence[Any]) -> Any:
        """Return values concatenated side by side."""
        return self("Concat", *parts) if len(parts) > 1 else parts[0]


def _width(op: str, arguments: Sequence[Any]) -> int:
    """Return the width of the result of an operation."""
    if op in WIDTH_ONE:
        return 1
    widths = [arg.width if isinstance(arg, Quantity) else arg.shape[-1] for arg in arguments]
    if op in WIDTH_OF_CONSTANT:
        return int(widths[1])
    return int(sum(widths) if op == "Concat" else max(widths))


def model_of(fitted: Any) -> Any:
    """Return the model of a fitted estimator, or the model itself. Raises ``NotFittedError`` before
    the fit."""
    if hasattr(fitted, "get_params"):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(fitted)
    return getattr(fitted, "model_", fitted)


def graph_of(
    model: Any, outputs: Sequence[str] = (), level: float = 0.95, lacking: Mapping[str, Any] = {}
) -> Graph:
    """Return the graph of predictions at raw inputs X (n, d).

    A row with a missing number is predicted from its other values if that feature had gaps in
    training; otherwise its predictions are NaN. A missing label, and a code that is no level, have
    the predictions of a missing label in Python. Raises ``UsageError`` for other names, and for
    parts that only Python can compute (local residuals and user functions).

    Args:
        model: a model or a fitted estimator
        outputs: names of ``mean``, ``std``, ``lower`` and ``upper``, or of ``label`` and
            ``probabilities``; by default mean and std, or both
        level: the probability of the interval from ``lower`` to ``upper``
        lacking: functions that replace the operations that the format lacks, by name
    """
    model = model_of(model)
    has_classes = hasattr(model, "classes")
    possible = ("label", "probabilities") if has_classes else ("mean", "std", "lower", "upper")
    wanted = tuple(outputs) or possible[:2]
    for name in wanted:
        if name not in possible:
            raise UsageError(f"the model has no output {name!r}: outputs are {', '.join(possible)}")
    graph = Graph(model.columns.features, lacking, _levels_of(model))
    values = _of_classes(graph, model) if has_classes else _of_numbers(graph, model, level, wanted)
    graph.outputs = {name: values[name] for name in wanted}
    return graph


def _levels_of(model: Any) -> dict[int, int]:
    """Return the numbers of levels of the categorical features, by position."""
    names = model.columns.features
    levels = {names.index(name): len(labels) for name, labels in model.columns.categories.items()}
    features = model.design.scaling.features
    if features is not None:
        levels |= {j: known_levels(table) for j, table in features.tables}
    return levels


def _of_numbers(graph: Graph, model: Any, level: float, wanted: Sequence[str]) -> dict[str, Any]:
    """Add a regression's mean, standard deviation and interval.

    Args:
        graph: the graph
        model: the model
        level: the probability of the interval
        wanted: names of the outputs; the mean alone needs no variance
    """
    if model.residuals is not None:
        what = "local residuals need the training rows, which no export holds"
        raise UsageError(
            f"{what}: export model.sparse(), the relevance vectors alone, whose errors are larger"
        )
    scaling = model.design.scaling
    target = scaling.target
    inputs = _inputs(graph, scaling)
    phi = columns_of(graph, model.design, inputs)
    weights = model.mean.reshape(len(model.mean), -1) * scaling.t_scale
    mean = _linear(graph, model, phi, weights, scaling.t_shift)
    if model.trees is not None:
        by_trees = values_of_trees(graph, model.trees.trees) * scaling.t_scale + scaling.t_shift
        mean = mixed(mean, by_trees, model.trees.share.constant)
    if wanted == ("mean",) and target.kind == "none":
        return {"mean": mean}
    variance = _variance(graph, model.predictive, phi, inputs)
    deviation = np.sqrt(variance)
    ends = _multiples(graph, deviation, model.multiples([level]))
    lower, upper = (target.back(mean + end * deviation) for end in ends)
    mean, variance = target.moments(mean, variance)
    return {"mean": mean, "std": np.sqrt(variance), "lower": lower, "upper": upper}


def _multiples(graph: Graph, deviation: Any, curves: Sequence[Any]) -> list[Any]:
    """Return the multiples (n, T) of the standard deviations ``deviation`` (n, T) at the lower and
    the upper ends, given the curves of each target (``core.local_quantiles``)."""
    if all(len(curve.knots) == 1 for curve in curves):
        return list(np.stack([curve.multiples[:, 0] for curve in curves], axis=1))
    ends = []
    for end in range(2):
        of_targets = [
            _on_curve(graph, deviation.take([target]), curve.knots, curve.multiples[end])
            for target, curve in enumerate(curves)
        ]
        ends.append(graph.joined(of_targets))
    return ends


def _on_curve(graph: Graph, deviation: Any, knots: Float, multiples: Float) -> Any:
    """Return multiples that are piecewise linear in the logarithm of the standard deviation.

    Args:
        graph: the graph
        deviation: standard deviations (n, 1)
        knots: logarithms of standard deviations (G,)
        multiples: multiples at the knots (G,)
    """
    logarithms = np.log(deviation)
    steps = np.minimum(np.maximum(logarithms, knots[:-1]), knots[1:]) - knots[:-1]
    slopes = np.diff(multiples) / np.diff(knots)
    return multiples[0] + graph("Sum", steps * slopes)


def _variance(graph: Graph, model: Any, phi: Any, inputs: Any) -> Any:
    """Return the predictive variances (n, T).

    Args:
        graph: the graph
        model: the model with its predictive distribution
        phi: (n, M), the design's columns, or None
        inputs: (n, d'), in the kernel's coordinates
    """
    scaling = model.design.scaling
    scale = scaling.t_scale
    roots = model.root if model.root.ndim == 3 else [model.root]
    of_weights = graph.joined([_square(graph, model, phi, root) for root in roots])
    variance = of_weights * scale**2 + _noise(graph, model, inputs)
    if scaling.features is not None and scaling.features.variances:
        of_levels = _level_variances(graph, scaling.features) * scale**2
        least = -MOST_CERTAIN * np.atleast_1d(model.noise_variance)
        variance = variance + np.maximum(of_levels, least)
    of_gaps = _gap_variance(graph, model, inputs)
    if of_gaps is not None:
        variance = variance + of_gaps * scale**2
    if model.trees is not None:
        variance = variance * ((1.0 - model.trees.share.constant) * model.trees.spreads)
    if model.reach and phi is not None:
        variance = _with_prior(graph, model, phi, variance)
    return variance


def _with_prior(graph: Graph, model: Any, phi: Any, variance: Any) -> Any:
    """Return the variances that grow to the prior variance far from all vectors, as ``Model``
    computes them.

    Args:
        graph: the graph
        model: the model with its predictive distribution
        phi: (n, M), the design's columns
        variance: (n, T)
    """
    leading = len(model.design.active)
    kernels = phi.take(range(leading, phi.width))
    ratios = kernels / (model.reach * model.design.peaks())
    while ratios.width > 1:
        width = ratios.width
        half = (width + 1) // 2
        first = ratios.take(range(half))
        second = ratios.take(range(width - half, width))
        ratios = np.maximum(first, second)
    near = np.maximum(np.minimum(ratios, 1.0), 0.0)
    missing = np.maximum(np.atleast_1d(model.prior_variance + model.noise_variance) - variance, 0.0)
    return variance + (1.0 - near * near) * missing


def _of_classes(graph: Graph, model: Any) -> dict[str, Any]:
    """Add a classification's probabilities, and the code of the most probable class."""
    if model.likelihood not in ("bernoulli", "multinomial"):
        raise UsageError(
            f"classes with the likelihood {model.likelihood!r} cannot be exported: use the model "
            "in Python"
        )
    graph.labels = model.classes
    phi = columns_of(graph, model.design, _inputs(graph, model.design.scaling))
    f = _linear(graph, model, phi, model.mean, np.zeros(model.mean.shape[1]))
    if model.moderate:
        variances = graph.joined([_square(graph, model, phi, root) for root in model.root])
        f = _moderated(f, variances)
    if model.ramp is not None:
        correction = model.ramp.correction
        terms = 0.0
        if correction is not None:
            terms = f @ correction.slopes + correction.offsets
        f = model.ramp.curve(f) + terms
    if model.trees is not None:
        by_trees = values_of_trees(graph, model.trees.trees)
        if by_trees.width < f.width:  # two logits, of whose difference ``ClassModel`` predicts
            f = f.take([1]) - f.take([0])
        f = mixed(f, by_trees, model.trees.share.constant)
    f = _of_unknown_levels_and_groups(graph, model, f)
    if f.width == 1:
        p = graph("Sigmoid", f)
        probabilities = graph.joined([1.0 - p, p])
    else:
        probabilities = graph("Softmax", f)
    return {"probabilities": probabilities, "label": graph("ArgMax", probabilities)}


def _of_unknown_levels_and_groups(graph: Graph, model: Any, f: Any) -> Any:
    """Return logits moderated by what is unknown of their levels and of new groups, as
    ``ClassModel`` does."""
    features = model.design.scaling.features
    has_levels = features is not None and bool(features.variances)
    if not has_levels and model.known is None:
        return f
    if model.known is not None:
        shares = model.known.log_shares
        if f.width > len(shares):  # two logits, of whose difference ``ClassModel`` predicts
            shares = np.array([0.0, shares[0]])
    else:
        logs = features.log_shares
        shares = logs if f.width > 1 else logs[1:] - logs[:1]
    variances = 0.0 if model.known is None else model.known.variance
    if has_levels:
        variances = _level_variances(graph, features) + variances
    return _moderated(f - shares, variances) + shares


def _moderated(f: Any, variances: Any) -> Any:
    """Return predictors reduced for their variances, as ``core.link.moderated`` does."""
    return f / np.sqrt(variances * (np.pi / 8.0) + 1.0)


def _linear(graph: Graph, model: Any, phi: Any, weights: Float, shift: Float) -> Any:
    """Return Φw + shift, (n, C).

    Args:
        graph: the graph
        model: the model
        phi: (n, M), the design's columns, or None
        weights: (M, C), or (M + 1, C) if the first row belongs to the bias
        shift: (C,)
    """
    bias = int(model.design.bias)
    sizes = np.abs(weights[bias:]).sum(axis=0)
    unit = 1.0 if graph.labels else model.design.scaling.t_scale
    graph.amplify(float(np.max(sizes / unit, initial=0.0)))
    if bias:
        shift = shift + weights[0]
    return _times(graph, phi, weights[bias:]) + shift


def _square(graph: Graph, model: Any, phi: Any, root: Float) -> Any:
    """Return ‖φR‖², (n, 1).

    Args:
        graph: the graph
        model: the model
        phi: (n, M), the design's columns, or None
        root: R, upper triangular, whose first row belongs to the bias if there is one
    """
    bias = int(model.design.bias)
    sizes = np.abs(root).sum(axis=0)
    graph.amplify(float(sizes.max(initial=0.0)))
    product = _times(graph, phi, root[bias:])
    if bias:
        product = product + root[0]
    return graph("Sum", product * product)


def _times(graph: Graph, phi: Any, matrix: Float) -> Any:
    """Return φ times a matrix (M, k), or zeros if there are no columns."""
    if phi is None:
        return np.isnan(graph.rows.take([0])) * np.zeros(matrix.shape[1])
    return phi @ matrix


def _noise(graph: Graph, model: Any, inputs: Any) -> Any:
    """Return the noise variance that the model predicts, (n, T) or (T,)."""
    variance = np.atleast_1d(model.noise_variance)
    noise = model.design.noise
    features = model.design.scaling.features
    factor: Any = 1.0
    if noise is not None:
        values = noise.kernel.exported(inputs, noise.centres)
        logs = values @ noise.weights[:, None] - float(noise.shift)
        power = 1.0 if model.calibration is not None else TEMPER
        factor = np.exp(logs * power)
    if features is not None and features.doubts:
        factor = np.minimum(_level_factor(graph, features) * factor, model.widest_factor)
    return factor * variance


def _level_factor(graph: Graph, features: FeatureMap) -> Any:
    """Return the noise factor (n, 1) due to uncertain level effects, as ``FeatureMap.noise_factor``
    does."""
    columns = []
    for j, table in features.doubts:
        doubts = table[0]
        columns.append(_of_levels(graph, j, doubts[:, None]))
    return graph("Sum", graph.joined(columns)) + float(features.share)


def _level_variances(graph: Graph, features: FeatureMap) -> Any:
    """Return the variances (n, C) of the effects of levels, as ``FeatureMap.level_variances``
    does."""
    parts = [_of_levels(graph, j, variances[0]) for j, variances in features.variances]
    return sum(parts[1:], start=parts[0])


def _inputs(graph: Graph, scaling: Scaling) -> Any:
    """Return the inputs (n, d') in the kernel's coordinates, as ``Scaling.inputs`` does."""
    features = scaling.features
    rows = graph.rows if features is None else _mapped(graph, features)
    inputs = (cast(Any, rows) - scaling.x_shift) / scaling.x_scale
    missing = _missing_inputs(graph, scaling, inputs)
    if missing is None:
        return inputs
    columns = np.arange(scaling.n_inputs)
    blank = np.zeros(len(columns)) if scaling.blank is None else scaling.blank
    inputs = np.where(missing, blank, inputs)
    if features is not None and scaling.regressions is not None:
        for j in SWEEPS * features.gaps.tolist():
            weights = scaling.regressions[j]
            if weights.any():
                predicted = inputs @ weights[:, None]
                inputs = np.where(missing * (columns == j), predicted, inputs)
    return inputs


def _missing_inputs(graph: Graph, scaling: Scaling, inputs: Any) -> Any:
    """Return 1 for each missing input that is replaced by a value, (n, d'), or None if there is
    none.

    Args:
        graph: the graph
        scaling: the scaling, with the features that had gaps
        inputs: (n, d'), scaled inputs
    """
    masks = []
    gaps = [] if scaling.features is None else scaling.features.gaps.tolist()
    numeric = [j for j in gaps if j not in graph.levels]
    if numeric:
        masks.append(np.isnan(inputs) * np.isin(np.arange(scaling.n_inputs), numeric))
    codes = [j for j in graph.levels if j not in scaling.embedded]
    if codes:
        masks.append(_missing_labels(graph, codes, scaling.n_inputs))
    return sum(masks[1:], start=masks[0]) if masks else None


def _missing_labels(graph: Graph, places: Sequence[int], width: int) -> Any:
    """Return an array (n, width) that is 1 in the columns of the features at these ``places`` whose
    code is missing or is no level."""
    are_missing = graph.joined([_is_missing_label(graph, j) for j in places])
    return are_missing @ np.eye(width)[list(places)]


def _is_missing_label(graph: Graph, j: int) -> Any:
    """Return 1 where the code of a categorical feature is missing or is no level, (n, 1)."""
    known = np.zeros(graph.levels[j])
    return graph("Table", graph.rows.take([j]), np.append(known, 1.0)[:, None])


def _gap_variance(graph: Graph, model: Any, inputs: Any) -> Any:
    """Return the variance (n, T) of the mean, in the fit's units, when vectors' labels replace a
    missing one, as ``Model`` computes it, or None if no label is replaced in this way.

    Args:
        graph: the graph
        model: the model
        inputs: (n, d'), in the kernel's coordinates
    """
    scaling = model.design.scaling
    had_gaps = [] if scaling.features is None else scaling.features.gaps.tolist()
    places = [j for j in graph.levels if j not in (*scaling.embedded, *had_gaps)]
    if not places or not model.n_vectors:
        return None
    missing = _missing_labels(graph, places, scaling.n_inputs)
    weights = model.mean.reshape(len(model.mean), -1)
    values = []
    for point in scaling.inputs(model.filling_vectors):
        phi = columns_of(graph, model.design, np.where(missing, point, inputs))
        values.append(_linear(graph, model, phi, weights, np.zeros(weights.shape[1])))
    is_missing = np.minimum(graph("Sum", missing), 1.0)
    return is_missing * _variance_of(values)


def _variance_of(values: Sequence[Any]) -> Any:
    """Return the variance (n, T) of several values (n, T)."""
    mean = sum(values[1:], start=values[0]) / len(values)
    squares = [(value - mean) * (value - mean) for value in values]
    return sum(squares[1:], start=squares[0]) / len(values)


def _mapped(graph: Graph, features: FeatureMap) -> Any:
    """Return the feature inputs (n, d') before scaling, as ``FeatureMap`` computes them."""
    X = cast(Any, graph.rows)
    warped = features.spreads > 0
    if warped.any():
        spreads = np.where(warped, features.spreads, 1.0)
        X = np.where(warped, np.arcsinh((X - features.centres) / spreads), X)
    tables = [_of_levels(graph, j, table[0]) for j, table in features.tables]
    effects = [_effect(graph, features, j, weights) for j, weights in features.effects]
    gaps = [
        _is_missing_label(graph, j) if j in graph.levels else np.isnan(graph.rows.take([j]))
        for j in features.gaps.tolist()
    ]
    columns = graph.joined([X, *tables, *effects, *gaps])
    first = X.width
    positions = list(range(first))
    for (j, _), table in zip(features.tables, tables, strict=True):
        positions[j] = first  # a level's first coordinate takes the place of its code
        positions += range(first + 1, first + table.width)
        first += table.width
    return columns.take([*positions, *range(first, columns.width)])


def _of_levels(graph: Graph, j: int, table: Float) -> Any:
    """Return the rows (n, r) of a table for the levels of a feature.

    Args:
        graph: the graph
        j: the number of the feature
        table: (L + 2, r), with rows for the known levels, an unknown level and a missing one, which
            also applies to codes that are no level
    """
    rows = np.concatenate([table[:-2], table[-1:]])
    return graph("Table", graph.rows.take([j]), rows)


def _effect(graph: Graph, features: FeatureMap, j: int, weights: Float) -> Any:
    """Return the effect (n, 1) of a categorical feature, i.e. ``level_functions`` times the weights
    of the level.

    Args:
        graph: the graph
        features: the feature map, with the moments of numeric features
        j: the number of the feature
        weights: (1, L + 2, p), for each level
    """
    of_level = _of_levels(graph, j, weights[0])
    p = weights.shape[2]
    if p == 1:
        return of_level
    means, deviations = features.moments
    z = (graph.rows.take(features.numbers) - means) / deviations
    z = np.where(np.isnan(z), 0.0, z)
    z = np.maximum(np.minimum(z, 4.0), -4.0)
    quantiles = 0.5 + 0.5 * np.tanh(0.8 * z)
    count = (p - 1) // len(features.numbers)
    curves = [z, *(np.cos(np.pi * k * quantiles) for k in range(1, count))]
    terms = graph.joined(curves) * of_level.take(range(1, p))
    return of_level.take([0]) + graph("Sum", terms)


def columns_of(graph: Graph, design: Design, inputs: Any) -> Any:
    """Return the design's columns without bias, (n, M), or None. Raises ``UsageError`` for
    functions other than features."""
    parts = list[Any]()
    if len(design.active):
        assert design.functions is not None
        parts += functions_of(graph, design.functions, design.active, inputs)
    if len(design.centres):
        centres = design.scaling.inputs(design.centres)
        groups = [design.which == k for k in range(len(design.kernels))]
        blocks = [
            kernel.exported(inputs, centres[is_centre])
            for kernel, is_centre in zip(design.kernels, groups, strict=True)
            if is_centre.any()
        ]
        order = np.argsort(design.which, kind="stable")
        parts.append(graph.joined(blocks).take(np.argsort(order)))
    return graph.joined(parts) if parts else None


def functions_of(graph: Graph, basis: Basis, active: Int, inputs: Any) -> Iterator[Any]:
    """Yield the values of the basis functions with the numbers ``active``, part by part.

    Raises ``UsageError`` for Python functions.

    Args:
        graph: the graph
        basis: all basis functions
        active: (k,), increasing numbers
        inputs: (n, d'), in the kernel's coordinates
    """
    start = 0
    for part, size in basis.parts:
        numbers = active[(active >= start) & (active < start + size)] - start
        start += size
        if not len(numbers):
            continue
        if isinstance(part, Jumps):
            yield values_of_jumps(graph, part, numbers)
        elif part == LINEAR:
            yield inputs.take(numbers)
        else:
            raise UsageError(
                "a basis of Python functions cannot be exported: only basis='linear' and "
                "basis='trees' can"
            )


def dtypes(graph: Graph, dtype: str) -> tuple[str, str]:
    """Return the types of internal values and of input and output. Raises ``UsageError`` for other
    names."""
    if dtype not in ("float32", "float64"):
        raise UsageError(f"dtype is {dtype!r}: it must be 'float32' or 'float64'")
    return "float64" if graph.amplification > SINGLE else dtype, dtype


def check_export(path: Where, *, overwrite: bool = False) -> None:
    """Raise ``ExistsError`` if the output of an export exists; ``overwrite`` permits replacing
    earlier exports."""

    def is_export(place: Folder) -> bool:
        content = place.read("") if place.is_file() else b""
        return b"partirvm" in content or (place.suffix == ".npz" and b"graph.npy" in content)

    require_replaceable(open_folder(path), "an exported model", is_export, overwrite=overwrite)


def write(path: Where, content: bytes) -> None:
    """Write a file or an object at a URL, completely or not at all. Raises ``StorageError`` if that
    is impossible."""
    with storing(str(path)):
        open_folder(path).write("", content)


def template(name: str, **filters: Any) -> Any:
    """Return a template from this folder, with the given filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partirvm.export", "."), undefined=StrictUndefined
    )
    environment.filters |= {"printable": printable, **filters}
    return environment.get_template(name)
