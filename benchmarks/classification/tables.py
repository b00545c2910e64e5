"""Markdown tables of runs: one table per set, published and measured results."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from benchmarks.ben_shimon.tables import mean_and_spread
from benchmarks.classification.data import DATASETS
from benchmarks.classification.published import TIPPING
from benchmarks.classification.runs import Run
from benchmarks.measure import table

QUANTITIES = {
    "error %": "error", "log loss": "log_loss", "ECE": "ece", "vectors": "vectors", "passes": "passes",
    "seconds": "seconds",
}  # fmt: skip
"""The title of each column, and the key of its value in a fit. Values are means ± standard deviations over splits."""

COLUMNS = dict.fromkeys(("method", *QUANTITIES, "tuning s", "MiB", "gamma·d", "splits", "note"), "")


def find(runs: list[Run], name: str, method: str) -> Run | None:
    """Return the run of a method on a set, or None if there are no fits."""
    return next((one for one in runs if (one["data"], one["method"]) == (name, method) and one["fits"]), None)


def values(run: Run, key: str) -> list[float]:
    """Return the values of a quantity over all fits that report the quantity; errors are fractions."""
    return [fit[key] for fit in run["fits"] if fit[key] is not None]


def standard_error(run: Run) -> float:
    """Return the standard error of the mean error over splits, or the binomial standard error for a single split."""
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
    gammas = [fit["parameters"]["gamma"] * run["features"] for fit in run["fits"] if "gamma" in fit["parameters"]]
    row["gamma·d"] = "–".join(f"{gamma:g}" for gamma in sorted({min(gammas), max(gammas)})) if gammas else ""
    row |= {"tuning s": f"{run['tuning_seconds']:.0f}", "MiB": f"{run['peak_mib']:.0f}", "splits": len(run["fits"])}
    return row


def ordered(runs: list[Run], methods: list[str]) -> list[tuple[str, list[Run]]]:
    """Return the runs of each set, in the order of the sets and of the given methods."""
    by_set = [(name, [one for one in runs if one["data"] == name]) for name in DATASETS]
    return [(name, sorted(own, key=lambda one: methods.index(one["method"]))) for name, own in by_set if own]


def by_set(runs: list[Run], methods: list[str]) -> list[tuple[str, str]]:
    """Return a heading and a table for each set."""
    sections = []
    for name, own in ordered(runs, methods):
        sizes = next((f"{one['rows']:,} × {one['features']} → {one['test_rows']:,}" for one in own if one["fits"]), "")
        rows = [line(one) for one in own]
        columns = {key: spec for key, spec in COLUMNS.items() if any(row.get(key) for row in rows)}
        sections.append((f"{name} ({sizes})" if sizes else name, table(rows, columns)))
    return sections


def published(runs: list[Run]) -> str:
    """Return a table of Tipping's results (quoted from memory) and ours."""
    rows = []
    for name, theirs in TIPPING.items():
        row: dict[str, Any] = {"data": name, "SVM, published": f"{theirs.svm_error:g} / {theirs.svm_vectors:g}"}
        row["RVM, published"] = f"{theirs.rvm_error:g} / {theirs.rvm_vectors:g}"
        for method in ("partirvm", "fastrvm", "svc"):
            if run := find(runs, name, method):
                error, vectors = 100 * fmean(values(run, "error")), fmean(values(run, "vectors"))
                row[method] = f"{error:.1f} ± {100 * standard_error(run):.1f} / {vectors:.0f}"
        rows.append(row)
    return table(rows, dict.fromkeys(("data", "SVM, published", "RVM, published", "partirvm", "fastrvm", "svc"), ""))
