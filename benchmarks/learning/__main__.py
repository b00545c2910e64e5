"""Kernel learning, compared with widths chosen by other methods.

    python -m benchmarks.learning --data DIR [--table NAME] [--sets NAME ...] [--repeats R] [--output FOLDER]

The table ``forms`` compares ``gamma`` by cross-validation, "scale", "learn", "learn-per-feature" and "auto". A table is
a module of this package with a function ``main(names, folder, output, repeats)``. Fits are stored in FOLDER/learning,
one file each. Existing files are not computed again, so an interrupted run can be continued.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.learning import forms
from benchmarks.learning.data import DATASETS
from benchmarks.measure import say

TABLES = {"forms": forms.main}


def main(arguments: list[str] | None = None) -> None:
    """Run the requested table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    parser.add_argument("--table", choices=TABLES, default="forms", help="table (default: forms)")
    parser.add_argument("--sets", nargs="+", choices=DATASETS, metavar="NAME", help="data sets (default: all)")
    parser.add_argument("--repeats", type=int, help="number of splits of each set (default: see data.py)")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    names = options.sets or list(DATASETS)
    missing = [name for name in names if not DATASETS[name].present(options.data)]
    if missing:
        say(f"not in {options.data}, skipped: {', '.join(missing)}")
    names = [name for name in names if name not in missing]
    TABLES[options.table](names, options.data, Path(options.output) / "learning", options.repeats)


if __name__ == "__main__":
    main()
