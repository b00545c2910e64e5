"""The commands: each parses its options, calls the library and prints the result.

Modules that are slow to import are imported inside the commands.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import click

import partirvm as package
from partirvm import jobs
from partirvm.cli import job_commands, options
from partirvm.cli.options import GroupedCommand, as_flags, takes
from partirvm.cli.running import cluster, echo, in_foreground, show, shown_progress, wants_details
from partirvm.options import TABLE
from partirvm.quoting import counted, format_number, listed, named

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

    The first step turns a table into a dataset (DATA in the usage lines), a Zarr folder of checked
    and shuffled rows. The second step trains a model tile by tile, within the memory limit, and
    saves it in a job folder (JOB). The third step writes a mean and a standard deviation for every
    row, or the probability of every class if the dataset was made with --classes. You can stop a
    fit early, use its model, and resume the fit later, even after a crash. `partirvm demo` runs all
    steps in about half a minute.
    """


@partirvm.command()
@click.option(
    "--output",
    default="partirvm-demo",
    metavar="FOLDER",
    help="Output folder; replaces an earlier demo.",
)
@click.option(
    "--memory-limit",
    default="640MiB",
    type=options.SIZE,
    help="Maximum resident memory of the whole demo.",
)
@takes("--quiet")
def demo(output: str, memory_limit: int, quiet: bool) -> int:
    """Run all steps on terrain data and draw a picture.

    The data are an elevation model that comes with matplotlib: 138,632 cells with longitude,
    latitude and height in metres. The picture shows the terrain, the relevance vectors, the
    prediction and its standard deviation. The demo takes about half a minute on two cores, and
    prints the command for each step.

    \b
    Example:
      partirvm demo --output /tmp/demo
    """
    from partirvm.cli.demo import run

    return run(partirvm, output, memory_limit, quiet)


INGEST_OPTIONS = (
    click.option(
        "--target",
        metavar="COLUMN[,..]",
        multiple=True,
        callback=lambda context, option, names: ",".join(names) or None,
        help="Target column, or a comma-separated list of columns; required for tables without "
        "--like.",
    ),
    click.option(
        "--auto", is_flag=True, help="Accept all proposals, and list what was done to each column."
    ),
    click.option(
        "--features",
        type=options.NAMES,
        help="Feature columns, in this order.  [default: all others]",
    ),
    click.option(
        "--exclude",
        "--drop",
        "exclude",
        type=options.NAMES,
        default=(),
        help="Columns to leave out.",
    ),
    click.option(
        "--categorical",
        type=options.NAMES,
        default="auto",
        help="Categories: auto (all text columns) or none.",
    ),
    click.option(
        "--missing",
        type=options.NAMES,
        default=(),
        help="Strings that mean a missing value, such as ? or inf.",
    ),
    click.option(
        "--dates",
        type=options.FORMATS,
        default=None,
        help="Date formats, such as day=%d/%m/%Y, or their order: day=dmy, day=mdy or day=ymd.",
    ),
    click.option(
        "--numeric",
        type=options.NAMES,
        default=(),
        help="Columns of numbers: other text in them counts as missing.",
    ),
    click.option(
        "--decimal",
        metavar="MARK",
        help="Decimal mark where numbers leave a choice: . or ,",
    ),
    click.option(
        "--thousands",
        metavar="MARK",
        help="Thousands separator where numbers leave a choice, such as , or .",
    ),
    click.option(
        "--weights", metavar="COLUMN", help="Column of precision weights, zero or positive."
    ),
    click.option(
        "--noise",
        metavar="COLUMN",
        help="Column of relative noise, which replaces the weights (by 1/noise²).",
    ),
    click.option(
        "--groups",
        metavar="COLUMN",
        help="Column of groups whose rows are left out together: labels (station), or blocks of "
        "time (when:7d) or space (x,y:20).",
    ),
    click.option("--classes", is_flag=True, help="The target is a class, not a number."),
    click.option(
        "--drop-missing-targets", is_flag=True, help="Leave out rows whose target is missing."
    ),
    click.option(
        "--skip-rows",
        metavar="N[,M]",
        help="Lines before the header, rows after the last one (3 or 0,1).  [default: found]",
    ),
    click.option(
        "--header/--no-header",
        default=None,
        help="Names in the first row, or x1, x2, ….  [default: found]",
    ),
    click.option(
        "--skip-bad-rows", is_flag=True, help="Leave out rows with too few or too many fields."
    ),
    click.option(
        "--like",
        metavar="DATA",
        help="Use the columns, categories and classes of this dataset (for test rows).",
    ),
    click.option(
        "--shuffle",
        type=click.IntRange(0),
        metavar="SEED",
        help="Seed for shuffling.  [default: 0]",
    ),
    click.option("--no-shuffle", is_flag=True, help="Keep the source order."),
    click.option("--append", is_flag=True, help="Append the rows to an existing dataset."),
    click.option(
        "--again", is_flag=True, help="Append the rows even if the dataset already contains them."
    ),
)
"""Options specific to ``ingest``."""


