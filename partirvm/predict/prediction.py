"""Predict DATA with a job's model, in the row order before shuffling, or score the predictions,
tile by tile."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from partirvm.core.scores import ClassScores, Scores
from partirvm.data import ZarrSource, ingest
from partirvm.data.problems import UnusableError, flags
from partirvm.data.source import Source, Together, require_features_like, require_like
from partirvm.data.tables import ingesting, is_table
from partirvm.data.writer import ExternalSorter, claimed
from partirvm.errors import DataError, DataWarning, UsageError, warn
from partirvm.execution import executor_for
from partirvm.execution.local import Progress
from partirvm.jobs.store import JobStore
from partirvm.likelihoods.passes import ScorePass
from partirvm.model import FAR, AnyModel, OfRows, by_groups
from partirvm.predict.output import Table, check_output, write_output, written_labels
from partirvm.predict.rvm_star import augmenting_of
from partirvm.process import warn_of_versions
from partirvm.storage import Folder, open_folder, storing
from partirvm.types import Columns, Float

AnyScores = Scores | ClassScores

SORT_MEMORY = 32 << 20
"""Bytes of predictions that are sorted in memory at once."""

TILES = 16
"""Number of tiles that are predicted together if the local residual rows are on disk, since these
are read each time."""


def tile_values(function: OfRows, source: Source, number: int) -> Float:
    """Return a tile's records (rows, 2 + V): row number before shuffling, the function's values, 1
    if far from all vectors."""
    values, near = function(source.tile(number).X)
    return np.column_stack([source.original_rows(number), values, near < FAR])


def grouped_tile_values(
    function: Callable[[Any], OfRows], model: AnyModel, source: Source, number: int
) -> Float:
    """Return a tile's records as ``tile_values`` does, with other values for known groups.

    Args:
        function: returns a function of raw inputs, given a model
        model: the model, with known groups
        source: the rows, with groups
        number: number of the tile
    """
    groups = np.asarray(source.groups_of_tile(number))
    return tile_values(by_groups(function, model, groups), source, number)


def predict(
    job: str,
    data: str,
    output: str,
    *,
    interval: float | None = None,
    augment: str | None = None,
    client: Any = None,
    overwrite: bool = False,
    allow_code: bool = False,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the model's predictions at each row of DATA to OUTPUT; return the number of rows.

    If DATA has groups (``ingest(groups=...)``), rows of groups that the fit has seen get the
    smaller uncertainty of further rows of these groups; other rows count as rows of new groups.

    OUTPUT has the rows of DATA in their order before shuffling and the model's ``value_names`` as
    columns; for classes, the most probable ``label`` comes first. OUTPUT appears under its name
    only when it is complete. Until then, the rows are in a hidden folder next to it (for a URL, on
    this machine), which the next call removes if a call was killed.

    Parameters
    ----------
    job : str
        Path or URL of the JOB.
    data : str
        Path or URL of DATA, or of any table that ``ingest`` can read: its columns are found by name
        (``opened``).
    output : str
        A .zarr, .parquet or .csv file to write, at a path or an fsspec URL.
    interval : float, optional
        A level such as 0.95: adds the ends of the estimators' ``predict_interval`` or, for classes,
        bands of their probabilities.
    augment : str, optional
        The DATA to which JOB was fitted: each row is predicted by RVM* (``predict.rvm_star``),
        without local residuals, in passes over the training rows. Not with ``interval``.
    client : Client, optional
        The client of a Dask cluster that computes the predictions.
    overwrite : bool
        Replace OUTPUT if it is a file or a Zarr prediction.
    allow_code : bool
        Import and run a kernel or basis that is a named function.
    skip_bad_rows : bool
        Leave out rows of a text file with the wrong number of fields; otherwise they are an error,
        because the rows of OUTPUT are matched to those of the file by position.
    progress : callable, optional
        A function called with the number of tiles done and the total; with ``augment``, these are
        tiles of training rows.

    Raises
    ------
    DataError, ChangedDataError
        Features differ, or ``augment`` is not the DATA of the fit.
    LeaseError, ExistsError
        Another process writes OUTPUT, or it exists and may not be replaced.
    UsageError
        An extension or level is wrong, or OUTPUT is inside DATA or JOB.
    """
    store, model = _fitted(job, allow_code)
    if augment is not None and interval is not None:
        raise UsageError("augment and interval cannot be combined: leave one of them out")
    if interval is not None:
        model.interval(interval)  # raises UsageError if the model has none
    _require_outside(output, filter(None, (job, data, augment)))
    check_output(output, overwrite=overwrite)
    options: dict[str, Any] = {
        "interval": interval,
        "augment": augment,
        "allow_code": allow_code,
        "overwrite": overwrite,
        "skip_bad_rows": True,
    }
    command = " ".join([shlex.join(["partirvm", "predict", job, data, output]), *flags(options)])
    with (
        opened(data, model.columns, client, skip_bad_rows=skip_bad_rows, command=command) as source,
        closing(executor_for(client)) as executor,
    ):
        require_features_like(source, model.columns)
        if augment is None:
            tiles = _together(source, model)
            values = _tile_values_of(model, source, interval)
            results = executor.map(values, tiles, range(tiles.n_tiles), progress)
            pieces: Iterable[Float] = map(itemgetter(1), results)
        else:
            passes = augmenting_of(store, model, augment, executor).pieces(source, progress)
            pieces = (piece.records for piece in passes)
        predictions = _Predictions(
            model.value_names(interval=interval is not None), model.columns.classes, source.n_rows
        )
        far = predictions.write(pieces, output, overwrite=overwrite)
    if augment is None:
        warn_of_far_rows(far, source.n_rows, model)
    return source.n_rows


