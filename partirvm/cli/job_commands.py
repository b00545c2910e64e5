"""The commands for jobs: show, list, wait, abort, cancel, resume, update, compare, report."""

from __future__ import annotations  # the help does not load ``jobs.Job``

import sys
from functools import partial
from typing import Any

import click

from partirvm import jobs
from partirvm.cli import options
from partirvm.cli.options import FLAGS, as_flags, takes
from partirvm.cli.running import (
    ExitStatus,
    cluster,
    echo,
    in_foreground,
    show,
    show_status,
    wants_details,
    width_of,
)
from partirvm.errors import DoneError, JobFailedError, MissingDataError, PartirvmError
from partirvm.options import TABLE
from partirvm.quoting import format_bytes


def detached(opened: jobs.Job, as_json: bool) -> int:
    """Print that a job is waiting for the cluster, and the commands that watch and stop it."""
    job = opened.location
    show_status(opened, as_json, f"partirvm status {job} --follow", f"partirvm abort {job}")
    return ExitStatus.DONE


@click.command()
@takes(
    "job",
    click.option("--follow", is_flag=True, help="Print each round until the job ends."),
    *("--details", "--json"),
)
def status(job: str, follow: bool, as_json: bool) -> int:
    """Show the status of a job, and how good its model is.

    A job is queued, running, aborting, aborted, failed, interrupted (its process is gone), done or
    cancelled. The model's errors come from rows that were left out of the fit; --details adds
    evidence, passes and more. The command works on any machine that can read the job folder. With
    --follow, Ctrl-C ends only this command, and the exit status is the same as for `wait`. With
    --follow and --json, the command prints one line per round.

    \b
    Examples:
      partirvm status jobs/run1
      partirvm status jobs/run1 --follow
    """
    from partirvm.report.text import followed

    opened = jobs.open_job(job)
    if not follow:
        show_status(opened, as_json)
        return ExitStatus.DONE
    try:
        width = width_of(sys.stdout)
        details = wants_details()
        for line in followed(opened.follow(), as_json, width, details=details):
            click.echo(line) if as_json else echo(as_flags(line))
    except KeyboardInterrupt:
        echo(f"stopped following the job; {job} is still running", err=True)
        return ExitStatus.DONE
    return show_status(opened, as_json)


@click.command("jobs")
@takes("folder", "--json")
def list_jobs(folder: str, as_json: bool) -> None:
    """List all jobs in a folder, one per line.

    \b
    Example:
      partirvm jobs jobs
    """
    from partirvm.report.text import jobs_table

    states: list[dict[str, Any]] = []
    for job in jobs.jobs_in(folder):
        try:
            states.append(job.progress())
        except PartirvmError as error:
            states.append({"job": job.location, "error": str(error)})
    show(states, jobs_table(states, width_of(sys.stdout)), as_json)


