"""Prediction of a job's model on DATA, tile by tile, in DATA's order before shuffling."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import partirvm
from partirvm.backends import executor_for
from partirvm.backends.base import Progress
from partirvm.backends.threads import one_blas_thread
from partirvm.data import ZarrSource
from partirvm.data.external_sort import ExternalSorter
from partirvm.data.source import Source
from partirvm.errors import DataError, DataWarning, UsageError
from partirvm.jobs.store import JobStore
from partirvm.model import FAR, AnyModel, ClassInterval, Interval, Model
from partirvm.predict.output import Column, check_output, open_output
from partirvm.predict.resumable import Partial, partial_prediction
from partirvm.predict.rvm_star import augmenting_of, original_rows, training_source
from partirvm.quoting import listed_values, quoted
from partirvm.storage import storing

Float = NDArray[np.float64]

SORT_MEMORY = 32 << 20
"""Bytes of predictions that are put back in order at once."""

OfRows = Callable[[Float], tuple[Float, Float]]
"""Values (n, V), and nearness (n,), of raw inputs X (n, d): a model's intervals and samples are such."""


@dataclass(frozen=True)
class PredictTile:
    """Predictions of one tile: an array (rows, 2 + V) of original row number, V values, whether the row is far away.

    The values are the ``values`` of a model, given as ``predictive``, and those of an ``interval`` after them.
    """

    model: AnyModel
    interval: OfRows | None = None

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and predict it."""

        def values(X: Float) -> tuple[Float, Float]:
            found, nearness = self.model.values(X)
            return (found if self.interval is None else np.hstack([found, self.interval(X)[0]])), nearness

        return ValuesTile(values)(source, number)


@dataclass(frozen=True)
class ValuesTile:
    """The same for what any ``function`` makes of raw inputs."""

    function: OfRows

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and make its values."""
        tile = source.tile(number)
        rows = original_rows(source, tile)
        values, nearness = self.function(tile.X)
        return np.column_stack([rows, values, nearness < FAR])


def values_of_rows(function: OfRows, X: Float) -> tuple[Float, int]:
    """Values (n, V), and the number of far rows, of raw inputs X (n, d) in memory: the bits of a pass."""
    with one_blas_thread():
        values, nearness = function(X)
    return values, int((nearness < FAR).sum())


def predict_rows(model: Model, X: Float, *, std: bool) -> tuple[Float, Float | None, int]:
    """Mean and sd if asked, (n,) or (n, T), and the number of far rows of raw inputs X (n, d): the bits of a pass."""
    with one_blas_thread():
        mean, variance, nearness = (model.predictive if std else model).moments(X, variance=std)
    return mean, None if variance is None else model.deviation(variance), int((nearness < FAR).sum())


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
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> int:
    """Write what the model predicts at each row of DATA to OUTPUT; return the number of rows.

    OUTPUT is .zarr, .parquet or .csv by its ending, with the columns ``mean`` and ``std``, or where the model tells
    classes apart ``label`` and ``p_<class>`` in the order of the classes (``value_names``); rows come in DATA's order
    before shuffling. The label is the most probable class, of the type that the labels have (``output.Column``). With
    an ``interval``, a level such as 0.95, the ends of the prediction interval follow in ``lower`` and ``upper``, of
    classes those of the credible bands of their probabilities, as ``predict_interval`` of the estimators has them.
    OUTPUT appears under its name only when it is whole; until then the tiles predicted so far are kept in a hidden
    folder beside it, 8 bytes per row and column and 16 more per row. Where a call is interrupted, or its process is
    killed, the next one of the same model, DATA and OUTPUT goes on with them, tells ``note`` so, and writes the same
    bytes. Where OUTPUT is whole, and has not been touched since, ``note`` is told that, and nothing is done.

    ``augment`` is the DATA that JOB was fitted to: each row is predicted with a basis function more at itself, so that
    ``std`` grows away from the training rows (``core.augment``). That takes passes over them, of whose tiles
    ``progress`` then hears. Raises ``UsageError`` for classes, ``ChangedDataError`` for DATA other than the fit's,
    ``MemoryLimitError`` where not even a few rows at a time fit in the memory limit of JOB. It has no ``interval``.

    A model whose kernel or basis is a named function imports and runs it: ``UsageError`` unless ``allow_code``.

    Raises ``DataError`` if DATA have other features than the model, ``UsageError`` for another ending, a URL, a place
    in DATA or JOB, or a level outside (0, 1), ``ExistsError`` if OUTPUT is there and ``overwrite`` is false, or it is
    no file and no earlier prediction, ``LeaseError`` if another process predicts to the same OUTPUT. Errors that leave
    tiles to go on with have a note that says so.
    """
    store, source = JobStore(job), ZarrSource(data)
    model = store.model(allow_code=allow_code)
    check_features(model, source)
    if augment is not None and interval is not None:
        raise UsageError("augment and interval cannot be combined: leave one of them out")
    places = (job, data) if augment is None else (job, data, augment)
    training = None if augment is None else training_source(store, augment)
    band = None if interval is None else model.band(interval)
    identity, note = _identity(model, source, training, band), note or (lambda message: None)
    if not overwrite and Path(output).exists() and store.has_prediction(_key(output, identity)):
        note(f"{output}: is done already, with this model and these DATA; --overwrite predicts again")
        return source.n_rows
    path = check_output(output, places, overwrite=overwrite)
    executor = executor_for(client)
    try:
        augmenting = None if training is None else augmenting_of(store, model, training, executor, source)
        with storing(output):
            path.parent.mkdir(parents=True, exist_ok=True)
        with partial_prediction(path, identity, note) as partial:
            check_output(output, places, overwrite=overwrite)  # another process may just have written it
            here = partial.n_whole

            def report(done: int, total: int) -> None:
                if progress is not None:
                    progress(here + done, here + total)

            if augmenting is not None:
                for predicted in augmenting.tiles(source, partial.missing, progress):
                    partial.keep(predicted.tile.number, predicted.records)
            else:
                tiles = PredictTile(model.predictive, interval=band)
                for number, predicted in executor.map(tiles, source, partial.missing, report):
                    partial.keep(number, predicted)
            far = _write(path, partial, model, source.n_rows, interval=band is not None)
        store.note_prediction(_key(output, identity), {"output": str(path.absolute())})
    finally:
        executor.close()
    if augmenting is None:
        warn_of_far_rows(far, source.n_rows, model)
    return source.n_rows


