"""Measure the size of the code base against its limits: python .ci/limits.py

A count above its limit ends with exit status 1: a new capability must remove as much as it adds.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

LIMITS = {
    "lines of partirvm": 31_250,
    "lines of code of partirvm": 19_375,
    "files of partirvm": 188,
    "lines of tests": 32_500,
    "lines of benchmarks": 8_125,
    "methods of the likelihood protocol": 12,
    "depth of inheritance in strategies": 1,
    "class names that occur twice": 0,
    "names of files that occur twice": 0,
    "branches on the kind of target": 8,
    "files that a default fit enters": 90,
    "frames before a kernel block": 15,
}
"""Greatest count of each."""

LEAST_DOCSTRINGS = 0.18
"""Least share of docstrings among the lines of partirvm."""

SAME = {"__init__", "base"}
"""Names of files that may occur in several folders."""


def sources(folder: str) -> list[Path]:
    """Return the Python files below a folder of the repository."""
    return sorted((ROOT / folder).rglob("*.py"))


def lines_of(paths: Iterable[Path]) -> int:
    """Return the number of lines of files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each docstring, of attributes, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def split(path: Path) -> tuple[int, int, int]:
    """Return the numbers of lines of a file: all, of docstrings, and of code."""
    text = path.read_text()
    inside = {line for first, last in docstrings(ast.parse(text)) for line in range(first, last + 1)}
    lines = text.splitlines()
    plain = [line for number, line in enumerate(lines, 1) if number not in inside]
    return len(lines), len(inside), sum(bool(line.strip()) and not line.strip().startswith("#") for line in plain)


def classes(paths: Iterable[Path]) -> list[ast.ClassDef]:
    """Return all classes of files."""
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]


def bases(node: ast.ClassDef) -> list[str]:
    """Return the names of the base classes."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


def depth(found: list[ast.ClassDef]) -> int:
    """Return the largest number of classes above a class, counted among these classes alone."""
    parents = {node.name: [name for name in bases(node) if name != node.name] for node in found}

    def above(name: str) -> int:
        return max((1 + above(base) for base in parents[name] if base in parents), default=0)

    return max(map(above, parents), default=0)


def twice(names: Iterable[str]) -> int:
    """Return the number of names that occur more than once."""
    return sum(count > 1 for count in Counter(names).values())


def methods(path: Path, name: str) -> int:
    """Return the number of methods of a class."""
    (found,) = (node for node in classes([path]) if node.name == name)
    return sum(isinstance(node, ast.FunctionDef) for node in found.body)


KIND = {"classifies", "classify", "is_classifier", "ClassModel"}
"""Names that ask for the kind of target."""


def asks(test: ast.expr) -> bool:
    """Return True if a condition asks for the kind of target."""
    names = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in ast.walk(test)}
    return bool(names & KIND)


def branches(path: Path) -> int:
    """Return the number of conditions that ask for the kind of target, in statements, expressions and loops."""
    found: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            found.append(node.test)
        elif isinstance(node, ast.comprehension):
            found += node.ifs
        elif isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.BoolOp):
            found.append(node.value)
    return sum(map(asks, found))


FIT = """
import sys, threading, warnings
from pathlib import Path
import numpy as np
import partirvm

warnings.simplefilter("ignore")
ROOT = str(Path(partirvm.__file__).parent) + "/"
files, deepest = set(), 0

def entered(frame, event, argument):
    global deepest
    name = frame.f_code.co_filename
    if not name.startswith(ROOT):
        return
    files.add(name)
    if name.endswith("kernels/design.py") and frame.f_code.co_name == "block":
        above, depth = frame.f_back, 0
        while above is not None:
            depth += above.f_code.co_filename.startswith(ROOT)
            above = above.f_back
        deepest = max(deepest, depth)

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5))
y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=2000)
estimator = partirvm.RVMRegressor(random_state=0)
threading.settrace(entered)
sys.settrace(entered)
estimator.fit(X, y)
sys.settrace(None)
print(len(files), deepest)
"""
"""A default fit of 2,000 rows, which prints the number of files that it enters, and of frames above a kernel block."""


def main() -> int:
    """Print the counts; return the exit status."""
    house = sources("partirvm")
    fit = subprocess.run([sys.executable, "-c", FIT], cwd=ROOT, capture_output=True, text=True, check=True)
    files, frames = map(int, fit.stdout.split())
    whole, documented, code = (sum(column) for column in zip(*map(split, house), strict=True))
    counts = {
        "lines of partirvm": whole,
        "lines of code of partirvm": code,
        "files of partirvm": len(house),
        "lines of tests": lines_of(sources("tests")),
        "lines of benchmarks": lines_of(sources("benchmarks")),
        "methods of the likelihood protocol": methods(ROOT / "partirvm/likelihoods/base.py", "Likelihood"),
        "depth of inheritance in strategies": depth(classes(sources("partirvm/strategies"))),
        "class names that occur twice": twice(node.name for node in classes(house)),
        "names of files that occur twice": twice(path.stem for path in house if path.stem not in SAME),
        "branches on the kind of target": sum(map(branches, house)),
        "files that a default fit enters": files,
        "frames before a kernel block": frames,
    }
    for name, count in counts.items():
        print(f"{name:36s} {count:7,d}   at most {LIMITS[name]:7,d}{'   TOO MANY' * (count > LIMITS[name])}")
    share = documented / whole
    print(f"{'share of docstrings':36s} {share:7.1%}   at least {LEAST_DOCSTRINGS:7.0%}")
    return int(share < LEAST_DOCSTRINGS or any(counts[name] > LIMITS[name] for name in counts))


if __name__ == "__main__":
    sys.exit(main())
