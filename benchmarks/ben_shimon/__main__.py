"""Replication of the experiments of Ben-Shimon & Shmilovici (2006): Tables 2–4, 6 and 7–9.

    python -m benchmarks.ben_shimon --data DIR [--table N ...] [--repeats R] [--output FOLDER]

2 3 4         RMSE, vectors and seconds of ``basic`` and the three partition strategies with P = 50 on small sets
6             the working set against P, and the heuristic's P, on four pumadyn sets
7 8 9         RMSE, vectors and seconds of the three strategies on the pumadyn sets in DIR, with P from the heuristic
learned       tables 7–9 again, with the default (learned) kernel
literal-small, literal-sizes, literal       tables 2–4, 6 and 7–9 by the scheme read literally: each fit has only the rows
              of its candidates, σ² is that of all rows (``partirvm.literature.own_rows``); P as printed
literal-noise σ² from all rows, from 500 of them, at every fifth update, and from the rows of each fit

All competitors use the same splits, seed and width. Their fits alternate in one process. If a table
would take longer than ``--minutes``, all competitors use fewer splits of a set; the tables report
the number of splits. P is the partition size. ``benchmarks/datasets.py`` describes the files in
DIR, and ``benchmarks/ben_shimon/data.py`` the sizes and noise of the generated sets.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.ben_shimon.data import DATASETS, Dataset, available
from benchmarks.ben_shimon.fits import Settings, warm_up
from benchmarks.ben_shimon.sections import PARTS, Part, Section
from benchmarks.measure import command_line, machine, say

TABLES = tuple(name for part in PARTS for name in part.tables)


def write_part(
    part: Part,
    fits: list[dict[str, Any]],
    sections: list[Section],
    about: dict[str, Any],
    output: Path,
) -> None:
    """Write the files ben_shimon_PART.md and ben_shimon_PART.json, and print the text."""
    output.mkdir(parents=True, exist_ok=True)
    head = ", ".join(
        f"{key} {value}"
        for key, value in {**about["machine"], **about["settings"]}.items()
        if value is not None
    )
    texts = [f"# Ben-Shimon & Shmilovici (2006): {part.name.replace('_', ' ')}", head, NOTE]
    texts += [f"## {heading}\n\n{text}" for heading, text in sections]
    text = "\n\n".join(texts)
    (output / f"ben_shimon_{part.name}.md").write_text(text + "\n")
    (output / f"ben_shimon_{part.name}.json").write_text(
        json.dumps({**about, "fits": fits}, indent=1)
    )
    print(text, end="\n\n", flush=True)


NOTE = (
    "Mean ± standard deviation over random splits, which all competitors share, and the paper's "
    "mean. Errors are in units of the target, on test rows; the test targets of sinc and "
    "friedman_1 have no noise."
)


def run(part: Part, datasets: list[Dataset], settings: Settings, output: Path) -> None:
    """Run the fits of one part, and write its text."""
    began = time.perf_counter()
    fits, sections = part.run(datasets, settings, output)
    seconds = time.perf_counter() - began
    settings_text = {
        "repeats": settings.repeats,
        "maximum rows": settings.rows,
        "seconds in all": round(seconds),
    }
    write_part(part, fits, sections, {"machine": machine(), "settings": settings_text}, output)
    say(f"{part.name}: {seconds:.0f} s")


def main(arguments: list[str] | None = None) -> None:
    """Run the requested parts and write their tables."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--table",
        nargs="+",
        choices=TABLES,
        default=TABLES,
        metavar="N",
        help="tables (default: all)",
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=DATASETS,
        metavar="NAME",
        help="data sets (default: all in DIR)",
    )
    parser.add_argument(
        "--repeats", type=int, default=10, help="number of random splits (default: 10)"
    )
    parser.add_argument(
        "--minutes", type=float, help="maximum minutes of a part (default: 1 to 8, see PARTS)"
    )
    parser.add_argument("--rows", type=int, help="maximum number of training rows, for a short run")
    options = parser.parse_args(arguments)
    output = Path(options.output)
    wanted = tuple(options.sets) if options.sets else None
    warm_up()
    for part in PARTS:
        if not set(part.tables) & set(options.table):
            continue
        datasets = available(options.data, part.sets, wanted)
        if not datasets:
            say(f"{part.name}: no data sets are available")
            continue
        settings = Settings(
            options.data, options.repeats, options.rows, 60 * (options.minutes or part.minutes)
        )
        run(part, datasets, settings, output)


if __name__ == "__main__":
    main()
