"""Small wrong changes to functions (mutants), found in the syntax tree. A mutant's key is also
valid in a later version of the tree.

Their names also identify them in a later tree.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

Names: TypeAlias = list[str]
"""Names of the local variables of a function, in order."""

Key: TypeAlias = tuple[str, str, str, int, str]
"""The key of a mutant: file, function, kind, occurrence of the kind in the function, text."""

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NEGATIONS = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
NEGATIONS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A change of the bytes ``start:stop`` of ``file`` to ``after``.

    ``occurrence`` counts the kind within the function. ``promise`` is what the change breaks, if it
    was written by hand.
    """

    folder: str
    file: str
    function: str
    kind: str
    occurrence: int
    line: int
    before: str
    after: str
    start: int
    stop: int
    promise: str = ""

    @property
    def key(self) -> Key:
        """Return the key that identifies the mutant in another tree."""
        return self.file, self.function, self.kind, self.occurrence, self.before

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line} {self.function} [{self.kind}] {self.before} -> {self.after}"
        )


def changes(node: ast.AST, names: Names) -> Iterator[tuple[str, str]]:
    """Yield the kinds of mutants of one node, and the changed text of the node."""

    def with_(**fields: Any) -> str:
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        return ast.unparse(changed) if isinstance(node, ast.stmt) else f"({ast.unparse(changed)})"

    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            yield "operator", with_(op=OPERATORS[type(op)]())
        case ast.Compare(ops=[op]):
            if type(op) in BOUNDARIES:
                yield "boundary", with_(ops=[BOUNDARIES[type(op)]()])
            yield "negation", with_(ops=[NEGATIONS[type(op)]()])
        case ast.BoolOp(op=op):
            yield "and/or", with_(op=ast.And() if isinstance(op, ast.Or) else ast.Or())
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "dropped sign", f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield "boolean", str(not value)
        case ast.Constant(value=int(value)):
            yield "number + 1", str(value + 1)
            yield "number - 1", f"({value - 1})"
        case ast.Constant(value=float(value)):
            yield "doubled number", str(2 * value or 1.0)
        case ast.Expr(value=ast.Call()):
            yield "removed call", "pass"
        case ast.Return(value=ast.Name(id=name)) if name in names and len(names) > 1:
            at = names.index(name)
            yield "returned name", f"return {names[at - 1] if at else names[1]}"


def sites(
    node: ast.AST, path: tuple[str, ...] = (), names: Names | None = None
) -> Iterator[tuple[str, Any, Names]]:
    """Yield (function, node, local names) of every node that may be changed."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.arg):
        return
    if isinstance(node, ast.ClassDef | FUNCTIONS):
        if node.name in ("__repr__", "__str__"):
            return
        path = (*path, node.name)
        if isinstance(node, FUNCTIONS):
            inner = [
                n
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            ]
            inner.sort(key=lambda name: (name.lineno, name.col_offset))
            given = [a.arg for a in (*node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
            names = list(dict.fromkeys([*given, *(name.id for name in inner)]))
    elif names is not None:
        yield ".".join(path), node, names
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from sites(child, path, names)


def mutants(root: Path, folder: str) -> list[Mutant]:
    """Return every mutant of one folder of partirvm/ in the tree at ``root``."""
    made = []
    for path in sorted((root / "partirvm" / folder).rglob("*.py")):
        source = path.read_bytes()
        file = str(path.relative_to(root))
        begins = [0]
        for line in source.splitlines(keepends=True):
            begins.append(begins[-1] + len(line))
        count: Counter[tuple[str, str]] = Counter()
        for function, node, names in sites(ast.parse(source)):
            for kind, after in changes(node, names):
                start = begins[node.lineno - 1] + node.col_offset
                stop = begins[node.end_lineno - 1] + node.end_col_offset
                before = source[start:stop].decode()
                number = count[function, kind]
                count[function, kind] += 1
                made.append(
                    Mutant(
                        folder,
                        file,
                        function,
                        kind,
                        number,
                        node.lineno,
                        before,
                        after,
                        start,
                        stop,
                    )
                )
    return made


def drawn(
    root: Path, folders: Sequence[str], count: int, seed: int, replay: Collection[Key] = ()
) -> list[Mutant]:
    """Draw ``count`` mutants from the folders in turn, at most one of each function. Keys in
    ``replay`` come first."""
    by_folder = []
    for number, folder in enumerate(folders):
        share = count // len(folders) + (number < count % len(folders))
        every = mutants(root, folder)
        random.Random(f"{seed} {folder}").shuffle(every)
        every.sort(key=lambda mutant: mutant.key not in replay)
        first: dict[tuple[str, str], Mutant] = {}
        for mutant in every:
            first.setdefault((mutant.file, mutant.function), mutant)
        by_folder.append(list(first.values())[:share])
    return [mutant for turn in zip_longest(*by_folder) for mutant in turn if mutant is not None]
