"""A model as a NumPy file, and the reader that predicts with it."""

import io
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from partirvm.errors import ExistsError
from partirvm.export.graph import Quantity, dtypes, graph_of, template, write
from partirvm.storage import Folder, Where, open_folder

MARK = '"""Predict with a model in a NumPy file written by partirvm '
"""First line of each reader, by which readers are recognised."""


def to_numpy(
    model: Any,
    path: Where,
    dtype: str = "float64",
    outputs: Sequence[str] = (),
    level: float = 0.95,
) -> None:
    """Write an .npz file and its reader, a Python module next to it that needs only NumPy.

    The reader of ``m.npz`` is ``m_predict.py``; it replaces an older reader, but no other file
    (``ExistsError``). Other errors are as in ``to_onnx``.

    Parameters
    ----------
    model : model or fitted estimator
        The model to export.
    path : path or URL
        Where to write the .npz file.
    dtype : {"float64", "float32"}
        Type of the input and of the outputs.
    outputs : sequence of str
        Names of outputs, as in ``to_onnx``.
    level : float
        Probability of the interval from "lower" to "upper".
    """
    graph = graph_of(model, outputs, level)
    inner, outer = dtypes(graph, dtype)
    place = open_folder(path)
    reader = reader_beside(place)
    constants = dict[str, Any]()
    nodes = [[node.op, _arguments(node, constants, inner)] for node in graph.nodes[1:]]
    facts = {
        "features": graph.features,
        "labels": [
            label if isinstance(label, str | int | bool) else str(label) for label in graph.labels
        ],
        "inner": inner,
        "outer": outer,
        "nodes": nodes,
        "outputs": {name: value.number for name, value in graph.outputs.items()},
    }
    file = io.BytesIO()
    np.savez_compressed(file, graph=np.array(json.dumps(facts)), **constants)
    write(path, file.getvalue())
    module = reader.name.removesuffix(".py")
    text = template("reader.py.jinja").render(version=version("partirvm"), module=module)
    write(reader.place(), text.encode())


def _arguments(node: Quantity, constants: dict[str, Any], dtype: str) -> list[int | str]:
    """Return the arguments of a node, by number, or by name for constants, which are added to
    ``constants`` with this dtype."""
    arguments = list[int | str]()
    for argument in node.args:
        if isinstance(argument, Quantity):
            arguments.append(argument.number)
        else:
            name = f"c{len(constants)}"
            constants[name] = argument.astype(dtype)
            arguments.append(name)
    return arguments


def reader_beside(place: Folder) -> Folder:
    """Return the location of an .npz file's reader. Raises ``ExistsError`` if another file has its
    name."""
    stem = re.sub(r"\W", "_", place.name.removesuffix(place.suffix), flags=re.ASCII)
    if not re.match("[A-Za-z_]", stem):
        stem = f"model_{stem}"  # module names must begin with a letter
    reader = place.sibling(f"{stem}_predict.py")
    if reader.exists() and not (reader.is_file() and reader.read("", len(MARK)) == MARK.encode()):
        raise ExistsError(
            f"{reader.place()} exists and is not a reader written by partirvm, so it is not "
            "replaced: choose another name for the .npz file, after which its reader is named"
        )
    return reader