@click.command()
@takes(
    "job",
    click.option("--timeout", type=options.DURATION, help="Maximum wait, such as 90s or 8h."),
    "--json",
)
def wait(job: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a job ends.

    The exit status is 0 if the job is done, 3 if it was aborted, and 4 if it failed, was
    interrupted or cancelled, or did not end in time.

    \b
    Example:
      partirvm wait jobs/run1 && partirvm evaluate jobs/run1 test.zarr
    """
    opened = jobs.open_job(job)
    try:
        opened.wait(timeout)
    except TimeoutError as error:
        raise JobFailedError(str(error)) from error
    except KeyboardInterrupt:
        echo(f"stopped waiting for the job; {job} is still running", err=True)
        return ExitStatus.FAILED
    return show_status(opened, as_json)


@click.command()
@takes("job", "--reason", "--json")
def abort(job: str, reason: str, as_json: bool) -> None:
    """End a job and keep its last model.

    The job ends after the current tile or iteration, wherever it runs. This command returns
    immediately; use `wait` to wait until the job ends. A job that has already ended is not changed.
    `resume` continues an aborted job.

    \b
    Example:
      partirvm abort jobs/run1 && partirvm wait jobs/run1
    """
    _end(job, "abort", reason, as_json)


@click.command()
@takes("job", "--reason", "--json")
def cancel(job: str, reason: str, as_json: bool) -> None:
    """End a job and discard its model.

    The request and the history remain in the job folder; the job cannot be resumed. A job that is
    done cannot be cancelled.

    \b
    Example:
      partirvm cancel jobs/run1 --reason 'wrong target'
    """
    _end(job, "cancel", reason, as_json)


def _end(job: str, verb: str, reason: str, as_json: bool) -> None:
    opened = jobs.open_job(job)
    aborting = getattr(opened, verb)(reason).value == "aborting"
    state = opened.progress()
    text = (
        f"{job}: the request to end it is recorded"
        if aborting
        else f"{job} is {state['status']}. {state['advice']}"
    )
    show(state, text, as_json, *[f"partirvm wait {job}"] * aborting)


again = takes(
    "--allow-code",
    click.option(
        "--allow-data",
        multiple=True,
        metavar="URL",
        help="Dataset in another store that the job may read; repeatable.",
    ),
    click.option(
        "--data", metavar="DATA", help="New location of the job's dataset, if it was moved."
    ),
    click.option(
        "--validation",
        metavar="DATA",
        help="New location of the held-out dataset, if it was moved.",
    ),
    *("--scheduler", "--detach", "--details", "--quiet", "--json"),
)
"""Options of the commands that rerun a job."""


@click.command()
@takes("job", options.limits, again)
def resume(job: str, **choices: Any) -> int:
    """Resume a job that was stopped, or that ended at a limit.

    The job continues from its last checkpoint. Its final model is bit-identical to that of an
    uninterrupted fit. Only the limits below can be changed; for other changes, start a new job. The
    limits on rounds and vectors include earlier runs, and --time-limit counts from now. A job that
    ended at a limit needs a larger limit; a job that is done for another reason is not changed. Use
    --data and --validation to specify the new locations of datasets that were moved; the rows must
    be the same. With --scheduler, the job continues on a cluster, wherever it ran before. Ctrl-C
    works as in `fit`: the exit status is 3 with a usable model and 4 without one.

    \b
    Examples:
      partirvm resume jobs/run1
      partirvm resume jobs/run1 --max-rounds 20
      partirvm resume jobs/run1 --data /new/place/trips.zarr
    """
    return _run_again(job, "resume", **choices)


@click.command()
@takes("job", options.flag(TABLE["max_rounds"], default=None), again)
def update(job: str, **choices: Any) -> int:
    """Update a job with rows that were appended to its dataset.

    Works with every strategy, for regression and classification. The relevance vectors are kept.
    Regression reuses the statistics of the old rows; classification first makes passes over all
    rows. Rounds with new candidates follow: the working set selects them from all rows, and the
    other strategies take the new rows partition by partition. --max-rounds limits only these
    rounds. The kernel, the scaling and the classes do not change.

    \b
    Examples:
      partirvm ingest more.parquet trips.zarr --append
      partirvm update jobs/run1 --max-rounds 3
    """
    return _run_again(job, "update", **choices)


def _run_again(
    job: str,
    verb: str,
    scheduler: str | None,
    detach: bool,
    quiet: bool,
    as_json: bool,
    **settings: Any,
) -> int:
    """Resume or update a job, on a cluster or in this process.

    Args:
        job: the job folder.
        verb: the name of the command.
        scheduler: the address of a Dask scheduler, if the fit runs there.
        detach: True if the command does not wait for the fit.
        quiet: True if no progress is shown.
        as_json: True if the result is shown as JSON.
        settings: options of the attempt.
    """
    options.require_detachable(detach, scheduler)
    opened = jobs.open_job(job)
    with cluster(scheduler) as client:
        try:
            if detach:
                return detached(getattr(opened, verb)(client=client, **settings), as_json)
            attempt = opened.requeue(client=client, grown=verb == "update", **settings).attempt
        except DoneError as error:
            show(opened.progress(), as_flags(str(error)), as_json)
            return ExitStatus.DONE
        work = partial(
            jobs.run_job, job, attempt=attempt, client=client, allow_code=settings["allow_code"]
        )
        return in_foreground(work, job, quiet=quiet, as_json=as_json)


@click.command()
@takes("job", "output", "--overwrite")
def report(job: str, output: str, overwrite: bool) -> None:
    """Write a report on a job as an HTML page or JSON.

    The extension of OUTPUT selects the format. The page (.html) shows error, vector and evidence
    curves, predictions against targets, the rounds, the plan and the parameters, for a job in any
    state. It is a single file and needs no network access. A .json file contains all values on the
    page. OUTPUT may be a URL. If parts of the job are damaged, the page and an error message name
    them, and the exit status is 2.

    \b
    Examples:
      partirvm report jobs/run1 run1.html
      partirvm report jobs/run1 run1.json
    """
    ending = output.rpartition(".")[2]
    if ending not in ("html", "htm", "json"):
        raise click.UsageError(
            f"{output!r} must end in .html or .json.", click.get_current_context()
        )
    made = jobs.open_job(job).report()
    made.save(output, overwrite=overwrite)
    if damaged := "; ".join(made.values["damaged"]):
        raise MissingDataError(f"{output} was written without damaged parts of the job: {damaged}")
    echo(f"{output}: open it in a browser" if ending.startswith("htm") else f"{output}: written")


@click.command()
@takes(
    *("job", "output"),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "float64", "int16"]),
        help="Default: float64; ONNX float32.",
    ),
    click.option(
        "--outputs",
        metavar="A,B",
        help="mean,std,lower,upper or label,probabilities.  [default: first two]",
    ),
    click.option("--level", type=options.LEVEL, default=0.95, help="Level of lower and upper."),
    *("--allow-code", "--overwrite"),
)
def export(
    job: str, output: str, allow_code: bool, overwrite: bool, outputs: str | None, **choices: Any
) -> None:
    """Export the model of a job for use without partirvm.

    The extension of OUTPUT selects the format: .onnx for ONNX Runtime and others (needs the package
    onnx), .h for C (C99, no allocation), .npz for NumPy, together with a reader, which is
    m_predict.py for m.npz. OUTPUT may be a URL. The input is a numeric row in feature order, with
    categories as codes. A model with local residuals is refused: fit with --residual none.

    \b
    Examples:
      partirvm export jobs/run1 model.onnx
      partirvm export jobs/run1 model.h --dtype float32 --outputs mean
    """
    from partirvm.export import FORMATS, check_export, open_folder

    place = open_folder(output)
    if place.suffix not in FORMATS:
        raise click.UsageError(
            f"{output!r} must end in .onnx, .h or .npz.", click.get_current_context()
        )
    check_export(output, overwrite=overwrite)
    settings = {name: value for name, value in choices.items() if value is not None}
    model = jobs.open_job(job).model(allow_code=allow_code)
    FORMATS[place.suffix](model, output, outputs=outputs.split(",") if outputs else (), **settings)
    echo(f"{output}: written, {format_bytes(place.size())}")


@click.command()
@click.argument("locations", nargs=-1, required=True, metavar="JOB JOB...")
@takes("--details", "--json")
def compare(locations: tuple[str, ...], as_json: bool) -> None:
    """Compare jobs by their errors on left-out rows.

    The jobs are ranked by the error of their last model on left-out rows, or on validation data.
    --details adds evidence, passes and memory. To compare models on the same test rows, run
    `evaluate` for each of them.

    \b
    Example:
      partirvm compare jobs/run1 jobs/run2
    """
    from partirvm.report import text

    facts = [text.job_facts(jobs.open_job(job)) for job in locations]
    facts = text.ranked(facts)
    table = text.compare_text(facts, lambda name: FLAGS.get(name, name), details=wants_details())
    show(facts, table, as_json)


VERBS = (status, list_jobs, wait, abort, cancel, resume, update, compare, report, export)
COMMANDS = {str(each.name): each for each in VERBS}
