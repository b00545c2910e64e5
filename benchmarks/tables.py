"""Run tables as people write them through the command line: python -m benchmarks.tables [--only TEXT]

Every kind of ``table_kinds`` is ingested, fitted, predicted and evaluated, and so is its plain
twin. The two must predict alike. A refusal may offer one command, which is run as it is pasted.
The same rows as data frames of pandas, polars and Arrow are fitted and predicted in Python.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import benchmarks.public_kinds  # noqa: F401 - adds kinds
from benchmarks.table_frames import LIBRARIES, FramePredictions, frame_predictions, target
from benchmarks.table_kinds import KINDS, Kind, Table, plain_twin
from partirvm.cli import main as partirvm
from partirvm.errors import PartirvmError

N_ROWS = 300
N_NEW = 100

TOLERANCE = 1e-6
"""Greatest difference of predictions, relative to their standard deviation."""

FIT = ("--gamma", "0.3", "--residual", "none", "--max-rounds", "1", "--memory-limit", "1GiB")


@dataclass(frozen=True)
class Outcome:
    """What happened to a table: a word, the options of the pasted command, details, and what
    happened to the table as a data frame."""

    word: str
    options: str = ""
    details: str = ""
    frame: str = ""


class Refused(Exception):
    """A command ended with an error."""


def run(*arguments: str) -> str:
    """Run a command of partirvm in this process and return its output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = partirvm(arguments)
    if status:
        raise Refused(err.getvalue() + out.getvalue())
    return out.getvalue() + err.getvalue()


def pasted(error: str, command: str) -> list[str] | None:
    """Return the arguments of the command that an error offers, or None."""
    found = re.findall(rf"^ *(partirvm {command} .*)$", error, re.MULTILINE)
    return shlex.split(found[-1])[1:] if found else None


def run_or_paste(*arguments: str) -> str:
    """Run a command, or the one that its error offers; return the options of that one."""
    try:
        run(*arguments)
    except Refused as refusal:
        offered = pasted(str(refusal), arguments[0])
        if offered is None:
            raise
        run(*offered)
        return shlex.join(text for text in offered if text not in arguments)
    return ""


def trial(folder: Path, source: Path, new: Path, target: Sequence[str]) -> Predictions:
    """Ingest, fit, predict and evaluate a table."""
    data, job, out = (str(folder / name) for name in ("data.zarr", "job", "out.csv"))
    options = run_or_paste("ingest", "--auto", str(source), data, *target)
    run("fit", data, job, *FIT)
    more = run_or_paste("predict", job, str(new), out)
    score = json.loads(run("evaluate", "--json", job, str(new)).splitlines()[0])
    with Path(out).open(newline="") as file:
        rows = list(csv.reader(file))
    return Predictions(rows, " / ".join(filter(None, [options, more])), score)


@dataclass(frozen=True)
class Predictions:
    """The rows of the predictions, the options that were pasted, and the scores."""

    rows: list[list[str]]
    options: str
    score: dict[str, object]


def difference(first: list[list[str]], second: list[list[str]]) -> float:
    """Return the greatest difference of numeric predictions, relative to their deviations."""
    if len(first) != len(second) or len(first[0]) != len(second[0]):
        return np.inf
    worst = 0.0
    for mine, twin in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True):
        try:
            a, b = (np.array(column[1:], float) for column in (mine, twin))
        except ValueError:
            worst = max(worst, 0.0 if mine[1:] == twin[1:] else np.inf)
            continue
        worst = max(worst, float(np.max(np.abs(a - b)) / (b.std() + 1e-12)))
    return worst


def outcome(kind: Kind, folder: Path) -> Outcome:
    """Run a kind of table and its twin."""
    places = dict[str, Path]()
    tables = list[Table]()
    for name, n_rows, seed in (("train", N_ROWS, 1), ("new", N_NEW, 2)):
        table = Table(np.random.default_rng([seed, len(kind.name)]), n_rows)
        kind.fill(table)
        for part in ("file", "twin"):
            (folder / part).mkdir(exist_ok=True)
        places[name] = kind.write(table, folder / "file" / name)
        places[name + " twin"] = plain_twin(table, folder / "twin" / name)
        tables.append(table)
    target = ["--target", table.target, *(["--classes"] if table.classes else [])]
    twin = trial(folder / "twin", places["train twin"], places["new twin"], target)
    frame = frame_outcome(*tables, twin.rows)
    try:
        result = trial(folder / "file", places["train"], places["new"], target)
    except Refused as refusal:
        return Outcome("refused", details=" ".join(str(refusal).split()), frame=frame)
    worst = difference(result.rows, twin.rows)
    details = f"largest difference {worst:.2g}" if worst else "equal to the last bit"
    if worst > TOLERANCE:
        return Outcome("WRONG", result.options, details, frame)
    if twin.options:
        details += f"; the twin asks, too: {twin.options}"
    return Outcome("asks once" if result.options else "passes", result.options, details, frame)


def frame_outcome(train: Table, new: Table, twin: list[list[str]]) -> str:
    """Return what happened to a table as a data frame of each library.

    Args:
        train: rows of the fit
        new: rows to predict
        twin: rows of the predictions of the plain twin, as text
    """
    results = dict[str, FramePredictions]()
    for library in LIBRARIES:
        try:
            results[library] = frame_predictions(train, new, library)
        except PartirvmError as error:
            return f"refused ({library}): {' '.join(str(error).split())}"
    first = results["pandas"]
    others = [name for name, result in results.items() if (result.values != first.values).any()]
    if others:
        return f"WRONG: {', '.join(others)} and pandas differ"
    names = ["mean"]
    columns = slice(0, 1)
    if train.classes:
        names = [f"p_{label}" for label in np.unique(target(train))]
        columns = slice(1, None)
        if twin[0][columns] != names:
            return f"other classes: {', '.join(names)}, not {', '.join(twin[0][columns])}"
    rows = [names, *([repr(float(v)) for v in row] for row in first.values)]
    worst = difference(rows, [row[columns] for row in twin])
    if worst > TOLERANCE:
        return f"WRONG: largest difference {worst:.2g}"
    equal = "equal" if worst == 0 else f"difference {worst:.1g}"
    return f"asks once: `{first.options}`, {equal}" if first.options else f"passes, {equal}"


def main() -> None:
    """Run the kinds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pattern of the names of kinds to run")
    parser.add_argument("--keep", default="", help="folder in which files are kept")
    arguments = parser.parse_args()
    for place, kind in enumerate(KINDS):
        if not re.search(arguments.only, kind.name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(arguments.keep or temporary) / str(place)
            folder.mkdir(parents=True)
            try:
                result = outcome(kind, folder)
            except Exception as error:
                result = Outcome("FAILS", details=f"{type(error).__name__}: {error}")
        cells = (kind.name, result.word, result.options, result.details, result.frame)
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
