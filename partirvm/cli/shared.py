"""What the verbs have in common: clusters, places, printing, and a fit that runs before one's eyes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from partirvm.cli.failures import Status, failed_at_work
from partirvm.cli.interruption import Interruption
from partirvm.errors import ClusterError, JobFailedError

DEMO = "demo"
"""Object of the click context of commands that the demo runs."""


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """A client of the scheduler at this address for the length of the block; None for this process."""
    if address is None:
        yield None
        return
    from partirvm import service

    with service.connect(address) as client:
        yield client


def place(name: str, client: Any) -> str:
    """A name that means the same thing to the workers of a cluster, whatever folder they were started in."""
    return name if client is None or "://" in name else str(Path(name).absolute())


def show(facts: Any, text: str, as_json: bool, *following: str) -> None:
    """Print a result, and the commands that may follow; the demo, which shows those itself, leaves them out."""
    click.echo(json.dumps(facts) if as_json else text)
    if following and not as_json and click.get_current_context().obj is not DEMO:
        click.echo("\n".join(["", "next:", *(f"  {command}" for command in following)]))


def in_foreground(work: Callable[..., Any], job: str, *, quiet: bool, as_json: bool) -> int:
    """Do ``work`` with progress, let Ctrl-C end it, print what came of it; the exit status.

    ``work`` takes a watcher, ``on_plan`` and ``aborted``, and returns what ``service.fit`` does.
    """
    from partirvm.report.progress import progress_for
    from partirvm.report.text import fit_facts, summary

    with progress_for(quiet=quiet) as progress, Interruption(progress.note) as stop:
        begun = False

        def on_plan(made: Any) -> None:
            nonlocal begun
            begun = True
            stop.listen()
            progress.on_plan(made)

        try:
            fitted = work(watcher=progress, on_plan=on_plan, aborted=lambda: stop.came)
        except ClusterError as error:
            if not begun:
                raise
            raise failed_at_work(error) from error
        except KeyboardInterrupt:
            if not begun or not _there(job):
                raise
            has = "the model of the last round that was finished" if progress.rounds else "no model yet"
            progress.note(f"stopped at once; {job} holds {has}, and can go on: partirvm resume {job}")
            return Status.ABORTED if progress.rounds else Status.FAILED
    if fitted.model is None:
        raise JobFailedError(f"{job} was ended before there was a model; it can go on: partirvm resume {job}")
    facts = fit_facts(job, fitted.model.columns.target, fitted.history, fitted.outcome, fitted.plan.to_json())
    aborted = facts["reason"] == "aborted"
    show(
        facts,
        summary(facts),
        as_json,
        f"partirvm evaluate {job} TEST.zarr",
        f"partirvm predict {job} NEW.zarr predictions.csv",
        *[f"partirvm resume {job}"] * aborted,
    )
    return Status.ABORTED if aborted else Status.DONE


def _there(job: str) -> bool:
    from partirvm import service

    return service.Job(job).store.there()