def _write(path: Path, partial: Partial, model: AnyModel, n_rows: int, *, interval: bool) -> int:
    """Write OUTPUT of all tiles, in order; returns the number of far rows."""
    far, columns = 0, tuple(map(Column, model.value_names(interval=interval)))
    labels = model.columns.classes
    if labels is not None:
        columns = (Column("label", labels), *columns)
    with (
        open_output(path, partial.place(f"output{path.suffix}"), columns, n_rows, partial.check) as write,
        ExternalSorter(partial.place("spill"), width=partial.width, high=float(n_rows)) as sorter,
    ):
        for number in range(partial.n_tiles):
            records = partial.tile(number)
            far += int(records[:, -1].sum())
            sorter.add(records)
        for block in sorter.blocks(SORT_MEMORY):
            values = block[:, 1:-1]
            if labels is not None:
                values = np.column_stack([values[:, : len(labels)].argmax(axis=1), values])
            write(values)
    return far


def _identity(
    model: AnyModel, source: ZarrSource, training: ZarrSource | None, band: Interval | ClassInterval | None
) -> dict[str, Any]:
    """All that the bits of a prediction depend on, as JSON."""
    own: dict[str, Any] = {} if training is None else {"augmented": _digest(training)}
    if band is not None:
        own["interval"] = [band.quantile, band.model.digest()]
    return {
        "kind": "partirvm-partial-prediction",
        "format": 1,
        "model": model.digest(),
        "data": _digest(source),
        "shuffle": source.seed,
        "n_rows": source.n_rows,
        "tile_rows": source.tile_rows,
        "columns": list(model.value_names(interval=band is not None)),
        "versions": {"partirvm": partirvm.__version__, "numpy": np.__version__},
        **own,
    }


def _key(output: str, identity: dict[str, Any]) -> str:
    """A hash of what a prediction is, where it is, and the names, sizes and times of its files."""
    path = Path(output).absolute()
    facts = {"output": str(path), "files": _files(path), **identity}
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _files(path: Path) -> list[tuple[str, int, int]]:
    """Name below ``path``, size (bytes) and time of change (ns) of each file there, or of the file that it is."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    stats = [(str(file.relative_to(path)), file.stat()) for file in sorted(files)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _digest(source: ZarrSource) -> str:
    hashes = "".join(source.fingerprint().hashes)
    return hashlib.blake2b(hashes.encode(), digest_size=16).hexdigest()


def warn_of_far_rows(far: int, rows: int, model: AnyModel) -> None:
    """Warn of rows that are far from all relevance vectors."""
    if far:
        what = model.far_prediction
        if model.design.functions is not None:
            what = "prediction is close to that of the bias and the basis functions alone"
        warnings.warn(
            f"{far:,} of {rows:,} rows are far from every relevance vector: their {what}",
            DataWarning,
            stacklevel=3,
        )


def check_features(model: AnyModel, source: Source) -> None:
    """Raise ``DataError`` for data whose features differ from the model's."""
    wanted, found = model.columns.features, source.columns.features
    if len(found) != len(wanted):
        raise DataError(
            f"the model was trained on {len(wanted)} features [{listed_values(wanted)}], the data have {len(found)}: "
            "ingest them with like= (`--like`) and the DATA that the model was trained on"
        )
    if found != wanted:
        raise DataError(
            f"the model was trained on the features [{listed_values(wanted)}], the data have "
            f"[{listed_values(found)}]: ingest them with the "
            "same columns in the same order"
        )
    for name, levels in model.columns.categories.items():
        if source.columns.categories.get(name) != levels:
            raise DataError(
                f"the categories of {quoted(name)} have other codes in the data than in the model: ingest the data "
                "with like= (`--like`) and the DATA that the model was trained on"
            )
