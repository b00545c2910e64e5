"""Comparison of probabilistic classifiers, on public sets and on moons.

    python -m benchmarks.classification --data DIR [--sets NAME ...] [--methods NAME ...] [--repeats R] [--output OUT]
    python -m benchmarks.classification --data DIR --trial selection|multiclass|moderate|strategy
    python -m benchmarks.classification --data DIR --report

The tables have error, log loss, expected calibration error (15 bins), vectors, passes, seconds and peak memory of each
method on each set, in separate processes: one chooses parameters by 5-fold cross-validation on training rows (log loss,
one grid, the same folds for all), another fits with them. Features are standardised by training moments. Runs are
stored in OUT, one file per method and set; tables and pictures are made from all stored runs, so that some can be
repeated. A trial compares our own options at the widths chosen for ``partirvm``. Sets: data.py, methods and grids:
methods.py, both in ``benchmarks/classification``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.classification.data import DATASETS
from benchmarks.classification.methods import METHODS, method_of
from benchmarks.classification.report import report, trial_report
from benchmarks.classification.runs import Settings, kept, run
from benchmarks.classification.trials import TRIALS
from benchmarks.measure import say


def known(name: str) -> str:
    """The name of a method, or ``partirvm`` with options."""
    try:
        return method_of(name).name
    except KeyError:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(METHODS)}, partirvm OPTION=VALUE") from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    made.add_argument("--sets", nargs="+", choices=DATASETS, metavar="NAME", help="data sets; all in DIR unless given")
    made.add_argument(
        "--methods", nargs="+", type=known, default=list(METHODS), metavar="NAME",
        help="methods; all unless given; options of ours in one word: 'partirvm moderate=True'",
    )  # fmt: skip
    made.add_argument("--trial", choices=TRIALS, help="compare our own options instead of methods")
    made.add_argument("--repeats", type=int, default=10, help="splits of each set at most (10)")
    made.add_argument("--minutes", type=float, default=10, help="most minutes of a process; then fewer splits (10)")
    made.add_argument("--keep-widths", action="store_true", help="use the parameters that an earlier run chose")
    made.add_argument("--report", action="store_true", help="only write the tables and pictures of what was run")
    made.add_argument("--output", default="benchmarks/results", help="folder of what comes out (benchmarks/results)")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Run what is requested and write the results."""
    options = parser().parse_args(arguments)
    output = Path(options.output) / "classification"
    trial = TRIALS[options.trial] if options.trial else None
    methods = trial.methods() if trial else options.methods
    names = options.sets or (trial.sets if trial else tuple(DATASETS))
    missing = [name for name in names if not DATASETS[name].present(options.data)]
    if missing:
        say(f"not in {options.data}, left out: {', '.join(missing)}")
    settings = Settings(options.data, output, options.repeats, 60 * options.minutes, options.keep_widths)
    for name in [name for name in names if name not in missing and not options.report]:
        for method in methods:
            run(name, method, settings)
    runs = kept(output)
    if trial:
        trial_report(options.trial, [one for one in runs if one["method"] in methods], methods, output)
    elif runs:
        report([one for one in runs if one["method"] in METHODS], options.data, output)


if __name__ == "__main__":
    main()
