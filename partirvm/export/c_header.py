"""A model as one C99 header without allocation: constants, a function that predicts one row, and a self-test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.errors import UsageError
from partirvm.export.graph import TOLERANCE, Graph, Node, dtypes, graph_of, write
from partirvm.quoting import printable
from partirvm.types import AS_IT_IS, Float

ELEMENTWISE = {
    "Add": "{0} + {1}",
    "Sub": "{0} - {1}",
    "Mul": "{0} * {1}",
    "Div": "{0} / {1}",
    "Max": "({0} < {1} ? {1} : {0})",  # a NaN stays: comparisons with it are false
    "Min": "({0} > {1} ? {1} : {0})",
    "Less": "({0} < {1})",
    "Where": "({0} > 0 ? {1} : {2})",
    "IsNaN": "({0} != {0})",
    "Neg": "-{0}",
    "Sigmoid": "1 / (1 + exp$(-{0}))",
    "Softplus": "({0} > 0 ? {0} + log1p$(exp$(-{0})) : log1p$(exp$({0})))",
} | {name: f"{name.lower()}$({{0}})" for name in ("Exp", "Log", "Sqrt", "Sinh", "Asinh", "Tanh", "Cos")}
"""C expressions of elementwise operations; $ is the suffix of functions of the type."""

OF_PAIR = {
    "Squares": ("0", "d * d", "+="),
    "Steps": ("0", "fabs$(d)", "+="),
    "Differ": ("0", f"(fabs$(d) > {TOLERANCE:g}) * {{g}}", "+="),
    "Spline": ("1", "1 + a * b + a * a * (3 * b - a) / 6", "*="),
}
"""Of operations on rows and centres: start, term of a feature, and how terms join."""

TESTED = 4
"""Number of rows of the self-test."""

LEAST_QUANTISED = 64
"""Minimum size of an array that is stored as 16-bit integers."""


def to_c(
    model: Any,
    path: str | Path,
    dtype: str = "float64",
    outputs: Sequence[str] = (),
    level: float = 0.95,
    *,
    quantised: bool = False,
) -> None:
    """Write a model to ``path``, a C99 header that needs ``math.h`` alone.

    ``<name>_predict(x, mean, std)`` predicts one row x of d raw inputs, with an argument for each of the ``outputs``
    (of several targets or classes an array; the label is an index into ``<name>_labels``). ``<name>_self_test()``
    returns the largest deviation from stored predictions, in standard deviations of the target or as a probability.
    With ``quantised`` the centres and matrices are 16-bit integers. Other parameters and errors are those of
    ``to_onnx``.
    """
    path = Path(path)
    name = re.sub(r"\W", "_", path.stem)
    if not name or name[0].isdigit():
        raise UsageError(f"{path.name!r} cannot name functions in C: begin the name of the file with a letter")
    graph = graph_of(model, outputs, level)
    text = _Header(graph, dtype, name, quantised, level).text(getattr(model, "model_", model))
    write(path, text.encode())


class _Header:
    """Collects the constants and the statements of one row."""

    def __init__(self, graph: Graph, dtype: str, name: str, quantised: bool, level: float) -> None:
        inner, outer = dtypes(graph, dtype)
        self.graph, self.name, self.quantised, self.level = graph, name, quantised, level
        self.real, self.io = ("float" if each == "float32" else "double" for each in (inner, outer))
        self.suffix, self.digits = ("f", 9) if inner == "float32" else ("", 17)
        self.constants, self.bytes = list[str](), 0

    def text(self, model: Any) -> str:
        """Return the header."""
        body = [line for k, node in enumerate(self.graph.nodes) if k for line in self._statements(f"v{k}", node)]
        ram = sum(node.width for node in self.graph.nodes) * (4 if self.real == "float" else 8)
        outputs = self.graph.outputs.items()
        kinds = {name: "int" if name == "label" else self.io for name in self.graph.outputs}
        arguments = [f"const {self.io} x[{len(self.graph.features)}]"]
        arguments += [f"{kinds[name]} {name}[{self.graph.nodes[k].width}]" for name, k in outputs]
        stores = [
            f"for (int i = 0; i < {self.graph.nodes[k].width}; i++) {name}[i] = ({kinds[name]})v{k}[i];"
            for name, k in outputs
        ]
        begin = f"for (int i = 0; i < {len(self.graph.features)}; i++) v0[i] = x[i];"
        arrays = [f"{self.real} v{k}[{node.width}];" for k, node in enumerate(self.graph.nodes)]
        lines = [
            f"/* {model!r} by partirvm: {self.bytes:,} bytes of constants, {ram:,} bytes of stack.",
            *(
                f"   x[{j}] is {printable(feature).replace('*/', '* /')}"
                for j, feature in enumerate(self.graph.features)
            ),
            "   Compile without -ffast-math: missing inputs are NaN. */",
            f"#ifndef {self.name.upper()}_H",
            f"#define {self.name.upper()}_H",
            "#include <math.h>",
            *self._labels(),
            *self.constants,
            f"static inline void {self.name}_predict({', '.join(arguments)}) {{",
            *(f"    {line}" for line in [*arrays, begin, *body, *stores]),
            "}",
            *self._self_test(model, kinds),
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    def _labels(self) -> Iterator[str]:
        if "label" in self.graph.outputs:
            quoted = (re.sub(r'[\\"]', r"\\\g<0>", printable(str(each))) for each in self.graph.labels)
            texts = ", ".join(f'"{each}"' for each in quoted)
            yield f"static const char *const {self.name}_labels[{len(self.graph.labels)}] = {{{texts}}};"

    def _number(self, value: float) -> str:
        if not np.isfinite(value):
            return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        found = f"{value:.{self.digits}g}"
        return (found if re.search(r"[.e]", found) else f"{found}.0") + self.suffix

    def _stored(self, values: Any, kind: str, size: int) -> str:
        """Add an array of constants and return its name."""
        name, flat = f"{self.name}_c{len(self.constants)}", np.ravel(values)
        texts = [str(int(each)) for each in flat] if "short" in kind else [self._number(float(each)) for each in flat]
        lines = [", ".join(texts[start : start + 12]) for start in range(0, len(texts), 12)]
        self.constants.append(f"static const {kind} {name}[{len(flat)}] = {{\n    " + ",\n    ".join(lines) + "};")
        self.bytes += size * len(flat)
        return name

    def _matrix(self, columns: list[Float]) -> tuple[str, str]:
        """Store columns one after the other; return the name of the array, and that of a scale of each column."""
        if not self.quantised or sum(map(len, columns)) < LEAST_QUANTISED:
            return self._stored(np.concatenate(columns), self.real, 4 if self.real == "float" else 8), ""
        scales = [float(np.abs(column).max(initial=0.0)) / 32767 or 1.0 for column in columns]
        whole = np.concatenate([np.rint(column / scale) for column, scale in zip(columns, scales, strict=True)])
        return self._stored(whole, "short", 2), self._stored(scales, self.real, 4 if self.real == "float" else 8)

    def _operand(self, arg: Any, place: str = "i") -> str:
        """Return an element of a value or a constant; the only one of a width of 1."""
        if isinstance(arg, int):
            return f"v{arg}[{place if self.graph.nodes[arg].width > 1 else 0}]"
        if arg.size == 1:
            return self._number(float(arg[0]))
        return f"{self._stored(arg, self.real, 4 if self.real == 'float' else 8)}[{place}]"

    def _statements(self, name: str, node: Node) -> Iterator[str]:
        """Yield the statements of a node, whose value is the array ``name``."""
        op, args, loop = node.op, node.args, f"for (int i = 0; i < {node.width}; i++)"
        x, width = f"v{args[0]}", self.graph.nodes[args[0]].width if isinstance(args[0], int) else 0
        if op in ELEMENTWISE:
            text = ELEMENTWISE[op].replace("$", self.suffix).format(*map(self._operand, args))
            yield f"{loop} {name}[i] = {text};"
        elif op == "Gather":
            yield f"{loop} {name}[i] = {x}[{self._stored(args[1], 'unsigned short', 2)}[i]];"
        elif op == "Concat":
            place = 0
            for arg in args:
                count = self.graph.nodes[arg].width
                yield f"for (int i = 0; i < {count}; i++) {name}[{place} + i] = v{arg}[i];"
                place += count
        elif op == "MatMul":
            yield from self._product(name, x, args[1])
        elif op in OF_PAIR:
            yield from self._of_centres(name, x, op, *args[1:])
        elif op == "Table":
            (last, r), table = args[1].shape, self._stored(args[1], self.real, 4 if self.real == "float" else 8)
            yield f"int {name}l = !({x}[0] < {last - 1}) ? {last - 1} : {x}[0] < 0 ? 0 : (int){x}[0];"
            yield f"{loop} {name}[i] = {table}[{name}l * {r} + i];"
        elif op == "Sum":
            yield f"{name}[0] = 0; for (int i = 0; i < {width}; i++) {name}[0] += {x}[i];"
        elif op == "ArgMax":
            yield f"{name}[0] = 0; for (int i = 1; i < {width}; i++) if ({x}[i] > {x}[(int){name}[0]]) {name}[0] = ({self.real})i;"
        elif op == "Softmax":
            yield f"{self.real} {name}m = {x}[0], {name}s = 0;"
            yield f"{loop} if ({x}[i] > {name}m) {name}m = {x}[i];"
            yield f"{loop} {name}s += {name}[i] = exp{self.suffix}({x}[i] - {name}m);"
            yield f"{loop} {name}[i] /= {name}s;"

    def _product(self, name: str, x: str, matrix: Float) -> Iterator[str]:
        """Yield the statements of a product with a matrix (k, m), of which zeros below a diagonal are not stored."""
        k, m = matrix.shape
        lengths = [int(np.flatnonzero(column)[-1]) + 1 if column.any() else 0 for column in matrix.T]
        beyond = max((length - j for j, length in enumerate(lengths)), default=0)
        short = sum(min(max(j + beyond, 0), k) for j in range(m)) < 0.75 * k * m
        counts = [min(j + beyond, k) if short else k for j in range(m)]
        array, scale = self._matrix([column[:count] for column, count in zip(matrix.T, counts, strict=True)])
        yield f"const {'short' if scale else self.real} *{name}w = {array};"
        count = f"(j + {beyond} < {k} ? j + {beyond} : {k})" if short else str(k)
        yield f"for (int j = 0; j < {m}; j++) {{"
        yield f"    {self.real} s = 0;"
        yield f"    for (int i = 0; i < {count}; i++) s += {x}[i] * *{name}w++;"
        yield f"    {name}[j] = s{f' * {scale}[j]' if scale else ''};"
        yield "}"

    def _of_centres(self, name: str, x: str, op: str, V: Float, gammas: Float | None = None) -> Iterator[str]:
        """Yield the statements of an operation on a row and M centres V (M, k)."""
        (M, k), (start, term, join) = V.shape, OF_PAIR[op]
        array, scale = self._matrix(list(V.T))  # feature by feature, each with its own scale
        stored = f"{array}[j * {M} + m]" + (f" * {scale}[j]" if scale else "")
        term = term.replace("$", self.suffix).replace("{g}", "" if gammas is None else self._operand(gammas, "j"))
        yield f"for (int m = 0; m < {M}; m++) {name}[m] = {start};"
        yield f"for (int j = 0; j < {k}; j++) for (int m = 0; m < {M}; m++) {{"
        if op == "Spline":
            yield f"    const {self.real} z = {stored}, a = {x}[j] < z ? {x}[j] : z, b = {x}[j] < z ? z : {x}[j];"
        else:
            yield f"    const {self.real} d = {x}[j] - {stored};"
        yield f"    {name}[m] {join} {term};"
        yield "}"

    def _self_test(self, model: Any, kinds: dict[str, str]) -> Iterator[str]:
        """Yield a function that compares predictions of some relevance vectors with stored ones."""
        rows, d = model.design.centres[:: -(-max(len(model.design.centres), 1) // TESTED)], len(self.graph.features)
        rows = (rows if len(rows) else np.zeros((1, d))).astype(np.float32 if self.io == "float" else np.float64)
        expected, unit = _expected(model, rows.astype(float), self.level)
        widths = {name: self.graph.nodes[k].width for name, k in self.graph.outputs.items() if name != "label"}
        declared = [f"{kinds[name]} {name}[{self.graph.nodes[k].width}];" for name, k in self.graph.outputs.items()]
        numbers = ", ".join(f"{{{', '.join(map(self._number, row))}}}" for row in rows.tolist())
        yield f"static inline double {self.name}_self_test(void) {{"
        yield f"    static const {self.io} rows[{len(rows)}][{d}] = {{{numbers}}};"
        for name in widths:
            values = ", ".join(f"{value:.17g}" for value in np.ravel(expected[name]).tolist())
            yield f"    static const double {name}_expected[{expected[name].size}] = {{{values}}};"
        yield f"    double worst = 0; {' '.join(declared)}"
        yield f"    for (int n = 0; n < {len(rows)}; n++) {{"
        yield f"        {self.name}_predict(rows[n], {', '.join(self.graph.outputs)});"
        for name, width in widths.items():
            error = f"fabs({name}[i] - {name}_expected[n * {width} + i]) / {unit:.17g}"
            yield f"        for (int i = 0; i < {width}; i++) if (!({error} <= worst)) worst = {error};"
        yield "    }"
        yield "    return worst;"
        yield "}"


def _expected(model: Any, X: Float, level: float) -> tuple[dict[str, Float], float]:
    """Return the outputs of the model at X by name, and the unit of their errors."""
    if hasattr(model, "classes"):
        return {"probabilities": model.values(X)[0]}, 1.0
    found = np.split(model.predictive.values(X, model.multiples([level])[:, 0])[0], 4, axis=1)
    unit = (
        float(np.min(model.design.scaling.t_scale))
        if model.design.scaling.target == AS_IT_IS
        else float(found[1].mean())
    )
    return dict(zip(("mean", "std", "lower", "upper"), found, strict=True)), unit
