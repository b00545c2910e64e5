"""Comparison of probabilistic classifiers on public sets and moons.

    python -m benchmarks.classification --data DIR [--sets NAME ...] [--methods NAME ...] [--repeats
    R] [--output OUT] python -m benchmarks.classification --data DIR --report

The tables report error, log loss, expected calibration error (15 bins), vectors, passes, seconds
and peak memory of each method on each set. One process chooses parameters by 5-fold
cross-validation of the log loss on training rows, with the same folds and grid for all methods.
Another process fits with these parameters. Features are standardised by training moments. Runs are
stored in OUT, one file per method and set. Tables are made from all stored runs, so that single
runs can be repeated. In ``benchmarks/classification``, data.py describes the sets, and methods.py
describes the methods and grids.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.classification.data import DATASETS
from benchmarks.classification.methods import METHODS, method_of
from benchmarks.classification.runs import Settings, kept, run
from benchmarks.classification.tables import report
from benchmarks.measure import command_line, say


def known(name: str) -> str:
    """Return the name of a method, or ``partirvm`` with options, if the name is valid."""
    try:
        return method_of(name).name
    except KeyError:
        raise argparse.ArgumentTypeError(
            f"{name!r} is unknown: use {', '.join(METHODS)} or 'partirvm OPTION=VALUE'"
        ) from None


def main(arguments: list[str] | None = None) -> None:
    """Run the requested methods, and write the results."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=DATASETS,
        metavar="NAME",
        help="data sets (default: all in DIR)",
    )
    parser.add_argument(
        "--methods", nargs="+", type=known, default=list(METHODS), metavar="NAME",
        help=(
            "methods (default: all); options of partirvm in one argument: 'partirvm moderate=True'"
        ),
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=int, default=10, help="maximum number of splits of each set (default: 10)"
    )
    parser.add_argument(
        "--minutes", type=float, default=10, help="maximum minutes of a process (default: 10)"
    )
    parser.add_argument(
        "--keep-widths", action="store_true", help="use the parameters that an earlier run chose"
    )
    parser.add_argument(
        "--report", action="store_true", help="only write the tables of stored runs"
    )
    options = parser.parse_args(arguments)
    output = Path(options.output) / "classification"
    names = options.sets or tuple(DATASETS)
    missing = [name for name in names if not DATASETS[name].present(options.data)]
    if missing:
        say(f"not in {options.data}, skipped: {', '.join(missing)}")
    settings = Settings(
        options.data, output, options.repeats, 60 * options.minutes, options.keep_widths
    )
    for name in [name for name in names if name not in missing and not options.report]:
        for method in options.methods:
            run(name, method, settings)
    runs = kept(output)
    if runs:
        report([one for one in runs if one["method"] in METHODS], output)


if __name__ == "__main__":
    main()
