"""Mutation check: the fraction of small wrong changes to the package that the tests detect.

    python -m benchmarks.mutants [--set drawn|written|all] [--tier default|unit|system]
    [--reach near|suite|whole] [--count 60] [--seed 0] [--only WORD …] [--replay RESULTS] [--output RESULTS] [--list] [--table]

A mutant is a copy of the code in which one operator, comparison, constant, sign, call or returned
name in one function is changed. The method is from DeMillo, Lipton & Sayward (1978, "Hints on test
data selection"), and the kinds of changes are those of mutmut and cosmic-ray. A mutant is killed if
a test fails. ``--count`` mutants are drawn evenly from the folders of ``SUITES``, with at most one
mutant per function. Messages, docstrings, annotations and ``__repr__`` are not changed. Other
mutants are written by hand (``written.FAULTS``), each with the promise that it breaks; ``--list``
raises an error if the text of one of them is gone.

Each mutant is applied to a copy of the tree. In this copy, the tests that are most likely to fail
run first, and the first failure ends the run. ``--reach near`` runs the module's doctests and the
tests that name or import the module or name the function, ``suite`` also the other tests of
``SUITES``, and ``whole`` all tests. The whole suite kills at least as many mutants as fewer tests
do. ``--tier`` selects the tests by their markers. Equivalent mutants count as survivors.

A kill counts only if the failing test passes on the unchanged copy. At the end, all these tests run
there once; the mutants of a test that fails there are tested again without it. A mutant is also killed by the time limits: ``--cpu`` seconds of processor
time per process, and ``--wall`` seconds per pytest run.

RESULTS has one JSON object per line, written after each mutant. A new run with the same output
continues an interrupted run, and runs further tests on the survivors of a shorter reach;
``--table`` prints it as a table. ``--replay`` uses the drawn mutants
of an earlier run, which are found by file, function, kind and occurrence if their text is
unchanged. Missing mutants are replaced by new mutants from the same folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.mutants.draw import Mutant, drawn
from benchmarks.mutants.written import written

ROOT = Path(__file__).parents[2]
FITS = [
    "likelihoods",
    "strategies",
    "jobs/test_fit",
    "jobs/test_cla",
    "estimators/test_regressor_a",
    "bits/test_r",
]
SUITES = {
    "core": ["core", *FITS],
    "likelihoods": ["likelihoods", "core", *FITS],
    "strategies": ["strategies", *FITS],
    "learning": ["learning", "resolve", "jobs/test_learned", "estimators/test_rel", *FITS],
    "local": ["local", "learning/test_residual", "estimators/test_intervals", "bits/test_r"],
    "data": ["data", "jobs/test_grown", "integrity", "estimators/test_frames"],
    "export": ["export"],
    "storage": [
        "jobs/test_lease",
        "jobs/test_store",
        "jobs/test_codec",
        "jobs/test_stray",
        "model",
        "integrity",
        "predict/test_r",
        "faults",
    ],
    "jobs": ["jobs", "integrity", "faults"],
    "fit": ["local", "learning/test_residual", "jobs/test_driver", "jobs/test_acc", *FITS],
    "resolve": [
        "estimators/test_regressor_p",
        "estimators/test_gaps",
        "resolve",
        "jobs/test_spec",
        "estimators",
        "planning",
        *FITS,
    ],
    "spec": ["core", "jobs/test_driver", "jobs/test_spec", *FITS],
}
"""The folders of partirvm/, and for each folder the prefixes of paths of its tests below tests/,
nearest first."""

TIERS = {
    "default": "not slow",
    "unit": "not slow and not system",
    "system": "system and not slow",
}
"""The marker expressions of the tiers of tests."""

REACHES = ("near", "suite", "whole")
"""How far tests are from a mutant, in the order in which they run."""

TELLING = 9
"""Minimum length of the name of a function whose tests name it: shorter names have many
meanings."""


def test_files(root: Path, prefix: str) -> list[Path]:
    """Return the files of tests whose path begins with a prefix of ``SUITES``. Raises
    ``ValueError`` if there are none."""
    pattern = f"{prefix}*.py" if "/" in prefix else f"{prefix}/test_*.py"
    files = sorted((root / "tests").glob(pattern))
    if not files:
        raise ValueError(f"SUITES names tests/{pattern}, which do not exist")
    return files


def suites(root: Path, mutant: Mutant) -> dict[str, list[str]]:
    """Return the test files by their reach, in the order in which they should run.

    Near are the module, and the test files that name or import it or name the function, those of
    the folder's own suite first.
    """
    module = Path(mutant.file).stem
    function = mutant.function.rpartition(".")[2]
    suite = [path for prefix in SUITES[mutant.folder] for path in test_files(root, prefix)]
    suite = list(dict.fromkeys(suite))
    others = [path for path in sorted((root / "tests").rglob("test_*.py")) if path not in suite]
    imports = rf"partirvm\.{mutant.folder}(\.{module}\b| import [^\n]*\b{module}\b)"
    named = rf"\b{function}\b" if len(function) >= TELLING else "$^"

    def is_near(path: Path) -> bool:
        text = path.read_text()
        return bool(module in path.stem or re.search(imports, text) or re.search(named, text))

    near = [path for path in (*suite, *others) if is_near(path)]
    near.sort(key=lambda path: module not in path.stem)
    lists = (
        [root / mutant.file, *near],
        [path for path in suite if path not in near],
        [path for path in others if path not in near],
    )
    names = ([str(path.relative_to(root)) for path in paths] for paths in lists)
    return dict(zip(REACHES, names, strict=True))


class Copy:
    """A copy of the tree below a folder, in which tests run.

    Attributes:
        root: of the tree
        tier: the marker expression that selects the tests
        cpu: maximum processor seconds of one process
        wall: maximum seconds of one run of pytest
        passing: tests that pass on the unchanged tree
        left_out: tests that fail there
    """

    def __init__(self, folder: Path, tier: str, cpu: int, wall: int) -> None:
        self.root = folder / "tree"
        self.tier = TIERS[tier]
        self.cpu = cpu
        self.wall = wall
        self.passing: set[str] = set()
        self.left_out: set[str] = set()
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(".*", "__pycache__"))

    def write(self, file: str, source: bytes) -> None:
        """Replace a module, and remove the compiled code of the old module."""
        path = self.root / file
        path.write_bytes(source)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def failures(self, tests: Collection[str], *, first: bool = True) -> list[str]:
        """Return the tests that fail, or a description of another failure.

        Args:
            tests: files or names of tests
            first: True to stop at the first failure
        """
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
        command += ["-p", "benchmarks.mutants.order", "-m", self.tier, *["-x"] * first]
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
            return ["time-out"]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(began.pid, signal.SIGKILL)
        if began.returncode in (0, 5):
            return []
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
        if began.returncode == 1 and failed:
            return failed
        return ["time-out" if began.returncode < 0 else "import error"]

    def killer(self, mutant: Mutant, reaches: Sequence[str]) -> str | None:
        """Return the test of these reaches that fails with the mutant; None if it survives."""
        source = (self.root / mutant.file).read_bytes()
        files = suites(self.root, mutant)
        changed = source[: mutant.start] + mutant.after.encode() + source[mutant.stop :]
        self.write(mutant.file, changed)
        try:
            for tests in filter(None, (files[reach] for reach in reaches)):
                if failed := self.failures(tests):
                    return failed[0]
        finally:
            self.write(mutant.file, source)
        return None

    def false_killers(self, killers: Collection[str]) -> set[str]:
        """Return the tests that fail on the unchanged tree, too, and leave them out from now on."""
        tests = {killer for killer in killers if "::" in killer} - self.passing
        failed = tests.intersection(self.failures(sorted(tests), first=False) if tests else ())
        self.passing |= tests - failed
        self.left_out |= failed
        return failed


def processor_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read(path: Path) -> dict[Mutant, dict[str, Any]]:
    """Return the rows of a file of results; no rows if the file does not exist."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    names = [field.name for field in fields(Mutant)]
    return {Mutant(**{name: row[name] for name in names if name in row}): row for row in rows}


