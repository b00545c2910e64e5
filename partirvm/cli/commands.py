"""The verbs. Each parses, calls the service and prints; whatever is heavy is imported inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import partirvm as package
from partirvm.cli import options
from partirvm.cli.failures import Status, failed_at_work
from partirvm.cli.interruption import Interruption
from partirvm.errors import ClusterError

DEMO = "demo"
"""Object of the click context of commands that the demo runs."""

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(context_settings=CONTEXT)
@click.version_option(package.__version__, prog_name="partirvm")
def partirvm() -> None:
    """Relevance Vector Machines on data larger than memory.

    Three steps lead from a table to predictions:

    \b
      partirvm ingest trips.parquet trips.zarr --target fare
      partirvm fit trips.zarr jobs/run1 --memory-limit 2GiB
      partirvm predict jobs/run1 new.zarr predictions.csv

    The first turns a table into DATA, a Zarr folder of checked and shuffled rows. The second trains a model tile by
    tile, under the memory limit, and keeps it in the folder JOB. The third writes a mean and a standard deviation for
    every row. In between, `plan` tells what a fit would cost, and `evaluate` measures a model on data that it has not
    seen. `partirvm demo` shows it all in about a minute.
    """


@partirvm.command()
@click.option(
    "--output",
    default="partirvm-demo",
    metavar="FOLDER",
    help="Folder for the data, the model and the picture; what an earlier demo left there is replaced.",
)
@click.option(
    "--memory-limit", default="512MiB", type=options.Size(auto=False), help="Most resident memory of the whole demo."
)
@options.quiet
def demo(output: str, memory_limit: int, quiet: bool) -> int:
    """Learn a landscape: real data, all steps, one picture.

    Trains on the elevation model that matplotlib bundles, 138,632 cells of longitude and latitude with their height in
    metres, and draws the terrain, the prediction, its standard deviation and the relevance vectors. Takes about a
    minute on two cores, and prints the command that each step stands for.

    \b
    Example:
      partirvm demo --output /tmp/demo
    """
    from partirvm.cli.demo import run

    return run(output, memory_limit, quiet)


@partirvm.command()
@click.argument("source")
@click.argument("data")
@click.option("--target", metavar="COLUMN", help="Column to learn; needed for tables without --like.")
@click.option("--features", type=options.Names(), help="Columns to learn from, in this order.  [default: all others]")
@click.option("--categorical", type=options.Names(), help="Features whose values are labels, not numbers.")
@click.option("--weights", metavar="COLUMN", help="Column of precision weights, zero or positive.")
@click.option("--classes", is_flag=True, help="The target is a class, not a number.")
@click.option(
    "--like",
    metavar="DATA",
    help="Take columns, categories and classes from these DATA, as test rows and rows to be predicted must from those "
    "of the training.",
)
@click.option("--shuffle", default=0, type=options.Whole(0), metavar="SEED", help="Seed of the shuffle.")
@click.option("--no-shuffle", is_flag=True, help="Keep the order of the source.")
@click.option("--memory-limit", default="512MiB", type=options.Size(), help="Most resident memory to aim at.")
@options.overwrite
@options.quiet
@options.as_json
def ingest(
    source: str,
    data: str,
    shuffle: int,
    no_shuffle: bool,
    categorical: tuple[str, ...] | None,
    memory_limit: Any,
    quiet: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Turn a table into DATA that can be trained on.

    DATA is a Zarr folder of the same rows, checked and in random order. SOURCE is a CSV or Parquet file, a folder or
    glob of them, a URL, or an .npz file with the arrays X and y. It is streamed, so it may be larger than memory.
    Missing values, text where numbers should be and the like are refused with their place. Predictions come back in
    the order that the rows have in SOURCE.

    New rows need no target: with --like and the DATA of the training, a SOURCE that lacks it makes unlabelled DATA,
    which `predict` takes. `fit` and `evaluate` refuse them.

    \b
    Examples:
      partirvm ingest trips.parquet trips.zarr --target fare
      partirvm ingest tomorrow.csv new.zarr --like trips.zarr
      partirvm ingest 'logs/*.csv' logs.zarr --target seconds --categorical host,method
    """
    from partirvm import service
    from partirvm.report.progress import progress_for
    from partirvm.report.text import counted

    context = click.get_current_context()
    if no_shuffle and context.get_parameter_source("shuffle") is not ParameterSource.DEFAULT:
        raise click.UsageError("--shuffle and --no-shuffle exclude each other.", context)
    with progress_for(quiet=quiet) as progress:
        made = service.ingest(
            source,
            data,
            shuffle=None if no_shuffle else shuffle,
            categorical=categorical or (),
            memory_limit=None if memory_limit == "auto" else memory_limit,
            progress=progress.on_rows,
            **choices,
        )
    if made.n_targets:
        target, to = made.columns.target, f" → {made.columns.target}"
        following = [f"partirvm plan {data}", f"partirvm fit {data} JOB"]
    else:
        target, to = None, ", no target"
        following = [f"partirvm predict JOB {data} predictions.csv"]
    facts = {
        "data": data,
        "n_rows": made.n_rows,
        "n_features": made.n_features,
        "features": list(made.columns.features),
        "target": target,
        "n_tiles": made.n_tiles,
        "tile_rows": made.tile_rows,
        "shuffle": made.seed,
    }
    order = "in the order of the source" if made.seed is None else f"shuffled with seed {made.seed}"
    _print(
        facts,
        f"{data}: {counted(made.n_rows, 'row')} × {counted(made.n_features, 'feature')}{to}, "
        f"{counted(made.n_tiles, 'tile')} of {made.tile_rows:,} rows, {order}",
        as_json,
        *following,
    )


