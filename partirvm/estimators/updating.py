"""``partial_fit``: updates of a fitted model with new rows."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from partirvm.backends import Executor, executor_for
from partirvm.data import as_source
from partirvm.errors import DataError, UsageError
from partirvm.estimators.base import in_memory
from partirvm.estimators.targets import IndependentTargets, column, columns_of
from partirvm.jobs.driver import MemoryJournal, Outcome
from partirvm.jobs.partial_fit import Memory, Rows, check_updatable, first, update
from partirvm.options import Request
from partirvm.options.values import written
from partirvm.setup.spec import FitSpec
from partirvm.types import Columns

KEPT = (
    *("kernel", "gamma", "gamma_multiples", "basis", "fit_intercept", "standardize", "partition_size"),
    *("noise_variance", "alpha_prior", "noise_prior", "updates", "fixed_alpha"),
)
"""Parameters of the first call of ``partial_fit`` that later calls must not change."""


class Updatable(IndependentTargets):
    """Estimator that ``partial_fit`` can update with new rows."""

    multi_output: str

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Update the model with new rows, X (n, d) and y (n,) or (n, T), in memory; the first call fits the given rows.

        Later calls keep the kernel, the scaling and the partition size of the first call, so the first call should have
        enough rows to estimate them. The candidates are the vectors kept so far and the new rows. The statistics of the
        kept vectors are updated exactly. The statistics of new vectors are exact over a random sample of 2,000 earlier
        rows; over the other earlier rows they are approximated by the kept vectors. A stream of up to 2,000 rows is
        therefore fitted exactly, a longer stream approximately. After a plain ``fit``, which keeps no sample, the
        statistics of new vectors are approximate for all its rows. The estimator holds a copy of the sample and two
        Gram matrices of the vectors. ``history_``, ``termination_`` and ``plan_`` describe the last call;
        ``max_rounds`` and ``time_limit`` apply to each call.

        Raises the errors of ``fit``, and ``UsageError`` if the ``likelihood`` is not that of all rows, or if a
        parameter that must be kept has changed since the first call.
        """
        if hasattr(self, "estimators_") or (self.multi_output == "independent" and columns_of(y) > 1):
            return self._partial_fit_each(X, y, sample_weight)
        if not in_memory(X):
            raise UsageError(f"partial_fit takes rows in memory, X is {type(X).__name__}: fit takes all kinds of data")
        memory: Memory | None = getattr(self, "_memory", None)
        parameters = self.parameters()
        check_updatable(parameters, self.get_params(deep=False))
        if memory is not None:
            self._check_kept(parameters)
            return self._update(memory, X, y, sample_weight, parameters)
        if hasattr(self, "model_"):
            raise UsageError(
                "partial_fit cannot continue the last fit: it used some rows only, or comes from a file. Fit again"
            )
        X, y, weights, columns, _ = self._arrays(X, y, sample_weight)
        rows = Rows(X, y.reshape(len(X), -1), weights)

        source = as_source(X, y, weights, seed=parameters.seed, columns=columns)
        self._fit(source, None, parameters, partial(self._keep_memory, rows=rows, columns=source.columns))
        return self

    @property
    def _grown(self) -> bool:
        """Whether ``partial_fit`` has added rows to the model."""
        memory: Memory | None = getattr(self, "_memory", None)
        return len(memory.sample) > 0 if memory is not None else self.__dict__.get("_was_grown", False)

    def _beside_model(self) -> dict[str, Any]:
        return {**super()._beside_model(), "grown": self._grown}

    def _take_saved(self, model: Any, beside: dict[str, Any]) -> None:
        super()._take_saved(model, beside)
        self._was_grown = beside["grown"]

    def _keep_memory(
        self, spec: FitSpec, outcome: Outcome, executor: Executor, *, columns: Columns, rows: Rows | None = None
    ) -> None:
        """Store the statistics and the sample of rows that the next ``partial_fit`` needs."""
        self._memory = first(spec, outcome, columns, rows, executor)
        self._begun_with = self.parameters()

    def _check_kept(self, parameters: Request) -> None:
        """Raise ``UsageError`` for changed parameters that ``partial_fit`` would ignore."""
        for name in KEPT:
            before, now = getattr(self._begun_with, name), getattr(parameters, name)
            if before is not now and not np.array_equal(np.asarray(before, object), np.asarray(now, object)):
                title = written(self.get_params(deep=False), name)
                raise UsageError(
                    f"{title} is {now!r}, and was {before!r} at the first rows: partial_fit keeps it, so set it back "
                    "or fit all rows again"
                )

    def _update(self, memory: Memory, X: Any, y: Any, sample_weight: Any, parameters: Request) -> Self:
        """Update the model from the stored statistics."""
        X, y, weights, _, _ = self._arrays(X, y, sample_weight, memory.columns.categories)
        targets = y.reshape(len(X), -1)
        if targets.shape[1] != memory.spec.problem.n_targets:
            raise DataError(f"y has {targets.shape[1]} targets, the rows before had {memory.spec.problem.n_targets}")
        journal, executor = MemoryJournal(), executor_for(self.client)
        try:
            step = update(memory, Rows(X, targets, weights), parameters, executor, journal)
        finally:
            executor.close()
        spec, outcome, self._memory = step
        self._fitted(journal, outcome, spec)
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
