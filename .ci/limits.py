"""Measure the size and the density of the code against limits: python .ci/limits.py [-v] [--table]

The size is counted in syntax nodes, because a limit in lines can be kept by writing more on each
line. Every count has a limit, which fails the check (exit status 1), and a goal. Limits are lowered
towards the goals step by step.

The counts are defined as follows:

*Syntax nodes* are what ``ast.walk`` yields.

*Code lines* are lines without blank lines, comment lines and docstrings (of attributes, too).

A *room* is a sub-package of partirvm, or a module that belongs to none.

A *parallel assignment of unlike values* is an assignment of a tuple (or list) of values to a tuple
of targets: ``a, b = x, y``. Not counted are assignments that permute the same names
(``a, b = b, a``), the targets of loops and comprehensions, and the unpacking of one value
(``a, b = pair``).

The *local names* of a function are the names that its body binds, including those of its
comprehensions and of the functions inside it; parameters are not counted.

A *condition* is what an if, a while, an assert, a conditional expression, a filter of a
comprehension or a guard of a case tests; the class in a pattern; and any other comparison,
negation, and/or, or call of ``isinstance``. One that asks for several things counts once.

An *import of an internal* is a name that a test imports from a place that is no interface: from a
module inside a room, or a module inside a room itself. Interfaces are ``partirvm``, the rooms (what
the ``__init__`` of a room imports is its interface) and the names that docs/api/index.md lists with
their modules. A name counts once for each import statement.

A *name patched in tests* is a place at which a test replaces a name of partirvm: a call of
``setattr`` (of pytest's MonkeyPatch, or the function), of ``mock.patch``, a ``setattr`` that is
passed on, and an assignment to an attribute of an imported name of partirvm. Not counted are
replacements in the outside world: of a name whose root is imported from another package
(``os.link``) or written out as one (``"distributed.versions.get_versions"``). A replaced clock in a
module of partirvm counts. Entries of registries (``setitem``) are additions and are not counted.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]

WIDTH = 100
"""Greatest width of a line, in characters."""

PRAGMA = re.compile(r"\s+# (type: ignore|noqa).*$")
"""A comment for tools, which must stand on the line that it concerns."""

FUNCTION_NODES = 400
"""Greatest number of syntax nodes of a function."""

LOCAL_NAMES = 15
"""Greatest number of local names of a function."""

COMMON_FILE_NAMES = {"__init__", "base"}
"""Names of files that may occur in several rooms."""

TARGET_ROOMS = {"likelihoods", "export"}
"""Rooms that may ask for the kind of target."""

TARGET_NAMES = {"n_classes", "n_targets", "dense", "classifies", "classify", "is_classifier"}
"""Attributes, variables and functions that tell the kind of target."""

TARGET_CLASSES = {
    "Model",
    "ClassModel",
    "GaussianLikelihood",
    "ClassLikelihood",
    "IndicatorLikelihood",
    "Solve",
    "NoiseFit",
    "Newton",
    "NewtonSearch",
    "HyperState",
    "LaplaceState",
    "NumberDiagnostics",
    "ClassDiagnostics",
}
"""Classes of models, likelihoods, fits, states and diagnostics for some kinds of target only.

``DenseFit`` and ``PassFit`` are not among them: any likelihood may use them."""

TARGET_WORDS = TARGET_NAMES | TARGET_CLASSES
"""Words by which a condition asks for the kind of target."""

LISTED = 40
"""Greatest number of places that ``-v`` lists for a count."""


@dataclass(frozen=True)
class Source:
    """A Python file.

    Args:
        path: relative to the root of the repository
        text: the whole file
    """

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> int:
        """The number of syntax nodes."""
        return count_nodes(self.tree)

    @cached_property
    def lines(self) -> list[str]:
        """All lines."""
        return self.text.splitlines()

    @cached_property
    def code_lines(self) -> int:
        """The number of lines without blank lines, comments and docstrings."""
        documented = docstring_lines(self.tree)
        count = 0
        for number, line in enumerate(self.lines, 1):
            stripped = line.strip()
            if number not in documented and stripped and not stripped.startswith("#"):
                count += 1
        return count

    @property
    def room(self) -> str:
        """The sub-package of partirvm, or the module that belongs to none."""
        return self.path.with_suffix("").parts[1]


@dataclass(frozen=True)
class Repository:
    """The Python files that are measured."""

    partirvm: list[Source]
    tests: list[Source]
    benchmarks: list[Source]


def read_sources(folder: str) -> list[Source]:
    """Read the Python files below a folder of the repository."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT), path.read_text()) for path in paths]


# Size and density


