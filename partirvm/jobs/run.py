"""Fitting: from a source and parameters to a model. What the estimator and the command line both call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from partirvm.backends import Executor
from partirvm.core.termination import Termination
from partirvm.jobs.driver import Checkpoint, Driver, Journal, Outcome, Watcher
from partirvm.jobs.kernel_blocks import keeping_blocks
from partirvm.jobs.warn import warn_of_data, warn_of_limits, warn_of_outcome
from partirvm.setup.resolve import Prepared
from partirvm.setup.search import telling
from partirvm.strategies import strategy_for


def run(
    prepared: Prepared,
    executor: Executor,
    journal: Journal,
    *,
    watcher: Watcher | None = None,
    interrupted: Callable[[], Termination | None] = lambda: None,
    resume: Checkpoint | None = None,
    usable: bool = False,
    elapsed: float = 0.0,
    beside: Path | None = None,
) -> Outcome:
    """Run a prepared fit; the journal holds model and history afterwards. Warns of what deserves a look.

    ``interrupted``, ``resume``, ``usable`` and ``elapsed`` are the driver's: what may end the run, where to go on,
    whether there is a model, seconds before.
    ``beside`` is the folder for kernel blocks that are kept on disk; without one they go to a temporary folder.
    """
    executor.use(prepared.plan.threads)
    driver = Driver(
        executor=executor,
        source=prepared.source,
        held_out=prepared.held_out,
        watcher=watcher or Watcher(),
        interrupted=interrupted,
        told=telling(prepared.source.columns.features),
    )
    for entry in prepared.measured:
        journal.record(entry)
        driver.watcher.on_record(entry)
    warn_of_data(prepared)
    with keeping_blocks(prepared, executor, beside) as driver.blocks:
        outcome = driver.run(
            strategy_for(prepared.plan.strategy, prepared.options.selection),
            prepared.problem,
            prepared.options,
            journal,
            resume=resume,
            usable=usable,
            elapsed=elapsed,
        )
    warn_of_outcome(outcome, prepared)
    warn_of_limits(outcome, prepared)
    return outcome
