"""Base class of the estimators: parameters, fitting, and tile-by-tile values of rows."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partirvm.core.termination import Termination
from partirvm.data import as_source
from partirvm.data.labels import Labels, text_of_label
from partirvm.data.row_groups import without_groups
from partirvm.data.source import Source, require_features_like
from partirvm.errors import UsageError
from partirvm.estimators.inputs import (
    data_errors,
    has_gaps,
    in_memory,
    rows_of,
    source_of,
    training_source,
)
from partirvm.execution import executor_for
from partirvm.export import to_c, to_numpy, to_onnx
from partirvm.fit.driver import Driver, MemoryJournal
from partirvm.fit.run import run, with_new_rows
from partirvm.kernels.permission import FunctionParameters
from partirvm.model import FAR, OfRows, by_groups
from partirvm.model.base import bases_of
from partirvm.options import Request
from partirvm.options.table import (
    Auto,
    AutoOrNone,
    Effort,
    Gamma,
    KernelStore,
    SolverName,
    StrategyName,
)
from partirvm.options.values import AlphaPrior, ColumnOptions, Strategy, Value, Warp, flat
from partirvm.predict.prediction import (
    score,
    tile_values,
    warn_of_far_rows,
    warn_of_unseen_levels,
)
from partirvm.report.plots import DiagnosticsDisplay, from_json
from partirvm.report.progress import FitCallback, Progress
from partirvm.resolve.kernel import portable
from partirvm.resolve.new_problem import timer
from partirvm.resolve.resolve import FitSpec, check_parameters, continued, resolve
from partirvm.scaling.maps import unfolded_inputs
from partirvm.types import Columns, Float, Int


@dataclass(eq=False, repr=False)
class RelevanceVectorMachine(FunctionParameters, BaseEstimator):
    """Base class of the estimators. A subclass adds parameters, ``_take`` (which sets the model's
    attributes) and prediction methods.

    Its ``_coded`` returns numeric targets (N,), and the class labels (K,) if the targets are class
    codes.

    The subclasses document the parameters and the attributes; a test compares these entries with
    the table of options.
    """

    to_onnx, to_c, to_numpy = to_onnx, to_c, to_numpy

    kernel: Any = "auto"
    gamma: Gamma | NDArray[np.float64] = "learn"
    max_vectors: int | None = None
    max_rounds: int | None = None
    effort: Effort = "balanced"
    memory_limit: int | str = "auto"
    random_state: Any = None
    _: KW_ONLY
    time_limit: float | str | None = None
    basis: Any = None
    warp: AutoOrNone | Warp = "auto"
    strategy: StrategyName | Strategy = "auto"
    partition_size: int | Auto = "auto"
    solver: SolverName = "auto"
    max_iterations: int | None = None
    alpha_prior: tuple[float, float] | AlphaPrior = (0.0, 0.0)
    fit_intercept: bool = True
    standardize: bool = True
    tol: float = 1e-07
    kernel_store: KernelStore = "auto"
    client: Any = None
    columns: ColumnOptions | None = None
    verbose: bool = False

    def __sklearn_clone__(self) -> Self:
        """Return a clone with the metadata requests, the callbacks and the client itself, because
        clients cannot be copied."""
        bare = copy(self)
        bare.client = None
        cloned: Self = super(RelevanceVectorMachine, bare).__sklearn_clone__()
        cloned._permit(self._permitted())
        cloned.client = self.client
        return cloned.set_callbacks(*getattr(self, "_callbacks", ()))

    def set_callbacks(self, *callbacks: FitCallback) -> Self:
        """Set the callbacks of each ``fit`` and ``partial_fit`` in this process, replacing earlier
        ones.

        Without arguments, all callbacks are removed. Clones keep the callbacks, so that a grid
        search passes them on; pickles and saved files do not contain them. Raises ``UsageError``
        for an object that is not a ``FitCallback``.
        """
        for callback in callbacks:
            if not isinstance(callback, FitCallback):
                raise UsageError(
                    f"{callback!r} is not a callback: derive its class from partirvm.FitCallback"
                )
        self._callbacks = callbacks
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the client and the callbacks, which may hold
        connections."""
        state = {**super().__getstate__(), "client": None}
        state.pop("_callbacks", None)
        return state

    def parameters(self) -> Request:
        """Return the options of this estimator's fit, with a seed drawn from ``random_state``.

        Raises ``UsageError`` for a value that its option does not allow, and for an option that is
        set twice.
        """
        self.require_permitted_parameters()
        values = self.get_params(deep=False)
        del values["client"], values["verbose"], values["columns"]
        if not isinstance(self.columns, ColumnOptions | None):
            raise UsageError(
                f"columns is {self.columns!r}: it must be None or a ColumnOptions, such as "
                "ColumnOptions(exclude='id')"
            )
        state = values.pop("random_state")
        seed = (
            int(state)
            if isinstance(state, int | np.integer)
            else int(check_random_state(state).randint(2**31))
        )
        options = flat(values)
        if isinstance(options["gamma"], np.ndarray):
            options["gamma"] = options["gamma"].tolist()
        if isinstance(weights := options.get("class_weight"), Mapping):
            options["class_weight"] = {
                text_of_label(label): weight for label, weight in weights.items()
            }
        return Request(**options, seed=seed, classify=is_classifier(self))

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Fit the model to the rows of X (N, d) with targets or labels y.

        Parameters
        ----------
        X : array-like, data frame, Zarr or Dask array (N, d), Dask data frame, or dataset
            Missing values (NaN) are allowed. Data frames (pandas, polars, Arrow) are read like
            files by ``ingest(auto=True)``: columns of numbers are kept as they are, and text is
            read as numbers, dates or categories. A warning lists what was converted, the option
            ``columns`` changes it, and ``model_.columns`` holds it for ``predict``. A dataset is
            the path or URL of the output of ``ingest`` (with ``classes=True`` for labels); it
            includes y and weights. X is not kept. Equal rows in any of these containers give
            bit-identical models; Dask and Zarr collections larger than 128 MiB are read in their
            own order instead of a random one.
        y : array-like (N,), or (N, T) for a regression with T targets
            Targets, or labels of any type that has an order; either of the same kind as X or a
            NumPy array. For rows in memory, some of several targets of a row may be NaN: targets
            with the same gaps are fitted together to the rows that have them, and a constant target
            alone (``estimators_``).
        sample_weight : array-like (N,), optional
            In a regression, the noise variance of a row is σ²/weight, with weights in units of
            their mean, so that a common factor has no effect: rows with known relative noise r have
            weights 1/r². In a classification, a row of weight 2 counts as two rows. Rows with
            weight 0 are left out.
        groups : array-like (N,), str or Groups, optional
            Which rows belong together, such as the rows of a station: labels of any type, the name
            of a column of X, which then is no feature, or ``Groups``, such as
            ``Groups.by_time("when", "7d")``. Whatever is estimated
            or chosen from left-out rows then comes from left-out groups, and predictions state the
            uncertainty of new groups, unless ``predict`` is told otherwise. A dataset includes its
            groups (``ingest(groups=...)``).
        X_val, y_val, sample_weight_val : as X, y and sample_weight, optional
            Held-out rows: their error or log loss is recorded in ``history_`` and ends the fit when
            it stops falling (early stopping). Other libraries call this ``eval_set``. X_val may be
            a dataset.

        Raises
        ------
        DataError, UsageError, MemoryLimitError, NumericalError
            For invalid data or parameters (a ``ValueError``; also a ``TypeError`` for data of the
            wrong type), for a fit that needs more memory than the limit (``MemoryError``), and for
            an overflow (``ArithmeticError``).
        """
        parameters = self.parameters()
        source, labels = training_source(self, X, y, sample_weight, parameters.seed, groups)
        held_out = None
        if X_val is not None or y_val is not None:
            rows = (
                X_val
                if y_val is None and not in_memory(X_val)
                else (X_val, y_val, sample_weight_val)
            )
            gaps = has_gaps(source)
            held_out = source_of(self, rows, source.columns, labels, gaps=gaps)
        self._fit_targets(source, held_out, parameters)
        self._take_labels(source.columns, labels)
        self.__dict__.pop("_stream", None)
        return self

    def _fit_targets(self, source: Source, held_out: Source | None, request: Request) -> None:
        """Fit to all targets of the rows, and set the attributes.

        Args:
            source: the training rows.
            held_out: validation rows, if any.
            request: the options.
        """
        self._fit(source, held_out, request, MemoryJournal(), None)

    def _fit(
        self,
        source: Source,
        held_out: Source | None,
        request: Request,
        log: MemoryJournal,
        state: Any,
    ) -> FitSpec:
        """Fit, or continue from ``state``; set the attributes and return the fit's spec.

        Args:
            source: the training rows.
            held_out: validation rows, if any.
            request: the options.
            log: the journal of the fit.
            state: the spec and the checkpoint of the fit to continue; None for a new fit.
        """
        parameters = check_parameters(request)
        checkpoint = None
        if self.client is not None:
            portable(parameters)
        with (
            closing(executor_for(self.client)) as executor,
            Progress(quiet=not self.verbose) as display,
        ):
            began = time.monotonic()
            over = timer(parameters.time_limit)
            display.callbacks = getattr(self, "_callbacks", ())

            def interrupted() -> Termination | None:
                # an update ends after its first round at the earliest: before that there is no
                # model
                if state is not None and log.model is None:
                    return None
                return Termination.ABORTED if display.ended else over()

            if state is None:
                spec = resolve(source, parameters, executor, held_out, over, display.on_learning)
            else:
                spec = continued(state[0], source, parameters, executor)
                checkpoint = with_new_rows(state[1], spec)
            display.on_plan(spec.plan)
            driver = Driver(
                executor, source, held_out, display, interrupted, elapsed=time.monotonic() - began
            )
            outcome = run(driver, spec, log, checkpoint)
        for callback in display.callbacks:
            callback.on_end(outcome.reason)
        assert log.model is not None
        self.history_ = log.history
        self.termination_ = outcome.reason
        self.plan_ = spec.plan
        self._take(log.model, spec.input_variance)
        return spec

    def _take(self, model: Any, variance: Float) -> None:
        """Set the attributes of a fitted model; ``variance`` (d,) is the variance of its kernel's
        inputs."""
        kernels = slice(model.design.n_leading, None)
        bases = bases_of(model)
        self.model_ = model
        self.relevance_vectors_ = unfolded_inputs(model.design.centres, model.design.scaling)
        self.n_relevance_vectors_ = model.n_vectors
        self.weights_ = model.mean[kernels]
        self.alpha_ = model.alpha[kernels]
        self.log_evidence_ = model.log_evidence
        self.basis_names_ = np.array(bases.names, dtype=object)
        self.basis_relevance_ = bases.relevance
        self.basis_weights_ = bases.weights.T
        self.basis_alpha_ = bases.alpha.T
        self.kernel_ = model.design.kernel
        self._input_variance = variance
        self.__dict__.pop("gamma_", None)
        gamma = getattr(self.kernel_, "gamma", None)
        relevances = self.kernel_.relevances(len(variance))
        if gamma is not None:
            self.gamma_ = gamma[0] if len(gamma) == 1 else np.array(gamma)
        elif (
            relevances is not None
            and isinstance(self.kernel, str | Value)
            and not hasattr(self.kernel_, "kernels")
        ):
            self.gamma_ = relevances
        self.feature_relevance_ = model.relevance

    def _take_labels(self, columns: Columns, labels: Labels | None) -> None:
        """Set the attributes for a target with labels.

        Args:
            columns: the columns of the training rows.
            labels: the labels of the codes if ``_coded`` returned any.
        """

    def _repr_html_inner(self) -> str:
        """Return the summary of a fitted model and scikit-learn's diagram, for notebooks."""
        diagram: str = super()._repr_html_inner()
        return self._summary_html() + diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Return the representations for notebooks; the HTML begins with the summary."""
        shown: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in shown:
            shown["text/html"] = self._summary_html() + shown["text/html"]
        return shown

    def _summary_html(self) -> str:
        """Return the summary of a fitted model as HTML; empty before a fit."""
        model = getattr(self, "model_", None)
        return "" if model is None else model.summary()._repr_html_()

    def get_support(self, indices: bool = False, threshold: float = 0.0) -> NDArray[Any]:
        """Return the features on which the model depends, or only those whose relevance reaches a
        threshold.

        The other features have no effect: their values change no prediction. In a pipeline, use
        ``SelectFromModel`` with ``importance_getter="feature_relevance_"`` and a ``threshold`` such
        as 1e-3.

        Parameters
        ----------
        indices : bool, default=False
            Return the positions of the features instead of a mask (d,).
        threshold : float, default=0.0
            The minimum ``feature_relevance_`` of a feature; with 0, all features on which the model
            depends.
        """
        check_is_fitted(self)
        mask = (self.feature_relevance_ > 0.0) & (self.feature_relevance_ >= threshold)
        return np.flatnonzero(mask) if indices else mask

    def prune(self, max_vectors: int = 50) -> Self:
        """Return a copy of the fitted estimator with at most ``max_vectors`` relevance vectors; no
        data are needed.

        The vectors that contribute least to the evidence are deleted one by one, and the weights of
        the others are refitted at the same α and noise. ``model_.pruned`` reports the loss of
        ``log_evidence`` in nats and, for a regression, the added ``rmse``. Raises ``UsageError``
        for a negative number and with local residuals.
        """
        check_is_fitted(self)
        pruned = copy(self)
        pruned.client = self.client
        pruned.__dict__.pop("_stream", None)
        pruned._take(self.model_.prune(max_vectors), self._input_variance)
        return pruned

    def _values(
        self, function: OfRows, X: Any, of_tile: Callable[[Source, int], Float] | None = None
    ) -> Float:
        """Return the values (n, V) of a function of raw inputs, such as a model's intervals, for
        each row of X.

        Args:
            function: the function of rows in memory.
            X: the rows (n, d).
            of_tile: returns the records of a tile of other rows, by default from ``function``.
        """
        if in_memory(X):
            values, near = function(rows_of(self, X, self.model_.columns)[0])
            far = int((near < FAR).sum())
        else:
            source = as_source(X)
            tiles = partial(tile_values, function) if of_tile is None else of_tile
            require_features_like(source, self.model_.columns)
            warn_of_unseen_levels(source)
            with closing(executor_for(self.client)) as executor:
                records = np.concatenate(
                    [block for _, block in executor.map(tiles, source, range(source.n_tiles), None)]
                )
            records = records[np.argsort(records[:, 0])]
            values = records[:, 1:-1]
            far = int(records[:, -1].sum())
        warn_of_far_rows(far, len(values), self.model_)
        return values

    def _values_by_group(self, function: Callable[[Any], OfRows], X: Any, groups: Any) -> Float:
        """Return the values (n, V) of a function of a model and of X (n, d); for rows of known
        ``groups``, of the model for these rows."""
        model = self.model_
        X, codes = without_groups(X, groups)
        if codes is None:
            return self._values(function(model), X)
        of_tile = partial(_tile_by_group, function, model, codes)
        return self._values(by_groups(function, model, codes), X, of_tile)

    def _interval(
        self, X: Any, level: float, kind: str, groups: Any = None, **options: bool
    ) -> tuple[Float, Float]:
        """Return the lower and upper ends of the model's intervals, (n, V) each, or (n,) if V is
        1.

        Args:
            X: the rows (n, d).
            level: probability of each interval.
            kind: "prediction" or "credible".
            groups: groups of the rows, or None.
            options: further options of the model's ``interval``.
        """
        check_is_fitted(self)

        def function(model: Any) -> OfRows:
            values: OfRows = model.interval(level, kind, **options)
            return values

        lower, upper = np.split(self._values_by_group(function, X, groups), 2, axis=1)
        return (lower[:, 0], upper[:, 0]) if lower.shape[1] == 1 else (lower, upper)

    def plot_diagnostics(
        self, X: Any = None, y: Any = None, *, figure: Any = None
    ) -> DiagnosticsDisplay:
        """Plot predictions against the targets of rows that the fit has not used.

        For a regression: actual against predicted values, coverage of intervals, standardised
        residuals, the probability integral transform and, if the predicted standard deviations
        vary, errors against these. For a classification: a reliability diagram and the confusion
        matrix. Scatter plots show 400 random rows, other panels all rows. Only the first four
        targets are drawn; beyond twelve classes, the last ones are merged.

        X (n, d) and y (n,) or (n, T) are of any kind that ``fit`` takes; for training rows, the
        plots are too optimistic. Without X, the fit's held-out rows (``X_val``) are used or, for a
        regression without such rows, leave-one-out predictions of the training rows. ``figure`` is
        an empty matplotlib figure; by default, ``pyplot`` creates one.

        Raises ``UsageError`` if matplotlib is not installed, or if X is None and the fit has no
        such rows, and ``DataError`` if features, targets or labels differ from those of the fit;
        both are ``ValueError``.
        """
        check_is_fitted(self)
        if X is None:
            stored = next(
                (
                    line["diagnostics"]
                    for line in reversed(self.history_)
                    if line.get("diagnostics")
                ),
                None,
            )
            if stored is None:
                raise UsageError(
                    "the fit has no held-out rows: pass X and y, or fit with X_val and y_val"
                )
            diagnostics = from_json(stored)
        else:
            labels = getattr(self, "classes_", None)
            with data_errors():
                source = source_of(self, X if y is None else (X, y), self.model_.columns, labels)
            with closing(executor_for(self.client)) as executor:
                diagnostics = list(score(self.model_, source, executor).diagnostics)
        return DiagnosticsDisplay(diagnostics, self.model_.output_names).plot(figure)


def _tile_by_group(
    function: Callable[[Any], OfRows], model: Any, groups: Int, source: Source, number: int
) -> Float:
    """Return a tile's records as ``tile_values`` does, with other values for known groups.

    Args:
        function: returns a function of raw inputs, given a model
        model: the model, with known groups
        groups: codes of the groups of all rows (n,)
        source: the rows
        number: number of the tile
    """
    values = by_groups(function, model, groups[source.original_rows(number)])
    return tile_values(values, source, number)
