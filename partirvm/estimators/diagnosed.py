"""A picture of an estimator's predictions beside what was observed."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from partirvm.core.diagnostics import MOST_TARGETS
from partirvm.data import require_target
from partirvm.errors import UsageError
from partirvm.estimators.base import RelevanceVectorMachine, array_of, told_by_name
from partirvm.execution import executor_for
from partirvm.predict.evaluation import score
from partirvm.predict.prediction import check_features
from partirvm.report.display import Diagnostics, DiagnosticsDisplay, from_json


class Diagnosed(RelevanceVectorMachine):
    """Estimator with a picture of its predictions."""

    def plot_diagnostics(self, X: Any = None, y: Any = None, *, figure: Any = None) -> DiagnosticsDisplay:
        """Draw predictions at rows that the fit has not used beside their targets.

        For a regression: actual against predicted values, coverage of intervals, standardised residuals, the
        probability integral transform, and, if the stated standard deviations vary, errors against them. For a
        classification: reliability of probabilities, confusion matrix, the ROC and the precision-recall curve of two
        classes, and largest probability. Panels of points or by deviation show
        400 random rows; all other panels count all rows. The rows are read once, tile by tile. Of several targets the
        first four are drawn, and of more than twelve classes the last ones are one class.

        Parameters
        ----------
        X : of any kind that ``fit`` takes, optional
            Rows (n, d). Training rows have smaller errors than new rows, so that their picture looks too good. None:
            the held-out rows (``validation``) of the fit. A regression of one target without held-out rows has the
            training rows, each predicted as if the fit had not had it, and no coverage of intervals.
        y : array-like (n,) or (n, T)
            Targets or labels, of the same kind as X or a NumPy array; None if X is DATA, which holds them.
        figure : matplotlib Figure, optional
            An empty figure; by default a new one of ``pyplot``.

        Returns
        -------
        DiagnosticsDisplay
            With ``figure_`` and ``axes_``.

        Raises
        ------
        UsageError
            If matplotlib is not installed, or X is None and the fit has no such rows.
        DataError
            For other features, targets or labels than those of the fit; both are ``ValueError``.
        """
        check_is_fitted(self)
        each = getattr(self, "estimators_", None)
        if each is None:
            model = self.model_
            names = getattr(model, "classes", None) or model.columns.target_names(model.n_targets)
            return DiagnosticsDisplay(self._diagnostics(X, y), [str(name) for name in names]).plot(figure)
        found = [one._diagnostics(X, None if y is None else array_of(y)[:, k])[0] for k, one in enumerate(each)]
        return DiagnosticsDisplay(found[:MOST_TARGETS]).plot(figure)

    def _diagnostics(self, X: Any, y: Any) -> list[Diagnostics]:
        """Return the diagnostics of each target, by one pass over the rows; without rows those of the fit."""
        if X is None:
            return self._diagnostics_of_fit()
        columns = self.model_.columns
        validation = X if y is None else (X, y)
        with told_by_name():
            source = self._new_source(validation, columns, getattr(self, "classes_", None))
        require_target(source)
        check_features(self.model_, source)
        executor = executor_for(self.client)
        try:
            scores = score(self.model_, source, executor)
        finally:
            executor.close()
        return list(scores.diagnostics)

    def _diagnostics_of_fit(self) -> list[Diagnostics]:
        """Return the diagnostics of the held-out rows of the fit, or of rows left out."""
        stored = next((line["diagnostics"] for line in reversed(self.history_) if line.get("diagnostics")), None)
        if stored is None:
            raise UsageError("the fit has no held-out rows: give X and y, or fit with validation=(X, y)")
        return from_json(stored)
