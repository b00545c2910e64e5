"""``partial_fit``: updates of a fitted model with new rows, as ``Job.update`` updates a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from partirvm.data import ArraySource, shuffled_rows
from partirvm.errors import DataError, UsageError
from partirvm.estimators.base import in_memory
from partirvm.estimators.targets import IndependentTargets, column, columns_of
from partirvm.execution import executor_for
from partirvm.jobs.driver import MemoryJournal
from partirvm.jobs.run import run
from partirvm.jobs.update import is_growable, with_new_rows
from partirvm.options import Request
from partirvm.options.table import TABLE
from partirvm.options.values import written
from partirvm.setup.parameters import check_parameters
from partirvm.setup.resolve import grow
from partirvm.setup.spec import LIMITS, FitSpec
from partirvm.setup.timer import timer_of
from partirvm.types import Columns

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows in memory: X (n, d), t (n, T), weights (n,) or None where all are 1, and their ``order`` (n,) in the fit."""

    X: Float
    t: Float
    weights: Float | None
    order: Int
    columns: Columns

    def join(self, other: Rows) -> Rows:
        """Return these rows followed by the rows of ``other``, each in their order."""
        weights = None
        if self.weights is not None or other.weights is not None:
            weights = np.concatenate([_ones(self), _ones(other)])
        return Rows(
            np.concatenate([self.X, other.X]),
            np.concatenate([self.t, other.t]),
            weights,
            np.concatenate([self.order, len(self.order) + other.order]),
            self.columns,
        )

    def source(self, seed: int) -> ArraySource:
        """Return a source of these rows in their order."""
        return ArraySource(self.X, self.t, self.weights, permutation=self.order, columns=self.columns, seed=seed)


def _ones(rows: Rows) -> Float:
    return np.ones(len(rows.X)) if rows.weights is None else rows.weights


@dataclass(frozen=True)
class Stream:
    """The state kept between two calls of ``partial_fit``: all rows, and the strategy's state after those seen."""

    rows: Rows
    request: Request
    spec: FitSpec
    state: Any


