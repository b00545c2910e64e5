"""Reports of the runs: Markdown and JSON."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from benchmarks.classification.methods import METHODS
from benchmarks.classification.runs import Run
from benchmarks.classification.tables import by_set, published
from benchmarks.measure import machine

NOTE = (
    "Mean ± standard deviation over splits, which all methods share. Seconds are for one fit with the parameters "
    "chosen by cross-validation; `tuning s` is the time of cross-validation for all splits. MiB is the peak resident "
    "memory (VmHWM) of the process of the fits, with interpreter, libraries and data. ECE has 15 bins. Passes are "
    "passes over the training rows."
)


def versions() -> dict[str, str]:
    """Return the versions of the installed packages in the comparison."""
    found = {}
    for name in ("scikit-learn", "fastrvm"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def about() -> dict[str, Any]:
    """Return a description of the machine and the package versions."""
    return {**machine(), **versions()}


def write(output: Path, name: str, title: str, sections: list[tuple[str, str]], content: dict[str, Any]) -> None:
    """Write NAME.md and NAME.json, and print the text."""
    output.mkdir(parents=True, exist_ok=True)
    head = ", ".join(f"{key} {value}" for key, value in about().items())
    texts = [f"# {title}", head, NOTE, *(f"## {heading}\n\n{text}" for heading, text in sections)]
    (output / f"{name}.md").write_text("\n\n".join(texts) + "\n")
    (output / f"{name}.json").write_text(json.dumps({"machine": about(), **content}, indent=1))
    print("\n\n".join(texts), flush=True)


def report(runs: list[Run], output: Path) -> None:
    """Write classification.md and classification.json."""
    sections = [
        *by_set(runs, list(METHODS)),
        ("Tipping (2001), from memory: error % ± standard error / vectors", published(runs)),
    ]
    write(output, "classification", "Classification", sections, {"runs": runs})