def count_nodes(tree: ast.AST) -> int:
    """Return the number of syntax nodes of a tree."""
    return sum(1 for _ in ast.walk(tree))


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines of docstrings, of attributes, too."""
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            last = node.end_lineno or node.lineno
            numbers.update(range(node.lineno, last + 1))
    return numbers


def total_nodes(sources: Iterable[Source]) -> int:
    """Return the number of syntax nodes of files."""
    return sum(source.nodes for source in sources)


def total_code_lines(sources: Iterable[Source]) -> int:
    """Return the number of code lines of files."""
    return sum(source.code_lines for source in sources)


def total_lines(sources: Iterable[Source]) -> int:
    """Return the number of all lines of files."""
    return sum(len(source.lines) for source in sources)


def density(sources: list[Source]) -> float:
    """Return the number of syntax nodes per code line."""
    return total_nodes(sources) / max(total_code_lines(sources), 1)


def rooms(sources: Iterable[Source]) -> dict[str, list[Source]]:
    """Return the files of each room."""
    found: dict[str, list[Source]] = {}
    for source in sources:
        found.setdefault(source.room, []).append(source)
    return found


def densest_room(sources: Iterable[Source]) -> float:
    """Return the number of syntax nodes per code line in the densest room."""
    return max(density(room) for room in rooms(sources).values())


def wide_lines(sources: Iterable[Source]) -> list[str]:
    """Return the places of lines that are too wide without a final pragma, the widest first."""
    found: list[tuple[int, str]] = []
    for source in sources:
        for number, line in enumerate(source.lines, 1):
            if len(PRAGMA.sub("", line)) > WIDTH:
                found.append((len(line), f"{source.path}:{number}"))
    return worst_first(found, "columns")


def worst_first(found: list[tuple[int, str]], unit: str) -> list[str]:
    """Return places with their counts as text, the greatest count first."""
    ordered = sorted(found, key=lambda pair: -pair[0])
    return [f"{place}: {count} {unit}" for count, place in ordered]


# Assignments and functions


def is_parallel(node: ast.AST) -> bool:
    """Return True if a node is a parallel assignment of unlike values."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple | ast.List):
        return False
    values = sorted(map(ast.unparse, node.value.elts))
    targets = [target for target in node.targets if isinstance(target, ast.Tuple | ast.List)]
    return any(sorted(map(ast.unparse, target.elts)) != values for target in targets)


def parallel_rate(sources: list[Source]) -> float:
    """Return the number of parallel assignments of unlike values per 1,000 code lines."""
    count = sum(is_parallel(node) for source in sources for node in ast.walk(source.tree))
    return 1000 * count / max(total_code_lines(sources), 1)


def functions(source: Source) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the place and the node of each function of a file."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{source.path}:{node.lineno} {node.name}", node


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that the body of a function binds."""
    names: set[str] = set()
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def large_functions(sources: Iterable[Source]) -> list[str]:
    """Return the places of functions with too many syntax nodes, the largest first."""
    found: list[tuple[int, str]] = []
    for source in sources:
        for place, function in functions(source):
            size = count_nodes(function)
            if size > FUNCTION_NODES:
                found.append((size, place))
    return worst_first(found, "nodes")


def crowded_functions(sources: Iterable[Source]) -> list[str]:
    """Return the places of functions with too many local names, the greatest number first."""
    found: list[tuple[int, str]] = []
    for source in sources:
        for place, function in functions(source):
            size = len(local_names(function))
            if size > LOCAL_NAMES:
                found.append((size, place))
    return worst_first(found, "local names")


# Names and classes


def classes(sources: Iterable[Source]) -> list[ast.ClassDef]:
    """Return all classes of files."""
    nodes = (node for source in sources for node in ast.walk(source.tree))
    return [node for node in nodes if isinstance(node, ast.ClassDef)]


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def repeated_classes(sources: Iterable[Source]) -> list[str]:
    """Return the names of classes that occur more than once."""
    return repeated(node.name for node in classes(sources))


def repeated_files(sources: Iterable[Source]) -> list[str]:
    """Return the names of files that occur more than once."""
    stems = (source.path.stem for source in sources)
    return repeated(stem for stem in stems if stem not in COMMON_FILE_NAMES)


def bases(node: ast.ClassDef) -> list[str]:
    """Return the names of the base classes."""
    return [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]


def inheritance_depth(sources: Iterable[Source]) -> int:
    """Return the largest number of classes above a class, counted among these classes alone."""
    parents = {node.name: bases(node) for node in classes(sources)}

    def above(name: str) -> int:
        known = [base for base in parents[name] if base in parents and base != name]
        return max((1 + above(base) for base in known), default=0)

    return max(map(above, parents), default=0)


def strategy_depth(sources: Iterable[Source]) -> int:
    """Return the depth of inheritance in strategies."""
    return inheritance_depth(source for source in sources if source.room == "strategies")


def protocol_methods(sources: Iterable[Source]) -> int:
    """Return the number of methods of the likelihood protocol."""
    (protocol,) = (node for node in classes(sources) if node.name == "Likelihood")
    return sum(isinstance(node, ast.FunctionDef) for node in protocol.body)


# The kind of target


def call_name(call: ast.Call) -> str:
    """Return the name of the function that is called, or "" if an expression is called."""
    return call.func.id if isinstance(call.func, ast.Name) else ""


def asks_target(expression: ast.AST) -> bool:
    """Return True if an expression reads the kind of target."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr in TARGET_WORDS:
            return True
        if isinstance(node, ast.Name) and node.id in TARGET_WORDS:
            return True
        if isinstance(node, ast.Call) and call_name(node) in ("getattr", "hasattr"):
            texts = {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
            if texts & TARGET_NAMES:
                return True
    return False


def is_condition(node: ast.AST) -> bool:
    """Return True if an expression is a condition wherever it stands."""
    if isinstance(node, ast.Compare | ast.BoolOp):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.Call) and call_name(node) in ("isinstance", "issubclass")


