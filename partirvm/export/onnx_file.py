"""A model as an ONNX file of standard operators (opset 18)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from partirvm.errors import UsageError
from partirvm.export.graph import TOLERANCE, Graph, Quantity, dtypes, graph_of, write
from partirvm.storage import Where

OPSET = 18
"""Version of the operator set, from 2022."""

ML = "ai.onnx.ml"
"""Domain of the operator for trees, whose result is in single precision."""

ML_OPSET = 3
"""Version of this domain, from 2021; it has thresholds in double precision."""

IR = 9
"""Version of the file format, from 2023."""


def _sinh(x: Any) -> Any:
    """Return (eˣ − e⁻ˣ)/2, or for small x, 2t/(1 − t²) with t = tanh(x/2), which loses no digits
    there."""
    t = np.tanh(0.5 * x)
    large = 0.5 * (np.exp(x) - np.exp(-x))
    small = (t + t) / (1.0 - t * t)
    return np.where(np.abs(x) > 1.0, large, small)


def _log_add_exp(a: Any, b: Any) -> Any:
    """Return the larger argument plus log(1 + u); for small u, the quotient cancels the rounding
    error of 1 + u."""
    u = np.exp(-np.abs(b - a))
    w = 1.0 + u
    corrected = np.log(w) * (u / (w - 1.0))
    return np.maximum(a, b) + np.where(w > 1.0, corrected, u)


LACKING: dict[str, Callable[..., Any]] = {
    "Asinh": lambda x: np.sign(x) * np.log(np.abs(x) + np.sqrt(x * x + 1.0)),
    "Cos": lambda x: np.sin(x + np.pi / 2),
    "Sinh": _sinh,
    "Expm1": lambda x: 2.0 * (np.sinh(0.5 * x) * np.exp(0.5 * x)),
    "LogAddExp": _log_add_exp,
}
"""Operations that runtimes lack in double precision or altogether."""


def to_onnx(
    model: Any,
    path: Where,
    dtype: str = "float32",
    outputs: Sequence[str] = (),
    level: float = 0.95,
) -> None:
    """Write a model to ``path`` for ONNX Runtime and other runtimes; this needs the onnx package.

    The input is ``X`` (n, d), in raw units; categories are codes. The outputs are (n, 1), or (n, K)
    for several targets or classes; the label is (n,). Raises ``UsageError`` for other names, and
    for parts that only Python can compute (local residuals and user functions).

    Parameters
    ----------
    model : model or fitted estimator
        The model to export.
    path : path or URL
        Where to write the file.
    dtype : {"float32", "float64"}
        Type of the input and of the outputs.
    outputs : sequence of str
        Names of "mean", "std", "lower" and "upper", or of "label" and "probabilities"; by default
        mean and std, or both.
    level : float
        Probability of the interval from "lower" to "upper".
    """
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise UsageError('to_onnx needs the package onnx: pip install "partirvm[onnx]"') from error
    write(path, onnx_model(graph_of(model, outputs, level, LACKING), dtype).SerializeToString())


def onnx_model(graph: Graph, dtype: str, named: Callable[[str], str] = str) -> Any:
    """Return the ModelProto of a graph, whose nodes, constants and values are named by the function
    ``named``."""
    from onnx import TensorProto, helper

    inner, outer = dtypes(graph, dtype)
    types = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
    writer = _Writer(inner, types[inner], named)
    writer("Cast", "X", to=types[inner], name="v0")
    for node in graph.nodes[1:]:
        args = [f"v{arg.number}" if isinstance(arg, Quantity) else arg for arg in node.args]
        writer.node(node.op, args, f"v{node.number}")
    outputs = [_output(writer, graph, name, types[outer]) for name in graph.outputs]
    rows = helper.make_tensor_value_info("X", types[outer], ["n", len(graph.features)])
    onnx_graph = helper.make_graph(writer.nodes, "partirvm", [rows], outputs, writer.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    if any(node.op == "Trees" for node in graph.nodes):
        opsets.append(helper.make_opsetid(ML, ML_OPSET))
    model = helper.make_model(onnx_graph, opset_imports=opsets, ir_version=IR)
    helper.set_model_props(model, {"features": "\n".join(graph.features)})
    return model


def _output(writer: Any, graph: Graph, name: str, outer: int) -> Any:
    """Add the nodes of an output, and return its description.

    Args:
        writer: collects the nodes
        graph: the graph that contains the outputs
        name: the name of the output
        outer: the type of numeric outputs
    """
    from onnx import TensorProto, helper

    node = graph.outputs[name]
    value = f"v{node.number}"
    if name != "label":
        writer("Cast", value, to=outer, name=name)
        return helper.make_tensor_value_info(name, outer, ["n", node.width])
    has_numbers = all(isinstance(label, int) for label in graph.labels)
    if has_numbers:
        labels = writer.constant(np.array(graph.labels, np.int64))
        dtype = TensorProto.INT64
    else:
        labels = writer.constant(np.array(list(map(str, graph.labels)), object))
        dtype = TensorProto.STRING
    codes = writer("Squeeze", value, writer.constant(np.array([1])))
    writer("Gather", labels, codes, name=name)
    return helper.make_tensor_value_info(name, dtype, ["n"])


class _Writer:
    """Collects nodes and constants; a call adds a node and returns the name of its value."""

    def __init__(self, dtype: str, type_: int, named: Callable[[str], str]) -> None:
        self.dtype = dtype
        self.type = type_
        self.named = named
        self.nodes = list[Any]()
        self.constants = list[Any]()

    def constant(self, values: Any) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        tensor = numpy_helper.from_array(values, self.named(name))
        self.constants.append(tensor)
        return name

    def __call__(self, op: str, *args: Any, name: str = "", **attributes: Any) -> str:
        from onnx import helper

        names = [
            arg if isinstance(arg, str) else self.constant(np.asarray(arg, self.dtype))
            for arg in args
        ]
        name = name or f"w{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, [*map(self.named, names)], [self.named(name)], **attributes)
        )
        return name

    def node(self, op: str, args: list[Any], name: str) -> None:
        """Add the nodes for an operation of the graph."""
        if op in ("IsNaN", "Less", "Greater"):
            self("Cast", self(op, *args), to=self.type, name=name)
        elif op == "Where":
            self(op, self("Cast", args[0], to=9), *args[1:], name=name)  # 9 is bool
        elif op == "Gather":
            positions = self.constant(args[1].astype(np.int64))
            self(op, args[0], positions, axis=1, name=name)
        elif op == "Table":
            last = float(len(args[1]) - 1)
            is_positive = self("GreaterOrEqual", args[0], [0.0])
            is_known = self("And", is_positive, self("Less", args[0], [last]))
            code = self("Where", is_known, args[0], [last])
            whole = self("Cast", code, to=7)  # 7 is int64
            codes = self("Squeeze", whole, self.constant(np.array([1])))
            self("Gather", args[1], codes, axis=0, name=name)
        elif op == "Sum":
            self("ReduceSum", args[0], self.constant(np.array([1])), name=name)
        elif op in ("Concat", "Softmax", "ArgMax"):
            self(op, *args, axis=1, name=name)
        elif op in ("Squares", "Steps", "Differ", "Spline"):
            self._of_centres(op, args, name)
        elif op == "Trees":
            self._of_trees(args, name)
        else:
            self(op, *args, name=name)

    def _of_trees(self, args: list[Any], name: str) -> None:
        """Add the trees of a forest, given the arguments of the graph's operation."""
        x, constants, features, thresholds, rights, missing_left, roots = args
        starts = roots.ravel().astype(np.int64)
        nodes = np.arange(len(features))
        trees = np.searchsorted(starts, nodes, side="right") - 1
        numbers = nodes - starts[trees]
        inner = features >= 0
        leaves = np.flatnonzero(~inner)
        outputs = trees // roots.shape[1]
        values = self(
            "TreeEnsembleRegressor",
            x,
            domain=ML,
            n_targets=len(constants),
            nodes_treeids=trees.tolist(),
            nodes_nodeids=numbers.tolist(),
            nodes_featureids=np.where(inner, features, 0).astype(np.int64).tolist(),
            nodes_modes=np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
            nodes_truenodeids=np.where(inner, numbers + 1, 0).tolist(),
            nodes_falsenodeids=np.where(inner, rights - starts[trees], 0).astype(np.int64).tolist(),
            nodes_missing_value_tracks_true=(inner & (missing_left > 0)).astype(np.int64).tolist(),
            target_treeids=trees[leaves].tolist(),
            target_nodeids=numbers[leaves].tolist(),
            target_ids=outputs[leaves].tolist(),
            **self._numbers("nodes_values", np.where(inner, thresholds, 0.0)),
            **self._numbers("target_weights", thresholds[leaves]),
            **self._numbers("base_values", constants),
        )
        self("Cast", values, to=self.type, name=name)

    def _numbers(self, attribute: str, values: Any) -> dict[str, Any]:
        """Return an attribute with numbers in the precision of the model."""
        from onnx import numpy_helper

        if self.dtype == "float32":
            return {attribute: values.astype(np.float32).tolist()}
        return {f"{attribute}_as_tensor": numpy_helper.from_array(values.astype(np.float64))}

    def _of_centres(self, op: str, args: list[Any], name: str) -> None:
        """Add an operation on all pairs of rows and centres, with an extra axis for the centres."""
        axis = self.constant(np.array([1]))
        x = self("Unsqueeze", args[0], self.constant(np.array([2])))
        V = args[1]
        if op == "Spline":
            a = self("Min", x, V)
            b = self("Max", x, V)
            square = self("Mul", a, a)
            cube = self("Mul", square, self("Sub", self("Mul", b, 3.0), a))
            product = self("Mul", a, b)
            terms = self("Add", product, self("Mul", cube, 1 / 6))
            factors = self("Add", terms, 1.0)
            self("ReduceProd", factors, axis, keepdims=0, name=name)
            return
        step = self("Sub", x, V)
        step = self("Mul", step, step) if op == "Squares" else self("Abs", step)
        if op == "Differ":
            differs = self("Cast", self("Greater", step, TOLERANCE), to=self.type)
            step = self("Mul", differs, args[2][:, None])
        self("ReduceSum", step, axis, keepdims=0, name=name)
