"""Coverage of 95 % intervals for rows of new and of known groups, with and without ``groups=``.

    python -m benchmarks.groups [--data DIR] [--seeds 8] [--refits] [NAME ...]

Some groups teach, without a fifth of their rows, which judge as rows of known groups; others are
new: 200 further groups of a made set, and a third of the groups of a public set. Columns: rows and
groups that teach; then for the fit without groups and for the fit with groups: coverage at new and
at known groups, RMSE ÷ sd(y) and NLPD (y in units of its sd) at both; then the ratio of their CPU
seconds. After several draws, their means. With ``--refits``, the last column is the NLPD at new
groups of the same means, with the standard deviation of errors in five fits without a fifth of the
groups each: the truth about new groups, for five times the seconds.
A coverage at 15 new groups would vary by several hundredths because of these groups alone, and that
of one fit still varies, because the variance between groups is learned from few of them: the mean
over draws is to be compared with .95. Seven sets are made here. Public ones are read from DIR
(``NAME.npz`` with X and y):
the UCI sets Seoul bike sharing (rentals by day) and appliances energy (by day), ETOPO elevations
(20-minute grid, blocks of ten degrees) and New York green taxi trips (by pickup zone).
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import default_rng

from partirvm import RVMRegressor
from partirvm.types import Bool, Float, Int


class GroupedSet(NamedTuple):
    """Rows with groups.

    Attributes:
        X: inputs (n, d)
        y: targets (n,)
        groups: groups (n,)
    """

    X: Float
    y: Float
    groups: Int


def stations(seed: int, n_groups: int) -> GroupedSet:
    """Stations of 40 rows: coordinates, a smooth field, and an effect of each station."""
    rng = default_rng(seed)
    place = rng.uniform(0, 10, (n_groups, 2))
    effect = np.sin(place[:, 0]) + 0.5 * np.cos(place[:, 1]) + 0.5 * rng.standard_normal(n_groups)
    g = np.repeat(np.arange(n_groups), 40)
    t = rng.uniform(0, 1, len(g))
    y = effect[g] + np.sin(2 * np.pi * t) + 0.1 * rng.standard_normal(len(g))
    return GroupedSet(np.column_stack([place[g], t]), y, g)


def patients(seed: int, n_groups: int) -> GroupedSet:
    """Patients with 5 to 20 visits: age, weight and sex, an intercept and a slope of each."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), rng.integers(5, 21, n_groups))
    age = rng.uniform(20, 80, n_groups)[g]
    weight = (70 + 12 * rng.standard_normal(n_groups))[g]
    sex = rng.integers(0, 2, n_groups)[g].astype(float)
    t = rng.uniform(0, 5, len(g))
    own = rng.standard_normal((n_groups, 2))[g]
    y = 0.03 * age + 0.02 * weight + 0.5 * sex + 0.8 * own[:, 0] + (0.3 + 0.2 * own[:, 1]) * t
    return GroupedSet(
        np.column_stack([age, weight, sex, t]), y + 0.3 * rng.standard_normal(len(g)), g
    )


def shops(seed: int, n_groups: int) -> GroupedSet:
    """Shops of 40 weeks: size, region, price and season, an effect of each shop."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), 40)
    week = np.tile(np.arange(40), n_groups)
    size = rng.uniform(1, 5, n_groups)[g]
    region = rng.integers(0, 4, n_groups)[g]
    price = rng.uniform(0.8, 1.2, len(g))
    own = 0.4 * rng.standard_normal(n_groups)[g]
    season = np.sin(2 * np.pi * week / 26) * np.array([0.2, 0.5, 0.8, 1.0])[region]
    y = np.log(size) + season - 2 * (price - 1) + own + 0.15 * rng.standard_normal(len(g))
    return GroupedSet(np.column_stack([size, region, price, week]), y, g)


def batches(seed: int, n_groups: int) -> GroupedSet:
    """Batches of 40 parts; no feature says which batch a part is from."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), 40)
    X = rng.uniform(-2, 2, (len(g), 4))
    own = 0.5 * rng.standard_normal(n_groups)[g]
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + own + 0.2 * rng.standard_normal(len(g))
    return GroupedSet(X, y, g)


