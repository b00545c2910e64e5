"""A model as a NumPy file, and the reader that predicts with it."""

import io
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.export.graph import Quantity, dtypes, graph_of, template, write
from partirvm.storage import Where


def to_numpy(model: Any, path: Where, dtype: str = "float64", outputs: Sequence[str] = (), level: float = 0.95) -> None:
    """Write an .npz file and ``partirvm_predict.py``, which needs only NumPy. See ``to_onnx`` for the parameters."""
    graph, path = graph_of(model, outputs, level), Path(path)
    inner, outer = dtypes(graph, dtype)
    constants = dict[str, Any]()

    def name_of(arg: Any) -> Any:
        if isinstance(arg, Quantity):
            return arg.number
        constants[f"c{len(constants)}"] = arg.astype(inner)
        return f"c{len(constants) - 1}"

    nodes = [[node.op, [name_of(arg) for arg in node.args]] for node in graph.nodes[1:]]
    labels = [label if isinstance(label, str | int | bool) else str(label) for label in graph.labels]
    numbers = {name: value.number for name, value in graph.outputs.items()}
    facts = {"features": graph.features, "labels": labels, "inner": inner, "outer": outer}
    text = json.dumps({**facts, "nodes": nodes, "outputs": numbers})
    file = io.BytesIO()
    np.savez_compressed(file, graph=np.array(text), **constants)
    write(path, file.getvalue())
    reader = template("partirvm_predict.py.jinja").render(version=version("partirvm"))
    write(path.with_name("partirvm_predict.py"), reader.encode())
