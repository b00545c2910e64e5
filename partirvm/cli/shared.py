"""Functions that several commands use: clusters, paths, printing, and a fit with progress in the foreground."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from partirvm.cli.failures import ExitStatus, failed_at_work
from partirvm.cli.flags import as_flags
from partirvm.cli.interruption import Interruption
from partirvm.cli.terminal import echo
from partirvm.errors import ClusterError, JobFailedError

DEMO = "demo"
"""Object of the click context of commands that the demo runs."""


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at this address and close it after the block; yield None without an address."""
    if address is None:
        yield None
        return
    from partirvm import execution

    with execution.connect(address) as client:
        yield client


def place(name: str, client: Any) -> str:
    """Return the path that a fit uses: absolute on a cluster, because its workers may run in another folder."""
    return name if client is None or "://" in name else str(Path(name).absolute())


def show(facts: Any, text: str, as_json: bool, *following: str) -> None:
    """Print a result and the commands that may follow (the demo prints its commands elsewhere)."""
    echo(json.dumps(facts) if as_json else text)
    if following and not as_json and click.get_current_context().obj is not DEMO:
        echo("\n".join(["", "next:", *(f"  {command}" for command in following)]))


def ended(status: str) -> int:
    """Return the exit status for the status of a job."""
    return {"done": ExitStatus.DONE, "aborted": ExitStatus.ABORTED}.get(status, ExitStatus.FAILED)


def in_foreground(work: Callable[..., Any], job: str, *, quiet: bool, as_json: bool, resumed: bool = False) -> int:
    """Run ``work`` with progress, end it on Ctrl-C, print its result, and return the exit status.

    ``work`` takes a watcher, ``on_plan`` and ``aborted``, and returns what ``jobs.fit`` returns, or None if another
    process has finished the job. Before the plan is made, Ctrl-C ends a new fit at once: nothing is written yet.
    A ``resumed`` job is aborted instead, because its folder exists. Without a usable model the exit status is 4, and a
    message states the reason.
    """
    from partirvm import jobs
    from partirvm.report.displays import progress_for
    from partirvm.report.model_tables import Function, functions_line
    from partirvm.report.text import fit_facts, summary
    from partirvm.setup.relevance import basis_functions_json, targets_json

    with progress_for(quiet=quiet, spell=as_flags) as progress:
        begun = False
        try:
            with Interruption(progress.note) as stop:
                if resumed:
                    stop.listen()

                def on_plan(made: Any) -> None:
                    nonlocal begun
                    begun = True
                    if not resumed:
                        stop.listen()
                    progress.on_plan(made)

                fitted = work(watcher=progress, on_plan=on_plan, aborted=stop.poll)
        except ClusterError as error:
            if not begun:
                raise
            raise failed_at_work(error) from error
        except KeyboardInterrupt:
            if not (begun or resumed) or not _there(job):
                raise
            usable = jobs.Job(job).store.has_model()
            has = "the model of the last finished round" if usable else "no model yet"
            progress.note(f"stopped at once; {job} holds {has}. Continue with: partirvm resume {job}")
            return ExitStatus.ABORTED if usable else ExitStatus.FAILED
    if fitted is None:
        return _done_elsewhere(job, as_json)
    if fitted.model is None:
        if jobs.Job(job).status().value == "cancelled":
            raise JobFailedError(f"{job} was cancelled: its model was discarded")
        raise JobFailedError(f"{job} ended before it had a model. Continue with: partirvm resume {job}")
    plan = fitted.plan.to_json() if fitted.plan else jobs.Job(job).state().plan or {}
    facts = fit_facts(job, fitted.model.columns.target, fitted.history, fitted.outcome, plan)
    facts |= targets_json(fitted.model)
    bases = basis_functions_json(fitted.model)
    facts |= {"basis": bases} if bases else {}
    text = summary(facts) + (f"\n{'basis':<16}{functions_line([Function(**each) for each in bases])}" if bases else "")
    aborted = facts["reason"] == "aborted"
    show(
        facts,
        as_flags(text),
        as_json,
        f"partirvm evaluate {job} TEST.zarr",
        f"partirvm predict {job} NEW.zarr predictions.csv",
        *[f"partirvm resume {job}"] * aborted,
    )
    return ExitStatus.ABORTED if aborted else ExitStatus.DONE


def _done_elsewhere(job: str, as_json: bool) -> int:
    """Print the status of a job that another process took over and ended."""
    from partirvm import jobs
    from partirvm.report.status import status_text

    found = jobs.open_job(job).progress()
    echo(f"{job}: another process has run it in the meantime", err=True)
    show(found, as_flags(status_text(found)), as_json)
    return ended(found["status"])


def _there(job: str) -> bool:
    from partirvm import jobs

    return jobs.Job(job).store.there()
