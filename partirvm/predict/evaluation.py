"""Evaluation of a job's model on DATA, by one pass, or with a basis function more at each row."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from partirvm.core.scores import ClassScores, Scores
from partirvm.data import ZarrSource, require_target
from partirvm.data.source import Source, class_codes
from partirvm.errors import DataError
from partirvm.execution import executor_for
from partirvm.execution.tasks import Progress
from partirvm.jobs.store import JobStore
from partirvm.likelihoods.passes import LogisticScorePass, ScorePass
from partirvm.model import AnyModel, ClassModel, Model
from partirvm.predict.prediction import check_features
from partirvm.predict.rvm_star import augmenting_of

AnyScores = Scores | ClassScores


def evaluate(
    job: str,
    data: str,
    *,
    augment: str | None = None,
    client: Any = None,
    allow_code: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Scores of a job's model on DATA, in the target's units.

    ``n_rows``, ``n_vectors``, ``rmse``, ``nlpd`` (mean negative log density of the noisy prediction, nats), ``crps``
    (mean continuous ranked probability score), ``interval_score_95`` (mean score of the 95 % interval), and the
    fractions of targets inside their intervals: ``coverage_50``, ``_80``, ``_90``, ``_95`` and ``_99``. Of several
    targets these are means over them, ``rmse`` the root of the mean of squares, and ``targets`` has those of each by
    its name. Of classes ``n_rows``, ``n_vectors``, ``accuracy``, ``log_loss`` (mean per row,
    nats), ``brier``, ``ece``, and for two classes ``roc_auc`` (None where DATA hold rows of one only):
    ``core.scores.ClassScores``. Classes may be in another order in DATA than in the model. ``augment`` and
    ``allow_code`` are those of ``predict``. Raises ``DataError`` if DATA have no target, or not the same number of
    targets in the same order, or other features, or classes that the model does not know, and as ``predict`` does.
    """
    store, source = JobStore(job), ZarrSource(data)
    model = store.model(allow_code=allow_code)
    require_target(source)
    check_features(model, source)
    with closing(executor_for(client)) as executor:
        if augment is None:
            scores: AnyScores = score(model, source, executor, progress)
        else:
            augmenting = augmenting_of(store, model, augment, executor)
            _require_number_targets(augmenting.model, source)
            scores = augmenting.scores(source, progress)
    targets = source.columns.target_names(source.n_targets)
    return {"n_rows": scores.n, "n_vectors": model.n_vectors, **scores.figures(targets)}


def score(model: AnyModel, source: Source, executor: Any, progress: Progress | None = None) -> AnyScores:
    """Scores of a model on all rows of a source, by one pass. Raises ``DataError`` for other targets or classes."""
    if isinstance(model, ClassModel):
        codes = class_codes(source, model.classes)
        work: Any = LogisticScorePass(model.design, model.mean, model.root, model.likelihood, model.moderate, codes)
    else:
        _require_number_targets(model, source)
        work = ScorePass.of(model)
    scores: AnyScores = executor.run([work], source, progress)[0]
    return scores


def _require_number_targets(model: Model, source: Source) -> None:
    if source.columns.classes not in (None, model.columns.classes):
        raise DataError(
            f"{source}: the model predicts a number, but the target of the data is a class: ingest it without --classes"
        )
    wanted, found = model.columns.target_names(model.n_targets), source.columns.target_names(source.n_targets)
    named = model.columns.targets and source.columns.targets
    if len(found) != len(wanted) or (named and found != wanted):
        raise DataError(
            f"{source}: the model predicts {', '.join(wanted)}, and the data have {', '.join(found)}: ingest them with "
            "like= (`--like`) and the DATA that the model was trained on, from a source that has these columns"
        )
