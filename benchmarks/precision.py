"""Regression passes in float32: seconds saved, and errors of the evidence, the noise variance and predictions.

    python -m benchmarks.precision --data DIR [--case NAME ...] [--repeats K] [--output FOLDER]

A Gram pass computes ΦᵀΦ and Φᵀt, most of the time of a fit to many rows. Three forms of it are compared:

``double``  the pass of the package
``values``  kernel values are rounded to float32, but multiplied in float64
``single``  kernel values are rounded to float32 and multiplied in float32, one panel of 2,048 rows at a time

In all forms squared distances are float64, since float32 distances from distant points are inaccurate, and the sums
over panels are float64. The first table has one pass over all rows and columns of a fit in double. ``seconds`` are CPU
seconds of one thread, medians of alternating runs, and ``speedup`` is relative to ``double``. ``error`` is the largest
error of an element of ΦᵀΦ, relative to the lengths of the two columns. ``cond`` is the condition number of βΦᵀΦ + A
with unit diagonal. ``magnitude`` is the size of the terms of tᵀt − 2μᵀΦᵀt + μᵀΦᵀΦμ divided by their sum, the residual.
``evidence``, ``noise`` and ``rmse`` are the changes, at the same α and β, of the log evidence (nats per row), of the
estimate of σ² (relative) and of the test error (relative). ``jitter`` is the smallest power of ten that had to be added
to the unit diagonal to make the scaled matrix positive definite. Here it may be up to 1e-3; a fit of the package fails
if more than 1e-10 is necessary (``partirvm.core.posterior``). In the second table whole fits use each form of pass,
with the same limit of jitter. ``stated`` is the evidence that the fit states, ``true`` the evidence of the same α and β
by double statistics, both in nats per row. ``gram_share`` is the fraction of the seconds that Gram passes take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Split, load
from benchmarks.measure import apart, say, table, write
from partirvm.backends import LocalExecutor
from partirvm.backends.tile_passes import tile_statistics
from partirvm.blas_threads import one_blas_thread
from partirvm.core import posterior as posteriors
from partirvm.core.posterior import Posterior
from partirvm.core.statistics import EPS, GramBlock, GramStatistics
from partirvm.core.updates import HyperState, noise_precision
from partirvm.data import Source, as_source
from partirvm.errors import NumericalError
from partirvm.jobs.driver import MemoryJournal
from partirvm.jobs.run import run
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.kernels.distances import SquaredDistances
from partirvm.likelihoods import gaussian
from partirvm.likelihoods.columns import labels_of
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.likelihoods.passes import TileRows
from partirvm.options import Request
from partirvm.setup.resolve import resolve
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]

FORMS = ("double", "values", "single")

JITTERS = (*posteriors.JITTERS, *(10.0**k for k in range(-9, -2)))
"""Values added to the unit diagonal, tried in this order."""


class ValuesPass(GramPass):
    """A Gram pass of Gaussian kernel values that are rounded to float32; products are float64."""

    products: type = np.float64

    def statistic(self, tile: TileRows) -> Any:
        """Return the products over the tile's rows."""
        total: Any = None
        evaluate = [_evaluator(design, len(tile.X)) for design in self.designs]
        for (panel,) in tile.panels(self.rows):
            kept, new = (each(panel.X).astype(self.products, copy=False) for each in evaluate)
            target = self.new.scaling.targets(panel.t)
            if self.offset.any():  # the residual target needs the digits of float64
                target = target - self.kept.block(panel.X) @ self.offset
            block = GramBlock.of(kept, new, target.astype(self.products, copy=False), panel.weights)
            total = _double(block) if total is None else total.accumulate(block)
        return total


class SinglePass(ValuesPass):
    """A Gram pass whose products over each panel are float32."""

    products = np.float32


def _double(block: GramBlock) -> GramBlock:
    cross, gram, projection, sum_squares = (
        each.astype(np.float64) for each in (block.cross, block.gram, block.projection, block.sum_squares)
    )
    return GramBlock(cross, gram, projection, sum_squares, block.n, block.log_weight)


def _evaluator(design: Design, rows: int) -> Callable[[Float], Any]:
    """Return the function of raw inputs that gives Φ in float32, stored column by column in one reused array."""
    place: Any = np.empty(min(PANEL_ROWS, rows) * design.n_columns, np.float32)
    (kernel,) = design.kernels
    assert isinstance(kernel, Gaussian)
    centres = design.scaling.inputs(design.centres)
    distances = SquaredDistances.of(centres, kernel.widths(centres.shape[1]), design.origin)

    def evaluate(X: Float) -> Any:
        out = place[: len(X) * design.n_columns].reshape(design.n_columns, len(X))
        design.lead(X, out.T)
        columns, points = out[design.n_leading :], distances.widened(design.scaling.inputs(X))
        for some in distances.groups():
            work = columns[some]
            work[...] = distances.products.block(points, some)
            np.minimum(work, 0.0, out=work)
            np.exp(work, out=work)
        return out.T

    return evaluate


