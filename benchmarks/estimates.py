"""Estimated seconds of fits compared with measured seconds, in total and by part (learning, passes,
dense fits, the rest).

    python -m benchmarks.estimates --data DIR [--only TEXT] [--output FOLDER]

Ten fits run in separate processes. ``announced`` is the plan's estimate of the seconds for the
whole fit. ``taken`` is the measured time of the call to ``fit`` in seconds. ``ratio`` is announced
÷ taken, and should be between 2/3 and 3/2. ``DIR`` contains the public sets of
``benchmarks.datasets``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.datasets import load_random
from benchmarks.measure import apart, command_line, say, write
from partirvm import Incremental, RVMClassifier, RVMRegressor, SplitMerge

COLUMNS = {
    "fit": "", "rows": ",", "announced": ".2f", "taken": ".2f", "ratio": ".2f", "learning": ".2f",
    "passes_announced": ".2f", "passes_taken": ".2f", "dense_announced": ".2f", "dense_taken": ".2f",
    "rounds": "", "vectors": "",
}  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """A fit of ``rows`` rows of a public set, or of a generated set if ``data`` is empty, with
    parameters."""

    name: str
    data: str
    rows: int
    options: dict[str, Any] = field(default_factory=dict)
    classes: bool = False


FITS = (
    Fit("defaults, 200 rows", "boston", 200),
    Fit("defaults, 1,000 rows", "airfoil", 1_000),
    Fit("defaults, 8,000 rows", "kin40k", 8_000),
    Fit("defaults, 30,000 rows", "protein", 30_000),
    Fit(
        "four rounds of 250, gamma 20",
        "etopo20",
        200_000,
        {"gamma": 20.0, "partition_size": 250, "max_rounds": 4},
    ),
    Fit(
        "taxi, three rounds of 250",
        "nyc_green_taxi",
        500_000,
        {"partition_size": 250, "max_rounds": 3},
    ),
    Fit(
        "split-merge",
        "pumadyn_8nm",
        6_000,
        {"strategy": SplitMerge(), "gamma": "scale", "partition_size": 200},
    ),
    Fit(
        "incremental",
        "abalone",
        3_000,
        {"strategy": Incremental(), "gamma": "scale", "partition_size": 100},
    ),
    Fit("basic, 1,000 rows", "concrete", 900, {"strategy": "basic", "gamma": "scale"}),
    Fit("two classes", "skin_nonskin", 50_000, {"max_rounds": 4}, classes=True),
)


def measure(folder: str, fit: Fit) -> dict[str, Any]:
    """Run a fit, and compare its plan with its history."""
    split = load_random(folder, fit.data, fit.rows, 0, 0)
    model = (RVMClassifier if fit.classes else RVMRegressor)(random_state=0, **fit.options)
    began = time.perf_counter()
    model.fit(split.X, split.y)
    taken = time.perf_counter() - began
    fits = [
        line
        for line in model.history_
        if "solve_seconds" in line and line["kind"] not in ("heuristic",)
    ]
    learning = sum(
        line["pass_seconds"] + line["solve_seconds"] for line in fits if line["kind"] == "kernel"
    )
    fits = [line for line in fits if line["kind"] != "kernel"]
    plan = model.plan_
    return {
        "fit": fit.name,
        "rows": len(split.y),
        "announced": plan.seconds,
        "taken": taken,
        "ratio": plan.seconds / taken,
        "learning": learning,
        "passes_announced": sum(cost.pass_seconds for cost in plan.rounds),
        "passes_taken": sum(line["pass_seconds"] for line in fits),
        "dense_announced": sum(cost.solve_seconds for cost in plan.rounds),
        "dense_taken": sum(line["solve_seconds"] for line in fits),
        "rounds": f"{len(plan.rounds)} / {len(fits)}",
        "vectors": model.n_relevance_vectors_,
    }


def main() -> None:
    """Run the fits one after another."""
    parser = command_line(__doc__)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    rows = []
    for fit in FITS:
        if arguments.only in fit.name:
            say(fit.name)
            rows.append(apart(measure, arguments.data, fit))
    write(arguments.output, "estimates", rows, COLUMNS)


if __name__ == "__main__":
    main()
