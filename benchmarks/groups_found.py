"""Groups that a fit without ``groups=`` finds, beside what refits without these groups say.

    python -m benchmarks.groups_found [--data DIR] [--rows 800] [--refits COLUMNS | BLOCK] [NAME ...]

A line gives the rows and features of a set, what its warning names, and the figures on which the
warning rests: the errors of left-out groups ÷ those of left-out rows and the coverage of groups by
intervals that cover 95 % of left-out rows, or the correlation of errors that rows share. The six
sets with groups of ``benchmarks.groups`` are made here with two seeds each; public ones are read
from DIR (``NAME.npz`` with X and y): as many rows as given, at even distances in the table or, for
``NAME:first``, its first rows.

With ``--refits``, the groups are those of equal values in some columns, given by their numbers
(``0,1``), or blocks of successive rows, given by their size (``b26``). Four fits without a fifth of
the groups, and two without a fifth of the rows, then give the true coverage of 95 % intervals at
new groups and the ratio of the errors. A warning is true if the coverage is below .90 and the ratio
is above 1.3. For blocks, the correlation of the errors of successive rows of new blocks follows.
The results are in ``groups_found.md``.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

from benchmarks.groups import MADE
from partirvm import RVMRegressor
from partirvm.types import Float, Int

MADE_GROUPS = {
    "stations": 30,
    "patients": 80,
    "shops": 30,
    "batches": 27,
    "machines": 16,
    "weather_days": 50,
}
"""Numbers of groups of the made sets."""


class NamedRows(NamedTuple):
    """Rows in the order of their table.

    Attributes:
        name: name of the set
        X: inputs (n, d)
        y: targets (n,)
    """

    name: str
    X: Float
    y: Float


class Predicted(NamedTuple):
    """Left-out rows of several fits.

    Attributes:
        rows: numbers of the rows (m,)
        errors: errors (m,)
        inside: whether 95 % intervals cover them (m,)
    """

    rows: Int
    errors: Float
    inside: Float


def made(seeds: int) -> Iterator[NamedRows]:
    """Yield the made sets with several seeds."""
    for name, count in MADE_GROUPS.items():
        for seed in range(seeds):
            rows = MADE[name](seed, count)
            yield NamedRows(f"{name} {seed}", rows.X, rows.y)


def public(folder: Path, name: str, most: int) -> NamedRows:
    """Read rows of a public set: its first ones (``NAME:first``), or rows at even distances."""
    stem, _, part = name.partition(":")
    with np.load(folder / f"{stem}.npz", allow_pickle=True) as arrays:
        X = np.asarray(arrays["X"], dtype=np.float64)
        y = np.asarray(arrays["y"], dtype=np.float64)
    count = min(most, len(X))
    rows = np.arange(count) if part else np.linspace(0, len(X) - 1, count).astype(int)
    return NamedRows(name, X[rows], y[rows])


def estimator() -> RVMRegressor:
    """Return an estimator with default options; the comparison with boosted trees changes no
    prediction."""
    return RVMRegressor(random_state=0, reference="none")


def described(facts: dict[str, Any] | None) -> str:
    """Return what a warning says of groups."""
    if facts is None:
        return "-"
    names = ", ".join(facts["columns"]) or "order"
    if "covered" in facts:
        return f"{names}: {facts['groups']} groups, {facts['ratio']:.2f} {facts['covered']:.2f}"
    return f"{names}: correlation {facts['correlation']:.2f}"


def print_found(rows: NamedRows) -> None:
    """Fit without groups, and print what the fit says of them."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator().fit(rows.X, rows.y)
    seconds = time.process_time() - began
    facts = model.history_[-1].get("groups")
    n, d = rows.X.shape
    print(f"{rows.name:22} {n:5} × {d:2} {seconds:5.1f} s  {described(facts)}", flush=True)


def predicted(rows: NamedRows, folds: Iterator[tuple[Int, Int]], count: int) -> Predicted:
    """Fit without each of the first ``count`` folds, and predict it."""
    parts = list[tuple[Any, ...]]()
    for _, (teaches, new) in zip(range(count), folds, strict=False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator().fit(rows.X[teaches], rows.y[teaches])
            lower, upper = model.predict_interval(rows.X[new])
            errors = rows.y[new] - model.predict(rows.X[new])
        inside = (lower <= rows.y[new]) & (rows.y[new] <= upper)
        parts.append((new, errors, inside.astype(float)))
    return Predicted(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def print_refits(rows: NamedRows, by: str) -> None:
    """Fit without groups of rows and without random rows, and compare the predictions.

    Args:
        rows: the rows
        by: numbers of columns (``0,1``), or the size of blocks (``b26``)
    """
    if by.startswith("b"):
        groups = np.arange(len(rows.y)) // int(by[1:])
    else:
        columns = [int(number) for number in by.split(",")]
        groups = np.unique(rows.X[:, columns], axis=0, return_inverse=True)[1].ravel()
    of_groups = predicted(rows, GroupKFold(5).split(rows.X, rows.y, groups), 4)
    of_rows = predicted(rows, KFold(5, shuffle=True, random_state=0).split(rows.X), 2)
    square = float(np.mean(of_groups.errors**2))
    order = np.argsort(of_groups.rows)
    errors = of_groups.errors[order]
    pairs = np.diff(of_groups.rows[order]) == 1
    correlation = np.mean((errors[1:] * errors[:-1])[pairs]) / square if pairs.any() else np.nan
    print(
        f"{rows.name:22} {by:8} {len(np.unique(groups)):4} groups: coverage of new groups "
        f"{of_groups.inside.mean():.3f}, of rows {of_rows.inside.mean():.3f}, ratio "
        f"{np.sqrt(square / np.mean(of_rows.errors**2)):.2f}, correlation {correlation:.2f}",
        flush=True,
    )


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="public sets, by default all in DIR")
    parser.add_argument("--data", type=Path, help="folder of the public sets")
    parser.add_argument("--rows", type=int, default=800, help="number of rows of a public set")
    parser.add_argument("--seeds", type=int, default=2, help="draws of each made set")
    parser.add_argument("--refits", help="columns or size of blocks that are left out of refits")
    options = parser.parse_args()
    sets: Iterator[NamedRows] = iter(())
    if options.data:
        names = options.names or sorted(path.stem for path in options.data.glob("*.npz"))
        sets = (public(options.data, name, options.rows) for name in names)
    elif not options.names:
        sets = made(options.seeds)
    for rows in sets:
        if options.refits:
            print_refits(rows, options.refits)
        else:
            print_found(rows)


if __name__ == "__main__":
    main()
