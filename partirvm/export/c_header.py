"""A model as a C99 header that allocates no memory: constants, a function that predicts one row,
and a self-test.

Column names and class labels are foreign text: they are written as ASCII that every C and C++
standard interprets in the same way. A compiler may replace trigraphs (``??/`` is a backslash), join
lines that end with a backslash, decode the file in any encoding, and extend a hexadecimal escape
over the digits that follow it. None of this can happen here: all characters except plain ASCII are
written as octal escapes, which end after three digits, and no two question marks are adjacent.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from partirvm.errors import UsageError
from partirvm.export.graph import (
    TOLERANCE,
    Graph,
    Quantity,
    dtypes,
    graph_of,
    model_of,
    template,
    write,
)
from partirvm.quoting import quoted
from partirvm.scaling.maps import AS_IT_IS, unfolded_inputs
from partirvm.storage import Where, open_folder
from partirvm.types import Float

ELEMENTWISE = {
    "Max": "({0} < {1} ? {1} : {0})",  # a NaN is preserved: comparisons with it are false
    "Min": "({0} > {1} ? {1} : {0})",
    "Where": "({0} > 0 ? {1} : {2})",
    "IsNaN": "({0} != {0})",
    "Neg": "-{0}",
    "Sigmoid": "1 / (1 + exp$(-{0}))",
    "LogAddExp": "({0} > {1} ? {0} + log1p$(exp$({1} - {0})) : {1} + log1p$(exp$({0} - {1})))",
    "Pow": "pow$({0}, {1})",
}
ELEMENTWISE |= {
    op: f"{{0}} {c} {{1}}"
    for op, c in zip(("Add", "Sub", "Mul", "Div", "Less"), "+-*/<", strict=True)
}
ELEMENTWISE |= {
    op: f"{op.lower()}$({{0}})"
    for op in ("Exp", "Expm1", "Log", "Sqrt", "Sinh", "Asinh", "Tanh", "Cos")
}
"""C expressions of elementwise operations; $ stands for the type's function suffix."""

TESTED = 4
"""Number of rows in the self-test."""

LITERAL = 500
"""Maximum number of bytes in a string literal: C90 requires compilers to accept 509, C99 4,095."""

REMARK = 1000
"""Maximum number of characters of a text in a comment."""

ESCAPED = {ord(character): f"\\{character}" for character in "\\\"?'"}
"""Backslash escapes of characters, by character code."""


