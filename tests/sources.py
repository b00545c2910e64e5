"""Syntax trees of modules."""

import ast
import gc
from pathlib import Path


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module; collections of garbage would take most of the time."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        gc.enable()