@partirvm.command()
@takes(
    *("source", "data", *INGEST_OPTIONS),
    options.flag(
        TABLE["memory_limit"], help="Maximum resident memory of the process; auto is 512MiB."
    ),
    *("--overwrite", "--quiet", "--json"),
)
def ingest(
    source: str,
    data: str,
    shuffle: int | None,
    no_shuffle: bool,
    quiet: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Turn a table into a dataset for training.

    The dataset DATA is a Zarr folder with the same rows, checked and in random order. SOURCE is a
    text file (.csv, .tsv, .txt, .data), a Parquet file, a spreadsheet, a folder or glob of such
    files, a URL, or an .npz file with the arrays X and y. Text and Parquet files are streamed, so
    they may be larger than memory. Text columns become categories, dates
    and times become days since 2000-01-01 and the position in the day, the week and the year, and
    features may have missing values; the output names each column that was changed. The
    separator, the header and the lines before it are recognised.

    Numbers may be written as people write them, such as 1.974,66 or $12k: how is decided from all
    rows of a column. A column that can be read in two ways is an error that shows both.

    Values that cannot be used are refused: the error lists all of them and ends with a command that
    resolves them. --auto resolves at once what needs no decision, and also accepts all proposals:
    uninformative columns are left out, and so on. Several targets share one set of relevance
    vectors.

    With --append, the new rows are written after the existing rows of the dataset; `update` then
    continues a job that was fitted to it. Rows for prediction need no target: pass --like with the
    training dataset.

    \b
    Examples:
      partirvm ingest trips.parquet trips.zarr --target fare
      partirvm ingest export.csv trips.zarr --target fare --auto
      partirvm ingest tomorrow.csv new.zarr --like trips.zarr
      partirvm ingest 'logs/*.csv' logs.zarr --target seconds --categorical host,method
      partirvm ingest mails.csv mails.zarr --target kind --classes
      partirvm ingest air.csv air.zarr --target pm10 --groups station
    """
    from partirvm.data import ingest as ingest_table

    if no_shuffle and shuffle is not None:
        raise click.UsageError(
            "--shuffle and --no-shuffle exclude each other.", click.get_current_context()
        )
    choices["shuffle"] = None if no_shuffle else shuffle or 0
    if choices["memory_limit"] == "auto":
        choices["memory_limit"] = None
    with shown_progress(quiet=quiet) as progress:
        dataset = ingest_table(source, data, progress=progress.on_rows, **choices)
    target = dataset.columns.target if dataset.has_target else None
    facts = {
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "n_tiles": dataset.n_tiles,
        "tile_rows": dataset.tile_rows,
        "data": data,
        "shuffle": dataset.seed,
        **asdict(dataset.columns),
        "target": target,
        "notes": dataset.notes,
    }
    if target is None:
        following = [f"partirvm predict JOB {data} predictions.csv"]
    elif choices["like"] is not None:
        following = [
            f"partirvm evaluate JOB {data}",
            f"partirvm predict JOB {data} predictions.csv",
        ]
    else:
        job = "  # JOB: a new folder for the results"
        following = [f"partirvm plan {data}", f"partirvm fit {data} JOB{job}"]
    show(facts, f"{data}: {_described(dataset, target)}", as_json, *following)


def _described(dataset: Any, target: str | None) -> str:
    """Return the size of a new dataset, its target, its order, and what was done to its columns."""
    columns = dataset.columns
    to = ", no target" if target is None else f" → {named(target)}"
    if columns.classes is not None:
        to += f" ({len(columns.classes):,} classes: {listed(columns.classes, 10)})"
    order = "in the order of the source"
    if dataset.seed is not None:
        order = f"in random order (seed {dataset.seed})"
    rows = counted(dataset.n_rows, "row")
    features = counted(dataset.n_features, "feature")
    notes = "".join(f"\n  {named(column)}: {text}" for column, text in dataset.notes.items())
    n_columns = len(columns.given)
    if n_columns != dataset.n_features:
        features += f" (of {counted(n_columns, 'column')})"
    return f"{rows} × {features}{to}, {order}{notes}"


@partirvm.command(cls=GroupedCommand)
@takes("data", options.fit_options, "--details", "--json", "--help-all")
def plan(
    data: str, validation: str | None, scheduler: str | None, as_json: bool, **choices: Any
) -> None:
    """Show what a fit would do, without running it.

    Prints the size of the data, how rows become candidates, and the estimated time and memory; with
    --details, also the learned kernel, the passes over the rows and what takes the memory. Takes
    the same options as `fit` and refuses whatever `fit` would refuse.

    \b
    Example:
      partirvm plan trips.zarr --memory-limit 2GiB --max-rounds 9
    """
    with cluster(scheduler) as client, shown_progress() as progress:
        made = jobs.plan(
            options.parameters(choices),
            data,
            validation=validation,
            client=client,
            watcher=progress,
        )
    text = str(made) if wants_details() else made.brief
    show(made.to_json(), as_flags(text), as_json)


@partirvm.command(cls=GroupedCommand)
@takes(
    *("data", "job", options.fit_options),
    click.option(
        "--verify", is_flag=True, help="First read the whole dataset and verify its checksums."
    ),
    *("--detach", "--overwrite", "--details", "--quiet", "--json", "--help-all"),
)
def fit(
    data: str, job: str, validation: str | None, scheduler: str | None, detach: bool, **choices: Any
) -> int:
    """Train a model on a dataset and save it in a job folder.

    A usable model is saved after every round (split-merge: after each partition whose model is the
    best so far). Ctrl-C stops the fit and keeps the last model (exit status 3); `partirvm resume`
    continues the fit. --time-limit includes kernel learning and planning; if it is reached before
    the first model exists, a small fit to a sample of the rows provides one. A fit that needs more
    memory than the limit is refused, and no job folder is created. With --overwrite, the old job
    folder is removed once the new fit is planned, so it remains if the new fit is refused (with
    --detach, it is removed earlier).

    With --scheduler and --detach, the fit runs on the cluster: the command ends once the scheduler
    has accepted the fit, and `partirvm status JOB --follow` shows its progress.

    \b
    Examples:
      partirvm fit trips.zarr jobs/run1 --memory-limit 2GiB --validation held-out.zarr
      partirvm fit trips.zarr jobs/run2 --gamma 0.1 --partition-size 500 --max-rounds 9
      partirvm fit trips.zarr jobs/run3 --scheduler tcp://10.0.0.5:8786 --detach
      partirvm fit mails.zarr jobs/run4 --class-weight spam=1,ham=5 --validation later.zarr
    """
    from partirvm.jobs.request import open_sources

    options.require_detachable(detach, scheduler)
    quiet, as_json, overwrite, verify = (
        choices.pop(name) for name in ("quiet", "as_json", "overwrite", "verify")
    )
    request = options.parameters(choices)
    if verify:
        open_sources(data, None)[0].verify()
    with cluster(scheduler) as client:
        how_to_run: dict[str, Any] = {
            "validation": validation,
            "client": client,
            "overwrite": overwrite,
        }
        if detach:
            return job_commands.detached(jobs.submit(request, data, job, **how_to_run), as_json)
        return in_foreground(
            partial(jobs.fit, data, job, request, **how_to_run), job, quiet=quiet, as_json=as_json
        )


@partirvm.command()
@takes(
    *("job", "data", "output", "--augment"),
    click.option(
        "--interval",
        type=options.LEVEL,
        metavar="LEVEL",
        help="Also write bounds at this level, e.g. 0.95.",
    ),
    click.option(
        "--skip-bad-rows",
        is_flag=True,
        help="Leave out rows of a text file with too few or too many fields.",
    ),
    *("--allow-code", "--scheduler", "--overwrite", "--quiet", "--json"),
)
def predict(
    job: str,
    data: str,
    output: str,
    scheduler: str | None,
    quiet: bool,
    as_json: bool,
    **choices: Any,
) -> None:
    """Predict every row of a dataset or a table.

    Uses the last model of a job. DATA is a dataset, or a table with the columns of the training
    data, in any order: the same files, folders, globs and URLs as for `ingest`. The
    extension of OUTPUT selects its format: .zarr, .parquet or .csv. For regression, the columns are
    mean, the expected target, and std, the standard deviation of a new measurement, including its
    noise (mean_TARGET and std_TARGET for several targets). For classification, they are label, the
    most probable class, and p_CLASS, the probability of each class. --interval adds lower and
    upper: a new measurement lies between them with the given probability (lower_TARGET and
    upper_TARGET for several targets, which need local residuals; lower_CLASS and upper_CLASS for
    classes, a credible interval for the probability of each class). Row i of the output corresponds
    to row i of the table, so that rows with too few or too many fields are an error without
    --skip-bad-rows. No target is needed.

    If the job was fitted with groups, rows of a table count as rows of new groups. Rows of known
    groups are predicted with the effects of their groups if DATA is a dataset with groups:
    `partirvm ingest new.csv new.zarr --like TRAIN_DATA --groups COLUMN`.

    The output appears under its name once all rows have been predicted. Until then, the predictions
    are in a hidden folder next to it, such as .predictions.csv.partial. If the command is killed,
    this folder remains, and the next command with the same output removes it.

    Far from all relevance vectors, std falls to the standard deviation of the noise. With --augment
    TRAIN_DATA it grows there instead, up to the standard deviation of the target. TRAIN_DATA must
    be the dataset that the job was fitted to; it is read many times. Only regression supports
    --augment, which predicts without local residuals.

    \b
    Examples:
      partirvm predict jobs/run1 new.csv predictions.csv
      partirvm predict jobs/run1 new.zarr predictions.csv --interval 0.95
      partirvm predict jobs/run1 new.zarr predictions.parquet --scheduler tcp://10.0.0.5:8786
    """
    from partirvm import predict

    with cluster(scheduler) as client, shown_progress(quiet=quiet) as progress:
        hears = partial(progress.on_tiles, "predicting")
        rows = predict.predict(job, data, output, client=client, progress=hears, **choices)
    show({"output": output, "n_rows": rows}, f"{output}: predictions of {rows:,} rows", as_json)


@partirvm.command()
@takes(
    *("job", "data", "--augment", "--allow-code", "--scheduler", "--quiet"),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one line of JSON on a terminal, too; elsewhere, the result is always JSON.",
    ),
)
def evaluate(
    job: str, data: str, scheduler: str | None, quiet: bool, as_json: bool, **choices: Any
) -> dict[str, Any]:
    """Score the model of a job on a dataset or a table.

    The rows should not have been used in the fit.

    Prints a table on a terminal, and one line of JSON elsewhere or with --json; and the most
    important scores in words, unless --quiet is given. For regression, the scores are n_rows,
    n_vectors, rmse (root mean square error), nlpd (mean negative log predictive density, in nats
    per row), crps (continuous ranked probability score), interval_score_95, and coverage_50,
    coverage_80, coverage_90, coverage_95 and coverage_99 (fraction of rows inside the interval of
    that level), in the units of the target. For several targets, these are means over the targets
    (for rmse, the root of the mean square), and `targets` contains the scores of each target. For
    classification, they are n_rows, n_vectors, accuracy, log_loss (mean, in nats), brier (mean
    squared error of the probabilities), ece (expected calibration error, 15 bins) and, for two
    classes, roc_auc. --augment works as in `partirvm predict`. If the job was fitted with groups,
    all rows count as rows of new groups.

    \b
    Example:
      partirvm evaluate jobs/run1 held-out.csv
    """
    from partirvm import predict

    with cluster(scheduler) as client, shown_progress(quiet=quiet) as progress:
        hears = partial(progress.on_tiles, "evaluating")
        scores: dict[str, Any] = predict.evaluate(
            job, data, client=client, progress=hears, **choices
        )
    if sys.stdout.isatty() and not as_json:
        from partirvm.report.text import scores_text

        echo(scores_text(scores))
    else:
        click.echo(json.dumps(scores))
    if not quiet:
        click.echo(_in_words(scores), err=True)
    return scores


def _in_words(scores: Mapping[str, Any]) -> str:
    """Return the most important scores in words.

    >>> _in_words({"n_rows": 200, "rmse": 8821.4, "coverage_95": 0.96})
    '200 rows: RMSE 8,821 (typical error); the 95 % intervals contain 96.0 % of the targets'
    >>> _in_words({"n_rows": 200, "accuracy": 0.915, "log_loss": 0.25})
    '200 rows: 91.5 % of the labels are right; log loss 0.250'
    """
    rows = counted(scores["n_rows"], "row")
    if "rmse" not in scores:
        share = f"{100 * scores['accuracy']:.1f} %"
        loss = format_number(scores["log_loss"])
        return f"{rows}: {share} of the labels are right; log loss {loss}"
    error = format_number(scores["rmse"])
    share = f"{100 * scores['coverage_95']:.1f} %"
    return (
        f"{rows}: RMSE {error} (typical error); the 95 % intervals contain {share} of the targets"
    )


partirvm.commands.update(job_commands.COMMANDS)
# list commands in order of use
partirvm.list_commands = lambda ctx: list(partirvm.commands)  # type: ignore[method-assign]
for name in partirvm.commands.keys() - {"demo"}:
    takes("--allow-protocol")(partirvm.commands[name])
