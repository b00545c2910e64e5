"""Base class of the estimators: parameters, sources of the training rows, the fit, and predictions tile by tile."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from partirvm.callbacks import FitCallback
from partirvm.core.exact import whole_numbers
from partirvm.data import as_source, require_target
from partirvm.data.checks import numeric_array
from partirvm.data.labels import coded, label_values, plain_labels
from partirvm.data.source import Source
from partirvm.errors import DataError, DataTypeError, PartirvmError, UsageError
from partirvm.estimators.sklearn_bases import BaseEstimator
from partirvm.estimators.watching import Watching, require_callbacks
from partirvm.execution import executor_for
from partirvm.frames import pandas_column, pandas_frame
from partirvm.jobs.driver import MemoryJournal, Outcome
from partirvm.jobs.run import run
from partirvm.model.basis_functions import Bases
from partirvm.model.coded_frames import coded_frame, levels_of
from partirvm.options import Request
from partirvm.options.value import flat
from partirvm.options.values import KernelFamily
from partirvm.predict.prediction import OfRows, ValuesTile, check_features, values_of_rows, warn_of_far_rows
from partirvm.quoting import listed_values
from partirvm.report.progress import progress_for
from partirvm.setup.parameters import check_parameters, portable
from partirvm.setup.relevance import relevances
from partirvm.setup.resolve import resolve
from partirvm.setup.spec import FitSpec
from partirvm.setup.timer import timer_of
from partirvm.types import OFF, Columns

Float = NDArray[np.float64]
Labels = NDArray[Any]


class RelevanceVectorMachine(BaseEstimator, ABC):
    """Base of the estimators. A subclass adds its parameters, ``_take`` (attributes of a model) and predictions."""

    kernel: Any
    client: Any
    verbose: bool
    model_: Any
    _callbacks: tuple[FitCallback, ...] = ()

    def __sklearn_clone__(self) -> Self:
        """Clone with the metadata requests, the callbacks and the same client, which cannot be copied."""
        bare = copy(self)
        bare.client = None
        cloned: Self = super(RelevanceVectorMachine, bare).__sklearn_clone__()
        cloned.client = self.client
        cloned._callbacks = self._callbacks
        return cloned

    def set_callbacks(self, *callbacks: FitCallback) -> Self:
        """Set the callbacks that hear of each ``fit`` in this process, in place of earlier ones; without any, none.

        Clones have them too, so a grid search passes them on; pickles and files do not. Raises ``UsageError`` for an
        object that is not a ``FitCallback``.
        """
        self._callbacks = require_callbacks(callbacks)
        return self

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, nested ones as ``strategy__selection``.

        Raises ``UsageError`` (a ``ValueError``) for a nested name if the parameter is a string and not an option value.
        """
        for key in params:
            name, nested, rest = key.partition("__")
            word = getattr(self, name, None)
            if nested and name not in params and isinstance(word, str):
                raise UsageError(
                    f"{name} is {word!r}, which has no {rest!r}: give a value first, such as strategy=WorkingSet()"
                )
        changed: Self = super().set_params(**params)
        return changed

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the client and the callbacks, which may hold connections."""
        state = {**super().__getstate__(), "client": None}
        state.pop("_callbacks", None)
        return state

    def parameters(self) -> Request:
        """Return the options of a fit of this estimator, with a seed drawn from ``random_state``.

        Raises ``UsageError`` for a value that its option does not allow, and for an option that is given twice.
        """
        values = self.get_params(deep=False)
        del values["client"], values["verbose"]
        state = values.pop("random_state")
        seed = int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31))
        asked = flat(values)
        if isinstance(asked["gamma"], np.ndarray):
            asked["gamma"] = asked["gamma"].tolist()
        return Request(**asked, seed=seed, classify=is_classifier(self))

    def _fit(
        self,
        source: Source,
        held_out: Source | None,
        parameters: Request,
        journal: MemoryJournal | None = None,
    ) -> FitSpec:
        """Fit, and set the model, history, termination and plan; return the spec of the fit."""
        journal = journal or MemoryJournal()
        parameters = check_parameters(parameters)
        if self.client is not None:
            portable(parameters)
        executor = executor_for(self.client)
        try:
            with progress_for(quiet=not self.verbose) as display:
                timer, watching = timer_of(parameters), Watching(self._callbacks, display)
                spec = resolve(source, parameters, executor, held_out, timer)
                watching.on_plan(spec.plan)
                outcome = run(
                    spec,
                    source,
                    executor,
                    journal,
                    held_out=held_out,
                    watcher=watching,
                    interrupted=watching.ending(timer),
                    elapsed=timer.seconds,
                )
        finally:
            executor.close()
        watching.on_end(outcome.reason)
        assert journal.model is not None
        self._fitted(journal, outcome, spec)
        self._describe(journal.model.design.kernel, spec.input_variance)
        return spec

    def _fitted(self, journal: MemoryJournal, outcome: Outcome, spec: FitSpec) -> None:
        """Set the attributes of a fit from its journal and outcome."""
        self.history_, self.termination_, self.plan_ = journal.history, outcome.reason, spec.plan
        self._take(journal.model)

    def _beside_model(self) -> dict[str, Any]:
        """Return the attributes that a file stores in addition to the model and the parameters."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "history": self.history_,
            "termination": self.termination_,
            "variance": self._input_variance,
            "n_features": int(self.n_features_in_),
            "names": None if names is None else names.tolist(),
        }

    def _take_saved(self, model: Any, beside: dict[str, Any]) -> None:
        """Restore a fitted estimator from its model and the dict of ``_beside_model``."""
        self.history_, self.termination_ = beside["history"], beside["termination"]
        self.n_features_in_ = beside["n_features"]
        if beside["names"] is not None:
            self.feature_names_in_ = np.array(beside["names"], dtype=object)
        self._take(model)
        self._describe(model.design.kernel, beside["variance"])

    def _describe(self, kernel: Any, variance: Float) -> None:
        """Set the attributes of the kernel; ``variance`` (d,) is that of the inputs of the kernel."""
        self.kernel_, self._input_variance = kernel, variance
        for name in ("gamma_", "feature_relevance_"):
            self.__dict__.pop(name, None)
        gamma = getattr(self.kernel_, "gamma", None)
        own = self.kernel_.relevances(len(variance))
        if gamma is not None:
            self.gamma_ = gamma[0] if len(gamma) == 1 else np.array(gamma)
        elif own is not None and isinstance(self.kernel, str | KernelFamily) and not hasattr(self.kernel_, "kernels"):
            self.gamma_ = own
        relevance = relevances(self.kernel_, variance)
        if relevance is not None:
            self.feature_relevance_ = relevance

    def _take_bases(self, bases: Bases, outputs: Any = slice(None)) -> None:
        """Set the attributes of the bias and basis functions; a classifier selects ``outputs``."""
        self.basis_names_ = np.array(bases.names, dtype=object)
        self.basis_weights_, self.basis_alpha_ = bases.weights.T[outputs], bases.alpha.T[outputs]
        self.basis_relevance_ = bases.relevance

    def get_support(self, indices: bool = False) -> NDArray[Any]:
        """Return the relevant features: a mask (d,), or with ``indices`` their positions.

        A feature is relevant if its ``feature_relevance_`` is at least ``OFF``. The names of the relevant features are
        ``feature_names_in_[get_support()]``. The estimator has no ``transform``; in a pipeline use
        ``SelectFromModel(RVMRegressor(gamma="learn-per-feature"), importance_getter="feature_relevance_",
        threshold=1e-3)``. Raises ``UsageError`` for a kernel without per-feature widths.
        """
        check_is_fitted(self)
        if not hasattr(self, "feature_relevance_"):
            raise UsageError(f"the {self.kernel_.name} kernel has no per-feature widths, from which relevances follow")
        mask = self.feature_relevance_ >= OFF
        return np.flatnonzero(mask) if indices else mask

    @abstractmethod
    def _take(self, model: Any) -> None:
        """Set the attributes that a fitted model has."""

    @abstractmethod
    def _coded(self, y: Any) -> tuple[Any, Labels | None]:
        """Return the targets (N,) as numbers, and the class labels (K,) if the numbers are codes of classes."""

    def _training_source(self, X: Any, y: Any, sample_weight: Any, seed: int) -> tuple[Source, Labels | None]:
        """Return the training rows, and their class labels for classification."""
        if in_memory(X):
            X, y, weights, columns, labels = self._arrays(X, y, sample_weight)
            return _of_classes(as_source(X, y, weights, seed=seed, columns=columns), labels), labels
        y, labels = (y, None) if y is None else self._coded(y)
        source = as_source(X, y, sample_weight, seed=seed)
        require_target(source)
        if source.n_targets != 1 and labels is not None:
            raise UsageError(f"y has {source.n_targets} columns: one class of each row at a time")
        self.n_features_in_ = source.n_features
        names = [] if hasattr(X, "gather") else list(getattr(X, "columns", ()))
        if names and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return _of_classes(source, labels), labels

    def _arrays(
        self, X: Any, y: Any, sample_weight: Any, levels: dict[str, tuple[Any, ...]] | None = None
    ) -> tuple[Any, Any, Any, Columns | None, Labels | None]:
        """Rows of weight above zero that are in memory, checked: X, y, weights, columns where they have names, labels.

        With ``levels`` of categories they have to be like the rows before.
        """
        more = levels is not None
        X = pandas_frame(X)
        levels = levels_of(X) if levels is None else levels
        X, y = self._rows(X, levels, y, ensure_min_samples=1 if more else 2, reset=not more)
        names = getattr(self, "feature_names_in_", None)
        weights = None
        if sample_weight is not None:
            sample_weight = _weights(sample_weight, len(X))
            with told_by_name():
                weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            present = weights > 0
            if not present.all():
                X, y, weights = X[present], y[present], weights[present]
        y, labels = self._coded(y)
        columns = None if names is None else Columns(tuple(names), categories=levels)
        return X, y, weights, columns, labels

    def _rows(self, X: Any, levels: dict[str, tuple[Any, ...]], *y: Any, reset: bool = False, **checks: Any) -> Any:
        """Rows in memory as an array (n, d), and targets beside it if they are given; checked as scikit-learn does.

        Raises ``DataError`` that names columns and rows which cannot be used.
        """
        numbers = is_regressor(self)
        if y:
            targets = y[0]
            if targets is not None and not numbers:
                targets = labels_of(targets)
            elif targets is not None:
                targets = numbers_of(targets)
            y = (targets,)
            checks |= {"y_numeric": numbers, "multi_output": numbers}
        with told_by_name():
            X = coded_frame(X, levels)
            found = validate_data(self, X, *y, dtype=np.float64, ensure_all_finite=False, reset=reset, **checks)
        rows = found[0] if y else found
        check_finite(rows, getattr(self, "feature_names_in_", None))
        return found

    def _held_out_source(self, validation: Any, columns: Columns, labels: Labels | None) -> Source | None:
        """The rows of ``validation``, with the columns and classes of the training rows."""
        return None if validation is None else self._new_source(validation, columns, labels)

    def _new_source(self, validation: Any, columns: Columns, labels: Labels | None) -> Source:
        """Return rows that are not for training: a pair (X, y), or DATA."""
        if not isinstance(validation, tuple | list):
            return as_source(validation)
        if len(validation) != 2:
            raise UsageError(f"validation has {len(validation)} parts: it must be (X, y), or DATA")
        X, y = pandas_frame(validation[0], "the validation X"), validation[1]
        check_names(X, columns.features)
        if in_memory(X):
            X, y = self._rows(X, columns.categories, y)
        return as_source(X, y if labels is None else coded(array_of(y), labels), columns=columns)

    def _values(self, function: OfRows, X: Any) -> Float:
        """Return the values (n, V) of a function of raw inputs, such as a model's intervals, for each row of X."""
        if in_memory(X):
            values, far = values_of_rows(function, self._rows(X, self.model_.columns.categories))
        else:
            found = self._each_tile(ValuesTile(function), as_source(X))
            values, far = found[:, :-1], int(found[:, -1].sum())
        warn_of_far_rows(far, len(values), self.model_)
        return values

    def _each_tile(self, function: Callable[[Source, int], Float], source: Source) -> Float:
        """Return the values (n, …) of ``function`` for each row of a source, sorted by row number (first column)."""
        check_features(self.model_, source)
        executor = executor_for(self.client)
        try:
            found = np.concatenate([block for _, block in executor.map(function, source, range(source.n_tiles), None)])
        finally:
            executor.close()
        return found[np.argsort(found[:, 0]), 1:]


