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
from partirvm.core.link import probabilities
from partirvm.core.residuals import Scores
from partirvm.core.scores import ClassScores
from partirvm.data import ZarrSource, class_codes, require_target
from partirvm.data.external_sort import ExternalSorter
from partirvm.data.source import Source
from partirvm.errors import DataError, DataWarning
from partirvm.jobs.store import JobStore
from partirvm.model import FAR, ClassModel, Model
from partirvm.service.output import Column, check_output, open_output
from partirvm.service.partial import Partial, partial_prediction
from partirvm.storage import storing
from partirvm.strategies.instructions import LogisticScorePass, ScorePass

Float = NDArray[np.float64]

SORT_MEMORY = 32 << 20
"""Bytes of predictions that are put back in order at once."""

AnyModel = Model | ClassModel


def value_names(model: AnyModel) -> tuple[str, ...]:
    """What is predicted of each row: ``mean`` and ``std``, or ``p_<class>`` for each class in its order.

    Of T targets ``mean_0`` … and then ``std_0`` …

    Raises ``DataError`` where two classes have the same text.
    """
    if isinstance(model, Model):
        targets = [f"_{target}" for target in range(model.n_targets)] if model.n_targets > 1 else [""]
        return (*(f"mean{target}" for target in targets), *(f"std{target}" for target in targets))
    names = tuple(f"p_{label}" for label in model.classes)
    twice = [label for label in model.classes if names.count(f"p_{label}") > 1]
    if twice:
        raise DataError(f"the classes {twice[0]!r} and {twice[1]!r} would both have the column 'p_{twice[0]}'")
    return names


def predicted_values(model: AnyModel, X: Float, *, linked: bool = True) -> tuple[Float, Float]:
    """Values (n, V) by ``value_names``, and nearness (n,), of raw inputs X (n, d).

    Of classes not ``linked`` the linear predictors (n, C) as the link gets them.
    """
    if isinstance(model, ClassModel):
        f, nearness = model.predictors(X)
        return probabilities(model.likelihood, f) if linked else f, nearness
    mean, variance, nearness = model.moments(X)
    assert variance is not None
    return np.column_stack([mean, np.sqrt(variance)]), nearness


@dataclass(frozen=True)
class PredictTile:
    """Predictions of one tile: an array (rows, 2 + V) of original row number, V values, whether the row is far away.

    The values are ``predicted_values``.
    """

    model: AnyModel
    linked: bool = True

    def __call__(self, source: Source, number: int) -> Float:
        """Read the tile and predict it."""
        tile = source.tile(number)
        rows = source.original_rows(number) if isinstance(source, ZarrSource) else tile.start + np.arange(len(tile.X))
        values, nearness = predicted_values(self.model, tile.X, linked=self.linked)
        return np.column_stack([rows, values, nearness < FAR])


def predict_rows(model: Model, X: Float, *, std: bool) -> tuple[Float, Float | None, int]:
    """Mean and sd if asked, (n,) or (n, T), and the number of far rows of raw inputs X (n, d): the bits of a pass."""
    with one_blas_thread():
        mean, variance, nearness = model.moments(X, variance=std)
    return mean, None if variance is None else np.sqrt(variance), int((nearness < FAR).sum())


