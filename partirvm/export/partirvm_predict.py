"""Predict with a model in one NumPy file; needs nothing but NumPy.

    from partirvm_predict import load
    predict = load("model.npz")
    found = predict(X)                  # X (n, d), raw units; a dictionary of arrays by output

The file holds a graph of operations on rows (``graph``, JSON) and its constants.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

ROWS = 1024  # rows at once: squared distances to M centres take ROWS × M × features numbers

ERROR = "X has the shape {}, but the model has {} features: {}"


def _spline(x: Any, V: Any) -> Any:
    a, b = np.minimum(x[:, None], V), np.maximum(x[:, None], V)
    return np.prod(1.0 + a * b + a * a * (3.0 * b - a) / 6.0, axis=2)


def _table(x: Any, T: Any) -> Any:
    codes = np.where(np.isnan(x[:, 0]), len(T) - 1, x[:, 0])
    return T[np.clip(codes, 0, len(T) - 1).astype(int)]


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


OPERATIONS: dict[str, Any] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
    "Neg": np.negative, "Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt, "Sinh": np.sinh, "Asinh": np.arcsinh,
    "Tanh": np.tanh, "Cos": np.cos, "MatMul": np.matmul, "Table": _table, "Spline": _spline, "Softmax": _softmax,
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0.0, -x)),
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Where": lambda c, a, b: np.where(c > 0, a, b),
    "IsNaN": lambda x: np.isnan(x).astype(x.dtype),
    "Less": lambda x, y: (x < y).astype(x.dtype),
    "Gather": lambda x, positions: x[:, positions.astype(int)],
    "Concat": lambda *parts: np.concatenate(parts, axis=1),
    "Sum": lambda x: x.sum(axis=1, keepdims=True),
    "ArgMax": lambda x: x.argmax(axis=1)[:, None],
    "Squares": lambda x, V: ((x[:, None] - V) ** 2).sum(axis=2),
    "Steps": lambda x, V: np.abs(x[:, None] - V).sum(axis=2),
    "Differ": lambda x, V, g: ((np.abs(x[:, None] - V) > 1e-4) * g).sum(axis=2),
}  # fmt: skip


def load(path: Any) -> Any:
    """Return a function of X (n, d) from a model file; it raises ValueError for another number of features."""
    with np.load(path, allow_pickle=False) as file:
        graph = json.loads(str(file["graph"]))
        constants = {name: file[name] for name in file.files if name != "graph"}
    inner, outer = np.dtype(graph["inner"]), np.dtype(graph["outer"])

    def of_rows(X: Any) -> dict[str, Any]:
        values = [X.astype(outer).astype(inner)]
        for op, args in graph["nodes"]:
            values.append(OPERATIONS[op](*(constants[a] if isinstance(a, str) else values[a] for a in args)))
        found = {name: np.broadcast_to(values[k], (len(X), values[k].shape[1])) for name, k in graph["outputs"].items()}
        return {name: each.astype(each.dtype if name == "label" else outer) for name, each in found.items()}

    def predict(X: Any) -> dict[str, Any]:
        X = np.asarray(X, float)
        if X.ndim != 2 or X.shape[1] != len(graph["features"]):
            raise ValueError(ERROR.format(X.shape, len(graph["features"]), ", ".join(graph["features"])))
        parts = [of_rows(X[start : start + ROWS]) for start in range(0, max(len(X), 1), ROWS)]
        found = {name: np.concatenate([part[name] for part in parts]) for name in graph["outputs"]}
        found = {name: each[:, 0] if each.shape[1] == 1 else each for name, each in found.items()}
        if "label" in found and graph["labels"]:
            found["label"] = np.array(graph["labels"])[found["label"]]
        return found

    return predict