@contextmanager
def told_by_name() -> Iterator[None]:
    """Turn the errors of scikit-learn and NumPy about invalid data into errors of partirvm."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except PartirvmError:
        raise
    except ValueError as error:
        raise DataError(_without_values(error)) from error
    except TypeError as error:
        raise DataTypeError(_without_values(error)) from error


def _without_values(error: Exception) -> str:
    """The text of an error without the arrays that it prints on several lines."""
    text = str(error)
    if "\n" in text:
        text = re.sub(r"(array=)?\[[\s\S]*\]\.?", "", text)
    return "\n".join(line for line in text.splitlines() if line.strip())


def check_finite(X: Float, names: Any) -> None:
    """Raise ``DataError`` for values that are NaN or infinite: their count, the first row and its column by name."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum()):
            return
    wrong = ~np.isfinite(X)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        name = f"x{column}" if names is None else str(names[column])
        raise DataError(
            f"X has {int(wrong.sum()):,} values that are NaN or infinite, the first in row {row:,} (counted from 0), "
            f"column {name!r}: remove or fill them"
        )


def labels_of(y: Any) -> Labels:
    """Labels in memory as an array of their own type. Raises ``DataError`` for missing or invalid labels."""
    return label_values(whole_numbers(pandas_column(y)))


def numbers_of(y: Any) -> NDArray[Any]:
    """Targets in memory as an array of finite numbers. Raises ``DataError`` for others."""
    targets = numeric_array("y", whole_numbers(pandas_column(y)))
    _check_numbers("y", targets)
    return targets