@partirvm.command()
@click.argument("data")
@options.fit_options
@options.as_json
def plan(data: str, validation: str | None, scheduler: str | None, as_json: bool, **choices: Any) -> None:
    """Tell what a fit of DATA would do, without doing it.

    Prints candidates per round, passes over the rows, and the estimated time and memory. Takes the options of `fit`,
    and refuses what `fit` would refuse.

    \b
    Example:
      partirvm plan trips.zarr --memory-limit 2GiB --max-rounds 9
    """
    from partirvm import service

    with _cluster(scheduler) as client:
        made = service.plan(_place(data, client), options.parameters(choices), validation=validation, client=client)
    _print(made.to_json(), str(made), as_json)


@partirvm.command()
@click.argument("data")
@click.argument("job")
@options.fit_options
@click.option("--verify", is_flag=True, help="First read all of DATA and compare it with what was ingested.")
@options.overwrite
@options.quiet
@options.as_json
def fit(
    data: str,
    job: str,
    validation: str | None,
    scheduler: str | None,
    verify: bool,
    overwrite: bool,
    quiet: bool,
    as_json: bool,
    **choices: Any,
) -> int:
    """Train a model on DATA and keep it in the folder JOB.

    A usable model is saved after every round. Ctrl-C stops the fit and keeps the last one (exit status 3). What cannot
    fit under the memory limit is refused before anything is written.

    \b
    Examples:
      partirvm fit trips.zarr jobs/run1 --memory-limit 2GiB --validation held-out.zarr
      partirvm fit trips.zarr jobs/run2 --gamma 0.1 --partition-size 500 --max-rounds 9
    """
    from partirvm import service
    from partirvm.report.progress import progress_for
    from partirvm.report.text import fit_facts, summary

    with _cluster(scheduler) as client, progress_for(quiet=quiet) as progress, Interruption(progress.note) as stop:
        begun = False

        def on_plan(made: Any) -> None:
            nonlocal begun
            begun = True
            stop.listen()
            progress.on_plan(made)

        try:
            fitted = service.fit(
                _place(data, client),
                job,
                options.parameters(choices),
                validation=None if validation is None else _place(validation, client),
                client=client,
                overwrite=overwrite,
                verify=verify,
                watcher=progress,
                on_plan=on_plan,
                aborted=lambda: stop.came,
            )
        except ClusterError as error:
            if not begun:
                raise
            raise failed_at_work(error) from error
        except KeyboardInterrupt:
            if not progress.rounds:
                raise
            progress.note(f"stopped at once; {job} holds the model of the last round that was finished")
            return Status.ABORTED
    facts = fit_facts(job, fitted.model.columns.target, fitted.history, fitted.outcome)
    _print(
        facts,
        summary(facts),
        as_json,
        f"partirvm evaluate {job} TEST.zarr",
        f"partirvm predict {job} NEW.zarr predictions.csv",
    )
    return Status.ABORTED if facts["reason"] == "aborted" else Status.DONE


