"""Regression as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from partirvm.data import as_source
from partirvm.estimators.base import RelevanceVectorMachine, in_memory
from partirvm.model import Model
from partirvm.model.frames import coded_frame
from partirvm.service.predicting import PredictTile, predict_rows, warn_of_far_rows


class RVMRegressor(RegressorMixin, RelevanceVectorMachine):  # type: ignore[misc]
    """Relevance Vector Machine for regression (Tipping 2001), trained out of core.

    The mean is Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows; weights have a Gaussian
    prior each, whose precisions and the noise maximise the evidence. Large data are trained by a working set: rounds of
    P candidates join the vectors kept so far, each fit to the likelihood of *all* rows.

    Parameters
    ----------
    kernel : str, kernel or callable
        "gaussian", k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²); "laplacian", "matern32", "matern52", "polynomial",
        "sigmoid", "categorical", "linear" or "linear-spline"; "module:function", a function of points (n, d) and
        centres (m, d) that returns k (n, m), or any such callable where the fit is in this process; or a value of
        ``partirvm.kernels``, which has its own parameters: sums, products and kernels of some columns are such. Of a
        list of such each candidate row offers a basis function for each.
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
        σ² in the target's unit squared.
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
    n_relevance_vectors_ : int, the bias not counted
    weights_, alpha_ : ndarray of shape (n_relevance_vectors_,), of the standardised problem
    intercept_ : float, in the target's unit
    noise_variance_ : float, in the target's unit squared
    log_evidence_ : float, nats, of the target in its own units
    kernel_ : kernel, with what was learned of it
    gamma_ : float or ndarray of shape (d,); where the kernel has a gamma, or one for each kind of column
    feature_relevance_ : ndarray of shape (d,), gamma times the feature's variance as the kernel sees both, as a
        fraction of the largest; where the kernel has a gamma
    history_ : list of dict, one per fit
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, validation: Any = None) -> Self:
        """Train on X (N, d) and y (N,).

        Parameters
        ----------
        X : array-like, data frame, Zarr or Dask array (N, d), Dask data frame, or DATA
            Columns of pandas' categorical type are categories, here and where the model predicts.
            DATA is the path or URL of what ``ingest`` made; it holds y and weights itself. No reference to X is kept.
        y : array-like (N,)
            Targets, of the same kind as X or a NumPy array.
        sample_weight : array-like (N,), optional
            Precision weights: a row's noise variance is σ²/weight. A row of zero weight is absent.
        validation : pair (X, y) or DATA, optional
            Held-out rows: their error goes into ``history_`` and ends the fit when it stops falling.

        Raises
        ------
        DataError, UsageError, MemoryLimitError
            Data or parameters that cannot be used, or a fit that cannot fit; all are ``ValueError`` or ``MemoryError``.
        """
        parameters = self.parameters()
        source, _ = self._training_source(X, y, sample_weight, parameters.seed)
        self._fit(source, self._held_out_source(validation, source, None), parameters)
        return self

    def _coded(self, y: Any) -> tuple[Any, None]:
        return y, None

    def _take(self, model: Model) -> None:
        kernels = slice(int(model.design.bias), None)
        self.model_ = model
        self.relevance_vectors_ = model.design.centres
        self.n_relevance_vectors_ = model.n_vectors
        self.weights_ = model.mean[kernels]
        self.alpha_ = model.alpha[kernels]
        self.intercept_ = model.intercept
        self.noise_variance_ = model.noise_variance
        self.log_evidence_ = model.log_evidence

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean (n,) of the target at X (n, d); with ``return_std`` also the standard deviation of a new noisy target.

        X is of any kind that ``fit`` takes. Raises ``DataError`` or ``ValueError`` if it has other features.
        """
        check_is_fitted(self)
        model: Model = self.model_
        if in_memory(X):
            X = coded_frame(X, model.columns.categories)
            X = validate_data(self, X, dtype=np.float64, reset=False)
            mean, std, far = predict_rows(model, X, std=return_std)
        else:
            mean, std, is_far = self._each_tile(PredictTile(model), as_source(X)).T
            far = int(is_far.sum())
        warn_of_far_rows(far, len(mean))
        return (mean, std) if return_std else mean
