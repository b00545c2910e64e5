"""Fit a model from a spec and a source of rows. The estimators and the command line both call ``run``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from partirvm.core.termination import Termination
from partirvm.data import Source
from partirvm.execution import Executor
from partirvm.execution.kernel_store import keeping_blocks
from partirvm.jobs import reference
from partirvm.jobs.driver import Driver, Journal, Outcome, Watcher
from partirvm.jobs.row_numbers import table_rows
from partirvm.jobs.warn import warn_of_data, warn_of_limits, warn_of_outcome
from partirvm.learning.learned_text import kernel_texts
from partirvm.setup.spec import FitSpec
from partirvm.strategies import STRATEGIES


def run(
    spec: FitSpec,
    source: Source,
    executor: Executor,
    journal: Journal,
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
    warn_of_data(spec, source.columns)
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
    warn_of_outcome(outcome, spec)
    warn_of_limits(outcome, spec)
    return outcome
