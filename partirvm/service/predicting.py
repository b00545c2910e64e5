"""Prediction and evaluation of a job's model on DATA, tile by tile, in DATA's order before shuffling."""

from __future__ import annotations

import hashlib
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
from partirvm.core.residuals import Scores
from partirvm.data import ZarrSource, require_target
from partirvm.data.external_sort import ExternalSorter
from partirvm.data.source import Source
from partirvm.errors import DataError, DataWarning
from partirvm.jobs.store import JobStore
from partirvm.model import FAR, Model
from partirvm.service.output import check_output, open_output
from partirvm.service.partial import WIDTH, Partial, partial_prediction
from partirvm.storage import storing
from partirvm.strategies.instructions import ScorePass

Float = NDArray[np.float64]

SORT_MEMORY = 32 << 20
"""Bytes of predictions that are put back in order at once."""

COLUMNS = ("mean", "std")
"""What is written of each row."""


@dataclass(frozen=True)
class PredictTile:
    """Predictions of one tile: an array (rows, 4) of original row number, mean, sd, and whether the row is far away."""

    model: Model

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and predict it."""
        tile = source.tile(number)
        rows = source.original_rows(number) if isinstance(source, ZarrSource) else tile.start + np.arange(len(tile.X))
        mean, variance, nearness = self.model.moments(tile.X)
        assert variance is not None
        return np.column_stack([rows, mean, np.sqrt(variance), nearness < FAR])


def predict_rows(model: Model, X: Float, *, std: bool) -> tuple[Float, Float | None, int]:
    """Mean, sd if asked, and the number of far rows of raw inputs X (n, d) in memory: the bits of a pass."""
    with one_blas_thread():
        mean, variance, nearness = model.moments(X, variance=std)
    return mean, None if variance is None else np.sqrt(variance), int((nearness < FAR).sum())


def predict(
    job: str,
    data: str,
    output: str,
    *,
    client: Any = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> int:
    """Write mean and standard deviation of the target at each row of DATA to OUTPUT; return the number of rows.

    OUTPUT is .zarr, .parquet or .csv by its ending, with the columns ``mean`` and ``std``; rows come in DATA's order
    before shuffling. It appears under its name only when it is whole; until then the tiles predicted so far are kept in
    a hidden folder beside it, 32 bytes per row. Where a call is interrupted, or its process is killed, the next one of
    the same model, DATA and OUTPUT goes on with them, tells ``note`` so, and writes the same bytes.

    Raises ``DataError`` if DATA have other features than the model, ``UsageError`` for another ending, a URL, or a
    place in DATA or JOB, ``ExistsError`` if OUTPUT is there and ``overwrite`` is false, or it is no file and no earlier
    prediction, ``LeaseError`` if another process predicts to the same OUTPUT. Errors that leave tiles to go on with
    have a note that says so.
    """
    model, source = JobStore(job).model(), ZarrSource(data)
    check_features(model, source)
    path = check_output(output, (job, data), overwrite=overwrite)
    executor = executor_for(client)
    try:
        with storing(output):
            path.parent.mkdir(parents=True, exist_ok=True)
        with partial_prediction(path, _identity(model, source), note or (lambda message: None)) as partial:
            check_output(output, (job, data), overwrite=overwrite)  # another process may just have written it
            here = partial.n_whole

            def report(done: int, total: int) -> None:
                if progress is not None:
                    progress(here + done, here + total)

            for number, predicted in executor.map(PredictTile(model), source, partial.missing, report):
                partial.keep(number, predicted)
            far = _write(path, partial, source.n_rows)
    finally:
        executor.close()
    warn_of_far_rows(far, source.n_rows)
    return source.n_rows


def _write(path: Path, partial: Partial, n_rows: int) -> int:
    """Write OUTPUT of all tiles, in order; returns the number of far rows."""
    far = 0
    with (
        open_output(path, partial.place(f"output{path.suffix}"), COLUMNS, n_rows, partial.check) as write,
        ExternalSorter(partial.place("spill"), width=WIDTH, high=float(n_rows), memory=SORT_MEMORY) as sorter,
    ):
        for number in range(partial.n_tiles):
            records = partial.tile(number)
            far += int(records[:, 3].sum())
            sorter.add(records)
        for block in sorter.blocks():
            write(block[:, 1:3])
    return far


def _identity(model: Model, source: ZarrSource) -> dict[str, Any]:
    """All that the bits of a prediction depend on, as JSON."""
    hashes = "".join(source.fingerprint().hashes)
    return {
        "kind": "partirvm-partial-prediction",
        "format": 1,
        "model": model.digest(),
        "data": hashlib.blake2b(hashes.encode(), digest_size=16).hexdigest(),
        "shuffle": source.seed,
        "n_rows": source.n_rows,
        "tile_rows": source.tile_rows,
        "columns": list(COLUMNS),
        "versions": {"partirvm": partirvm.__version__, "numpy": np.__version__},
    }


def warn_of_far_rows(far: int, rows: int) -> None:
    """Say how many rows the model knows nothing of."""
    if far:
        warnings.warn(
            f"{far:,} of {rows:,} rows are far from every relevance vector: their prediction is little more than the "
            "mean of the target, and the standard deviation does not grow there",
            DataWarning,
            stacklevel=3,
        )


def evaluate(job: str, data: str, *, client: Any = None, progress: Progress | None = None) -> dict[str, Any]:
    """Scores of a job's model on DATA, in the target's units.

    ``n_rows``, ``n_vectors``, ``rmse``, ``nlpd`` (mean per row, of the noisy prediction, nats) and ``coverage_95`` (a
    fraction). Raises ``DataError`` if DATA have no target, or other features than the model.
    """
    model, source = JobStore(job).model(), ZarrSource(data)
    require_target(source)
    check_features(model, source)
    executor = executor_for(client)
    try:
        scores = score(model, source, executor, progress)
    finally:
        executor.close()
    return {
        "n_rows": scores.n,
        "n_vectors": model.n_vectors,
        "rmse": scores.rmse,
        "nlpd": scores.nlpd,
        "coverage_95": scores.coverage_95,
    }


def score(model: Model, source: Source, executor: Any, progress: Progress | None = None) -> Scores:
    """Scores of a model on all rows of a source, by one pass."""
    scale = float(model.design.scaling.t_scale[0])
    pass_ = ScorePass(model.design, model.mean, model.root, model.noise_variance / scale**2)
    scores: Scores = executor.run([pass_], source, progress)[0]
    return scores


def check_features(model: Model, source: Source) -> None:
    """Refuse data whose features are not the model's. Raises ``DataError``."""
    wanted, found = model.columns.features, source.columns.features
    if len(found) != len(wanted):
        raise DataError(
            f"the model was trained on {len(wanted)} features {list(wanted)}, the data have {len(found)}: ingest them "
            "with like= (`--like`) and the DATA that the model was trained on"
        )
    if found != wanted:
        raise DataError(
            f"the model was trained on the features {list(wanted)}, the data have {list(found)}: ingest them with the "
            "same columns in the same order"
        )
    for name, levels in model.columns.categories.items():
        if source.columns.categories.get(name) != levels:
            raise DataError(
                f"the categories of {name!r} have other codes in the data than in the model: ingest the data with "
                "like= (`--like`) and the DATA that the model was trained on"
            )
