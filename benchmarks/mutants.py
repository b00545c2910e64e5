"""Mutation check: the share of small wrong changes to the lower floors that the default suite finds.

    python -m benchmarks.mutants [--count 60] [--seed 0] [--replay RESULTS] [--output RESULTS] [--list]

A mutant is the tree with one operator, comparison, constant, sign, call or returned name of one function changed
(DeMillo, Lipton & Sayward 1978, "Hints on test data selection"; the kinds are those of mutmut and cosmic-ray). It is
killed if a test fails. ``--count`` mutants are drawn, evenly from the folders of ``SUITES`` and at most one from each
function; messages, docstrings, annotations and ``__repr__`` are left out. Each is applied to a copy of the tree, where
first the module's doctests and the tests that name or import it run, then the other tests of ``SUITES``: a part of the
default suite, so that the whole suite kills at least this share. Equivalent mutants count as survivors.

A kill counts once the failing test passes on the unchanged copy; a test that does not is left out from then on.
Limits of time kill too: ``--cpu`` seconds of processor time of one process, ``--wall`` seconds of one run of pytest.

RESULTS has one JSON object a line, written after each mutant; a run that is started again with the same output goes on.
``--replay`` takes the mutants of an earlier run, found again by file, function, kind and occurrence wherever their
text is the same, and draws others of the same folder in place of those that are gone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FITS = ["likelihoods", "strategies", "jobs/test_fit", "jobs/test_cla", "estimators/test_regressor_a", "bits/test_r"]
SUITES = {
    "core": ["core", *FITS],
    "likelihoods": ["likelihoods", "core", *FITS],
    "strategies": ["strategies", *FITS],
    "storage": ["jobs/test_lease", "jobs/test_store", "jobs/test_ch", "model", "integrity", "predict/test_r", "faults"],
}
"""Folders of partirvm/, and what the paths below tests/ of their tests begin with, nearest first."""

OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NEGATIONS = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
NEGATIONS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """The bytes ``start:stop`` of ``file`` become ``after``; ``occurrence`` counts the kind within the function."""

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

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """What it is found by in another tree."""
        return self.file, self.function, self.kind, self.occurrence, self.before


def changes(node: ast.AST, names: list[str]) -> Iterator[tuple[str, str]]:
    """Kinds of mutants of one node, and its text then; ``names`` are the local variables of the function, in order."""

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


def sites(node: ast.AST, path: tuple[str, ...] = (), names: list[str] | None = None) -> Iterator[tuple[str, Any, list]]:
    """(function, node, local names) of every node that may be changed."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.arg):
        return
    if isinstance(node, ast.ClassDef | FUNCTIONS):
        if node.name in ("__repr__", "__str__"):
            return
        path = (*path, node.name)
        if isinstance(node, FUNCTIONS):
            inner = [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
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


def mutants(folder: str) -> list[Mutant]:
    """Every mutant of one folder of partirvm/."""
    made = []
    for path in sorted((ROOT / "partirvm" / folder).rglob("*.py")):
        source, file = path.read_bytes(), str(path.relative_to(ROOT))
        begins = [0]
        for line in source.splitlines(keepends=True):
            begins.append(begins[-1] + len(line))
        count: Counter[tuple[str, str]] = Counter()
        for function, node, names in sites(ast.parse(source)):
            for kind, after in changes(node, names):
                start = begins[node.lineno - 1] + node.col_offset
                stop = begins[node.end_lineno - 1] + node.end_col_offset
                before, number = source[start:stop].decode(), count[function, kind]
                count[function, kind] += 1
                made.append(Mutant(folder, file, function, kind, number, node.lineno, before, after, start, stop))
    return made


def drawn(count: int, seed: int, replay: list[dict[str, Any]]) -> list[Mutant]:
    """``count`` mutants, a folder after the other in turn; those of ``replay`` come first where they still exist."""
    recorded = {(r["file"], r["function"], r["kind"], r["occurrence"], r["before"]) for r in replay}
    by_folder = []
    for number, folder in enumerate(SUITES):
        share = count // len(SUITES) + (number < count % len(SUITES))
        every = mutants(folder)
        random.Random(f"{seed} {folder}").shuffle(every)
        every.sort(key=lambda mutant: mutant.key not in recorded)
        first: dict[tuple[str, str], Mutant] = {}
        for mutant in every:
            first.setdefault((mutant.file, mutant.function), mutant)
        by_folder.append(list(first.values())[:share])
    turns = [[chosen[turn] for chosen in by_folder if turn < len(chosen)] for turn in range(count)]
    return [mutant for turn in turns for mutant in turn]


def suites(mutant: Mutant) -> tuple[list[str], list[str]]:
    """The module and the test files that name or import it, and the other test files, nearest first."""
    module, every = Path(mutant.file).stem, {}
    for prefix in SUITES[mutant.folder]:
        found = sorted((ROOT / "tests").glob(f"{prefix}*.py" if "/" in prefix else f"{prefix}/test_*.py"))
        every |= {str(path.relative_to(ROOT)): path.read_text() for path in found}
    imports = rf"partirvm\.{mutant.folder}(\.{module}\b| import .*\b{module}\b)"
    near = [path for path, text in every.items() if module in Path(path).stem or re.search(imports, text)]
    near.sort(key=lambda path: module not in Path(path).stem)
    return [mutant.file, *near], [path for path in every if path not in near]


class Copy:
    """A copy of the tree below ``folder`` in which tests run."""

    def __init__(self, folder: Path, cpu: int, wall: int) -> None:
        self.root, self.cpu, self.wall = folder / "tree", cpu, wall
        self.passing: set[str] = set()
        self.left_out: set[str] = set()
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(".*", "__pycache__"))

    def write(self, file: str, source: bytes) -> None:
        """Replace a module, and remove what Python compiled of the old one."""
        path = self.root / file
        path.write_bytes(source)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def failure(self, tests: list[str]) -> str | None:
        """The first test that fails, or what else went wrong; None if all pass."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no"]
        command += [f"--basetemp={self.root.parent / 'tests'}", *tests]
        command += [f"--deselect={test}" for test in self.left_out]
        began = subprocess.Popen(
            command, cwd=self.root, env={**os.environ, "PYTHONPATH": str(self.root)}, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (self.cpu, self.cpu + 5)),
        )  # fmt: skip
        try:
            output, _ = began.communicate(timeout=self.wall)
        except subprocess.TimeoutExpired:
            return "time-out"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(began.pid, signal.SIGKILL)
        if began.returncode in (0, 5):
            return None
        if began.returncode == 1 and (found := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)):
            return found[1]
        return "time-out" if began.returncode < 0 else "import error"

    def killer(self, mutant: Mutant) -> str | None:
        """The test that kills the mutant; None if it survives."""
        source = (ROOT / mutant.file).read_bytes()
        for tests in suites(mutant):
            while True:
                self.write(mutant.file, source[: mutant.start] + mutant.after.encode() + source[mutant.stop :])
                found = self.failure(tests)
                self.write(mutant.file, source)
                if found is None:
                    break
                if "::" not in found or found in self.passing:
                    return found
                if self.failure([found]) is None:
                    self.passing.add(found)
                    return found
                self.left_out.add(found)
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=Path, help="results of an earlier run whose mutants are taken first")
    parser.add_argument("--output", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--cpu", type=int, default=300)
    parser.add_argument("--wall", type=int, default=1800)
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    args = parser.parse_args()
    chosen = drawn(args.count, args.seed, results(args.replay) if args.replay else [])
    if args.list:
        for mutant in chosen:
            print(f"{mutant.file}:{mutant.line} [{mutant.kind}] {mutant.before} -> {mutant.after}")
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Copy(Path(folder), args.cpu, args.wall)
        done = {Mutant(**{name: r[name] for name in Mutant.__dataclass_fields__}) for r in results(args.output)}
        for mutant in [mutant for mutant in chosen if mutant not in done]:
            began = time.monotonic(), processor_seconds()
            killer = tree.killer(mutant)
            taken = {"seconds": time.monotonic() - began[0], "cpu_seconds": processor_seconds() - began[1]}
            row = {**asdict(mutant), "killed": killer is not None, "by": killer, **taken}
            with args.output.open("a") as stream:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{mutant.file}:{mutant.line} [{mutant.kind}] {killer or 'survived'}", flush=True)
        print(*(f"left out, fails unchanged: {test}" for test in sorted(tree.left_out)), sep="\n")
    for folder_name in SUITES:
        rows = [row for row in results(args.output) if row["folder"] == folder_name]
        bits = sum("tests/bits" in (row["by"] or "") for row in rows)
        print(f"{folder_name}: {sum(row['killed'] for row in rows)} of {len(rows)} killed, {bits} by equal bits alone")


def processor_seconds() -> float:
    """Processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def results(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of results; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