def predictors_of_rows(model: ClassModel, X: Float) -> tuple[Float, int]:
    """Linear predictors (n, C) as the link gets them, and the number of far rows, likewise."""
    with one_blas_thread():
        f, nearness = predicted_values(model, X, linked=False)
    return f, int((nearness < FAR).sum())


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
    """Write what the model predicts at each row of DATA to OUTPUT; return the number of rows.

    OUTPUT is .zarr, .parquet or .csv by its ending, with the columns ``mean`` and ``std``, or where the model tells
    classes apart ``label`` and ``p_<class>`` in the order of the classes; rows come in DATA's order before shuffling.
    The label is the most probable class, of the type that the labels have (``output.Column``). OUTPUT appears under its
    name only when it is whole; until then the tiles predicted so far are kept in a hidden folder beside it, 8 bytes per
    row and column and 16 more per row. Where a call is interrupted, or its process is killed, the next one of
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
            far = _write(path, partial, model, source.n_rows)
    finally:
        executor.close()
    warn_of_far_rows(far, source.n_rows, classes=isinstance(model, ClassModel))
    return source.n_rows


def _write(path: Path, partial: Partial, model: AnyModel, n_rows: int) -> int:
    """Write OUTPUT of all tiles, in order; returns the number of far rows."""
    far, columns = 0, tuple(map(Column, value_names(model)))
    if isinstance(model, ClassModel):
        columns = (Column("label", model.classes), *columns)
    with (
        open_output(path, partial.place(f"output{path.suffix}"), columns, n_rows, partial.check) as write,
        ExternalSorter(partial.place("spill"), width=partial.width, high=float(n_rows), memory=SORT_MEMORY) as sorter,
    ):
        for number in range(partial.n_tiles):
            records = partial.tile(number)
            far += int(records[:, -1].sum())
            sorter.add(records)
        for block in sorter.blocks():
            values = block[:, 1:-1]
            write(np.column_stack([values.argmax(axis=1), values]) if isinstance(model, ClassModel) else values)
    return far


def _identity(model: AnyModel, source: ZarrSource) -> dict[str, Any]:
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
        "columns": list(value_names(model)),
        "versions": {"partirvm": partirvm.__version__, "numpy": np.__version__},
    }


def warn_of_far_rows(far: int, rows: int, *, classes: bool = False) -> None:
    """Say how many rows the model, of ``classes`` or a number, knows nothing of."""
    if far:
        what = (
            "probabilities are little more than those that the bias alone gives, everywhere the same"
            if classes
            else "prediction is little more than the mean of the target, and the standard deviation does not grow there"
        )
        warnings.warn(
            f"{far:,} of {rows:,} rows are far from every relevance vector: their {what}",
            DataWarning,
            stacklevel=3,
        )


def evaluate(job: str, data: str, *, client: Any = None, progress: Progress | None = None) -> dict[str, Any]:
    """Scores of a job's model on DATA, in the target's units.

    ``n_rows``, ``n_vectors``, ``rmse``, ``nlpd`` (mean per row, of the noisy prediction, nats) and ``coverage_95`` (a
    fraction). Of classes ``n_rows``, ``n_vectors``, ``accuracy``, ``log_loss`` (mean per row, nats), ``brier``,
    ``ece``, and for two classes ``roc_auc`` (None where DATA hold rows of one only): ``core.scores.ClassScores``.
    Classes may be in another order in DATA than in the model. Raises ``DataError`` if DATA have no target, or other
    features, or classes that the model does not know.
    """
    model, source = JobStore(job).model(), ZarrSource(data)
    require_target(source)
    check_features(model, source)
    executor = executor_for(client)
    try:
        scores = score(model, source, executor, progress)
    finally:
        executor.close()
    counts = {"n_rows": scores.n, "n_vectors": model.n_vectors}
    if isinstance(scores, ClassScores):
        ranked = {"roc_auc": scores.roc_auc} if scores.ranking is not None else {}
        names = ("accuracy", "log_loss", "brier", "ece")
        return counts | {name: getattr(scores, name) for name in names} | ranked
    return {
        **counts,
        "rmse": scores.rmse,
        "nlpd": scores.nlpd,
        "coverage_95": scores.coverage_95,
    }


def score(model: AnyModel, source: Source, executor: Any, progress: Progress | None = None) -> Scores | ClassScores:
    """Scores of a model on all rows of a source, by one pass. Raises ``DataError`` for classes it does not know."""
    scores: Scores | ClassScores = executor.run([_score_pass(model, source)], source, progress)[0]
    return scores


def _score_pass(model: AnyModel, source: Source) -> ScorePass | LogisticScorePass:
    if isinstance(model, ClassModel):
        codes = class_codes(source, model.classes)
        return LogisticScorePass(model.design, model.mean, model.root, model.likelihood, model.moderate, codes)
    if source.columns.classes not in (None, model.columns.classes):
        raise DataError(
            f"{source}: the model predicts a number, and the target of the data is a class: ingest without --classes"
        )
    scales = model.design.scaling.t_scale
    return ScorePass(model.design, model.mean, model.root, model.noise_variance / scales**2)


def check_features(model: AnyModel, source: Source) -> None:
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
