"""Small dense problems, compared with other RVMs and Bayesian regressions at the same width on the
same rows.

    python -m benchmarks.peers --data DIR [--sets NAME ...] [--sizes N ...] [--methods NAME ...]
                               [--limit SECONDS] [--output FOLDER]

The table reports seconds, peak memory, RMSE, NLPD, coverage of the 95 % interval, vectors and
evidence. In ``benchmarks/peers``, methods.py describes the methods and data.py the sets. Methods
with a missing package are skipped, as are sizes larger than one that took too long. Every fit has a
separate process and a separate file in FOLDER/peers/runs; existing files are not recomputed. The
environment variable OPENBLAS_NUM_THREADS sets the number of BLAS threads.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import command_line, say, write
from benchmarks.peers.data import DATASETS
from benchmarks.peers.methods import METHODS
from benchmarks.peers.runs import Settings, kept, run_sizes

SIZES = (500, 1000, 2000, 4000, 8000)

COLUMNS = {
    "data": "",
    "rows": ",d",
    "method": "",
    "seconds": ".2f",
    "cpu_seconds": ".2f",
    "fit_mib": ".0f",
}
COLUMNS |= {
    "rmse": ".4f",
    "nlpd": ".3f",
    "coverage": ".3f",
    "vectors": ",d",
    "evidence": ",.1f",
    "note": "",
}


def main(arguments: list[str] | None = None) -> None:
    """Run the missing fits, and write the table of all results."""
    parser = command_line(__doc__)
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=DATASETS,
        default=list(DATASETS),
        metavar="NAME",
        help="table (default: all)",
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=list(SIZES), metavar="N", help="training rows"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=list(METHODS),
        metavar="NAME",
        help="table (default: all)",
    )
    parser.add_argument(
        "--limit", type=float, default=600.0, help="maximum seconds of a fit (default: 600)"
    )
    options = parser.parse_args(arguments)
    settings = Settings(options.data, Path(options.output) / "peers", options.limit)
    methods = [name for name in options.methods if not METHODS[name].missing()]
    for name in set(options.methods) - set(methods):
        say(f"{name} is skipped: {METHODS[name].needs} is not installed")
    for name in options.sets:
        if not DATASETS[name].present(options.data):
            say(f"{name} is skipped: there is no such file in {options.data}")
            continue
        for method in methods:
            run_sizes(name, DATASETS[name].sizes(options.data, options.sizes), method, settings)
    write(settings.output, "peers", kept(settings.output), COLUMNS)


if __name__ == "__main__":
    main()