def run(tree: Copy, chosen: list[Mutant], reach: str, output: Path) -> None:
    """Test the mutants, and write a row for each.

    Args:
        tree: in which tests run
        chosen: the mutants
        reach: how far the tests may be
        output: file of results; killed mutants of earlier rows are not tested again, and survivors
            only by tests that are farther away
    """
    done = read(output)
    while pending := [mutant for mutant in chosen if _lacking(done.get(mutant), reach)]:
        for mutant in pending:
            reaches = _lacking(done.get(mutant), reach)
            began = time.monotonic(), processor_seconds()
            killer = tree.killer(mutant, reaches)
            row = {
                **asdict(mutant),
                "killed": killer is not None,
                "by": killer,
                "reach": reach,
                "seconds": time.monotonic() - began[0],
                "cpu_seconds": processor_seconds() - began[1],
            }
            done[mutant] = row
            with output.open("a") as stream:
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{mutant} {killer or 'survived'}", flush=True)
        killers = {done[mutant]["by"] for mutant in chosen if done[mutant]["killed"]}
        false = tree.false_killers(killers)
        done = {mutant: row for mutant, row in done.items() if row["by"] not in false}
    for test in sorted(tree.left_out):
        print(f"skipped, because this test fails on the unchanged tree: {test}")


def _lacking(row: dict[str, Any] | None, reach: str) -> Sequence[str]:
    """Return the reaches whose tests a mutant with this row still needs."""
    if row is not None and row["killed"]:
        return ()
    tested = 0 if row is None else 1 + REACHES.index(row["reach"])
    return REACHES[tested : 1 + REACHES.index(reach)]