class Updatable(IndependentTargets):
    """Estimator that ``partial_fit`` can update with new rows."""

    multi_output: str
    _stream: Stream | None

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Update the model with new rows, X (n, d) and y (n,) or (n, T), in memory; the first call fits the given rows.

        A later call is the update of a job whose DATA have more rows (``Job.update``). It keeps the kernel, the scaling
        and the options of the first call, so the first call should have enough rows to estimate them. The relevance
        vectors stay candidates, and their statistics are computed over the new rows only. Rounds with new candidates
        follow. The estimator keeps a copy of all rows. ``history_``, ``termination_`` and ``plan_`` describe the last
        call; ``max_rounds`` and ``time_limit`` apply to each call.

        Raises the errors of ``fit``, and ``UsageError`` after ``fit``, which keeps no rows, or if a parameter that must
        be kept has changed since the first call.
        """
        if hasattr(self, "estimators_") or (self.multi_output == "independent" and columns_of(y) > 1):
            return self._partial_fit_each(X, y, sample_weight)
        if not in_memory(X):
            raise UsageError(f"partial_fit takes rows in memory, X is {type(X).__name__}: fit takes all kinds of data")
        stream: Stream | None = getattr(self, "_stream", None)
        parameters = self.parameters()
        if stream is not None:
            self._check_kept(stream, parameters)
            return self._update(stream, self._new_rows(stream, X, y, sample_weight), parameters)
        if hasattr(self, "model_"):
            raise UsageError(
                "partial_fit cannot continue the last fit: fit keeps no rows, and a file holds none. Call partial_fit "
                "of an estimator that is not fitted, with these rows first"
            )
        X, y, weights, columns, _ = self._arrays(X, y, sample_weight)
        order = shuffled_rows(len(X), parameters.seed)
        columns = columns or ArraySource(X).columns
        rows = Rows(np.array(X), np.array(y.reshape(len(X), -1)), weights, order, columns)
        journal = MemoryJournal(resumable=True)
        spec = self._fit(rows.source(parameters.seed), None, parameters, journal)
        self._keep(rows, parameters, spec, journal)
        return self

    @property
    def _grown(self) -> bool:
        """Whether ``partial_fit`` has added rows to the model."""
        stream: Stream | None = getattr(self, "_stream", None)
        return stream.spec.before is not None if stream is not None else self.__dict__.get("_was_grown", False)

    def _beside_model(self) -> dict[str, Any]:
        return {**super()._beside_model(), "grown": self._grown}

    def _take_saved(self, model: Any, beside: dict[str, Any]) -> None:
        super()._take_saved(model, beside)
        self._was_grown = beside["grown"]

    def _keep(self, rows: Rows, request: Request, spec: FitSpec, journal: MemoryJournal) -> None:
        """Store what the next ``partial_fit`` needs; nothing if the fit has ended without a checkpoint."""
        last = journal.last
        self._stream = None if last is None else Stream(rows, request, spec, last)

    def _check_kept(self, stream: Stream, parameters: Request) -> None:
        """Raise ``UsageError`` for changed parameters that ``partial_fit`` would ignore, or a fit it cannot update."""
        if not is_growable(stream.state):
            raise UsageError("partial_fit cannot continue: split-merge ended before its last merge; fit all rows again")
        if not stream.spec.problem.target_variance:
            raise DataError(
                "the target of the first rows was constant, so that the target of new rows cannot be scaled: call fit "
                "with rows whose targets vary"
            )
        for name in [name for name in TABLE if name not in (*LIMITS, "seed")]:
            before, now = getattr(stream.request, name), getattr(parameters, name)
            if before is not now and not np.array_equal(np.asarray(before, object), np.asarray(now, object)):
                title = written(self.get_params(deep=False), name)
                raise UsageError(
                    f"{title} is {now!r}, and was {before!r} at the first rows: partial_fit keeps it, so set it back "
                    "or fit all rows again"
                )

    def _new_rows(self, stream: Stream, X: Any, y: Any, sample_weight: Any) -> Rows:
        """Return the rows of all calls, the new ones last and shuffled among themselves."""
        X, y, weights, _, _ = self._arrays(X, y, sample_weight, stream.rows.columns.categories)
        targets, before = y.reshape(len(X), -1), stream.rows.t.shape[1]
        if targets.shape[1] != before:
            raise DataError(f"y has {targets.shape[1]} targets, the rows before had {before}")
        order = shuffled_rows(len(X), stream.request.seed)
        return stream.rows.join(Rows(X, targets, weights, order, stream.rows.columns))

    def _update(self, stream: Stream, rows: Rows, parameters: Request) -> Self:
        """Continue the fit of the stream over all rows."""
        state, rounds = stream.state, parameters.max_rounds
        limits = {name: getattr(parameters, name) for name in LIMITS}
        limits["max_rounds"] = None if rounds is None else state.round + rounds
        request = check_parameters(replace(stream.request, **limits))
        timer, journal, executor = timer_of(request), MemoryJournal(resumable=True), executor_for(self.client)
        source = rows.source(request.seed)
        try:
            spec = grow(stream.spec, source, request, executor)
            outcome = run(
                spec,
                source,
                executor,
                journal,
                # without a first round there would be no model
                interrupted=lambda: None if journal.model is None else timer(),
                checkpoint=with_new_rows(state, spec),
                elapsed=timer.seconds,
            )
        finally:
            executor.close()
        self._fitted(journal, outcome, spec)
        self._keep(rows, stream.request, spec, journal)
        return self

    def _partial_fit_each(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Call ``partial_fit`` of the estimator of each target."""
        targets = columns_of(y)
        each = getattr(self, "estimators_", None) or [self._one() for _ in range(targets)]
        if targets != len(each):
            raise DataError(f"y has {targets} targets, the rows before had {len(each)}")
        for target, one in enumerate(each):
            one.partial_fit(X, column(y, target), sample_weight)
        self.estimators_ = each
        return self._take_each()
