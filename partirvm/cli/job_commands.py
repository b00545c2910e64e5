"""The verbs of jobs: look at one, wait for it, end it, go on with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from partirvm.cli import options
from partirvm.cli.failures import ExitStatus
from partirvm.cli.flags import as_flags
from partirvm.cli.shared import cluster, ended, in_foreground, place, show
from partirvm.cli.terminal import echo
from partirvm.errors import DoneError, ExistsError, JobFailedError, PartirvmError


def detached(job: str, scheduler: str | None, as_json: bool) -> int:
    """Say that a job goes on by itself, and how to look after it."""
    show(
        {"job": job, "status": "queued", "scheduler": scheduler},
        f"{job}: handed over to {scheduler}",
        as_json,
        f"partirvm status {job} --follow",
        f"partirvm abort {job}",
    )
    return ExitStatus.DONE


@click.command()
@click.argument("job")
@click.option("--follow", is_flag=True, help="Show each round as it comes, until the job is over.")
@options.as_json
def status(job: str, follow: bool, as_json: bool) -> int:
    """Tell where a job stands: its state, why, and the last round.

    A job is queued, running, aborting, aborted, failed, interrupted (its process is gone), done or cancelled. JOB may
    be looked at from any machine that sees the folder, as often as one likes. With --follow, Ctrl-C ends only the
    looking, and the exit status tells how the job ended, as that of `wait`. With --json, --follow prints a line for
    each round.

    \b
    Examples:
      partirvm status jobs/run1
      partirvm status jobs/run1 --follow
    """
    from partirvm import jobs
    from partirvm.report.status import Follower, status_text

    opened = jobs.open_job(job)
    if not follow:
        found = opened.progress()
        show(found, as_flags(status_text(found)), as_json)
        return ExitStatus.DONE
    follower, told = Follower(), 0
    try:
        for state in opened.follow():
            if as_json:
                lines = [json.dumps(entry) for entry in state.history[told:]]
                told = max(told, len(state.history))
            else:
                lines = [as_flags(line) for line in follower.of(state)]
            for line in lines:
                echo(line)
    except KeyboardInterrupt:
        echo(f"stopped looking; {job} goes on", err=True)
        return ExitStatus.DONE
    found = opened.progress()
    show(found, "\n" + as_flags(status_text(found)), as_json)
    return ended(found["status"])


@click.command()
@click.argument("folder")
@options.as_json
def jobs(folder: str, as_json: bool) -> None:
    """List all jobs in FOLDER, a line for each.

    \b
    Example:
      partirvm jobs jobs
    """
    from partirvm import jobs
    from partirvm.report.status import jobs_table

    found: list[dict[str, Any]] = []
    for job in jobs.jobs_in(folder):
        try:
            found.append(job.progress())
        except PartirvmError as error:
            found.append({"job": job.location, "error": str(error)})
    if not found and not as_json:
        is_job = jobs.Job(folder).store.there()
        echo(f"{folder}: no jobs in this folder" + f"; it is one: partirvm status {folder}" * is_job)
        return
    show(found, jobs_table(found), as_json)


@click.command()
@click.argument("job")
@click.option("--timeout", type=options.Duration(), help="Give up after this time, such as 90s or 8h.")
@options.as_json
def wait(job: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a job is over.

    The exit status tells how it ended: 0 done, 3 aborted, 4 failed, interrupted, cancelled, or not over in time.

    \b
    Example:
      partirvm wait jobs/run1 && partirvm evaluate jobs/run1 test.zarr
    """
    from partirvm import jobs
    from partirvm.report.status import status_text

    opened = jobs.open_job(job)
    try:
        opened.wait(timeout)
    except TimeoutError as error:
        raise JobFailedError(str(error)) from error
    except KeyboardInterrupt:
        echo(f"stopped waiting; {job} goes on", err=True)
        return ExitStatus.FAILED
    found = opened.progress()
    show(found, as_flags(status_text(found)), as_json)
    return ended(found["status"])


@click.command()
@click.argument("job")
@options.reason
@options.as_json
def abort(job: str, reason: str, as_json: bool) -> None:
    """End a job and keep the model that it has.

    Wherever the job runs, it stops after the tile or the iteration at hand. Returns at once; `wait` waits for the end.
    What is over stays as it is, and `resume` goes on from there.

    \b
    Example:
      partirvm abort jobs/run1 && partirvm wait jobs/run1
    """
    from partirvm import jobs

    opened = jobs.open_job(job)
    _tell_end(job, opened.abort(reason).value, opened, as_json)


@click.command()
@click.argument("job")
@options.reason
@options.as_json
def cancel(job: str, reason: str, as_json: bool) -> None:
    """End a job and discard its model.

    What it was asked and how it went stay in JOB; it cannot be resumed. A job that is done is refused.

    \b
    Example:
      partirvm cancel jobs/run1 --reason 'wrong target'
    """
    from partirvm import jobs

    opened = jobs.open_job(job)
    _tell_end(job, opened.cancel(reason).value, opened, as_json)


def _tell_end(job: str, status: str, opened: Any, as_json: bool) -> None:
    found = opened.progress()
    if status == "aborting":
        show(found, f"{job}: asked to end", as_json, f"partirvm wait {job}")
        return
    show(found, f"{job} is {found['status']}. {found['advice']}", as_json)


