"""Run the experiments of the TMB paper: python -m benchmarks.tmb --data DIR [--parts sets …]

figure1   waveforms: how often each feature is chosen, over draws of 400 rows
figure2   miles per gallon by weight: vectors, widths of the bands, coverage, and a picture
figure3   two features of the Pima Indians: boundary and its 95 % limits, as a picture
sets      RVM_TMB, KRVM_TMB, PFCVM_TMB and the main path on five sets, 70 % training rows

DIR contains auto.npz, boston.npz, banana.npz and pima_ripley.npz (``benchmarks.datasets``). Fits of
figure1 and sets are stored in the output folder and not repeated; none starts after ``--minutes``.
"""

from __future__ import annotations

from benchmarks import measure
from benchmarks.tmb import figure1, figure2, figure3, sets

PARTS = {part.__name__.rsplit(".", 1)[1]: part for part in (figure1, figure2, figure3, sets)}


def main(arguments: list[str] | None = None) -> None:
    """Run the parts."""
    parser = measure.command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--splits", type=int, default=20, help="splits or draws (default: 20)")
    parser.add_argument(
        "--minutes", type=float, default=15, help="minutes of each part after which no fit starts"
    )
    options = parser.parse_args(arguments)
    for name in options.parts:
        PARTS[name].run(options)


if __name__ == "__main__":
    main()