def to_c(
    model: Any,
    path: Where,
    dtype: str = "float64",
    outputs: Sequence[str] = (),
    level: float = 0.95,
) -> None:
    """Write a model to ``path``, a C99 header that needs only ``math.h``.

    ``<name>_predict(x, mean, std)`` predicts one row x of d raw inputs, with an argument for each
    of the ``outputs`` (an array for several targets or classes; the label is an index into
    ``<name>_labels``). ``<name>_self_test()`` returns the largest deviation from stored
    predictions, in standard deviations of the target or as a probability. Errors are as in
    ``to_onnx``.

    Parameters
    ----------
    model : model or fitted estimator
        The model to export.
    path : path or URL
        Where to write the header; the C names begin with its name.
    dtype : {"float64", "float32", "int16"}
        Type of the input and of the outputs. With "int16", these are "float32", and the covariance
        is stored as integers, half the size of "float32", unless weights cancel so much that double
        precision is used internally.
    outputs : sequence of str
        Names of outputs, as in ``to_onnx``.
    level : float
        Probability of the interval from "lower" to "upper".
    """
    place = open_folder(path)
    name = re.sub(r"\W", "_", place.name.removesuffix(place.suffix), flags=re.ASCII)
    if not re.match("[A-Za-z]", name):
        raise UsageError(
            f"{place.name!r} cannot be turned into C names: begin the file name with a letter"
        )
    graph = graph_of(model, outputs, level)
    model = model_of(model)
    header = Header(graph, dtype, name)
    centres = unfolded_inputs(model.design.centres, model.design.scaling)
    centres = centres if len(centres) else np.zeros((1, len(graph.features)))
    step = -(-len(centres) // TESTED)
    rows = centres[::step].astype(header.io).astype(float)
    expected, unit = _expected(model, rows, level)
    labels = (
        [header.label(str(label)) for label in graph.labels] if "label" in graph.outputs else []
    )
    page = template("model.h.jinja", number=_number, comment=c_comment).render(
        header=header,
        simple=ELEMENTWISE,
        labels=labels,
        title=repr(model),
        rows=rows,
        expected=expected,
        unit=unit,
        least=TOLERANCE,
    )
    write(path, f"{page}\n".encode())


class Header:
    """The parts of a header, including the stored constants of a graph."""

    def __init__(self, graph: Graph, dtype: str, name: str) -> None:
        self.graph = graph
        self.name = name
        self.quantised = dtype == "int16"
        inner, outer = dtypes(graph, "float32" if self.quantised else dtype)
        # where weights cancel, integers would lose the standard deviation
        self.quantised &= inner == "float32"
        self.real, self.io = (
            "float" if dtype_name == "float32" else "double" for dtype_name in (inner, outer)
        )
        self.suffix = "f" if self.real == "float" else ""
        self.constants = list[dict[str, Any]]()
        self.long_labels = list[dict[str, Any]]()

    def label(self, text: str) -> str:
        """Return a string literal, or the name of an array of characters if a literal would be too
        long."""
        if is_short(text):
            return c_string(text)
        name = f"{self.name}_label{len(self.long_labels)}"
        self.long_labels.append({"name": name, "texts": c_array(text)})
        return name

    def text_of(self, node: Quantity) -> str:
        """Return the C expression for an elementwise operation."""
        return (
            ELEMENTWISE[node.op]
            .replace("$", self.suffix)
            .format(*[self.operand(arg, "i") for arg in node.args])
        )

    def stored(self, values: Any, kind: str = "") -> str:
        """Add an array of constants, by default with the real type, and return its name."""
        kind = kind or self.real
        name = f"{self.name}_c{len(self.constants)}"
        numbers = np.ravel(values).tolist()
        texts = [
            _number(value, self.suffix) if kind == self.real else str(int(value))
            for value in numbers
        ]
        size = len(texts) * np.dtype(kind.replace("float", "single")).itemsize
        self.constants.append({"name": name, "kind": kind, "texts": texts, "size": size})
        return name

    def operand(self, arg: Any, place: str) -> str:
        """Return an element of a value or a constant, or the only element if the width is 1."""
        if isinstance(arg, Quantity):
            return f"v{arg.number}[{place if arg.width > 1 else 0}]"
        if arg.size == 1:
            return _number(float(arg[0]), self.suffix)
        return f"{self.stored(arg)}[{place}]"

    def product(self, matrix: Float) -> dict[str, Any]:
        """Return the parts of a product with a matrix (k, m), whose zeros below a diagonal are not
        stored.

        If quantised, such a matrix is stored as 16-bit integers and a scale for each column."""
        k, m = matrix.shape
        lengths = [
            int(np.flatnonzero(column)[-1]) + 1 if column.any() else 0 for column in matrix.T
        ]
        beyond = max((length - j for j, length in enumerate(lengths)), default=0)
        counts = [min(j + beyond, k) for j in range(m)]
        short = sum(counts) < 0.75 * k * m
        columns = [
            column[: count if short else k] for column, count in zip(matrix.T, counts, strict=True)
        ]
        facts = {
            "count": f"(j + {beyond} < {k} ? j + {beyond} : {k})" if short else k,
            "kind": self.real,
        }
        if short and self.quantised:
            scales = np.array(
                [max(np.abs(column).max(initial=0.0), 1e-30) / 32767 for column in columns]
            )
            facts |= {"kind": "short", "scale": self.stored(scales)}
            columns = [
                np.rint(column / scale) for column, scale in zip(columns, scales, strict=True)
            ]
        return facts | {"array": self.stored(np.concatenate(columns), facts["kind"])}


def _number(value: float, suffix: str = "") -> str:
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    digits = 9 if suffix else 17
    text = f"{value:.{digits}g}"
    if not re.search(r"[.e]", text):
        text += ".0"
    return text + suffix


def _expected(model: Any, X: Float, level: float) -> tuple[dict[str, Float], float]:
    """Return the model's outputs at X by name, and the unit of their errors."""
    if hasattr(model, "classes"):
        return {"probabilities": model.values(X)[0]}, 1.0
    values, _ = model.predictive.values(X, model.multiples([level]))
    mean, std, lower, upper = np.split(values, 4, axis=1)
    scaling = model.design.scaling
    unit = np.min(scaling.t_scale) if scaling.target == AS_IT_IS else std.mean()
    return {"mean": mean, "std": std, "lower": lower, "upper": upper}, float(unit)


# Foreign text


def c_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of a C string. Raises ``UsageError`` for a NUL character, which would
    end the string."""
    content = text.encode("utf-8", "surrogatepass")
    if b"\0" in content:
        raise UsageError(
            f"the label {quoted(text)} contains a NUL character, which ends a string in C: rename "
            "it before the fit, or export with to_onnx or to_numpy"
        )
    return content


def _characters(text: str) -> Iterator[str]:
    """Yield the C source text for each byte of a string."""
    for byte in c_bytes(text):
        plain = chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        yield ESCAPED.get(byte, plain)


def c_string(text: str) -> str:
    r"""Return a string literal for a text of at most ``LITERAL`` bytes.

    >>> print(c_string('a "b"??/'), c_string("é1"))
    "a \"b\"\?\?/" "\303\2511"
    """
    return f'"{"".join(_characters(text))}"'


def c_array(text: str) -> list[str]:
    """Return the character constants for a text of any length; the last one is the terminating
    zero."""
    return [*(f"'{character}'" for character in _characters(text)), "0"]


def is_short(text: str) -> bool:
    """Return True if every compiler accepts a literal of this text."""
    return len(c_bytes(text)) <= LITERAL


def c_comment(text: str) -> str:
    r"""Return text for a comment between ``/*`` and ``*/``: one line that cannot end it, nor start
    another one.

    >>> print(c_comment("km/h"), c_comment("*/ evil(); /*"), c_comment("a??/\n"), c_comment("\\"))
    "km/h" "* / evil(); / *" "a? ?/\n" "\"
    """
    if len(text) > REMARK:
        text = f"{text[:REMARK]} ({len(text):,} characters)"
    ascii_text = "".join(
        character if " " <= character <= "~" else ascii(character)[1:-1] for character in text
    )
    return '"' + re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", ascii_text) + '"'