def tests_of(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that a statement or expression tests, or the class of a pattern."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.match_case):
        return [node.guard] if node.guard else []
    if isinstance(node, ast.MatchClass):
        return [node.cls]
    return []


def target_conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions that ask for the kind of target, without conditions inside others."""
    tests = tests_of(node)
    for child in ast.iter_child_nodes(node):
        tested = child in tests or is_condition(child)
        if isinstance(child, ast.expr) and tested and asks_target(child):
            yield child
        else:
            yield from target_conditions(child)


def target_places(sources: Iterable[Source]) -> list[str]:
    """Return the places of conditions that ask for the kind of target outside the rooms for it."""
    found: list[str] = []
    for source in sources:
        if source.room in TARGET_ROOMS:
            continue
        conditions = target_conditions(source.tree)
        found += [f"{source.path}:{node.lineno}: {ast.unparse(node)}" for node in conditions]
    return found


# What tests know of the insides


def is_internal(module: str, name: str) -> bool:
    """Return True if a name that is imported from a module belongs to no interface."""
    parts = module.split(".")
    if parts[0] != "partirvm" or f"{module}.{name}" in documented_names():
        return False
    if len(parts) == 2:
        return (ROOT.joinpath(*parts, name).with_suffix(".py")).exists()
    return len(parts) > 2


@cache
def documented_names() -> frozenset[str]:
    """Return the names that the reference of the programming interface lists."""
    text = (ROOT / "docs" / "api" / "index.md").read_text()
    return frozenset(re.findall(r"^ +(partirvm\.[\w.]+)$", text, re.MULTILINE))


def imported(tree: ast.AST) -> Iterator[tuple[int, str, str, str]]:
    """Yield the line, module, name and local name of each import; a module has no name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                local_name = alias.asname or alias.name
                yield node.lineno, node.module or "", alias.name, local_name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                local_name = alias.asname or alias.name.split(".")[0]
                yield node.lineno, alias.name, "", local_name


def internal_imports(sources: Iterable[Source]) -> list[str]:
    """Return the places at which files import names that belong to no interface."""
    places: list[str] = []
    for source in sources:
        for line, module, name, _ in imported(source.tree):
            if is_internal(module, name):
                places.append(f"{source.path}:{line}: {module} {name}")
    return places


def root_name(expression: ast.AST) -> str:
    """Return the first name of an expression such as ``os.path``, or "" if there is none."""
    while isinstance(expression, ast.Attribute | ast.Call | ast.Subscript):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def replaced_target(call: ast.Call) -> ast.expr | None:
    """Return the object whose name a call replaces, or None if the call replaces none."""
    words = ast.unparse(call.func).split(".")
    replaces = words[-1] == "setattr" or words[-2:] in (["mock", "patch"], ["patch", "object"])
    return call.args[0] if replaces and call.args else None


def patched_targets(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the targets of calls that replace names, and each ``setattr`` that is passed on."""
    called: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called.add(node.func)
            target = replaced_target(node)
            if target is not None:
                yield target
        elif isinstance(node, ast.Attribute) and node.attr == "setattr" and node not in called:
            yield node


def assigned_targets(tree: ast.AST, inside: set[str]) -> Iterator[ast.expr]:
    """Yield the attributes of some names to which a file assigns.

    Args:
        tree: the file
        inside: names of modules and classes of partirvm
    """
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and root_name(target) in inside:
                yield target


def patched_names(sources: Iterable[Source]) -> list[str]:
    """Return the places at which tests replace names of partirvm."""
    places: list[str] = []
    for source in sources:
        inside: set[str] = set()
        outside: set[str] = set()
        for _, module, _, local_name in imported(source.tree):
            in_partirvm = module.split(".")[0] == "partirvm"
            (inside if in_partirvm else outside).add(local_name)
        targets = [*patched_targets(source.tree), *assigned_targets(source.tree, inside)]
        for target in targets:
            text = target.value if isinstance(target, ast.Constant) else ""
            elsewhere = text and not text.startswith("partirvm")
            if not elsewhere and root_name(target) not in outside - inside:
                places.append(f"{source.path}:{target.lineno}: {ast.unparse(target)}")
    return places


# Limits


@dataclass(frozen=True)
class Limit:
    """A limit for a count.

    Args:
        name: what is counted
        counted: returns the count, or the places that are counted
        limit: greatest count today; more fails the check
        goal: greatest count when the code has been unfolded
    """

    name: str
    counted: Callable[[Repository], float | list[str]]
    limit: float
    goal: float


LIMITS = (
    Limit("syntax nodes of partirvm", lambda code: total_nodes(code.partirvm), 390_000, 222_000),
    Limit("nodes per code line of partirvm", lambda code: density(code.partirvm), 10.5, 10.5),
    Limit("nodes per code line of a room", lambda code: densest_room(code.partirvm), 12.1, 12.0),
    Limit("nodes per code line of tests", lambda code: density(code.tests), 11.5, 10.5),
    Limit("nodes per code line of benchmarks", lambda code: density(code.benchmarks), 10.5, 10.5),
    Limit("parallel assignments, 1,000 lines", lambda code: parallel_rate(code.partirvm), 10, 10),
    Limit("lines above 100 columns", lambda code: wide_lines(code.partirvm), 0, 0),
    Limit("functions above 400 nodes", lambda code: large_functions(code.partirvm), 0, 0),
    Limit("functions above 15 local names", lambda code: crowded_functions(code.partirvm), 0, 0),
    Limit("files of partirvm", lambda code: len(code.partirvm), 260, 175),
    Limit("lines of partirvm", lambda code: total_lines(code.partirvm), 65_000, 36_000),
    Limit("lines of tests", lambda code: total_lines(code.tests), 46_000, 34_000),
    Limit("conditions on the kind of target", lambda code: target_places(code.partirvm), 22, 15),
    Limit("class names that occur twice", lambda code: repeated_classes(code.partirvm), 0, 0),
    Limit("names of files that occur twice", lambda code: repeated_files(code.partirvm), 0, 0),
    Limit("methods of a likelihood", lambda code: protocol_methods(code.partirvm), 14, 14),
    Limit("imports of internals in tests", lambda code: internal_imports(code.tests), 595, 420),
    Limit("names patched in tests", lambda code: patched_names(code.tests), 30, 30),
    Limit("depth of inheritance in strategies", lambda code: strategy_depth(code.partirvm), 1, 1),
)
"""Every count; conditions on the kind of target are counted outside ``TARGET_ROOMS``."""


def number(value: float) -> str:
    """Return a count as text, with one decimal if it is no whole number."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def check(limit: Limit, repository: Repository, verbose: bool) -> bool:
    """Print a count; return True if it is within its limit.

    Args:
        limit: the count and its limit
        repository: the files
        verbose: whether to list the places that are counted, the worst first
    """
    counted = limit.counted(repository)
    places = counted if isinstance(counted, list) else []
    count = len(counted) if isinstance(counted, list) else counted
    within = count <= limit.limit
    mark = "" if within else "   TOO MANY"
    bounds = f"at most {number(limit.limit):>7s}   goal {number(limit.goal):>7s}"
    print(f"{limit.name:34s} {number(count):>8s}   {bounds}{mark}")
    if verbose:
        for place in places[:LISTED]:
            print(f"    {place}")
        if len(places) > LISTED:
            print(f"    and {len(places) - LISTED} more")
    return within


def print_table(sources: list[Source]) -> None:
    """Print the size and the density of each room as a table in Markdown."""
    print("| room | nodes | code lines | nodes a line | parallel assignments per 1,000 lines |")
    print("|---|---:|---:|---:|---:|")
    for name, room in [*sorted(rooms(sources).items()), ("all", sources)]:
        sizes = f"{total_nodes(room):,} | {total_code_lines(room):,}"
        print(f"| {name} | {sizes} | {density(room):.1f} | {parallel_rate(room):.1f} |")


def main(arguments: list[str] | None = None) -> int:
    """Print the counts; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure the code against its limits.")
    parser.add_argument("-v", "--verbose", action="store_true", help="list the worst places")
    parser.add_argument("--table", action="store_true", help="print a table of rooms in Markdown")
    options = parser.parse_args(arguments)
    repository = Repository(
        partirvm=read_sources("partirvm"),
        tests=read_sources("tests"),
        benchmarks=read_sources("benchmarks"),
    )
    if options.table:
        print_table(repository.partirvm)
        return 0
    within = [check(limit, repository, options.verbose) for limit in LIMITS]
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