PASSES: dict[str, type[GramPass]] = {"double": GramPass, "values": ValuesPass, "single": SinglePass}


@dataclass(frozen=True)
class Case:
    """A fit: its rows, and the options that differ from the defaults."""

    name: str
    rows: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> str:
        """Name of the data set."""
        return self.name.split(",")[0]


CASES = {
    case.name: case
    for case in (
        Case("nyc_green_taxi", 300_000, {"gamma": 1 / 9, "partition_size": 250, "max_rounds": 3}),
        Case("etopo20", 100_000, {"gamma": 50.0, "partition_size": 250, "max_rounds": 4}),
        Case("kin40k", 20_000, {"gamma": 0.1, "partition_size": 500, "max_rounds": 4}),
        Case("kin40k, narrow", 20_000, {"gamma": 1.0, "partition_size": 500, "max_rounds": 4}),
        Case("nyc_green_taxi, wide", 100_000, {"gamma": 1e-3, "partition_size": 250, "max_rounds": 3}),
        Case("kin40k, wide", 20_000, {"gamma": 1e-3, "partition_size": 500, "max_rounds": 3}),
        Case("smooth", 50_000, {"gamma": 0.05, "partition_size": 250, "max_rounds": 3}),
        Case("sinc", 20_000, {"gamma": 3.0, "partition_size": 100, "max_rounds": 3}),
    )
}

PASS_COLUMNS = {
    "case": "", "form": "", "rows": ",", "columns": ",", "seconds": ".2f", "speedup": ".2f", "error": ".0e",
    "cond": ".0e", "magnitude": ".0e", "jitter": ".0e", "evidence": ".0e", "noise": ".0e", "rmse": ".0e",
}  # fmt: skip

FIT_COLUMNS = {
    "case": "", "form": "", "vectors": ",", "seconds": ".2f", "speedup": ".2f", "gram_share": ".2f", "stated": ".5f",
    "true": ".5f", "noise_sd": ".5f", "rmse": ".5f",
}  # fmt: skip


def split(folder: str, case: Case) -> Split:
    """Return the rows of a case; ``smooth`` and ``sinc`` are generated, with noise of 1e-3 and 1e-5."""
    rng = np.random.default_rng(0)
    if case.data == "smooth":
        X = rng.uniform(-3, 3, size=(case.rows + 5_000, 4))
        y = np.sin(X[:, 0] + 0.5 * X[:, 1]) + np.cos(X[:, 2] - 0.5 * X[:, 3]) + 1e-3 * rng.normal(size=len(X))
    elif case.data == "sinc":
        X = rng.uniform(-10, 10, size=(case.rows + 5_000, 1))
        y = np.sinc(X[:, 0] / np.pi) + 1e-5 * rng.normal(size=len(X))
    else:
        found = load(folder, case.data)
        some = np.sort(rng.permutation(len(found.y))[: case.rows])
        return Split(case.name, found.X[some], found.y[some], found.X_test, found.y_test)
    return Split(case.name, X[: case.rows], y[: case.rows], X[case.rows :], y[case.rows :])


def fit(source: Source, case: Case, form: str) -> tuple[Design, HyperState, float, float]:
    """Return design and fit of the last model, the CPU seconds of the fit, and the share of its Gram passes."""
    executor, journal = LocalExecutor(), MemoryJournal()
    spec = resolve(source, Request(noise="constant", kernel_store="none", **case.options), executor)
    began = time.process_time()
    in_passes: list[float] = []
    with mock.patch.object(gaussian, "GramPass", PASSES[form]), _timed(PASSES[form], in_passes):
        outcome = run(spec, source, executor, journal)
    seconds = time.process_time() - began
    executor.close()
    assert outcome.kept is not None
    design, found = outcome.kept
    assert isinstance(found, HyperState)
    return design, found, seconds, sum(in_passes) / seconds


def _timed(form: type[GramPass], seconds: list[float]) -> Any:
    """Return the context in which the CPU seconds of each tile's Gram pass are added to a list."""
    original = form.statistic

    def statistic(self: GramPass, tile: TileRows) -> Any:
        began = time.thread_time()
        found = original(self, tile)
        seconds.append(time.thread_time() - began)
        return found

    return mock.patch.object(form, "statistic", statistic)


def one_pass(source: Source, design: Design, form: str) -> tuple[GramStatistics, float]:
    """Return the statistics of all columns of a design from one pass over all rows, and its CPU seconds."""
    empty = GramStatistics.empty(design.basis)
    gram = PASSES[form](design.take(np.zeros(0, np.int64), leading=np.zeros(0, np.int64)), design, empty.offset)
    began = time.process_time()
    with one_blas_thread():
        total = reduce(add, (tile_statistics((gram,), source, number) for number in range(source.n_tiles)))
    seconds = time.process_time() - began
    return empty.extend(labels_of(design), total.parts[0], design.basis), seconds


