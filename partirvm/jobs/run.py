"""Fit a model from a spec and a source of rows, and warn of what lowers its accuracy.

The estimators and the command line both call ``run``. A fit continues with new rows after ``with_new_rows``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.data.zarr_source import ZarrSource
from partirvm.errors import (
    AccuracyWarning,
    DataWarning,
    LimitWarning,
    NoiseFloorWarning,
    OverconfidenceWarning,
    PartirvmError,
)
from partirvm.execution import Executor
from partirvm.execution.kernel_store import keeping_blocks
from partirvm.jobs import reference
from partirvm.jobs.driver import Driver, MemoryJournal, Outcome, Watcher
from partirvm.learning.folds import DENSE
from partirvm.learning.forms import kernel_texts
from partirvm.quoting import listed, quoted
from partirvm.resolve.spec import FitSpec
from partirvm.strategies import STRATEGIES
from partirvm.strategies.rounds import with_appended_rows
from partirvm.strategies.stages import RoundsState
from partirvm.types import Columns


def run(
    spec: FitSpec,
    source: Source,
    executor: Executor,
    journal: MemoryJournal,
    *,
    held_out: Source | None = None,
    watcher: Watcher | None = None,
    interrupted: Callable[[], Termination | None] = lambda: None,
    checkpoint: Any = None,
    usable: bool = False,
    elapsed: float = 0.0,
    beside: Path | None = None,
) -> Outcome:
    """Run the spec of a fit and warn of problems with the data or the result.

    The journal receives the model and the history. ``interrupted``, ``usable`` and ``elapsed`` are passed to
    ``Driver``. With a ``checkpoint``, a state of the strategy, the run continues from there. ``beside`` is the folder
    for kernel blocks that are kept on disk; without ``beside`` a temporary folder is used.
    """
    executor.use(spec.plan.threads)
    texts, remarks = kernel_texts(source.columns.features), list[str]()

    def readable(entry: dict[str, Any]) -> dict[str, Any]:
        found = {**texts(entry), "diagnostics": table_rows(entry["diagnostics"], source, held_out)}
        if reference.wanted(spec, entry) and interrupted() is None:
            with suppress(PartirvmError):  # a finished fit does not fail because of its report
                found["reference"] = reference.compare(driver, spec, entry)
                remarks.extend(found["reference"]["remarks"])
        return found

    driver = Driver(
        executor=executor,
        source=spec.weigh(source),
        held_out=held_out,
        watcher=watcher or Watcher(),
        interrupted=interrupted,
        readable=readable,
    )
    for entry in spec.measured if checkpoint is None else ():
        journal.record(entry)
        driver.watcher.on_record(entry)
    _warn_of_data(spec, source.columns)
    with keeping_blocks(spec.plan, executor.forget, beside) as driver.blocks:
        outcome = driver.run(
            STRATEGIES[spec.plan.strategy](),
            spec.problem,
            spec.options,
            journal,
            resume=checkpoint,
            usable=usable,
            elapsed=elapsed,
        )
    outcome = replace(outcome, remarks=tuple(remarks))
    _warn_of_outcome(outcome, spec)
    return outcome


def is_growable(state: Any) -> bool:
    """Return True if new rows can join the fit of this state of a strategy, as all but split-merge's own."""
    return isinstance(state, RoundsState)


def with_new_rows(state: RoundsState, spec: FitSpec) -> RoundsState:
    """Return the state of a checkpoint extended to the new rows of a grown spec (``resolve.resolve``)."""
    state = with_appended_rows(state, spec.problem, spec.options)
    return state if spec.plan.schedule.selects else replace(state, selection=spec.options.selection)


def table_rows(diagnostics: list[dict[str, Any]], source: Source, held_out: Source | None) -> list[dict[str, Any]]:
    """Return the diagnostics of a line of history with row numbers of the ingested table in ``largest``.

    Diagnostics without coverage are of training rows left out (``core.left_out``), all others of held-out rows. If the
    numbers cannot be read, ``largest`` is empty: a finished fit does not fail because of its report.
    """
    left_out = any(not each.get("covered", True) for each in diagnostics)
    shown = source if held_out is None or left_out else held_out
    if not isinstance(shown, ZarrSource):  # other sources keep the order of their rows
        return diagnostics
    numbers = cache(shown.original_rows)

    def number(row: int) -> int:
        tile, place = divmod(row, shown.tile_rows)
        return int(numbers(tile)[place])

    try:
        return [
            {**each, "largest": [[number(row), *values] for row, *values in each["largest"]]} for each in diagnostics
        ]
    except PartirvmError:
        return [{**each, "largest": []} for each in diagnostics]


