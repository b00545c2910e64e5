"""Regression as a scikit-learn estimator."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from partirvm.data.noise import noise_weights
from partirvm.estimators.base import numbers_of, told_by_name
from partirvm.estimators.predictions import PredictsNumbers
from partirvm.estimators.targets import columns_of
from partirvm.model import Model, bases_of
from partirvm.options.names import Auto, Estimate, Gamma, KernelStore, MultiOutput, SolverName
from partirvm.options.values import AlphaPrior, Noise, Solver, Strategy, StrategyName
from partirvm.types import power_of_two


class RVMRegressor(RegressorMixin, PredictsNumbers):  # type: ignore[misc]
    """Relevance Vector Machine for regression (Tipping 2001), trained out of core.

    The mean is Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows; weights have a Gaussian
    prior each, whose precisions and the noise maximise the evidence. Large data are trained by a working set: rounds of
    P candidates join the vectors kept so far, each fit to the likelihood of *all* rows.

    Parameters
    ----------
    kernel : str, option value, kernel, callable or None
        "gaussian" or "rbf", k(x, z) = exp(−Σ_j gamma_j (x_j − z_j)²); "laplacian", "matern32", "matern52",
        "polynomial", "sigmoid", "categorical", "linear" or "linear-spline"; "module:function", a function of points
        (n, d) and centres (m, d) that returns k (n, m), or any such callable where the fit is in this process; a
        value such as ``Gaussian(gamma="learn-per-feature", prior="half-normal", multiples=(1, 8))``; or a kernel of
        ``partirvm.kernels``, which has its own parameters: sums, products and kernels of some columns are such. Of a
        list of such each candidate row offers a basis function for each. None for basis functions alone (``basis``).
    gamma : {"auto", "scale", "learn", "learn-per-feature"}, float or array of shape (d,)
        Kernel width(s); not beside a value such as ``Gaussian(...)``, which has its own. In 1/unit² of what the kernel
        sees. "scale" is 1/(d·var) of that. "learn" finds the width of most evidence before the fit, on a sample of
        rows, "learn-per-feature" one for each feature, so that irrelevant ones are switched off; of a kernel that is a
        value they learn all parameters, from its own values on. "auto" learns a width per feature from more than 2,000
        rows; up to there rows that are held out by turns choose between that and one width, near "scale"; it is "scale"
        below 20 rows, and means nothing for a kernel that a name and gamma do not describe. Where the vectors grow to
        twice the centres that it was learned from, a kernel is learned again. A categorical column, of DATA or of a
        pandas frame, has exp(−gamma_j [x_j ≠ z_j]) for its factor: gamma is what another level costs, "scale" counts it
        like a number with a variance of (1 − 1/levels)/2.
    basis : None, "linear", str, callable, transformer or list of such
        Basis functions beside those of the kernel, offered in every fit, each with its own α: "linear", the features;
        "module:function", a function of inputs (n, d) that returns φ (n, B), or any such callable where the fit is in
        this process; a transformer of scikit-learn, likewise. They see inputs as the kernel does, standardised or not.
        An unfitted transformer is cloned and fitted on the training rows, of more than 20,000 on so many random ones.
        With ``kernel=None`` they are all: where X is a design matrix of one's own (NumPy, Zarr, Dask),
        ``kernel=None, basis="linear", standardize=False`` gives each of its columns an α.
    strategy : {"auto", "basic", "split-merge", "incremental", "working-set"} or an option value
        "basic" makes every row a candidate at once; "split-merge" fits partitions of P rows side by side and merges
        their vectors in pairs; "incremental" adds one partition after the other to the vectors kept so far;
        "working-set" adds the P most promising rows. "auto" is basic up to 200 rows, and working-set beyond. The values
        ``Basic``, ``SplitMerge``, ``Incremental`` and ``WorkingSet`` have the options of their strategy:
        ``WorkingSet(selection="gain", fit_rows=Sample(rows=5000))``.
    partition_size : "auto" or int
        P, candidates that join in one fit; "auto" measures how sparse the problem is: a basic RVM on √(N·d) rows.
    solver : {"auto", "fixed-point", "fast"}, Auto, FixedPoint or Fast
        "fixed-point": MacKay's updates of all candidates together. "fast": one column at a time is added, deleted or
        estimated again, that which raises the evidence most (Tipping & Faul 2003). "auto": the fixed point; in the
        last fit columns then come back, together and one at a time, while that raises the evidence and the fit explains
        as much, and where all rows are candidates the better of that and of "fast" is taken. Of several targets that
        share vectors, and with priors or fixed α, it is the fixed point, and "fast" is refused.
        ``FixedPoint(updates="em")`` takes expectation maximisation for MacKay's updates.
    noise_variance : "estimate", float or Noise
        σ² in the target's unit squared; of several targets the same for each. ``Noise(prior=(c, d))`` estimates it
        under a Gamma prior on 1/σ².
    alpha_prior : pair of float or AlphaPrior
        Shape and rate (a, b) of a Gamma prior on each weight's precision α, of the standardised problem (Tipping 2001,
        appendix A). (0, 0) is flat in log α. With a rate above 0 no α runs to infinity: a vector goes where evidence
        and prior together are better off without it. A kernel is learned without it.
        ``AlphaPrior(a, b, fixed={"bias": 1e-6})`` holds precisions by the name of their basis function, which then
        stays: "bias" or another of ``basis_names_``.
    multi_output : {"shared", "independent"}
        What T targets, y of shape (N, T), have in common. "shared": one set of vectors, chosen for all of them
        together; each vector has one α, and each target its own weights and noise. Rows are candidates by the sum of
        squared errors over standardised targets; a width that is learned maximises the sum of their evidences.
        "independent": T fits by themselves, which are left in ``estimators_``; DATA of several targets have none.
    fit_intercept : bool
        Offer a bias, one basis function with its own prior. The target's mean is removed and added back in any case.
    standardize : bool
        Shift and scale X and y by their training moments.
    max_vectors, max_rounds : int or None
        Limits.
    time_limit : float, str or None
        Seconds, or a text such as "1h"; the model of the last finished round is kept.
    memory_limit : "auto", int or str
        Peak bytes of each process, or a text such as "512MiB"; "auto" is 70 % of what there is.
    tol : float
        The last fit has converged when the evidence changes by less than tol·N nats.
    kernel_store : {"auto", "memory", "zarr", "none"}
        Where blocks of the kernel stay between passes; "auto" keeps none, as the passes of a regression bring
        new columns.
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
    noise_variance_ : float, in the target's unit squared (∞ or 0 where that is beyond a double's range, as of targets
        near 1e200; predictions are not); that of most evidence, or where rows that are left
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
    >>> import numpy as np
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
        gamma: Gamma | NDArray[np.float64] = "auto",
        basis: Any = None,
        strategy: StrategyName | Strategy = "auto",
        partition_size: int | Auto = "auto",
        solver: SolverName | Solver = "auto",
        noise_variance: float | Estimate | Noise = "estimate",
        alpha_prior: tuple[float, float] | AlphaPrior = (0.0, 0.0),
        multi_output: MultiOutput = "shared",
        fit_intercept: bool = True,
        standardize: bool = True,
        max_vectors: int | None = None,
        max_rounds: int | None = None,
        time_limit: float | str | None = None,
        memory_limit: int | str = "auto",
        tol: float = 1e-7,
        kernel_store: KernelStore = "auto",
        random_state: Any = None,
        client: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.basis = basis
        self.strategy = strategy
        self.partition_size = partition_size
        self.solver = solver
        self.noise_variance = noise_variance
        self.alpha_prior = alpha_prior
        self.multi_output = multi_output
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.max_vectors = max_vectors
        self.max_rounds = max_rounds
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.tol = tol
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
            Data frames are of pandas, polars or Arrow; their categorical columns are categories, here and where the
            model predicts.
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
        DataError, UsageError, MemoryLimitError, NumericalError
            Data or parameters that cannot be used, or a fit that cannot fit; all are ``ValueError`` or ``MemoryError``
            (data of a type that cannot be used a ``TypeError``, too), and ``ArithmeticError`` where numbers overflow.
        """
        parameters = self.parameters()
        if sample_noise is not None:
            sample_weight = noise_weights(sample_noise, sample_weight)
        if self.multi_output == "independent" and (targets := columns_of(y)) > 1:
            return self._fit_each(X, y, targets, sample_weight, validation)
        source, _ = self._training_source(X, y, sample_weight, parameters.seed)
        self._fit(
            source,
            self._held_out_source(validation, source, None),
            parameters,
            partial(self._remember, columns=source.columns),
        )
        self.__dict__.pop("estimators_", None)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the means at X (n, d) against y (n,), or of y (n, T) the mean over targets, for targets of any scale.

        X is of any kind that ``fit`` takes, weights are (n,). Raises ``DataError`` for other features or rows.
        """
        predicted, y = self.predict(X), numbers_of(y)
        with told_by_name():
            unit = power_of_two(np.abs(y).max(axis=0))
            return float(r2_score(y / unit, predicted / unit, sample_weight=sample_weight))

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
        with np.errstate(over="ignore", under="ignore"):
            variance = np.square(model.design.scaling.t_unit) * model.noise_variance
        self.noise_variance_ = variance if model.n_targets > 1 else float(variance[0])
        self.log_evidence_ = model.log_evidence
        self._take_bases(bases_of(model))
