"""Messages of the library, read from its sources.

A message is the text of the sources with "…" in place of each value.
``tests/docs/test_troubleshooting.py`` compares the page on troubleshooting with these lists.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import partirvm
from partirvm import errors

SOURCES = Path(partirvm.__file__).parent

VALUE = "…"


Names = dict[str, ast.expr]


def template(node: ast.expr, names: Names | None = None) -> str | None:
    """Return the text of an expression with "…" for each value, or None if the expression has no
    fixed text.

    Variables among ``names`` are replaced by their texts.
    """
    found = _text(node, names or {})
    if found is None or not re.search(r"\w", found):
        return None
    return re.sub(rf"{VALUE}({VALUE})+", VALUE, re.sub(r"\s+", " ", found)).strip()


def _text(node: ast.expr, names: Names) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names) or VALUE for part in parts)
        case ast.FormattedValue(value=ast.Name(name)) if name in names:
            return _text(
                names[name], {other: text for other, text in names.items() if other != name}
            )
        case ast.FormattedValue(
            value=ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(two)))
        ):
            return f"{one} or {two}" if one and two else VALUE
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_text(left, names) or VALUE) + (_text(right, names) or VALUE)
    return None


def _texts_before(assignments: list[ast.Assign], call: ast.Call) -> Names:
    """Return the variables that hold texts where an error is made: those assigned in the ten lines
    before."""
    found: Names = {}
    for node in assignments:
        if call.lineno - 10 <= node.lineno < call.lineno:
            for name in (each.id for each in node.targets if isinstance(each, ast.Name)):
                if isinstance(node.value, ast.Constant | ast.JoinedStr):
                    found[name] = node.value
    return found


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Return the name and the syntax tree of each module."""
    paths = sorted(SOURCES.rglob("*.py"))
    return [
        (path.relative_to(SOURCES).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
    ]


def _warns(call: ast.Call) -> bool:
    match call.func:
        case ast.Name("warn") | ast.Attribute(value=ast.Name("errors"), attr="warn"):
            return True
    return False


def warned() -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the module, the category and the expression of the message of each warning.

    A warning is a call of ``errors.warn``.
    """
    for module, tree in trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(args=[message, ast.Name(name) | ast.Attribute(attr=name), *_]) if (
                    _warns(node)
                ):
                    yield module, name, message


def noted() -> Iterator[str]:
    """Yield the notes of plans: texts in tuples and lists named ``notes`` or ``held``."""
    for module, tree in trees():
        if not module.startswith(("resolve/", "planning/")):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.AugAssign(
                    target=ast.Name("notes") | ast.Attribute(attr="notes"),
                    value=ast.Tuple(elts=texts),
                ):
                    pass
                case ast.Assign(
                    targets=[ast.Name(id="notes" | "held")], value=ast.Tuple(elts=texts)
                ):
                    pass
                case ast.Call(func=ast.Attribute(ast.Name("notes"), "append"), args=texts):
                    pass
                case ast.keyword(arg="notes", value=ast.Tuple(elts=texts)):
                    pass
                case _:
                    continue
            yield from filter(None, map(template, texts))


def error_messages() -> dict[str, list[str]]:
    """Return the messages of each class of errors, wherever such an error is made."""
    known = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    found: dict[str, set[str]] = {}
    for _, tree in trees():
        assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in known
                and node.args
            ):
                text = template(node.args[0], _texts_before(assignments, node))
                if text is not None:
                    found.setdefault(node.func.id, set()).add(text)
    return {
        name: sorted(texts, key=lambda text: text.lstrip(f"{VALUE}: ").lower())
        for name, texts in found.items()
    }
