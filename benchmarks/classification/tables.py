"""Markdown and JSON for runs: one table per set, with published and measured results."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.ben_shimon.tables import mean_and_spread
from benchmarks.classification.data import DATASETS
from benchmarks.classification.methods import METHODS
from benchmarks.classification.runs import Run
from benchmarks.measure import machine, table

NOTE = (
    "Mean ± standard deviation over splits, which all methods share. Seconds are for one fit "
    "with the parameters chosen by cross-validation; `tuning s` is the time of cross-validation "
    "for all splits. MiB is the peak resident memory (VmHWM) of the process of the fits, with "
    "interpreter, libraries and data. ECE has 15 bins. Passes are passes over the training rows."
)

COMPARED = ("partirvm", "fastrvm", "svc")
"""Methods beside the published results."""

TIPPING = {
    "ripley_100": ("10.6 / 38", "9.3 / 4"),
    "pima": ("20.1 / 109", "19.6 / 4"),
    "banana": ("10.9 / 135", "10.8 / 11"),
    "titanic": ("22.1 / 94", "23.0 / 65"),
    "german": ("22.6 / 411", "22.2 / 13"),
}
"""Test error in per cent and vectors of SVM and RVM: Tipping (2001), Table 2 and §3.2, from memory.
banana, titanic and german are means over all of Rätsch's splits; this benchmark uses the first ten.
"""

QUANTITIES = {
    "error %": "error", "log loss": "log_loss", "ECE": "ece", "vectors": "vectors", "passes": "passes",
    "seconds": "seconds",
}  # fmt: skip
"""The title of each column, and the key of its value in a fit. Values are means ± standard
deviations over splits."""

COLUMNS = dict.fromkeys(("method", *QUANTITIES, "tuning s", "MiB", "gamma·d", "splits", "note"), "")


def values(run: Run, key: str) -> list[float]:
    """Return the values of a quantity over all fits that report the quantity; errors are
    fractions."""
    return [fit[key] for fit in run["fits"] if fit[key] is not None]


def standard_error(run: Run) -> float:
    """Return the standard error of the mean error over splits, or the binomial standard error for a
    single split."""
    errors = values(run, "error")
    if len(errors) > 1:
        return stdev(errors) / len(errors) ** 0.5
    return float((errors[0] * (1 - errors[0]) / run["test_rows"]) ** 0.5)


def line(run: Run) -> dict[str, Any]:
    """Return a row of the table of a set."""
    row: dict[str, Any] = {"method": run["method"], "note": run.get("note", "")}
    if not run["fits"]:
        return row
    for title, key in QUANTITIES.items():
        factor = 100 if title.endswith("%") else 1
        row[title] = mean_and_spread([factor * number for number in values(run, key)])
    gammas = [
        fit["parameters"]["gamma"] * run["features"]
        for fit in run["fits"]
        if "gamma" in fit["parameters"]
    ]
    row["gamma·d"] = (
        "–".join(f"{gamma:g}" for gamma in sorted({min(gammas), max(gammas)})) if gammas else ""
    )
    row |= {
        "tuning s": f"{run['tuning_seconds']:.0f}",
        "MiB": f"{run['peak_mib']:.0f}",
        "splits": len(run["fits"]),
    }
    return row


def by_set(runs: list[Run]) -> dict[str, str]:
    """Return a heading and a table for each set, in the order of the sets and methods."""
    sections = {}
    for name in DATASETS:
        own = [
            one
            for method in METHODS
            for one in runs
            if (one["data"], one["method"]) == (name, method)
        ]
        sizes = next(
            (
                f"{one['rows']:,} × {one['features']} → {one['test_rows']:,}"
                for one in own
                if one["fits"]
            ),
            "",
        )
        rows = [line(one) for one in own]
        columns = {key: spec for key, spec in COLUMNS.items() if any(row.get(key) for row in rows)}
        if own:
            sections[f"{name} ({sizes})" if sizes else name] = table(rows, columns)
    return sections


def published(runs: list[Run]) -> str:
    """Return a table of Tipping's results and ours."""
    rows = []
    for name, (svm, rvm) in TIPPING.items():
        row: dict[str, Any] = {"data": name, "SVM, published": svm, "RVM, published": rvm}
        for run in (
            run for run in runs if run["data"] == name and run["fits"] and run["method"] in COMPARED
        ):
            error = 100 * fmean(values(run, "error"))
            vectors = fmean(values(run, "vectors"))
            row[run["method"]] = f"{error:.1f} ± {100 * standard_error(run):.1f} / {vectors:.0f}"
        rows.append(row)
    return table(rows, dict.fromkeys(("data", "SVM, published", "RVM, published", *COMPARED), ""))


def report(runs: list[Run], output: Path) -> None:
    """Write classification.md and classification.json, and print the text."""
    about = machine("scikit-learn", "fastrvm")
    sections = by_set(runs) | {
        "Tipping (2001), from memory: error % ± standard error / vectors": published(runs)
    }
    texts = ["# Classification", ", ".join(f"{key} {value}" for key, value in about.items()), NOTE]
    text = "\n\n".join([*texts, *(f"## {heading}\n\n{body}" for heading, body in sections.items())])
    (output / "classification.md").write_text(text + "\n")
    (output / "classification.json").write_text(
        json.dumps({"machine": about, "runs": runs}, indent=1)
    )
    print(text, flush=True)
