"""Regression as a scikit-learn estimator."""

from collections.abc import Sequence
from contextlib import closing
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partirvm.data import ArraySource, as_source, shuffled_rows
from partirvm.data.source import Source, require_features_like
from partirvm.errors import UsageError
from partirvm.estimators.base import RelevanceVectorMachine
from partirvm.estimators.inputs import (
    TrainingRows,
    data_errors,
    has_gaps,
    in_memory,
    rows_of,
    source_of,
    training_rows,
)
from partirvm.execution import executor_for
from partirvm.export.shapley import explain
from partirvm.fit.driver import MemoryJournal
from partirvm.fit.run import is_growable
from partirvm.model import GroupedModel, Model, OfRows
from partirvm.options import Request
from partirvm.options.table import TABLE, AutoOrNone, NoiseForm, Residual
from partirvm.options.values import Local, Noise
from partirvm.predict.rvm_star import Augmenting
from partirvm.resolve.resolve import LIMITS, FitSpec
from partirvm.types import Columns, Each, Float


@dataclass(frozen=True)
class Stream:
    """The state kept between two calls of ``partial_fit``: the rows of each call, and the fit to
    all of them."""

    calls: tuple[TrainingRows, ...]
    request: Request
    spec: FitSpec
    checkpoint: Any


@dataclass(eq=False, repr=False)
class RVMRegressor(MultiOutputMixin, RegressorMixin, RelevanceVectorMachine):
    """Relevance Vector Machine for regression (Tipping 2001), trained out of core.

    The mean is Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows.
    Each weight has a Gaussian prior; the prior precisions and the noise maximise the evidence.
    Large datasets are trained with a working set: in each round, P candidates join the vectors kept
    so far, and the fit uses the likelihood of *all* rows.

    Parameters
    ----------
    kernel : str, option value, kernel, callable, list of these, or None, default="auto"
        Kernel: "auto" (learned), "gaussian", "matern52", "matern32", "laplacian", "anova",
        "polynomial", "categorical", "linear", "linear-spline", "none", or "module:function"
        (see Kernels in the guide). An object such as ``Gaussian(gamma="learn-per-feature",
        multiples=(1, 8))`` takes its own options. ``partirvm.kernels`` has kernels with fixed
        parameters, and their sums and products.
    gamma : str, float or array of shape (d,), default="learn"
        Inverse squared width of the kernel: "learn", "learn-shared", "learn-per-feature", "scale",
        a number, or one number per feature (see Kernels in the guide).
        gamma="auto" of scikit-learn's ``SVC`` is 1/(number of features), here "scale".
    max_vectors : int or None, default=None
        Maximum number of relevance vectors. A fit of all rows at once deletes the others in steps.
    max_rounds : int or None, default=None
        Maximum number of rounds for "working-set" or "incremental". Other libraries call this
        ``max_iter`` or ``n_estimators``.
    effort : {"quick", "balanced", "thorough"}, default="balanced"
        When the "working-set" rounds end: once doubling the work would lower the error by less than
        about 20 % ("quick") or 5 % ("balanced"; for classes, the log loss by less than 3 %), or
        once the evidence stops rising ("thorough"). "quick" also learns the kernel from fewer rows.
    noise : {"auto", "constant", "local"}, float or Noise, default="auto"
        Noise variance: a number (fixed, in squared units of the target), "constant" (estimated),
        "local" (depends on the inputs), or "auto" ("local" if it predicts left-out rows clearly
        better). ``Noise(prior=(c, d))`` estimates it under a Gamma prior on 1/σ². Local noise needs
        a single target; its logarithm is a small RVM fitted to the errors of left-out rows. Its
        mean over the training rows is ``noise_variance_``, which also applies far from all of them.
    memory_limit : "auto", int or str, default="auto"
        Maximum resident memory of each process, for example 512MiB or 2GiB; "auto" means 70 % of
        the memory of the machine, container or worker. A number is in bytes.
    random_state : int, RandomState or None, default=None
        Seed for all random choices: the order of rows in memory, samples and random candidates.
    time_limit : float, str or None, default=None
        Time after which the fit ends and keeps its model, for example 90s, 15m or 8h. It includes
        kernel learning and planning. A number is in seconds.
    basis : None, "linear", "trees", "auto", Trees, str, callable or list, default=None
        Basis functions in addition to those of the kernel, each with its own α: "linear" (the
        features), "module:function" (a Python function from rows (n, d) to φ (n, B)), or several of
        these. With "trees", predictions are weighted means of those of the fit and of boosted
        trees, which see jumps; left-out rows determine the weights. "auto" means "trees" if these
        clearly lower the errors of left-out rows. ``Trees(rounds=50)`` limits the number of trees.
        Any callable works if the fit runs in this process. Functions receive the same inputs as the
        kernel. With ``kernel=None, basis="linear", standardize=False``, X is the design
        matrix, and each of its columns has an α.
    warp : {"auto", "none"} or Warp, default="auto"
        Transformation of skewed features: "auto" (if gamma is "learn" and this raises the evidence,
        a long-tailed feature is replaced by the inverse hyperbolic sine of its distance from a
        centre, a smooth logarithm) or "none". ``Warp(target="log")`` also warps the target of a
        regression.
    strategy : str or strategy object, default="auto"
        How rows become candidates: "basic" (all rows in one fit, for a few thousand rows),
        "split-merge" (partitions of P rows are fitted in parallel and their vectors are merged in
        pairs), "incremental" (one partition after another joins the vectors kept so far),
        "working-set" (in each round, the P most promising rows join the vectors kept so far), or
        "auto" ("basic" for up to 200 rows, "working-set" for more). A strategy object takes its own
        options: ``WorkingSet(selection="gain", fit_rows="sample", sample_rows=5000)``.
    partition_size : "auto" or int, default="auto"
        P, the number of candidates added in each fit; "auto" derives it from the sparsity of a
        basic RVM fitted to √(rows·features) random rows.
    solver : {"auto", "fixed-point", "fast"}, default="auto"
        How the evidence is maximised: "fixed-point" (updates all precisions together), "fast"
        (updates one column at a time, the one with the largest gain), or "auto" ("fixed-point"; the
        last fit of a regression then adds columns back as long as this raises the evidence). The
        fixed point is MacKay's (1992); "fast" is the algorithm of Tipping & Faul (2003), for a
        regression with one target and without priors or fixed α. If all rows of such a regression
        are candidates, "auto" uses the better of the two; otherwise, it is the fixed point.
    max_iterations : int or None, default=None
        Maximum number of iterations per fit or, for multinomial classes, of passes per fit.
    alpha_prior : pair of float or AlphaPrior, default=(0.0, 0.0)
        Shape and rate (a, b) of a Gamma prior on the precision α of each weight of the standardised
        problem. 0,0 is flat. See Tipping (2001, appendix A). ``AlphaPrior(a, b, fixed={"bias":
        1e-6})`` also fixes precisions by name.
    fit_intercept : bool, default=True
        Add a bias, a constant basis function with its own α. The mean of a numeric target is
        removed and added back in any case.
    standardize : bool, default=True
        Standardise features and numeric targets using their means and standard deviations.
    tol : float, default=1e-07
        The last fit has converged once the log evidence changes by less than this amount per row.
    kernel_store : {"auto", "memory", "zarr", "none"}, default="auto"
        Where kernel values are stored between passes: "memory" (in the part of memory_limit that
        the fit does not need), "zarr" (on disk, in the job folder), "none" (they are recomputed in
        every pass), or "auto" ("memory" for multinomial classes, whose passes reuse the same
        columns; otherwise "none"). The result does not depend on this option. With an "auto"
        ``memory_limit``, "auto" uses at most a quarter of it.
    client : distributed.Client or None, default=None
        Client of the Dask cluster on which to run the fit; None uses all cores available to this
        process.
    columns : ColumnOptions or None, default=None
        How the columns of a data frame are read: ``ColumnOptions(exclude="id", dates={"day":
        "dmy"})`` leaves a column out, and says that days come before months. None decides it as
        ``ingest`` with ``auto`` does for a file.
    verbose : bool, default=False
        Show the progress of ``fit``: a live view in a terminal, lines on stderr elsewhere.
    residual : {"auto", "none", "local"} or Local, default="auto"
        Whether a regression corrects each prediction with the errors of the nearest training rows:
        "none", "local" (the model then keeps the training rows), or "auto" ("local" if there are at
        least 400 rows and at most 4 targets, the correction raises the log density of left-out rows
        by 0.02 nats per row or lowers their error by 2 %, and the rows fit in memory or in the
        job's files). Nearness is measured in the kernel's metric; ``model_.sparse()`` is the model
        without these rows. This needs an estimated noise variance; each target has its own local
        kernel. ``Local(neighbours=30)`` sets its option.
    likelihood : str, default="auto"
        Distribution of the target: "auto"; "gaussian" for numbers; for classes, "pooled" (least
        squares on class indicators, calibrated on left-out rows) or "multinomial" (logistic link or
        softmax). "auto" is "gaussian" for numbers, "multinomial" for two overlapping classes in at
        most 50,000 rows, and "pooled" for other classes.
    reference : {"auto", "none"}, default="auto"
        "auto": after a fit of at least 1,000 rows with a learned kernel, compare the model with
        boosted trees on left-out rows, and warn if the trees are clearly better. "none": skip this
        comparison.

    Attributes
    ----------
    estimators_ : tuple of RVMRegressor
        Only if some of several targets have gaps or are constant: the fit of each group of targets;
        with ``groups``, the fit of each of several targets.
        ``weights_`` and other attributes of a single fit are then those of its members.
    weights_, alpha_ : ndarray of shape (M,), in the standardised problem
    determinedness_ : ndarray of shape (M,)
        γ of each weight: 1 if the data determine it, 0 if the prior does.
    intercept_ : float, in the target's units
    noise_variance_ : float, in the target's units squared
        The estimate from the errors of left-out rows (``core.left_out``), or the maximum-evidence
        value if no rows were left out. ``model_.evidence_noise`` is always the latter. For T
        targets, ``weights_`` is (M, T), ``intercept_`` and ``noise_variance_`` are (T,). It is the
        noise of the relevance vectors alone, a part of which local residuals and boosted trees
        predict: the variance of a prediction may be smaller.
    log_evidence_ : float, nats
        For the target in its own units (a warped target after its map, T targets together); a prior
        adds its log density with respect to log α and log σ², minus the maximum of that density.
    n_relevance_vectors_ : int
        M, the number of relevance vectors, not counting the bias and basis functions.
    relevance_vectors_ : ndarray of shape (M, d), in the units of X
    basis_names_ : list of str
        "bias", then the names of the basis functions (B + 1,).
    basis_relevance_ : ndarray of shape (B + 1,)
        The loss of log evidence if only that function is deleted: 0 for a pruned function, small
        if other functions can replace it.
    basis_weights_, basis_alpha_ : ndarray of shape (B + 1,)
        In the standardised problem; 0 and ∞ where pruned. For T targets or K > 2 classes, their
        shape is (T, B + 1) or (K, B + 1).
    kernel_ : kernel with its learned parameters
    gamma_ : float or ndarray of shape (d,)
        Only if the kernel has a gamma, or one for each kind of column.
    feature_relevance_ : ndarray of shape (d,)
        The fraction of the predictions' variance due to each feature, alone or with others (total
        Sobol index, see ``model.sensitivity``); 0 only if the model does not depend on it. With an
        ANOVA kernel, it is exact for independent features (``EffectsDisplay``).
    history_ : list of dict
        One for each fit; with several targets, errors are root mean squares over the targets.
    termination_ : Termination, a value with ``advice``
    plan_ : Plan
    n_features_in_ : int
    feature_names_in_ : ndarray of str, if X has feature names

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, size=(100, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.01 * rng.standard_normal(100)
    >>> model = RVMRegressor(gamma=2.0).fit(X, y)
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 0.03), model.n_relevance_vectors_ < 20
    (True, True)
    """

    explain = explain

    noise: NoiseForm | float | Noise = "auto"
    _: KW_ONLY
    residual: Residual | Local = "auto"
    likelihood: str = "auto"
    reference: AutoOrNone = "auto"

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Update the model with new rows, X (n, d) and y (n,) or (n, T), in memory; the first call
        fits the given rows.

        A later call works like the update of a job whose dataset has grown (``Job.update``). It
        keeps the kernel, scaling and options of the first call, which should have enough rows to
        estimate them. The vectors remain candidates, and rounds with new candidates follow. The
        estimator keeps a copy of all rows. ``history_``, ``termination_`` and ``plan_`` describe
        the last call; ``max_rounds`` and ``time_limit`` apply to each call.

        Raises the errors of ``fit``, and ``UsageError`` after ``fit``, which keeps no rows, or if a
        parameter that must not change has changed since the first call.
        """
        stream: Stream | None = getattr(self, "_stream", None)
        if stream is None and hasattr(self, "model_"):
            raise UsageError(
                "partial_fit cannot continue: fit and files keep no rows; call partial_fit from "
                "the start"
            )
        request = self.parameters()
        journal = MemoryJournal()
        state = None
        calls: tuple[TrainingRows, ...] = ()
        if stream is not None:
            request = self._continued(stream, request)
            state = (stream.spec, stream.checkpoint)
            calls = stream.calls
        calls += (training_rows(self, X, y, sample_weight, calls[0].columns if calls else None),)
        spec = self._fit(_source_of_calls(calls, request.seed), None, request, journal, state)
        # a fit that ended without a checkpoint cannot be continued
        self._stream = None if journal.last is None else Stream(calls, request, spec, journal.last)
        return self

    def _fit_targets(self, source: Source, held_out: Source | None, request: Request) -> None:
        self.__dict__.pop("estimators_", None)
        if not (isinstance(source, ArraySource) and has_gaps(source)):
            super()._fit_targets(source, held_out, request)
            return
        groups = source.groups_of_targets()
        estimators = []
        for places in groups:
            estimator = copy(self)
            estimator.client = self.client
            rows = None
            if isinstance(held_out, ArraySource):
                rows = held_out.of_targets(places, None)
            training = source.of_targets(places, request.seed)
            estimator._fit(training, rows, request, MemoryJournal(), None)
            estimators.append(estimator)
        self._take_groups(estimators, tuple(groups), source.columns)

    def _take_groups(
        self, estimators: list[Self], places: tuple[tuple[int, ...], ...], columns: Columns
    ) -> None:
        """Set the attributes of a fit in groups of targets.

        Args:
            estimators: the fitted estimator of each group.
            places: positions of each group's targets.
            columns: columns of all targets.
        """
        of_rows = ("n_features_in_", "feature_names_in_")
        for name in [name for name in vars(self) if name.endswith("_") and name not in of_rows]:
            delattr(self, name)  # attributes of an earlier fit
        model = GroupedModel(tuple(member.model_ for member in estimators), places, columns)
        self.estimators_ = tuple(estimators)
        self.model_ = model
        self.noise_variance_: Each = model.noise_variance
        self.intercept_: Each = model.intercept
        self.log_evidence_ = model.log_evidence
        self.n_relevance_vectors_ = sum(member.n_relevance_vectors_ for member in estimators)
        relevances = [
            len(member.model_.output_names) * member.feature_relevance_ for member in estimators
        ]
        self.feature_relevance_ = np.sum(relevances, axis=0) / model.n_targets
        self.history_ = [line for member in estimators for line in member.history_]
        self.termination_ = estimators[-1].termination_
        self.plan_ = estimators[-1].plan_

    def _continued(self, stream: Stream, request: Request) -> Request:
        """Return the request for the next call: the first call's request with the current
        limits."""
        if not is_growable(stream.checkpoint, stream.spec):
            raise UsageError(
                "partial_fit cannot continue an unfinished split-merge or a constant target: fit "
                "all rows"
            )
        for name in [name for name in TABLE if name not in (*LIMITS, "seed")]:
            first = getattr(stream.request, name)
            current = getattr(request, name)
            if first is not current and first != current:
                raise UsageError(
                    f"{name} is {current!r}, but partial_fit began with {first!r}: set it back"
                )
        limits = {name: getattr(request, name) for name in LIMITS}
        rounds = request.max_rounds
        limits["max_rounds"] = None if rounds is None else stream.checkpoint.round + rounds
        return replace(stream.request, **limits)

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        augment: Any = None,
        return_gradient: bool = False,
        *,
        groups: Any = None,
    ) -> Any:
        """Predict the mean of the target, and optionally its standard deviation and gradients.

        Parameters
        ----------
        X : rows (n, d) of any kind that ``fit`` takes
        return_std : bool
            Also return the standard deviation of a new noisy target. Mean ± 1.645 standard
            deviations contains 90 % of left-out rows; up to 400 rows, it is the 90 % interval of
            ``predict_interval``. With local residuals, the standard deviation maximises the log
            density of left-out rows.
        augment : (X, y), (X, y, sample_weight) or a dataset, optional
            The training rows of the fit, in any order. Each row of X is then predicted by RVM*
            (Rasmussen & Quiñonero-Candela 2005), with an additional basis function at that row
            (from the first kernel if there are several): away from the training rows, the standard
            deviation grows to √(noise variance + variance of y) instead of falling to the noise.
            This takes N·n·M products for N rows of the fit, n rows of X and M basis functions.
            Local residuals and boosted trees are not used.
        return_gradient : bool
            Also return the gradient (n, d) of the mean with respect to ``model_.columns.features``,
            and, with ``return_std``, of the standard deviation, in the units of X; for T targets,
            (n, T, d). The gradient is 0 for categories, and for a kernel with a kink (Laplacian) at
            its centre. Local residuals, boosted trees, Python functions as kernel or basis, and
            rows with missing numbers have no gradient.
        groups : array-like (n,), str or Groups, optional
            Groups of the rows, as in ``fit``. Rows of groups that the fit has seen get the effects
            of these groups, their local residuals, and the smaller uncertainty of further rows of
            these groups; without it, all rows count as rows of new groups.

        Returns
        -------
        ndarray of shape (n,), or (n, T) for T targets, or a tuple of arrays
            The mean, followed by the other requested arrays in the order of the parameters.

        Raises
        ------
        DataError, UsageError
            If X's features or the number of ``augment`` rows differ from the fit's (a
            ``ValueError``), and for rows or models that have no gradient.
        """
        check_is_fitted(self)
        model: Model = self.model_
        if augment is not None and return_gradient:
            raise UsageError(
                "augment and return_gradient cannot be combined: leave one of them out"
            )
        if augment is not None:
            training = source_of(self, augment, model.columns, name="augment")
            has_arrays = in_memory(X)
            source = as_source(
                rows_of(self, X, model.columns)[0] if has_arrays else X,
                columns=model.columns if has_arrays else None,
            )
            require_features_like(source, model.columns)
            with closing(executor_for(self.client)) as executor:
                augmenting = Augmenting.of(model, training, executor)
                predictions = np.concatenate([records for records, *_ in augmenting.pieces(source)])
            _, mean, std, _ = predictions[np.argsort(predictions[:, 0])].T
            return (mean, std) if return_std else mean

        def function(model: Model) -> OfRows:
            return model.predictions(std=return_std, gradient=return_gradient)

        predictions = self._values_by_group(function, X, groups)
        return model.parted(predictions, std=return_std, gradient=return_gradient)

    def nearest_rows(self, X: Any) -> dict[str, Any]:
        """Return the training rows whose errors correct the predictions at X (n, d), in memory,
        through local residuals.

        ``rows``, ``distances``, ``weights`` and ``errors`` have shape (n, k), the nearest row
        first. Row numbers count from 0 in the order passed to ``fit`` or ``ingest``, not counting
        in-memory rows of weight 0. Distances are in the kernel's metric. Errors are in the units of
        the target, or of the warped target if there is a warp; a prediction equals the prediction
        of ``model_.sparse()`` plus the sum of weights times errors. For T targets, weights and
        errors are (n, k, T). Raises ``UsageError`` for a model without local residuals, and
        ``DataError`` if the features differ.
        """
        check_is_fitted(self)
        return dict(self.model_.nearest_rows(rows_of(self, X, self.model_.columns)[0]))

    def predict_interval(
        self,
        X: Any,
        level: float = 0.95,
        kind: str = "prediction",
        hyperparameters: bool = True,
        *,
        groups: Any = None,
    ) -> tuple[Float, Float]:
        """Return the lower and upper ends of central intervals, (n,) each, in the target's units.

        The ends of a prediction interval are multiples of the predicted standard deviation, the
        quantiles of standardised errors of left-out rows. From 400 left-out rows on, the quantiles
        depend on the standard deviation, and both tails have the same probability
        (``core.local_quantiles``; localised conformal prediction, Guan 2023). With fewer rows, or
        with groups, intervals are symmetric and have the same multiples everywhere.

        For several targets, the ends are (n, T) each and require local residuals; otherwise, use
        ``MultiOutputRegressor``, which fits each target separately.

        Parameters
        ----------
        X : rows (n, d) of any kind that ``fit`` takes
        level : float
            The probability of each interval, between 0 and 1.
        kind : {"prediction", "credible"}
            "prediction" is for a new, noisy target, "credible" for its mean (or its median, if the
            target is warped). With local residuals, the variance comes from the local kernel, and
            the quantiles for "prediction" come from corrected left-out rows. Boosted trees multiply
            the variances of both kinds by the same factor.
        hyperparameters : bool
            If True, the covariance of the weights includes the uncertainty of α and of the noise
            (``core.predictive``), and quantiles and noise variance come from leave-one-out errors
            (``core.left_out``). Credible intervals, and all intervals of a fit with given noise or
            fewer than 20 rows, use quantiles of Student's t. If False, intervals use the posterior
            alone, at the maximum-evidence noise (Tipping 2001, eqs. 20 to 22), without local
            residuals and boosted trees, around the mean of ``model_.sparse()``.
        groups : array-like (n,), str or Groups, optional
            Groups of the rows, as in ``predict``.

        Raises
        ------
        UsageError, DataError
            For an invalid level or kind, or if features differ (a ``ValueError``).
        """
        return self._interval(X, level, kind, groups, hyperparameters=hyperparameters)

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95), *, groups: Any = None
    ) -> Float:
        """Return quantiles (n, Q) of a new noisy target at X (n, d), in the target's units, as ends
        of prediction intervals.

        0.05 and 0.95 are the ends of ``predict_interval(X, 0.9)``. The quantile 0.5 is the median
        of left-out errors at this standard deviation; it is the mean if intervals are symmetric.
        ``groups`` are as in ``predict``. Raises ``UsageError`` for quantiles outside (0, 1) and for
        several targets, and the errors of ``predict``.
        """
        check_is_fitted(self)
        return self._values_by_group(lambda model: model.quantiles(quantiles), X, groups)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Any = 0, *, noise: bool = False
    ) -> Float:
        """Draw functions from the posterior and return their values (n, n_samples), in the target's
        units.

        Each column is one function, with weights drawn from N(μ, Σ). With local residuals, it is
        the mean plus a random multiple, the same at all X, of the mean's standard deviation.

        Parameters
        ----------
        X : rows (n, d) of any kind that ``fit`` takes
        n_samples : int
            The number of functions.
        random_state : int, RandomState or None
        noise : bool
            Add the noise of a new target to each value. Without it, the functions of a warped
            target are medians.

        Raises
        ------
        DataError, UsageError
            If the features differ, and for several targets.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        values = self._values(self.model_.samples(n_samples, rng), X)
        if noise:
            deviations = self._values(self.model_.predictive.noise_deviations, X)
            values = values + deviations * rng.standard_normal(values.shape)
        return np.asarray(self.model_.design.scaling.target.back(values))

    def __call__(self, X: Any) -> Any:
        """Return the result of ``predict``: ``shap.Explainer`` requires a callable."""
        return self.predict(X)

    def _coded(self, y: Any) -> tuple[Any, None]:
        return (y[:, 0] if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1 else y), None

    def _take(self, model: Model, variance: Float) -> None:
        super()._take(model, variance)
        self.determinedness_ = model.determinedness[model.design.n_leading :]
        self.intercept_ = model.intercept
        self.noise_variance_ = model.noise_variance


def _source_of_calls(calls: Sequence[TrainingRows], seed: int) -> ArraySource:
    """Return the rows of all ``partial_fit`` calls, shuffled within each call."""
    sizes = [len(call.X) for call in calls]
    weights = None
    if any(call.weights is not None for call in calls):
        weights = np.concatenate(
            [np.ones(len(call.X)) if call.weights is None else call.weights for call in calls]
        )
    starts = np.cumsum([0, *sizes[:-1]])
    order = np.concatenate(
        [start + shuffled_rows(n, seed) for start, n in zip(starts, sizes, strict=True)]
    )
    with data_errors():  # if the calls have different numbers of targets
        X, y = (np.concatenate([getattr(call, name) for call in calls]) for name in ("X", "y"))
    return ArraySource(X, y, weights, permutation=order, columns=calls[0].columns)
