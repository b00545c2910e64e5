"""Kernel learning, compared with widths chosen by other methods.

    python -m benchmarks.learning --data DIR [--table NAME] [--sets NAME ...] [--repeats R] [--output FOLDER]

Tables: ``forms`` (``gamma`` by cross-validation, "scale", "learn", "learn-per-feature", "auto"). A table is a module of
this package with a ``main(names, folder, output, repeats)``. Fits are stored in FOLDER/learning, one file each;
existing files are not computed again, so that an interrupted run can be continued.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.learning import forms
from benchmarks.learning.data import DATASETS
from benchmarks.measure import say

TABLES = {"forms": forms.main}


def main(arguments: list[str] | None = None) -> None:
    """Run the requested table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    parser.add_argument("--table", choices=TABLES, default="forms", help="which (forms)")
    parser.add_argument("--sets", nargs="+", choices=DATASETS, metavar="NAME", help="data sets; all unless given")
    parser.add_argument("--repeats", type=int, help="splits of each set; as many as data.py says unless given")
    parser.add_argument("--output", default="benchmarks/results", help="folder of what comes out (benchmarks/results)")
    options = parser.parse_args(arguments)
    names = options.sets or list(DATASETS)
    missing = [name for name in names if not DATASETS[name].present(options.data)]
    if missing:
        say(f"not in {options.data}, left out: {', '.join(missing)}")
    names = [name for name in names if name not in missing]
    TABLES[options.table](names, options.data, Path(options.output) / "learning", options.repeats)


if __name__ == "__main__":
    main()