def _check_numbers(name: str, values: NDArray[Any]) -> None:
    """Raise ``DataError`` for targets or weights that are NaN or infinite; the message names the first such row."""
    wrong = ~np.isfinite(values)
    if wrong.any():
        found = "NaN" if np.isnan(values).any() else "infinity or a value too large for dtype('float64')"
        raise DataError(
            f"Input {name} contains {found}: {int(wrong.sum()):,} such values, the first in row "
            f"{int(np.argwhere(wrong)[0][0]):,} (counted from 0): remove these rows, or fill the values in"
        )


def _weights(given: Any, n_rows: int) -> Any:
    """Return the weights of ``n_rows`` rows, or one weight for all. Raises ``DataError`` for invalid weights."""
    weights = numeric_array("sample_weight", given)
    if weights.ndim and weights.shape != (n_rows,):
        raise DataError(
            f"sample_weight has the shape {weights.shape}, and X has {n_rows:,} rows: it must be ({n_rows},), one "
            "weight for each row"
        )
    _check_numbers("sample_weight", weights)
    if not weights.any():
        raise DataError("no row has a weight above zero: there is nothing to fit")
    return weights if weights.ndim else float(weights)


def check_names(X: Any, features: tuple[str, ...]) -> None:
    """Raise ``DataError`` if the columns of a validation frame differ from named training columns."""
    names = tuple(str(name) for name in getattr(X, "columns", features))
    if names != features and features != tuple(f"x{column}" for column in range(len(features))):
        raise DataError(
            f"the validation data have the features [{listed_values(names)}], the training data "
            f"[{listed_values(features)}]: they must be "
            "the same, in the same order"
        )


def in_memory(X: Any) -> bool:
    """Return whether scikit-learn can validate X: anything except paths, sources, Zarr and Dask arrays."""
    module, source = type(X).__module__.partition(".")[0], hasattr(X, "tile") and hasattr(X, "gather")
    return not (isinstance(X, str) or hasattr(X, "__fspath__") or source or module in _FOREIGN)


_FOREIGN = ("zarr", "dask", "dask_expr", "distributed")


def array_of(y: Any) -> Any:
    """Convert labels or targets to an array: a Dask series as a Dask array, lists and other series as a NumPy array."""
    if hasattr(y, "to_dask_array"):
        y = y if isinstance(y.dtype, np.dtype) else y.astype(object)  # text and categories of pandas' own
        return y.to_dask_array(lengths=True)
    return y if type(y).__module__.partition(".")[0] in _FOREIGN else np.asarray(y)


def _of_classes(source: Source, labels: Labels | None) -> Source:
    if labels is not None:
        source.columns = replace(source.columns, classes=plain_labels(labels))
    return source