def machines(seed: int, n_groups: int) -> GroupedSet:
    """Machines of 80 runs: two settings of each machine, speed and load, whose effect differs
    between machines."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), 80)
    settings = rng.uniform(-1, 1, (n_groups, 2))[g]
    speed = rng.uniform(-1, 1, len(g))
    load = rng.uniform(-1, 1, len(g))
    own = rng.standard_normal((n_groups, 2))[g]
    y = settings[:, 0] + np.sin(3 * speed) + 0.5 * load * (1 + 0.5 * own[:, 0]) + 0.3 * own[:, 1]
    return GroupedSet(
        np.column_stack([settings, speed, load]), y + 0.1 * rng.standard_normal(len(g)), g
    )


def weather_days(seed: int, n_groups: int) -> GroupedSet:
    """Days of 24 hours: hour, temperature and wind, and an effect of each day."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), 24)
    hour = np.tile(np.arange(24), n_groups)
    warm = rng.standard_normal(n_groups)[g]
    temperature = 10 + 5 * warm + 4 * np.sin(np.pi * (hour - 8) / 12)
    wind = np.abs(rng.standard_normal(n_groups)[g] + 0.5 * rng.standard_normal(len(g)))
    own = 0.4 * rng.standard_normal(n_groups)[g]
    y = 0.1 * temperature - 0.3 * wind + np.cos(np.pi * hour / 6) + own
    return GroupedSet(
        np.column_stack([hour, temperature, wind]), y + 0.2 * rng.standard_normal(len(g)), g
    )


def no_effect(seed: int, n_groups: int) -> GroupedSet:
    """Groups of 50 rows of a smooth function, without effects of groups."""
    rng = default_rng(seed)
    n = 50 * n_groups
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.05 * rng.standard_normal(n)
    return GroupedSet(X, y, np.repeat(np.arange(n_groups), 50))


def _read(folder: Path, name: str) -> tuple[Float, Float]:
    """Return X and y of a public set."""
    with np.load(folder / f"{name}.npz", allow_pickle=True) as arrays:
        return np.asarray(arrays["X"], dtype=np.float64), np.asarray(arrays["y"], dtype=np.float64)


def _of_groups(X: Float, y: Float, groups: Int, seed: int, n_groups: int, most: int) -> GroupedSet:
    """Return rows of random groups.

    Args:
        X: inputs (N, d)
        y: targets (N,)
        groups: groups (N,)
        seed: draws groups and rows
        n_groups: number of groups
        most: maximum number of rows of a group
    """
    rng = default_rng(seed)
    codes = np.unique(groups)
    chosen = rng.choice(codes, min(n_groups, len(codes)), replace=False)
    rows = [rng.permutation(np.flatnonzero(groups == code))[:most] for code in chosen]
    places = np.sort(np.concatenate(rows))
    return GroupedSet(X[places], y[places], groups[places])