@click.command()
@click.argument("job")
@options.limits
@options.allow_code
@options.moved
@options.scheduler
@options.detach
@options.quiet
@options.as_json
def resume(
    job: str,
    data: str | None,
    validation: str | None,
    allow_code: bool,
    scheduler: str | None,
    detach: bool,
    quiet: bool,
    as_json: bool,
    **changed: Any,
) -> int:
    """Go on with a job that was stopped, broke off, or reached a limit.

    It goes on from the last checkpoint, and ends with the model that a fit which never stopped would have given, to the
    last bit. Only the limits below can be changed, each stays as it was unless given; for anything else start a new
    job. DATA that were moved are given with --data, held-out DATA with --validation; they have to be those that the job
    was fitted with. A job that is done is left as it is. With --scheduler it goes on on a cluster, wherever it ran
    before. Ctrl-C ends it as it ends a fit: exit status 3 with a usable model, 4 without one.

    \b
    Examples:
      partirvm resume jobs/run1
      partirvm resume jobs/run1 --max-rounds 20
      partirvm resume jobs/run1 --data /new/place/trips.zarr
    """
    from partirvm import jobs

    options.require_detachable(detach, scheduler)
    opened = jobs.open_job(job)
    with cluster(scheduler) as client:
        try:
            if detach:
                moved = {"data": data, "validation": validation}
                jobs.Job(place(job, client)).resume(client=client, allow_code=allow_code, **moved, **changed)
                return detached(job, scheduler, as_json)
            attempt = opened.requeue(data, validation, allow_code=allow_code, **changed).attempt
        except DoneError as error:
            show(opened.progress(), as_flags(str(error)), as_json)
            return ExitStatus.DONE

        def work(**hooks: Any) -> Any:
            return jobs.carry_out(job, attempt=attempt, client=client, patience=0.0, allow_code=allow_code, **hooks)

        return in_foreground(work, job, quiet=quiet, as_json=as_json, resumed=True)


@click.command()
@click.argument("job")
@click.option("--max-rounds", type=options.Whole(1), metavar="R", help="Most rounds with the new rows.")
@options.allow_code
@options.moved
@options.scheduler
@options.detach
@options.quiet
@options.as_json
def update(
    job: str,
    max_rounds: int | None,
    allow_code: bool,
    data: str | None,
    validation: str | None,
    scheduler: str | None,
    detach: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Go on with rows that were appended to the DATA of a job.

    After fits of every strategy, of numbers and of classes. The vectors so far stay; what was counted over the old rows
    is not counted again, or for classes the weights move to their best over all rows. Then rounds follow: the working
    set chooses candidates among old and new rows, after any other strategy the new rows join partition by partition, in
    order. The kernel, the scaling and the classes stay as they are.

    \b
    Examples:
      partirvm ingest more.parquet trips.zarr --append
      partirvm update jobs/run1 --max-rounds 3
    """
    from partirvm import jobs

    options.require_detachable(detach, scheduler)
    opened = jobs.open_job(job)
    with cluster(scheduler) as client:
        if detach:
            grown = jobs.Job(place(job, client))
            grown.update(client=client, max_rounds=max_rounds, data=data, validation=validation, allow_code=allow_code)
            return detached(job, scheduler, as_json)
        attempt = opened.requeue_grown(max_rounds, data, validation, allow_code=allow_code).attempt

        def work(**hooks: Any) -> Any:
            return jobs.carry_out(job, attempt=attempt, client=client, patience=0.0, allow_code=allow_code, **hooks)

        return in_foreground(work, job, quiet=quiet, as_json=as_json, resumed=True)


@click.command()
@click.argument("job")
@click.argument("output", metavar="OUTPUT.html")
@options.overwrite
def report(job: str, output: str, overwrite: bool) -> None:
    """Write all about a job on one page, for a browser.

    Plan, curves of error, vectors and evidence, the table of rounds, parameters and advice, of a job in any state. The
    page is one file that needs no network.

    \b
    Example:
      partirvm report jobs/run1 run1.html
    """
    from pathlib import Path

    from partirvm import jobs
    from partirvm.predict.output import write_text
    from partirvm.report.page import page

    if not output.endswith((".html", ".htm")):
        raise click.UsageError(f"{output!r} must end in .html.", click.get_current_context())
    target = Path(output)
    if target.exists() and not overwrite:
        raise ExistsError(f"{output} is there already: --overwrite replaces it")
    text = page(_facts(jobs.open_job(job)))
    write_text(target, text)
    echo(f"{output}: open it in a browser")


def _facts(job: Any) -> Any:
    from partirvm.report.basis_table import Function
    from partirvm.report.page import JobFacts

    state, told, spec = job.state(), job.progress(), job.store.spec()
    asked = job.asked()
    validation = asked.pop("validation")
    return JobFacts(
        location=job.location,
        status=state.status.value,
        status_advice=state.status.advice,
        reason=state.reason,
        advice=told["advice"],
        queued=state.queued,
        began=state.began,
        ended=state.ended,
        seconds=told["seconds"],
        spec={**spec, "parameters": asked, "data": job.data(), "validation": validation},
        plan=state.plan,
        history=state.history,
        relevance=_told(job.relevance),
        bases=[Function(**each) for each in _told(job.bases) or ()],
    )


def _told(ask: Callable[[], Any]) -> Any:
    """What a job whose model can be read tells of it; the page says all else in any case."""
    try:
        return ask()
    except PartirvmError:
        return None


COMMANDS = (status, jobs, wait, abort, cancel, resume, update, report)