def _tile_values_of(
    model: AnyModel, source: Source, interval: float | None
) -> Callable[[Source, int], Float]:
    """Return the function of a source and the number of a tile that returns a model's values, with
    the ends of intervals at a level."""
    if not source.grouped or model.known is None:
        return partial(tile_values, _values_of(model, interval))
    return partial(grouped_tile_values, partial(_values_of, interval=interval), model)


def _values_of(model: AnyModel, interval: float | None) -> OfRows:
    """Return the function of raw inputs that returns a model's values, with the ends of intervals
    at a level."""
    multiples = None if interval is None else model.multiples([interval])
    return partial(model.predictive.values, multiples=multiples)


def _require_outside(output: str, inputs: Iterable[str]) -> None:
    """Raise ``UsageError`` if OUTPUT is one of the inputs or lies inside it."""
    for place in inputs:
        if open_folder(output).is_inside(open_folder(place)):
            raise UsageError(
                f"output {output!r} is the input {place!r}, or lies inside it: choose another path"
            )


def _fitted(job: str, allow_code: bool) -> tuple[JobStore, AnyModel]:
    """Return a job and its model, and warn if package versions differ from the fit's versions."""
    store = JobStore(job)
    model = store.model(allow_code=allow_code)
    warn_of_versions(f"{job}: the model", store.folded().versions or store.spec()["versions"])
    return store, model


@dataclass(frozen=True)
class _Predictions:
    """The predictions to write.

    Attributes:
        names: names of the predicted values
        classes: labels of the classes, whose probabilities are the first values, or None
        n_rows: number of rows
    """

    names: Sequence[str]
    classes: tuple[Any, ...] | None
    n_rows: int

    def write(self, pieces: Iterable[Float], output: str, *, overwrite: bool) -> int:
        """Write records (row number before shuffling, values, 1 if far from all vectors) to OUTPUT
        in the order of rows. Return how many rows are far from all vectors."""
        place = open_folder(output)
        width = 2 + len(self.names)
        far = 0
        with (
            _unfinished(place) as (folder, check_lease),
            ExternalSorter(folder / "rows", width, high=float(self.n_rows)) as sorter,
        ):
            for records in pieces:
                far += int(records[:, -1].sum())
                sorter.add(records)

            def check() -> None:
                check_lease()
                # another process may have written OUTPUT in the meantime
                check_output(output, overwrite=overwrite)

            tables = (self._table(block[:, 1:-1]) for block in sorter.blocks(SORT_MEMORY))
            labels = () if self.classes is None else set(written_labels(self.classes).tolist())
            part = folder / f"output{place.suffix}"
            write_output(place, part, tables, self.n_rows, check, labels)
        return far

    def _table(self, values: Float) -> Table:
        """Return the columns of OUTPUT: for classes, the most probable label, then the values
        (rows, V) by name."""
        columns = dict(zip(self.names, values.T, strict=True))
        if self.classes is None:
            return columns
        places = values[:, : len(self.classes)].argmax(axis=1)
        return {"label": written_labels(self.classes)[places], **columns}


def _together(source: Source, model: AnyModel) -> Source:
    """Return the source; if the model's local residuals are on disk, several tiles are combined
    into one."""
    return Together(source, TILES) if model.cells_place else source