def _warn_of_data(spec: FitSpec, columns: Columns) -> None:
    """Warn of a constant target and of constant features."""
    if not spec.problem.target_variance:
        warnings.warn(
            f"the target {quoted(columns.target)} is constant: the model is its mean", DataWarning, stacklevel=3
        )
    constant = np.flatnonzero(spec.constant)
    if len(constant) and spec.counted > 1:
        names = listed(columns.features[column] for column in constant)
        warnings.warn(f"constant features are ignored: {names}", DataWarning, stacklevel=3)


def _warn_of_outcome(outcome: Outcome, spec: FitSpec) -> None:
    """Warn of problems with a finished fit, such as a noise estimate at its floor or a reached memory limit."""
    last, classes = outcome.last, spec.problem.classifies
    limit, strategy = spec.request.max_vectors, spec.plan.strategy
    if last is None or last.kind == "early":
        return
    if limit is not None and last.vectors > limit:
        warnings.warn(
            f"{last.vectors:,} vectors are more than max_vectors = {limit:,}: {strategy} fits all rows as candidates "
            "at once and cannot keep this limit; choose another strategy",
            LimitWarning,
            stacklevel=3,
        )
    if last.kind == "part":
        return
    if last.floored:
        warnings.warn(
            "the noise estimate reached its floor: the data are nearly noise-free, or the model interpolates the "
            "targets; set noise_variance, widen the kernel, or check held-out errors",
            NoiseFloorWarning,
            stacklevel=3,
        )
    if last.overconfident:
        assert last.overconfidence is not None
        warnings.warn(
            f"errors of rows left out are {last.overconfidence**0.5:,.1f} × the standard deviation by the evidence; "
            "the stated noise comes from these errors. The kernel is probably too narrow: try a lower gamma",
            OverconfidenceWarning,
            stacklevel=3,
        )
    for remark in outcome.remarks:
        warnings.warn(remark, AccuracyWarning, stacklevel=3)
    if last.duplicates:
        warnings.warn(
            f"{last.duplicates:,} candidates had the same inputs as another row: these candidates did not become "
            f"centres, but their {'classes' if classes else 'targets'} are used in the fit",
            DataWarning,
            stacklevel=3,
        )
    if last.dropped:
        warnings.warn(
            f"{last.dropped:,} vectors were dropped at merges because of max_vectors or memory_limit: fits of these "
            "data prune fewer than half of their candidates; raise the limit, or use the working-set strategy",
            LimitWarning,
            stacklevel=3,
        )
    sparseness = spec.plan.sparseness
    if sparseness is not None and sparseness.rho > DENSE:
        warnings.warn(
            f"{sparseness.rho:.0%} of {sparseness.rows:,} random rows became vectors: the kernel is probably too "
            "narrow; try a lower gamma",
            DataWarning,
            stacklevel=3,
        )
    if not last.vectors and spec.problem.target_variance and spec.problem.empty.functions is None:
        warnings.warn(
            "no relevance vector is left, so that the model predicts "
            f"{'the class frequencies' if classes else 'the mean'}: the kernel does not fit these data; try another "
            "gamma",
            DataWarning,
            stacklevel=3,
        )
    grave = {Termination.MEMORY, Termination.ITERATIONS}
    in_order = spec.plan.schedule.has_rounds and spec.plan.schedule.whole_partitions
    if in_order:
        grave.add(Termination.VECTORS)
    for reason in {outcome.reason, last.termination} & grave:
        advice = reason.advice
        if in_order and not (reason is Termination.ITERATIONS or spec.plan.joining):
            used = f"{last.number:,} of {spec.plan.partitions:,} partitions"
            advice += f" Only {used} became candidates; the working-set strategy selects from all rows."
        warnings.warn(advice, LimitWarning, stacklevel=3)