@partirvm.command()
@click.argument("job")
@click.argument("data")
@click.argument("output")
@options.scheduler
@options.overwrite
@options.quiet
@options.as_json
def predict(
    job: str, data: str, output: str, scheduler: str | None, overwrite: bool, quiet: bool, as_json: bool
) -> None:
    """Predict every row of DATA with the model of JOB, into OUTPUT.

    OUTPUT is a .zarr, .parquet or .csv by its ending, with the columns mean and std: the expected target and the
    standard deviation of a new measurement of it, noise included. Row i of OUTPUT belongs to row i of the table that
    DATA was made of. DATA need no target: `partirvm ingest new.csv new.zarr --like trips.zarr` makes them of new rows,
    where trips.zarr are the DATA of the training.

    \b
    Example:
      partirvm predict jobs/run1 new.zarr predictions.csv
    """
    from partirvm import service
    from partirvm.report.progress import progress_for

    with _cluster(scheduler) as client, progress_for(quiet=quiet) as progress:
        rows = service.predict(
            job,
            _place(data, client),
            output,
            client=client,
            overwrite=overwrite,
            progress=lambda done, total: progress.on_tile("predict", done, total),
        )
    _print({"output": output, "n_rows": rows}, f"{output}: mean and std of {rows:,} rows", as_json)


@partirvm.command()
@click.argument("job")
@click.argument("data")
@options.scheduler
@options.quiet
def evaluate(job: str, data: str, scheduler: str | None, quiet: bool) -> dict[str, Any]:
    """Measure the model of JOB on DATA that it has not seen.

    Prints one line of JSON: n_rows, n_vectors, rmse (root mean square error), nlpd (mean negative log predictive
    density, in nats) and coverage_95 (the fraction of rows inside the 95 % interval), in the units of the target.

    \b
    Example:
      partirvm evaluate jobs/run1 held-out.zarr
    """
    from partirvm import service
    from partirvm.report.progress import progress_for

    with _cluster(scheduler) as client, progress_for(quiet=quiet) as progress:
        scores = service.evaluate(
            job,
            _place(data, client),
            client=client,
            progress=lambda done, total: progress.on_tile("evaluate", done, total),
        )
    click.echo(json.dumps(scores))
    return scores


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """A client of the scheduler at this address for the length of the block; None for this process."""
    if address is None:
        yield None
        return
    from partirvm import service

    with service.connect(address) as client:
        yield client


def _place(name: str, client: Any) -> str:
    """A name that means the same thing to the workers of a cluster, whatever folder they were started in."""
    return name if client is None or "://" in name else str(Path(name).absolute())


def _print(facts: dict[str, Any], text: str, as_json: bool, *following: str) -> None:
    """Print a result, and the commands that may follow; the demo, which shows those itself, leaves them out."""
    click.echo(json.dumps(facts) if as_json else text)
    if following and not as_json and click.get_current_context().obj is not DEMO:
        click.echo("\n".join(["", "next:", *(f"  {command}" for command in following)]))
