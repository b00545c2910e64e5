"""Predict DATA with a job's model, tile by tile. The output has the order of the rows before shuffling."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import partirvm
from partirvm.data import ZarrSource
from partirvm.data.external_sort import ExternalSorter
from partirvm.data.source import Source
from partirvm.errors import DataError, DataWarning, UsageError
from partirvm.execution import executor_for
from partirvm.execution.tasks import Progress
from partirvm.jobs.store import JobStore
from partirvm.model import FAR, AnyModel, ClassInterval, Interval, Model
from partirvm.predict.output import Column, check_output, open_output
from partirvm.predict.resumable import Partial, partial_prediction
from partirvm.predict.rvm_star import augmenting_of, original_rows, training_source
from partirvm.quoting import listed_values, quoted
from partirvm.storage.destination import Destination, destination

Float = NDArray[np.float64]

SORT_MEMORY = 32 << 20
"""Bytes of predictions that are sorted in memory at once."""

OfRows = Callable[[Float], tuple[Float, Float]]
"""A function from raw inputs X (n, d) to values (n, V) and nearness (n,), e.g. the intervals of a model."""


@dataclass(frozen=True)
class PredictTile:
    """Predictions of one tile: an array (rows, 2 + V) of original row number, V values, whether the row is far away.

    The values are the ``values`` of a model, given as ``predictive``, and those of an ``interval`` after them.
    """

    name: ClassVar[str] = "predict"

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
    """Values of any ``function`` of the raw inputs of one tile, as an array (rows, 2 + V) like ``PredictTile``."""

    function: OfRows

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and return its row numbers, values and far rows."""
        tile = source.tile(number)
        rows = original_rows(source, tile)
        values, nearness = self.function(tile.X)
        return np.column_stack([rows, values, nearness < FAR])


def values_of_rows(function: OfRows, X: Float) -> tuple[Float, int]:
    """Return the values (n, V) and the number of far rows of raw inputs X (n, d), with the bits of a pass."""
    values, nearness = function(X)
    return values, int((nearness < FAR).sum())


def predict_rows(model: Model, X: Float, *, std: bool) -> tuple[Float, Float | None, int]:
    """Mean and sd if asked, (n,) or (n, T), and the number of far rows of raw inputs X (n, d): the bits of a pass."""
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
    """Write the predictions of the model at each row of DATA to OUTPUT; return the number of rows.

    OUTPUT is a .zarr, .parquet or .csv file, at a path or an fsspec URL, with the rows of DATA in their order before
    shuffling. Regression has the columns ``mean`` and ``std``. Classification has ``label``, the most probable class
    with the type of the labels (``output.Column``), and ``p_<class>`` in the order of the classes (``value_names``).
    With an ``interval``, a level such as 0.95, columns for the ends of the prediction interval follow, ``lower`` and
    ``upper``; classification gives the credible bands of the probabilities. Intervals are those of ``predict_interval``
    of the estimators.

    OUTPUT appears under its name only when it is complete. Until then the predicted tiles are kept in a hidden folder
    beside OUTPUT, which takes 8 bytes per row and column and 16 more bytes per row. If a call is interrupted or its
    process is killed, the next call with the same model, DATA and OUTPUT continues from these tiles and writes the same
    bytes. If OUTPUT is complete and has not been changed since, the call does nothing. Both cases are reported to
    ``note``.

    ``augment`` is the DATA of the fit of JOB. Each row is then predicted with an additional basis function at this row,
    so that ``std`` grows with the distance from the training rows (``core.augment``). ``augment`` needs passes over the
    training rows, whose tiles are reported to ``progress``, and cannot be combined with ``interval``. It raises
    ``UsageError`` for classification, ``ChangedDataError`` for DATA other than those of the fit, and
    ``MemoryLimitError`` if the smallest possible group of test rows exceeds the memory limit of JOB.

    ``allow_code`` permits importing and running a kernel or basis that is a named function; without this permission
    such a model raises ``UsageError``.

    Raises ``DataError`` if DATA have other features than the model, and ``LeaseError`` if another process writes the
    same OUTPUT. Raises ``UsageError`` for another file name extension, an OUTPUT inside DATA or JOB, and a level
    outside (0, 1). Raises ``ExistsError`` if OUTPUT exists, unless ``overwrite`` is true and OUTPUT is a file or a
    prediction in Zarr. An error after which a call can continue has a note with the number of kept tiles.
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
    place = destination(output)
    if not overwrite and place.exists() and store.has_prediction(_key(place, identity)):
        note(f"{output} is complete for this model and these DATA, nothing to do; --overwrite predicts again")
        return source.n_rows
    check_output(output, places, overwrite=overwrite)
    executor = executor_for(client)
    try:
        augmenting = None if training is None else augmenting_of(store, model, training, executor, source)
        place.make_parent()
        with partial_prediction(place, identity, note) as partial:
            check_output(output, places, overwrite=overwrite)  # another process may have written OUTPUT in the meantime
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
            far = _write(place, partial, model, source.n_rows, interval=band is not None)
        store.note_prediction(_key(place, identity), {"output": place.absolute})
    finally:
        executor.close()
    if augmenting is None:
        warn_of_far_rows(far, source.n_rows, model)
    return source.n_rows


def _write(output: Destination, partial: Partial, model: AnyModel, n_rows: int, *, interval: bool) -> int:
    """Write the predictions of all tiles to OUTPUT, sorted by row number; return the number of far rows."""
    far, columns = 0, tuple(map(Column, model.value_names(interval=interval)))
    labels = model.columns.classes
    if labels is not None:
        columns = (Column("label", labels), *columns)
    with (
        open_output(output, partial.place(f"output{output.suffix}"), columns, n_rows, partial.check) as write,
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
    """Return everything that the bits of a prediction depend on, as JSON."""
    own: dict[str, Any] = {} if training is None else {"augmented": _digest(training)}
    if band is not None:
        own["interval"] = [band.quantile, band.model.digest()]
    return {
        "kind": "partirvm-partial-prediction",
        "format": 2,
        "model": model.digest(),
        "data": _digest(source),
        "shuffle": source.seed,
        "n_rows": source.n_rows,
        "tile_rows": source.tile_rows,
        "columns": list(model.value_names(interval=band is not None)),
        "versions": {"partirvm": partirvm.__version__, "numpy": np.__version__},
        **own,
    }


def _key(output: Destination, identity: dict[str, Any]) -> str:
    """Return a hash of a prediction's identity, its place, and the names, sizes and times of its files."""
    facts = {"output": output.absolute, "files": output.files(), **identity}
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


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
    expected, found = model.columns.features, source.columns.features
    if len(found) != len(expected):
        raise DataError(
            f"the model was trained on {len(expected)} features [{listed_values(expected)}], but the data have "
            f"{len(found)}: ingest the data with like= (`--like`) and the DATA that the model was trained on"
        )
    if found != expected:
        raise DataError(
            f"the model was trained on the features [{listed_values(expected)}], but the data have "
            f"[{listed_values(found)}]: ingest the data with the same columns in the same order"
        )
    for name, levels in model.columns.categories.items():
        if source.columns.categories.get(name) != levels:
            raise DataError(
                f"the categories of {quoted(name)} have different codes in the data and in the model: ingest the data "
                "with like= (`--like`) and the DATA that the model was trained on"
            )