def rmse(data: Split, design: Design, mean: Float) -> float:
    """Return the error of the test rows, in standard deviations of the training target."""
    shift, scale = float(design.scaling.t_shift[0]), float(design.scaling.t_scale[0])
    errors = [t - shift - scale * (design.block(X) @ mean) for X, t in _pieces(data.X_test, data.y_test)]
    return float(np.sqrt((np.concatenate(errors) ** 2).mean()) / data.deviation)


def _pieces(X: Float, y: Float, size: int = 4096) -> Iterator[tuple[Float, Float]]:
    return ((X[start : start + size], y[start : start + size]) for start in range(0, len(y), size))


def _state(fit: HyperState, statistics: GramStatistics) -> tuple[HyperState, Posterior]:
    """Return the fit with other statistics of the same columns, and its posterior."""
    beta = float(np.max(fit.beta))
    found = posteriors.posterior(statistics, fit.alpha, beta)
    return HyperState(statistics, fit.alpha, beta, fit.target_variance, fit.fixed_noise, found=found), found


def condition(fit: HyperState, statistics: GramStatistics) -> float:
    """Return the condition number of βΦᵀΦ + A, scaled to unit diagonal."""
    H = float(np.max(fit.beta)) * statistics.gram + np.diag(fit.alpha)
    scale = 1 / np.sqrt(H.diagonal())
    values = np.linalg.eigvalsh(H * scale[:, None] * scale)
    return float(values[-1] / max(values[0], EPS))


@mock.patch.object(posteriors, "JITTERS", JITTERS)
def passes(folder: str, case: Case, repeats: int) -> dict[str, Any]:
    """Compare single passes over the columns of a fit in double."""
    data = split(folder, case)
    source = as_source(data.X, data.y, seed=1)
    design, found, _, _ = fit(source, case, "double")
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    statistics: dict[str, GramStatistics] = {}
    for _ in range(repeats):
        for form in FORMS:
            statistics[form], used = one_pass(source, design, form)
            seconds[form].append(used)
    exact = statistics["double"]
    state, best = _state(found, exact)
    lengths = np.sqrt(exact.diagonal)
    reference, truth = noise_precision(state)[0], rmse(data, design, best.mean)
    rows = []
    for form in FORMS:
        given = statistics[form]
        state, other = _state(found, given)
        row = {
            "case": case.name, "form": form, "rows": source.n_rows, "columns": design.n_columns,
            "seconds": median(seconds[form]), "speedup": median(seconds["double"]) / median(seconds[form]),
            "error": float(np.abs((given.gram - exact.gram) / lengths / lengths[:, None]).max()),
            "cond": condition(found, exact), "magnitude": best.rounding / EPS / best.residual, "jitter": other.jitter,
            "evidence": (other.log_evidence - best.log_evidence) / exact.n,
            "noise": float(reference / noise_precision(state)[0]) - 1.0,
            "rmse": rmse(data, design, other.mean) / truth - 1.0,
        }  # fmt: skip
        rows.append(row)
    return {"rows": rows}


@mock.patch.object(posteriors, "JITTERS", JITTERS)
def whole(folder: str, case: Case, form: str) -> dict[str, Any]:
    """Return the measurements of a whole fit whose Gram passes have this form."""
    data = split(folder, case)
    source = as_source(data.X, data.y, seed=1)
    try:
        design, found, seconds, share = fit(source, case, form)
    except NumericalError:
        return {"case": case.name, "form": form, "seconds": None}
    exact, _ = one_pass(source, design, "double")
    _, best = _state(found, exact)
    return {
        "case": case.name,
        "form": form,
        "vectors": found.n_vectors,
        "seconds": seconds,
        "stated": found.log_evidence / exact.n,
        "true": best.log_evidence / exact.n,
        "gram_share": share,
        "noise_sd": float(np.sqrt(np.max(found.noise_variance))),
        "rmse": rmse(data, design, found.posterior.mean),
    }


def whole_fits(folder: str, case: Case, repeats: int) -> list[dict[str, Any]]:
    """Compare whole fits, each in a separate process; repeats alternate."""
    found: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    for _ in range(repeats):
        for form in FORMS:
            found[form].append(apart(whole, folder, case, form))
    rows = []
    for form, runs in found.items():
        row = runs[0]
        if row["seconds"] is not None:
            seconds, double = (median(run["seconds"] for run in found[each]) for each in (form, "double"))
            row |= {"seconds": seconds, "speedup": double / seconds}
        rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the requested cases and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the .npz files, see benchmarks/datasets.py")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), help="cases (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each form (default: 3)")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    single, fits = [], []
    for name in options.case:
        single += apart(passes, options.data, CASES[name], options.repeats)["rows"]
        say(table(single[-len(FORMS) :], PASS_COLUMNS))
        fits += whole_fits(options.data, CASES[name], options.repeats)
        say(table(fits[-len(FORMS) :], FIT_COLUMNS))
    write(options.output, "precision_passes", single, PASS_COLUMNS)
    write(options.output, "precision_fits", fits, FIT_COLUMNS)


if __name__ == "__main__":
    main()
