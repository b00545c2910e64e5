"""Regression as a scikit-learn estimator."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from partirvm.backends import Executor, executor_for
from partirvm.data import as_source
from partirvm.data.noise import noise_weights
from partirvm.data.source import Source
from partirvm.errors import DataError, UsageError
from partirvm.estimators.base import RelevanceVectorMachine, array_of, in_memory
from partirvm.jobs.driver import MemoryJournal, Outcome
from partirvm.model import Model, bases_of
from partirvm.model.frames import coded_frame
from partirvm.service.augmenting import augmented_rows
from partirvm.service.parameters import check_parameters
from partirvm.service.predicting import PredictTile, check_features, predict_rows, warn_of_far_rows
from partirvm.service.preparing import Prepared
from partirvm.service.updating import Memory, Rows, check_updatable, first, update
from partirvm.types import FitParameters

Float = NDArray[np.float64]


class RVMRegressor(RegressorMixin, RelevanceVectorMachine):  # type: ignore[misc]
    """Relevance Vector Machine for regression (Tipping 2001), trained out of core.

    The mean is Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows; weights have a Gaussian
    prior each, whose precisions and the noise maximise the evidence. Large data are trained by a working set: rounds of
    P candidates join the vectors kept so far, each fit to the likelihood of *all* rows.

    Parameters
    ----------
    kernel : str, kernel, callable or None
        "gaussian", k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²); "laplacian", "matern32", "matern52", "polynomial",
        "sigmoid", "categorical", "linear" or "linear-spline"; "module:function", a function of points (n, d) and
        centres (m, d) that returns k (n, m), or any such callable where the fit is in this process; or a value of
        ``partirvm.kernels``, which has its own parameters: sums, products and kernels of some columns are such. Of a
        list of such each candidate row offers a basis function for each. None for basis functions alone (``basis``).
    gamma : {"auto", "scale", "learn", "learn-per-feature"}, float or array of shape (d,)
        Kernel width(s), in 1/unit² of what the kernel sees. "scale" is 1/(d·var) of that. "learn" finds the width of
        most evidence before the fit, on a sample of rows, "learn-per-feature" one for each feature, so that irrelevant
        ones are switched off; of a kernel that is a value they learn all parameters, from its own values on. "auto"
        learns a width per feature from more than 2,000 rows; up to there rows that are held out by turns choose
        between that and one width, near "scale"; it is "scale" below 20 rows, and means nothing for a kernel that a
        name and gamma do not describe.
        Where the vectors grow to twice the centres that it was learned from, a kernel is learned again.
        A categorical column, of DATA or of a pandas frame, has exp(−gamma_j [x_j ≠ z_j]) for its factor: gamma is what
        another level costs, "scale" counts it like a number with a variance of (1 − 1/levels)/2.
    gamma_multiples : sequence of float
        Several widths at once, for targets with structure of several sizes: each candidate row offers a basis function
        for each gamma times one of these, such as (1, 8, 64), and where gamma is learned these are where they begin.
    gamma_prior : {"flat", "half-normal"}
        Prior of each feature's gamma where these are learned. "half-normal", on its square root and with a precision of
        its own each, switches more features off: those that noise may explain as well.
    basis : None, "linear", str, callable, transformer or list of such
        Basis functions beside those of the kernel, offered in every fit, each with its own α: "linear", the features;
        "module:function", a function of inputs (n, d) that returns φ (n, B), or any such callable where the fit is in
        this process; a transformer of scikit-learn, likewise. They see inputs as the kernel does, standardised or not.
        An unfitted transformer is cloned and fitted on the training rows, of more than 20,000 on so many random ones.
        With ``kernel=None`` they are all: where X is a design matrix of one's own (NumPy, Zarr, Dask),
        ``kernel=None, basis="linear", standardize=False`` gives each of its columns an α.
    strategy : {"auto", "basic", "split-merge", "incremental", "working-set"}
        "basic" makes every row a candidate at once; "split-merge" fits partitions of P rows side by side and merges
        their vectors in pairs; "incremental" adds one partition after the other to the vectors kept so far;
        "working-set" adds the P most promising rows. "auto" is basic up to 200 rows, and working-set beyond.
    partition_size : "auto" or int
        P, candidates that join in one fit; "auto" measures how sparse the problem is: a basic RVM on √(N·d) rows.
    likelihood : {"auto", "full", "sample", "partition"}
        Rows that the posterior of an intermediate fit sees: all; one random sample; or only those of its candidates,
        with the noise from the others, as Ben-Shimon & Shmilovici (2006) have it. "auto" is "full", or "sample" where
        that would cost split-merge or incremental too much.
    final_likelihood : {"full", "sample", "partition"}
        The same for the last fit; anything but "full" is for comparisons.
    likelihood_rows : "auto" or int
        Rows of "sample"; "auto" is 20·P.
    noise_rows : int or None
        Rows over which "partition" measures the residual that its noise comes from; None is all.
    noise_every : int
        Iterations between such measurements.
    selection : {"auto", "error", "random", "gain", "map-weight"}
        Next candidates of the working set: the rows of largest error, random ones, those of largest evidence gain
        in a random pool, or those of largest weight where all rows have one (an N × N problem: small data).
    solver : {"auto", "fixed-point", "fast"}
        "fixed-point": MacKay's updates of all candidates together. "fast": one column at a time is added, deleted or
        estimated again, that which raises the evidence most (Tipping & Faul 2003). "auto": the fixed point; the last
        fit tries such actions as well, from the fixed point's end and from nothing, and keeps the highest evidence.
    noise_variance : "estimate" or float
        σ² in the target's unit squared; of several targets the same for each.
    alpha_prior : pair of float
        Shape and rate (a, b) of a Gamma prior on each weight's precision α, of the standardised problem (Tipping 2001,
        appendix A). (0, 0) is flat in log α. With a rate above 0 no α runs to infinity: a vector goes where evidence
        and prior together are better off without it. A kernel is learned without it.
    noise_prior : pair of float
        Shape and rate (c, d) of a Gamma prior on the noise precision 1/σ²: as if 2c rows more had left a sum of squared
        residuals of 2d, in the target's unit squared. (0, 0) is flat in log σ².
    updates : {"mackay", "em"}
        How α and σ² are updated: by MacKay's fixed point, or by expectation maximisation, which never lowers the
        evidence and takes far more steps.
    fixed_alpha : None or dict of str and float
        Precisions α that stay as they are, of the standardised problem, by the name of their basis function: "bias" or
        another of ``basis_names_``, which then stay, too.
    multi_output : {"shared", "independent"}
        What T targets, y of shape (N, T), have in common. "shared": one set of vectors, chosen for all of them
        together; each vector has one α, and each target its own weights and noise. Rows are candidates by the sum of
        squared errors over standardised targets; a width that is learned maximises the sum of their evidences.
        "independent": T fits by themselves, which are left in ``estimators_``.
    fit_intercept : bool
        Offer a bias, one basis function with its own prior. The target's mean is removed and added back in any case.
    standardize : bool
        Shift and scale X and y by their training moments.
    stop_fraction : float in [0, 1)
        Intermediate fits end when the vectors fall to this fraction of the candidates.
    stop_rule : {"candidates", "partition"}
        What it is a fraction of: the candidates that the fit began with, or P.
    max_vectors, max_rounds : int or None
        Limits.
    time_limit : float, str or None
        Seconds, or a text such as "1h"; the model of the last finished round is kept.
    memory_limit : "auto", int or str
        Peak bytes of each process, or a text such as "512MiB"; "auto" is 70 % of what there is.
    tol : float
        The last fit has converged when the evidence changes by less than tol·N nats.
    heuristic_rows : int
        Most rows on which partition_size="auto" measures.
    kernel_store : {"auto", "memory", "zarr", "recompute"}
        Where blocks of the kernel stay between passes; "auto" measures.
    random_state : int, RandomState or None
        Shuffles rows in memory and draws random candidates.
    client : distributed.Client or None
        Run on a Dask cluster; None runs in this process.

    Attributes
    ----------
    relevance_vectors_ : ndarray of shape (n_relevance_vectors_, d), in the units of X
    n_relevance_vectors_ : int, the bias and basis functions not counted
    weights_, alpha_ : ndarray of shape (n_relevance_vectors_,), of the standardised problem
    intercept_ : float, in the target's unit
    noise_variance_ : float, in the target's unit squared; that of most evidence, or where rows that are left
        out lie at least twice as far off as it says what their errors tell (``OverconfidenceWarning``)
        Of T targets ``weights_`` is (n_relevance_vectors_, T), ``intercept_`` and ``noise_variance_`` are (T,).
    log_evidence_ : float, nats, of the target in its own units, of T targets of all together; a prior adds its log
        density in log α and log σ², less the largest value of that
    basis_names_, basis_relevance_ : "bias", then the names of basis functions (B + 1,); the evidence, in nats, that the
        loss of each would cost with all else as it is: 0 where it was pruned, little where others can stand in for it
    basis_weights_, basis_alpha_ : ndarray of shape (B + 1,), of the standardised problem; 0 and ∞ where pruned
    estimators_ : list of RVMRegressor, one fitted for each target, where these are "independent"; then only
        ``intercept_``, ``noise_variance_``, ``log_evidence_``, ``n_relevance_vectors_`` (T,) and what is known of the
        features are here, and all else is there
    kernel_ : kernel, with what was learned of it
    gamma_ : float or ndarray of shape (d,); where the kernel has a gamma, or one for each kind of column
    feature_relevance_ : ndarray of shape (d,), gamma times the feature's variance as the kernel sees both, as a
        fraction of the largest; where the kernel has a gamma
    history_ : list of dict, one per fit; of T targets errors are the root of the mean over targets of their squares
    termination_ : Termination, a value with ``advice``
    plan_ : Plan
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X has them

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, size=(100, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.01 * rng.standard_normal(100)
    >>> model = RVMRegressor(gamma=2.0).fit(X, y)
    >>> mean, std = model.predict([[0.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 0.03), model.n_relevance_vectors_ < 20
    (True, True)
    """

    def __init__(
        self,
        kernel: Any = "gaussian",
        gamma: Any = "auto",
        gamma_multiples: Any = (1.0,),
        gamma_prior: str = "flat",
        basis: Any = None,
        strategy: str = "auto",
        partition_size: int | str = "auto",
        likelihood: str = "auto",
        final_likelihood: str = "full",
        likelihood_rows: int | str = "auto",
        noise_rows: int | None = None,
        noise_every: int = 1,
        selection: str = "auto",
        solver: str = "auto",
        noise_variance: float | str = "estimate",
        alpha_prior: tuple[float, float] = (0.0, 0.0),
        noise_prior: tuple[float, float] = (0.0, 0.0),
        updates: str = "mackay",
        fixed_alpha: Any = None,
        multi_output: str = "shared",
        fit_intercept: bool = True,
        standardize: bool = True,
        stop_fraction: float = 0.5,
        stop_rule: str = "candidates",
        max_vectors: int | None = None,
        max_rounds: int | None = None,
        time_limit: float | str | None = None,
        memory_limit: int | str = "auto",
        tol: float = 1e-7,
        heuristic_rows: int = 2000,
        kernel_store: str = "auto",
        random_state: Any = None,
        client: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.gamma_multiples = gamma_multiples
        self.gamma_prior = gamma_prior
        self.basis = basis
        self.strategy = strategy
        self.partition_size = partition_size
        self.likelihood = likelihood
        self.final_likelihood = final_likelihood
        self.likelihood_rows = likelihood_rows
        self.noise_rows = noise_rows
        self.noise_every = noise_every
        self.selection = selection
        self.solver = solver
        self.noise_variance = noise_variance
        self.alpha_prior = alpha_prior
        self.noise_prior = noise_prior
        self.updates = updates
        self.fixed_alpha = fixed_alpha
        self.multi_output = multi_output
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.stop_fraction = stop_fraction
        self.stop_rule = stop_rule
        self.max_vectors = max_vectors
        self.max_rounds = max_rounds
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.tol = tol
        self.heuristic_rows = heuristic_rows
        self.kernel_store = kernel_store
        self.random_state = random_state
        self.client = client

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, validation: Any = None, sample_noise: Any = None
    ) -> Self:
        """Train on X (N, d) and y (N,), or y (N, T).

        Parameters
        ----------
        X : array-like, data frame, Zarr or Dask array (N, d), Dask data frame, or DATA
            Columns of pandas' categorical type are categories, here and where the model predicts.
            DATA is the path or URL of what ``ingest`` made; it holds y and weights itself. No reference to X is kept.
        y : array-like (N,) or (N, T)
            Targets, of the same kind as X or a NumPy array; a single column is one target.
        sample_weight : array-like (N,), optional
            Precision weights: a row's noise variance is σ²/weight. A row of zero weight is absent.
        validation : pair (X, y) or DATA, optional
            Held-out rows: their error goes into ``history_`` and ends the fit when it stops falling.
        sample_noise : array-like (N,), optional
            Known relative noise of each row, positive, of the same kind as y: its noise variance is σ²·sample_noise².
            That is a precision weight of 1/sample_noise², multiplied into ``sample_weight``.

        Raises
        ------
        DataError, UsageError, MemoryLimitError
            Data or parameters that cannot be used, or a fit that cannot fit; all are ``ValueError`` or ``MemoryError``.
        """
        parameters = self.parameters()
        if sample_noise is not None:
            sample_weight = noise_weights(sample_noise, sample_weight)
        if self.multi_output == "independent" and (targets := columns_of(y)) > 1:
            return self._fit_each(X, y, targets, sample_weight, validation)
        source, _ = self._training_source(X, y, sample_weight, parameters.seed)
        self._fit(source, self._held_out_source(validation, source, None), parameters, self._remember)
        self.__dict__.pop("estimators_", None)
        return self

    def _fit_each(self, X: Any, y: Any, targets: int, sample_weight: Any, validation: Any) -> Self:
        """One fit for each column of y."""
        check_parameters(self.parameters())
        if validation is not None and not isinstance(validation, tuple | list):
            raise UsageError("validation must be a pair (X, y), y with a column for each target")
        fitted = []
        for target in range(targets):
            held_out = None if validation is None else (validation[0], column(validation[1], target))
            fitted.append(clone(self).fit(X, column(y, target), sample_weight, held_out))
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)  # those of one fit
        self.__dict__.pop("_memory", None)
        self.estimators_ = fitted
        return self._take_each()

    def _take_each(self) -> Self:
        """Set what all fits of their own have in common."""
        if hasattr(self.estimators_[0], "feature_names_in_"):
            self.feature_names_in_ = self.estimators_[0].feature_names_in_
        self.n_features_in_ = self.estimators_[0].n_features_in_
        for name in ("intercept_", "noise_variance_", "n_relevance_vectors_"):
            setattr(self, name, np.array([getattr(one, name) for one in self.estimators_]))
        self.log_evidence_ = float(sum(one.log_evidence_ for one in self.estimators_))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on with new rows, X (n, d) and y (n,) or (n, T), in memory; the first call is a ``fit`` of its rows.

        A step keeps the kernel, the scaling and the partition size of the first rows, so that these should be many
        enough to tell them. The vectors kept so far and the new rows are its candidates. The statistics of the kept
        vectors over the new rows are added to those before, which adds no error. Of new ones a random sample of 2,000
        earlier rows tells what they were there, and for the other rows what the kept vectors make of them: a stream of
        up to 2,000 rows is fitted exactly, a longer one approximately. The estimator holds a copy of the sample, and
        the vectors' Gram matrix. After a plain ``fit``, which keeps no sample, all its rows count as gone.
        ``history_``, ``termination_`` and ``plan_`` are those of the step; ``max_rounds`` and ``time_limit`` count for
        each.

        Raises as ``fit`` does, and ``UsageError`` for a ``likelihood`` that is not of all rows.
        """
        if hasattr(self, "estimators_") or (self.multi_output == "independent" and columns_of(y) > 1):
            return self._partial_fit_each(X, y, sample_weight)
        if not in_memory(X):
            raise UsageError(f"partial_fit takes rows in memory, X is {type(X).__name__}: fit takes all kinds of data")
        memory: Memory | None = getattr(self, "_memory", None)
        parameters = self.parameters()
        check_updatable(check_parameters(parameters))
        if memory is not None:
            return self._update(memory, X, y, sample_weight, parameters)
        if hasattr(self, "model_"):
            raise UsageError("the last fit has not seen all rows, so that nothing can go on from it: fit again")
        X, y, weights, columns, _ = self._arrays(X, y, sample_weight)
        rows = Rows(X, y.reshape(len(X), -1), weights)

        source = as_source(X, y, weights, seed=parameters.seed, columns=columns)
        self._fit(source, None, parameters, partial(self._remember, rows=rows))
        return self

    def _remember(self, prepared: Prepared, outcome: Outcome, executor: Executor, rows: Rows | None = None) -> None:
        """Keep what a step needs to go on from this fit, with a sample of these rows."""
        self._memory = first(prepared, outcome, rows, executor)

    def _update(self, memory: Memory, X: Any, y: Any, sample_weight: Any, parameters: FitParameters) -> Self:
        """A step from what is remembered."""
        X, y, weights, _, _ = self._arrays(X, y, sample_weight, memory.columns.categories)
        targets = y.reshape(len(X), -1)
        if targets.shape[1] != memory.problem.n_targets:
            raise DataError(f"y has {targets.shape[1]} targets, the rows before had {memory.problem.n_targets}")
        journal, executor = MemoryJournal(), executor_for(self.client)
        try:
            step = update(memory, Rows(X, targets, weights), parameters, executor, journal)
        finally:
            executor.close()
        prepared, outcome, self._memory = step
        self._fitted(journal, outcome, prepared)
        return self

    def _partial_fit_each(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """A step of each target's own."""
        targets = columns_of(y)
        if not hasattr(self, "estimators_"):
            self.estimators_ = [clone(self) for _ in range(targets)]
        if targets != len(self.estimators_):
            raise DataError(f"y has {targets} targets, the rows before had {len(self.estimators_)}")
        for target, one in enumerate(self.estimators_):
            one.partial_fit(X, column(y, target), sample_weight)
        return self._take_each()

    def _coded(self, y: Any) -> tuple[Any, None]:
        if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
            return y[:, 0], None
        return y, None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _take(self, model: Model) -> None:
        kernels = slice(model.design.n_leading, None)
        self.model_ = model
        self.relevance_vectors_ = model.design.centres
        self.n_relevance_vectors_ = model.n_vectors
        self.weights_ = model.mean[kernels]
        self.alpha_ = model.alpha[kernels]
        self.intercept_ = model.intercept
        self.noise_variance_ = model.noise_variance
        self.log_evidence_ = model.log_evidence
        self._take_bases(bases_of(model))

    def predict(self, X: Any, return_std: bool = False, augment: Any = None) -> Any:
        """Mean (n,) of the target at X (n, d); with ``return_std`` also the standard deviation of a new noisy target.

        Of T targets both are (n, T).
        X is of any kind that ``fit`` takes.

        ``augment`` gives the rows of the fit again, in any order: a pair (X, y), a triple (X, y, sample_weight), or
        DATA. Each row is then predicted by RVM* (Rasmussen & Quiñonero-Candela 2005): with a basis function more at
        itself (of the first of several kernels), so that the standard deviation grows away from these rows, to
        √(noise variance + variance of y) where there are none, and not back to that of the noise. It takes passes
        over them, N·n·M products for N rows of the fit, n of X and M basis functions.

        Raises ``DataError`` or ``ValueError`` if X has other features, or ``augment`` are not the rows of the fit;
        ``MemoryLimitError`` where not even a few rows at a time fit in ``memory_limit``.
        """
        check_is_fitted(self)
        if hasattr(self, "estimators_"):
            each = [one.predict(X, return_std=return_std) for one in self.estimators_]
            return tuple(map(np.column_stack, zip(*each, strict=True))) if return_std else np.column_stack(each)
        model: Model = self.model_
        if augment is not None:
            both = self._augmented(X, self._training_again(augment))
            return both if return_std else both[0]
        if in_memory(X):
            X = coded_frame(X, model.columns.categories)
            X = validate_data(self, X, dtype=np.float64, reset=False)
            mean, std, far = predict_rows(model, X, std=return_std)
        else:
            found = self._each_tile(PredictTile(model), as_source(X))
            mean, std = np.split(found[:, :-1], 2, axis=1)
            if model.n_targets == 1:
                mean, std = mean[:, 0], std[:, 0]
            far = int(found[:, -1].sum())
        warn_of_far_rows(far, len(mean), model)
        return (mean, std) if return_std else mean

    def predict_interval(
        self, X: Any, level: float = 0.95, kind: str = "prediction", hyperparameters: bool = True
    ) -> tuple[Float, Float]:
        """Central intervals at X (n, d): their lower and upper ends, (n,) each, in the target's units.

        Of T independent targets (n, T) each; targets that share vectors have none.

        Parameters
        ----------
        X : of any kind that ``fit`` takes
        level : float in (0, 1)
        kind : {"prediction", "credible"}
            Where a new noisy target lies with this probability, or its mean.
        hyperparameters : bool
            Allow for what is not known of the precisions α and the noise: Student's t with the noise's degrees of
            freedom, weights that move with α and β (the delta method), and as noise at least what the errors of
            training rows tell when they are left out, with the basis functions that they are the centre of. Intervals
            are wider by that, and cover as often as they say where mean ± 1.96 std covers too little: many vectors for
            few rows. False gives the mean ± the normal quantile × the standard deviation. What is not known of a
            learned kernel is left out in both.

        Raises
        ------
        UsageError, DataError
            For a level or kind that is none, or X with other features; both are ``ValueError``.
        """
        check_is_fitted(self)
        if hasattr(self, "estimators_"):
            each = [one.predict_interval(X, level, kind, hyperparameters) for one in self.estimators_]
            return np.column_stack([lower for lower, _ in each]), np.column_stack([upper for _, upper in each])
        ends = self._values(self.model_.interval(level, kind, hyperparameters=hyperparameters), X)
        return ends[:, 0], ends[:, 1]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0, *, noise: bool = False) -> Float:
        """Functions from the posterior at X (n, d), in the target's units: an array (n, n_samples).

        Each column is one function: weights drawn from N(μ, Σ), the same for all rows. ``noise`` adds that of a new
        target to each value. ``random_state`` is an int, a RandomState or None. X is of any kind that ``fit`` takes.
        Raises ``DataError`` or ``ValueError`` if it has other features.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        values = self._values(self.model_.samples(n_samples, rng), X)
        if noise:
            values = values + np.sqrt(self.model_.noise_variance) * rng.standard_normal(values.shape)
        return values

    def _augmented(self, X: Any, training: Source) -> tuple[Float, Float]:
        """Mean and standard deviation of each row, with the rows of the fit."""
        model: Model = self.model_
        if in_memory(X):
            X = validate_data(self, coded_frame(X, model.columns.categories), dtype=np.float64, reset=False)
            source = as_source(X, columns=model.columns)
        else:
            source = as_source(X)
            check_features(model, source)
        return augmented_rows(model, source, training, self.client, self.memory_limit)

    def _training_again(self, augment: Any) -> Source:
        """The rows of the fit, in the order given."""
        model: Model = self.model_
        if isinstance(augment, tuple | list):
            if len(augment) not in (2, 3):
                raise UsageError(
                    f"augment has {len(augment)} parts: it must be (X, y) or (X, y, sample_weight) of the fit, or DATA"
                )
            X, y, *weights = augment
            if in_memory(X):
                X = coded_frame(X, model.columns.categories)
                X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=False)
                return as_source(X, y, *weights, columns=model.columns)
            training = as_source(X, y, *weights)
        else:
            training = as_source(augment)
        check_features(model, training)
        return training


def columns_of(y: Any) -> int:
    """How many targets y has: 1 of (N,) and (N, 1), T of (N, T)."""
    found = None if y is None else array_of(y)
    return int(found.shape[1]) if found is not None and found.ndim == 2 else 1


def column(y: Any, number: int) -> Any:
    """One target of y (N, T)."""
    return array_of(y)[:, number]
