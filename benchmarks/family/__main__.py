"""Small examples from the literature, compared with the published results.

    python -m benchmarks.family --data DIR [--tables cases kth] [--draws 100] [--output FOLDER]

``cases``: sinc with the linear spline kernel and Gaussian noise, and mcycle with a Gaussian kernel.
Each case lists the result of a KTH report or kernlab, and a note on differences
(``benchmarks.tipping`` has the cases of Tipping 2001). ``kth``: Tables 1 and 2 of the KTH report
alongside the same methods in this library (``benchmarks.family.kth``). Each set is stored in a
separate file in FOLDER/family/runs, and existing files are not recomputed.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.family import cases, kth
from benchmarks.family.data import REPORT_SETS
from benchmarks.measure import command_line, say, write

TABLES = ("cases", "kth")


def write_cases(folder: str, draws: int, output: Path) -> None:
    """Run the cases, and write the table and the reasons for differences from the published
    results."""
    rows = []
    for case in cases.CASES:
        rows.append(case.row(folder, draws))
        say("{case}: {vectors:.0f} vectors, error {error}, noise {noise:.4g}".format_map(rows[-1]))
    write(output, "cases", rows, cases.COLUMNS)
    notes = "\n".join(f"- {row['case']}: {row['why']}" for row in rows)
    with Path(output, "cases.md").open("a") as file:
        file.write(f"\n{notes}\n")
    print(f"\n{notes}")


def write_kth(folder: str, output: Path) -> None:
    """Run the folds of each set that is not stored yet, and write the table."""
    rows = []
    for one in REPORT_SETS:
        path = output / "runs" / f"kth--{one.name}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(kth.rows(one, folder)))
        rows += json.loads(path.read_text())
        say(f"{one.name} done")
    write(output, "kth", rows, kth.COLUMNS)


def main(arguments: list[str] | None = None) -> None:
    """Run the requested tables and write the results."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--tables",
        nargs="+",
        choices=TABLES,
        default=list(TABLES),
        metavar="NAME",
        help="table (default: all)",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=100,
        help="number of draws of each kind of noise (default: 100)",
    )
    options = parser.parse_args(arguments)
    output = Path(options.output) / "family"
    if "cases" in options.tables:
        write_cases(options.data, options.draws, output)
    if "kth" in options.tables:
        write_kth(options.data, output)


if __name__ == "__main__":
    main()
