"""A random sample of sentences from docstrings, comments, messages, help and the README, to be judged by a reader.

    python -m benchmarks.sentences [--draw 100] [--seed 0] [--root FOLDER]

The program prints one sentence per line, with its file and line. Equal parts come from docstrings, from comments and
messages (texts of exceptions, warnings, plans and reports), from the help of options and commands, and from README.md.
A reader who knows scikit-learn but not this code judges whether each sentence is understood at first reading.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import numpy as np

Found = tuple[str, str]
"""A sentence, preceded by its file and line."""

SHORTEST = 5
"""Minimum number of words of a sentence."""


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, without code blocks, sections, tables and doctests."""
    for paragraph in re.split(r"\n\s*\n", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        lines = [line.strip() for line in paragraph.splitlines()]
        if any(re.match(r">>>|[|`$#]{1,3}|-{3,}|\.venv|python -m|partirvm ", line) for line in lines):
            continue
        for sentence in re.split(r"(?<=[.:;?!])\s+(?=[A-Z`\"0-9])", " ".join(lines)):
            if len(sentence.split()) >= SHORTEST:
                yield sentence


def of_module(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield kind, text and line of the docstrings, messages and help texts of a module."""
    tree = ast.parse(path.read_text())
    docs = set()
    for node in ast.walk(tree):
        for child in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and type(child.value.value) is str:
                docs.add(id(child.value))
                yield "docstring", child.value.value, child.lineno
    for node in ast.walk(tree):
        helps = {id(each) for key in getattr(node, "keywords", []) if key.arg == "help" for each in ast.walk(key.value)}
        if isinstance(node, ast.Call):
            for part in ast.walk(node):
                if id(part) in helps and isinstance(part, ast.Constant) and type(part.value) is str:
                    docs.add(id(part))
                    yield "help", part.value, part.lineno
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield "message", "".join(map(str, parts)), node.lineno
        elif isinstance(node, ast.Constant) and type(node.value) is str and id(node) not in docs | inside:
            yield "message", node.value, node.lineno
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type", "# fmt")):
                yield "message", token.string.lstrip("# "), token.start[0]


def found(root: Path) -> dict[str, list[Found]]:
    """Return all sentences of the files below ``root``, by kind."""
    every: dict[str, list[Found]] = {"docstring": [], "message": [], "help": [], "readme": []}
    for path in sorted((root / "partirvm").rglob("*.py")):
        for kind, text, line in of_module(path):
            every[kind] += [(f"{path.relative_to(root)}:{line}", each) for each in sentences(text)]
    every["readme"] = [("README.md", each) for each in sentences((root / "README.md").read_text())]
    return every


def main() -> None:
    """Print a random sample of sentences of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, default=Path())
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    every = found(options.root)
    for kind, texts in every.items():
        print(f"# {kind}: {options.draw // len(every)} of {len(texts)}")
        for index in rng.choice(len(texts), min(options.draw // len(every), len(texts)), replace=False):
            print("{}\t{}".format(*texts[index]))


if __name__ == "__main__":
    main()