def print_table(output: Path) -> None:
    """Print the results as a table in Markdown."""
    print("| mutant | what it breaks | killed by | CPU s |")
    print("|---|---|---|---|")
    for mutant, row in read(output).items():
        place = f"{mutant.file.removeprefix('partirvm/')} {mutant.function}"
        broken = mutant.promise or f"{mutant.kind}: `{' '.join(mutant.before.split())[:60]}`"
        killer = row["by"] or "**survived**"
        cells = (place, broken, killer.removeprefix("tests/"), f"{row['cpu_seconds']:.0f}")
        print("|", " | ".join(cell.replace("|", "\\|") for cell in cells), "|")


def print_shares(chosen: list[Mutant], output: Path) -> None:
    """Print the killed fraction of the mutants of each folder."""
    rows = read(output)
    for name in SUITES:
        killers = [rows[mutant]["by"] for mutant in chosen if mutant.folder == name]
        killed = [killer for killer in killers if killer is not None]
        bits = sum(killer.startswith("tests/bits/") for killer in killed)
        if killers:
            print(f"{name}: {len(killed)} of {len(killers)} killed, {bits} by equal bits alone")


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--set", choices=("drawn", "written", "all"), default="all", help="which mutants")
    add("--tier", choices=TIERS, default="default", help="which tests, by their markers")
    add("--reach", choices=REACHES, default="suite", help="how far the tests may be")
    add("--count", type=int, default=60, help="number of drawn mutants (default: 60)")
    add("--seed", type=int, default=0, help="seed of the random selection (default: 0)")
    add("--only", nargs="+", metavar="WORD", help="only mutants of which a line holds a word")
    add("--replay", type=Path, metavar="RESULTS", help="drawn mutants of an earlier run first")
    add("--output", type=Path, metavar="RESULTS", default=Path("mutants.jsonl"), help="results")
    add("--cpu", type=int, default=300, help="processor seconds of a process (default: 300)")
    add("--wall", type=int, default=1800, help="seconds of a run of pytest (default: 1800)")
    add("--list", action="store_true", help="print the mutants and run nothing")
    add("--table", action="store_true", help="print the table of RESULTS and run nothing")
    return parser.parse_args()


def main() -> None:
    """Choose mutants, run the tests on each mutant, and print the killed fraction of each
    folder."""
    args = parsed()
    if args.table:
        print_table(args.output)
        return
    chosen = list[Mutant]()
    if args.set != "drawn":
        chosen += written(ROOT)
    if args.set != "written":
        replay = {mutant.key for mutant in read(args.replay)} if args.replay else set()
        chosen += drawn(ROOT, list(SUITES), args.count, args.seed, replay)
        print(f"{sum(mutant.key in replay for mutant in chosen)} mutants of the earlier run")
    if args.only:
        chosen = [mutant for mutant in chosen if any(word in str(mutant) for word in args.only)]
    print(f"{len(chosen)} mutants")
    if args.list:
        print(*chosen, sep="\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Copy(Path(folder), args.tier, args.cpu, args.wall), chosen, args.reach, args.output)
    print_shares(chosen, args.output)


if __name__ == "__main__":
    main()