def seoul_bike(folder: Path, seed: int) -> GroupedSet:
    """Rentals per hour on 90 days."""
    X, y = _read(folder, "seoul_bike")
    return _of_groups(X, np.sqrt(y), np.arange(len(y)) // 24, seed, 90, 24)


def appliances(folder: Path, seed: int) -> GroupedSet:
    """Logarithm of the energy per ten minutes on 100 days, 20 rows of each."""
    X, y = _read(folder, "appliances")
    return _of_groups(X, np.log(y), np.arange(len(y)) // 144, seed, 100, 20)


def etopo(folder: Path, seed: int) -> GroupedSet:
    """Elevations in 60 blocks of ten degrees, 30 rows of each."""
    X, y = _read(folder, "etopo20")
    blocks = np.floor(X / 10).astype(np.int64)
    return _of_groups(X, y, 1000 * blocks[:, 0] + blocks[:, 1], seed, 60, 30)


def taxi(folder: Path, seed: int) -> GroupedSet:
    """Trips from 90 zones, at most 30 from each; the zones of pickup and arrival are no features."""
    X, y = _read(folder, "nyc_green_taxi")
    return _of_groups(X[:, :-2], y, X[:, -2].astype(np.int64), seed, 90, 30)


MADE: dict[str, Callable[[int, int], GroupedSet]] = {
    function.__name__: function
    for function in (stations, patients, shops, batches, machines, weather_days, no_effect)
}

PUBLIC: dict[str, Callable[[Path, int], GroupedSet]] = {
    function.__name__: function for function in (seoul_bike, appliances, etopo, taxi)
}


TAUGHT = {
    "stations": 40,
    "patients": 80,
    "shops": 34,
    "batches": 27,
    "machines": 16,
    "weather_days": 60,
    "no_effect": 20,
}
"""Numbers of groups that teach, of the made sets."""

NEW_GROUPS = 200
"""Number of new groups of a made set."""

FOLDS = 5
"""Number of refits."""


class Judged(NamedTuple):
    """Figures of one fit.

    Attributes:
        new: coverage at new groups
        known: coverage at known groups
        rmse_new: RMSE ÷ sd(y) at new groups
        rmse_known: RMSE ÷ sd(y) at known groups
        nlpd_new: NLPD at new groups, of y ÷ sd(y)
        nlpd_known: NLPD at known groups, of y ÷ sd(y)
        seconds: CPU seconds of the fit
        warned: True if a warning names the groups
    """

    new: float
    known: float
    rmse_new: float
    rmse_known: float
    nlpd_new: float
    nlpd_known: float
    seconds: float
    warned: bool


class AtRows(NamedTuple):
    """Figures of one fit at some rows.

    Attributes:
        coverage: share of the targets within 95 % intervals
        errors: errors ÷ sd(y) (n,)
        nlpd: mean negative log predictive density of y ÷ sd(y)
    """

    coverage: float
    errors: Float
    nlpd: float

    @property
    def rmse(self) -> float:
        """The root of the mean squared error."""
        return float(np.sqrt(np.mean(self.errors**2)))


def fitted(rows: GroupedSet, teaches: Bool, *, with_groups: bool) -> RVMRegressor:
    """Return a fit to the rows of a mask (n,)."""
    keywords = {"groups": rows.groups[teaches]} if with_groups else {}
    return RVMRegressor(random_state=0).fit(rows.X[teaches], rows.y[teaches], **keywords)


def nlpd(errors: Float, deviation: Float | float) -> float:
    """Return the mean negative log density of normal errors (n,) with these deviations."""
    return float(np.mean(np.log(2 * np.pi * deviation**2) / 2 + (errors / deviation) ** 2 / 2))


def at_rows(
    model: RVMRegressor, rows: GroupedSet, places: Bool, unit: float, *, with_groups: bool
) -> AtRows:
    """Judge the predictions of rows.

    Args:
        model: the fit
        rows: all rows
        places: mask of the rows (n,)
        unit: sd(y)
        with_groups: whether to tell the groups of the rows
    """
    keywords = {"groups": rows.groups[places]} if with_groups else {}
    X, y = rows.X[places], rows.y[places]
    lower, upper = model.predict_interval(X, **keywords)
    mean, deviation = model.predict(X, return_std=True, **keywords)
    errors = (y - mean) / unit
    coverage = float(((lower <= y) & (y <= upper)).mean())
    return AtRows(coverage, errors, nlpd(errors, deviation / unit))


def judged(rows: GroupedSet, teaches: Bool, is_new: Bool, *, with_groups: bool) -> Judged:
    """Fit to the rows that teach, and judge rows of new and of known groups."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(rows, teaches, with_groups=with_groups)
    seconds = time.process_time() - began
    unit = float(rows.y[teaches].std())
    new = at_rows(model, rows, is_new, unit, with_groups=False)
    known = at_rows(model, rows, ~teaches & ~is_new, unit, with_groups=with_groups)
    return Judged(
        new=new.coverage,
        known=known.coverage,
        rmse_new=new.rmse,
        rmse_known=known.rmse,
        nlpd_new=new.nlpd,
        nlpd_known=known.nlpd,
        seconds=seconds,
        warned=any("groups" in str(warning.message) for warning in caught),
    )


def nlpd_of_refits(rows: GroupedSet, teaches: Bool, is_new: Bool) -> float:
    """Return the NLPD at new groups of the fit with groups, with the standard deviation of the
    errors at groups that refits leave out."""
    unit = float(rows.y[teaches].std())
    folds = default_rng(0).permutation(np.unique(rows.groups[teaches])) % FOLDS
    fold_of = dict(zip(np.unique(rows.groups[teaches]).tolist(), folds.tolist(), strict=True))
    row_folds = np.array([fold_of.get(group, -1) for group in rows.groups.tolist()])
    squares = list[Float]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fold in range(FOLDS):
            outside = teaches & (row_folds == fold)
            refit = fitted(rows, teaches & ~outside, with_groups=True)
            squares.append(at_rows(refit, rows, outside, unit, with_groups=False).errors ** 2)
        model = fitted(rows, teaches, with_groups=True)
    new = at_rows(model, rows, is_new, unit, with_groups=False)
    return nlpd(new.errors, float(np.sqrt(np.mean(np.concatenate(squares)))))


def split(rows: GroupedSet, seed: int) -> tuple[Bool, Bool]:
    """Return masks (n,) of the rows that teach and of the rows of new groups, a third."""
    codes = np.unique(rows.groups)
    new = default_rng([seed, 1]).choice(codes, len(codes) // 3, replace=False)
    is_new = np.isin(rows.groups, new)
    return teaching(is_new, seed), is_new


def teaching(is_new: Bool, seed: int) -> Bool:
    """Return a mask (n,) of random four fifths of the rows outside new groups."""
    return ~is_new & (default_rng([seed, 2]).random(len(is_new)) >= 0.2)


def drawn(name: str, folder: Path | None, seed: int) -> tuple[GroupedSet, Bool, Bool]:
    """Return a draw of a set, with masks (n,) of the rows that teach and of rows of new groups."""
    if name in PUBLIC:
        assert folder is not None
        rows = PUBLIC[name](folder, seed)
        return rows, *split(rows, seed)
    make = MADE[name]
    count = TAUGHT[name]
    rows = make(seed, count + NEW_GROUPS)
    is_new = rows.groups >= count
    return rows, teaching(is_new, seed), is_new


def main() -> None:
    """Print a line for each set and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of sets, by default all")
    parser.add_argument("--data", type=Path, help="folder of the public sets")
    parser.add_argument("--seeds", type=int, default=1, help="number of draws of each set")
    parser.add_argument("--refits", action="store_true", help="also the truth by refits")
    options = parser.parse_args()
    names = options.names or [*MADE, *(PUBLIC if options.data else ())]
    print(f"{'set':14}{'rows':>6}{'groups':>7} | {HEAD} warned | {HEAD} time refits")
    for name in names:
        lines = list[list[float]]()
        for seed in range(options.seeds):
            rows, teaches, is_new = drawn(name, options.data, seed)
            plain = judged(rows, teaches, is_new, with_groups=False)
            grouped = judged(rows, teaches, is_new, with_groups=True)
            truth = nlpd_of_refits(rows, teaches, is_new) if options.refits else np.nan
            count = len(np.unique(rows.groups[teaches]))
            ratio = grouped.seconds / plain.seconds
            line = [*plain[:6], plain.warned, *grouped[:6], ratio, truth]
            print(f"{name:14}{teaches.sum():6}{count:7} | {shown(line)}", flush=True)
            lines.append(line)
        if len(lines) > 1:
            means = np.mean(lines, axis=0).tolist()
            print(f"{name:14}{'mean':>6}{'':7} | {shown(means)}", flush=True)


HEAD = "new   known rmse  rmse  nlpd  nlpd "
"""Columns of one fit: at new and at known groups."""


def shown(line: list[float]) -> str:
    """Return the figures of a line: six of each fit, whether it warned, the ratio of seconds, and
    the NLPD by refits."""
    plain, warned, grouped, ratio, truth = line[:6], line[6], line[7:13], line[13], line[14]
    figures = [" ".join(f"{value:5.3f}" for value in fit) for fit in (plain, grouped)]
    refits = "" if np.isnan(truth) else f" {truth:5.3f}"
    return f"{figures[0]} {warned:6.2f} | {figures[1]} {ratio:4.2f}{refits}"


if __name__ == "__main__":
    main()
