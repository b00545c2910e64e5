"""A picture of an estimator's predictions beside what was observed."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from partirvm.backends import executor_for
from partirvm.core.diagnostics import MOST_TARGETS
from partirvm.data import require_target
from partirvm.estimators.base import RelevanceVectorMachine, array_of, told_by_name
from partirvm.predict.evaluation import score
from partirvm.predict.prediction import check_features
from partirvm.report.diagnostics import Diagnostics, DiagnosticsDisplay


class Diagnosed(RelevanceVectorMachine):
    """Estimator with a picture of its predictions."""

    def plot_diagnostics(self, X: Any, y: Any = None, *, figure: Any = None) -> DiagnosticsDisplay:
        """Draw predictions at rows that the fit has not seen beside their targets.

        For a regression: actual against predicted values, coverage of intervals, standardised residuals, the
        probability integral transform, and errors against stated standard deviations if these vary. For a
        classification: reliability of probabilities, confusion matrix, largest probability, and log loss. Panels of
        points show 400 random rows; all other panels count all rows. The rows are read once, tile by tile. Of several
        targets the first four are drawn, and of more than twelve classes the last ones are one class.

        Parameters
        ----------
        X : of any kind that ``fit`` takes
            Rows (n, d). Training rows have smaller errors than new rows, so that their picture looks too good.
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
            If matplotlib is not installed, or y is missing.
        DataError
            For other features, targets or labels than those of the fit; both are ``ValueError``.
        """
        check_is_fitted(self)
        each = getattr(self, "estimators_", None)
        if each is None:
            model = self.model_
            names = getattr(model, "classes", None) or model.columns.target_names(model.n_targets)
            return DiagnosticsDisplay(self._diagnostics(X, y), [str(name) for name in names]).plot(figure)
        targets = array_of(y)
        found = [one._diagnostics(X, targets[:, k])[0] for k, one in enumerate(each)]
        return DiagnosticsDisplay(found[:MOST_TARGETS]).plot(figure)

    def _diagnostics(self, X: Any, y: Any) -> list[Diagnostics]:
        """Return the diagnostics of each target, by one pass over the rows."""
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