@contextmanager
def opened(
    data: str,
    columns: Columns,
    client: Any,
    *,
    labelled: bool = False,
    skip_bad_rows: bool = False,
    command: str = "",
) -> Iterator[ZarrSource]:
    """Yield DATA, or a table's rows ingested into a temporary folder with a model's ``columns``.

    Args:
        data: path or URL of DATA or of a table
        columns: the model's columns
        client: Dask client or None; a cluster cannot read a table
        labelled: True to read a table's target, too
        skip_bad_rows: True to leave out rows with the wrong number of fields
        command: command that does so, for the message of an error, or ""
    """
    if not is_table(data):
        source = ZarrSource(data)
        warn_of_unseen_levels(source)
        yield source
        return
    if client is not None:
        raise UsageError(
            f"{data} is a table, which workers cannot read: ingest it first, with like=…: "
            f"`{ingesting(data, like='TRAIN_DATA')}`"
        )
    with TemporaryDirectory() as folder:
        exclude = () if labelled else columns.targets or (columns.target,)
        place = f"{folder}/rows.zarr"
        try:
            source = ingest(
                data,
                place,
                like=columns,
                exclude=exclude,
                skip_bad_rows=skip_bad_rows,
                shuffle=None,
                auto=True,
            )
        except UnusableError as error:
            if not command or set(error.remedy) != {"skip_bad_rows"}:
                raise
            hint = ("", "to predict the other rows, in their order:", f"  {command}")
            raise DataError(*error.args, *hint) from error
        source.name = data
        if source.rows_left_out:
            warn(f"{data}: not all lines are rows: {'; '.join(source.rows_left_out)}", DataWarning)
        if labelled and source.left_out:
            warn(f"{data}: rows without a target, left out: {source.left_out:,}", DataWarning)
        yield source


@contextmanager
def _unfinished(output: Folder) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield an empty folder on this machine for unfinished files, and a function that checks the
    lease on OUTPUT."""
    folder = output.sibling(f".{output.name}.partial")
    with claimed(output.place()) as lease, storing(folder.location), folder.scratch() as scratch:
        folder.remove()
        try:
            yield Path(scratch), lease.check
        finally:
            lease.check()  # the folder may belong to a process that has taken over
            folder.remove()


def warn_of_unseen_levels(source: Source) -> None:
    """Warn about the rows of DATA with a label that the training rows do not have."""
    if isinstance(source, ZarrSource):
        source.unseen.warn(source.name, source.n_rows)


def warn_of_far_rows(far: int, rows: int, model: AnyModel) -> None:
    """Warn about rows that are far from all relevance vectors."""
    if far:
        what = model.far_values
        if model.design.functions is not None:
            what = "prediction is close to that of the bias and the basis functions alone"
        if getattr(model, "trees", None) is not None:
            what += ", before boosted trees have their share"
        warn(
            f"{far:,} of {rows:,} rows are far from every relevance vector: their {what}",
            DataWarning,
        )


def evaluate(
    job: str,
    data: str,
    *,
    augment: str | None = None,
    client: Any = None,
    allow_code: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the scores of a job's model on DATA, or on a table with the target, in the target's
    units.

    The scores are ``n_rows``, ``n_vectors``, ``rmse``, ``nlpd`` (mean negative log density of the
    noisy prediction, nats), ``crps`` (mean continuous ranked probability score),
    ``interval_score_95`` (mean score of the 95 % interval), and the fractions of targets inside
    their intervals: ``coverage_50``, ``_80``, ``_90``, ``_95`` and ``_99``. With several targets,
    these are means over the targets (a root mean square for ``rmse``), and ``targets`` maps names
    to scores. For classes, there are ``n_rows``, ``n_vectors``, ``accuracy``, ``log_loss`` (mean
    per row, nats), ``brier``, ``ece``, and, for two classes, ``roc_auc`` (None if DATA contain only
    one): ``core.scores.ClassScores``.

    Parameters
    ----------
    job : str
        Path or URL of the JOB.
    data : str
        Path or URL of DATA or of a table, with targets.
    augment, client, allow_code, progress : optional
        As in ``predict``.

    Raises
    ------
    DataError
        DATA have no target, or targets, features or classes differ; and the errors of ``predict``.
    """
    store, model = _fitted(job, allow_code)
    with (
        opened(data, model.columns, client, labelled=True) as source,
        closing(executor_for(client)) as executor,
    ):
        if augment is None:
            scores: AnyScores = score(model, _together(source, model), executor, progress)
        else:
            augmenting = augmenting_of(store, model, augment, executor)
            require_like(source, augmenting.model.columns, augmenting.model.n_targets)
            scores = augmenting.scores(source, progress)
    targets = source.columns.target_names(source.n_targets)
    return {"n_rows": scores.n, "n_vectors": model.n_vectors, **scores.figures(targets)}


def score(
    model: AnyModel, source: Source, executor: Any, progress: Progress | None = None
) -> AnyScores:
    """Return a model's scores on all rows of a source, computed in one pass. Raises ``DataError``
    as ``require_like`` does.

    Args:
        model: fitted model
        source: rows with targets
        executor: executor of the pass
        progress: function called with the number of tiles done and the total
    """
    require_like(source, model.columns, model.n_targets)
    scores: AnyScores = executor.run([ScorePass.of(model)], source, progress)[0]
    return scores
