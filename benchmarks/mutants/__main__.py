"""Mutation check: the fraction of small wrong changes to the lower folders that the default suite
detects.

    python -m benchmarks.mutants [--count 60] [--seed 0] [--replay RESULTS] [--output RESULTS]
    [--list]

A mutant is a copy of the code in which one operator, comparison, constant, sign, call or returned
name in one function is changed. The method is from DeMillo, Lipton & Sayward (1978, "Hints on test
data selection"), and the kinds of changes are those of mutmut and cosmic-ray. A mutant is killed if
a test fails. ``--count`` mutants are drawn evenly from the folders of ``SUITES``, with at most one
mutant per function. Messages, docstrings, annotations and ``__repr__`` are not changed. Each mutant
is applied to a copy of the tree. In this copy, the module's doctests and the tests that name or
import the module run first, followed by the other tests of ``SUITES``. These tests are part of the
default suite, so the whole suite kills at least as many mutants. Equivalent mutants count as
survivors.

A kill counts only if the failing test passes on the unchanged copy; a test that fails there is
skipped from then on. A mutant is also killed by the time limits: ``--cpu`` seconds of processor
time per process, and ``--wall`` seconds per pytest run.

RESULTS has one JSON object per line, written after each mutant. A new run with the same output
continues an interrupted run. ``--replay`` uses the mutants of an earlier run, which are found by
file, function, kind and occurrence if their text is unchanged. Missing mutants are replaced by new
mutants from the same folder.
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
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from benchmarks.mutants.draw import Mutant, drawn

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
    "storage": [
        "jobs/test_lease",
        "jobs/test_store",
        "jobs/test_ch",
        "model",
        "integrity",
        "predict/test_r",
        "faults",
    ],
}
"""The folders of partirvm/, and for each folder the prefixes of paths of its tests below tests/,
nearest first."""


def suites(root: Path, mutant: Mutant) -> tuple[list[str], list[str]]:
    """Return two lists, nearest files first: the module with the test files that name or import it,
    and all other test files.
    """
    module = Path(mutant.file).stem
    every: dict[str, str] = {}
    for prefix in SUITES[mutant.folder]:
        found = sorted(
            (root / "tests").glob(f"{prefix}*.py" if "/" in prefix else f"{prefix}/test_*.py")
        )
        every |= {str(path.relative_to(root)): path.read_text() for path in found}
    imports = rf"partirvm\.{mutant.folder}(\.{module}\b| import .*\b{module}\b)"
    near = [
        path
        for path, text in every.items()
        if module in Path(path).stem or re.search(imports, text)
    ]
    near.sort(key=lambda path: module not in Path(path).stem)
    return [mutant.file, *near], [path for path in every if path not in near]


class Copy:
    """A copy of the tree below ``folder`` in which tests run."""

    def __init__(self, folder: Path, cpu: int, wall: int) -> None:
        self.root = folder / "tree"
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

    def failure(self, tests: list[str]) -> str | None:
        """Return the first test that fails, or a description of another failure; None if all tests
        pass."""
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
        if began.returncode == 1 and (
            found := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
        ):
            return found[1]
        return "time-out" if began.returncode < 0 else "import error"

    def killer(self, mutant: Mutant) -> str | None:
        """Return the test that kills the mutant; None if the mutant survives."""
        source = (self.root / mutant.file).read_bytes()
        for tests in suites(self.root, mutant):
            while True:
                self.write(
                    mutant.file,
                    source[: mutant.start] + mutant.after.encode() + source[mutant.stop :],
                )
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


def processor_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read(path: Path) -> dict[Mutant, dict[str, Any]]:
    """Return the rows of a file of results; no rows if the file does not exist."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {
        Mutant(**{field.name: row[field.name] for field in fields(Mutant)}): row for row in rows
    }


def run(tree: Copy, chosen: list[Mutant], output: Path) -> None:
    """Test the mutants that have no row in ``output`` yet, and write a row for each."""
    done = read(output)
    for mutant in [mutant for mutant in chosen if mutant not in done]:
        began = time.monotonic(), processor_seconds()
        killer = tree.killer(mutant)
        taken = {
            "seconds": time.monotonic() - began[0],
            "cpu_seconds": processor_seconds() - began[1],
        }
        row = {**asdict(mutant), "killed": killer is not None, "by": killer, **taken}
        with output.open("a") as stream:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{mutant} {killer or 'survived'}", flush=True)
    for test in sorted(tree.left_out):
        print(f"skipped, because this test fails on the unchanged tree: {test}")


def main() -> None:
    """Draw mutants, run the tests on each mutant, and print the killed fraction of each folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=60, help="number of mutants (default: 60)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the random selection (default: 0)"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="RESULTS", help="take the mutants of an earlier run first"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="RESULTS",
        default=Path("mutants.jsonl"),
        help="file of results",
    )
    parser.add_argument(
        "--cpu",
        type=int,
        default=300,
        help="maximum processor seconds of one process (default: 300)",
    )
    parser.add_argument(
        "--wall",
        type=int,
        default=1800,
        help="maximum seconds of one run of pytest (default: 1800)",
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    args = parser.parse_args()
    replay = {mutant.key for mutant in read(args.replay)} if args.replay else set()
    chosen = drawn(ROOT, list(SUITES), args.count, args.seed, replay)
    print(
        f"{len(chosen)} mutants, {sum(mutant.key in replay for mutant in chosen)} of them of the "
        "earlier run"
    )
    if args.list:
        print(*chosen, sep="\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        run(Copy(Path(folder), args.cpu, args.wall), chosen, args.output)
    found = read(args.output)
    for name in SUITES:
        killers = [found[mutant]["by"] for mutant in chosen if mutant.folder == name]
        killed = [killer for killer in killers if killer is not None]
        bits = sum(killer.startswith("tests/bits/") for killer in killed)
        print(f"{name}: {len(killed)} of {len(killers)} killed, {bits} of them by equal bits alone")


if __name__ == "__main__":
    main()
