"""Regression as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from partirvm.data.weights import noise_weights
from partirvm.estimators.base import numbers_of, told_by_name
from partirvm.estimators.predictions import RegressionPredictions
from partirvm.estimators.sklearn_bases import RegressorMixin
from partirvm.estimators.targets import columns_of
from partirvm.model import Model, bases_of
from partirvm.options.names import (
    Auto,
    Effort,
    Estimate,
    Gamma,
    KernelStore,
    MultiOutput,
    NoiseForm,
    Reference,
    SolverName,
)
from partirvm.options.values import AlphaPrior, Noise, Solver, Strategy, StrategyName
from partirvm.types import power_of_two


class RVMRegressor(RegressorMixin, RegressionPredictions):
    """Relevance Vector Machine for regression (Tipping 2001), trained out of core.

    The mean is Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows; weights have a Gaussian
    prior each, whose precisions and the noise maximise the evidence. Large data are trained by a working set: rounds of
    P candidates join the vectors kept so far, each fit to the likelihood of *all* rows.

    Parameters
    ----------
    kernel : str, option value, kernel, callable, list of these, or None, default="auto"
        Kernel: "auto" (the family of largest evidence among "gaussian", "matern52" and "matern32", if gamma is learned
        for a regression; otherwise "gaussian"), "gaussian" (or "rbf"), "laplacian", "matern32", "matern52",
        "polynomial", "sigmoid", "categorical", "linear", "linear-spline", "none" (only the functions of basis), or
        "module:function", a Python function of points (n, d) and centres (m, d) that returns k (n, m); every worker
        must be able to import it. Any callable of points and centres works if the fit runs in this process. An option
        value such as ``Gaussian(gamma="learn-per-feature", prior="half-normal", multiples=(1, 8))`` has options of its
        own; a kernel of ``partirvm.kernels`` has numbers (sums, products and kernels on some columns are such). With a
        list, each candidate row offers one basis function per kernel. None means "none".
    gamma : {"auto", "scale", "learn", "learn-per-feature"}, float or array of shape (d,), default="auto"
        Inverse squared width of the kernel on standardised features: exp(−gamma·distance²) for "gaussian". A number,
        one number per feature, "scale" (1 / number of features), "learn" (one width, of largest evidence),
        "learn-per-feature" (one width per feature; irrelevant features are switched off), or "auto" (learned per
        feature or, for a regression, per learned direction of the features; up to 2,000 rows, held-out rows decide
        which, and whether one width predicts as well). Not used by "linear", "linear-spline" and functions. In 1/unit²
        of the kernel's inputs; without ``standardize`` "scale" is 1/(d·var). Not together with an option value such as
        ``Gaussian(...)``, which has its own gamma. For a kernel of ``partirvm.kernels`` "learn" and "learn-per-feature"
        learn all its parameters from their values on. "auto" means "scale" below 20 rows. If the number of vectors
        grows to twice the number of centres that the kernel was learned from, it is learned again. A categorical column
        has the factor exp(−gamma_j [x_j ≠ z_j]); "scale" treats it as a number of variance (1 − 1/levels)/2.
    basis : None, "linear", str, callable, transformer or list of these, default=None
        Basis functions beside those of the kernel, each with its own α: "linear" (the features), "module:function", a
        Python function of rows (n, d) that returns φ (n, B), or several of these. Any callable works if the fit runs in
        this process, as does a transformer of scikit-learn; an unfitted one is cloned and fitted on the training rows
        (on 20,000 random ones at most). Functions get the same inputs as the kernel. For a design matrix X of your own
        (NumPy, Zarr, Dask), ``kernel=None, basis="linear", standardize=False`` gives each of its columns an α.
    strategy : {"auto", "basic", "split-merge", "incremental", "working-set"} or option value, default="auto"
        How rows become candidates: "basic" (all rows in one fit, for some thousand rows), "split-merge" (partitions of
        P rows are fitted side by side and their vectors merged in pairs), "incremental" (one partition after the other
        joins the vectors kept so far), "working-set" (in each round the P most promising rows join them), or "auto"
        ("basic" up to 200 rows, "working-set" above). The option values have the options of their strategy:
        ``WorkingSet(selection="gain", fit_rows=Sample(rows=5000))``.
    partition_size : "auto" or int, default="auto"
        P, the number of candidates that join in one fit; "auto" derives it from the sparsity of a basic RVM on
        √(rows·features) random rows.
    solver : {"auto", "fixed-point", "fast"}, Auto, FixedPoint or Fast, default="auto"
        How the evidence is maximised: "fixed-point" (all precisions together), "fast" (one column at a time, the one
        with the largest gain), or "auto" (the fixed point; the last fit of a regression then adds columns again while
        that raises the evidence). The fixed point is MacKay's (1992); "fast" is that of Tipping & Faul (2003). If all
        rows are candidates, "auto" takes the better of both. With priors, fixed α or several targets that share vectors
        "auto" is the fixed point and "fast" is refused.
    noise_variance : "estimate", float or Noise, default="estimate"
        Variance of the noise in the target's unit squared: a number, or "estimate". With several targets the number
        holds for each. ``Noise(prior=(c, d))`` estimates it under a Gamma prior on 1/σ².
    noise : {"auto", "constant", "local"}, default="auto"
        Noise variance: "constant", "local" (it depends on the inputs), or "auto" ("local" if rows left out are
        predicted clearly better). The logarithm of local noise is a small RVM of its own, fitted to the errors of rows
        left out; its mean over the training rows is ``noise_variance_``, which also holds far from all of them. For one
        target whose noise variance is estimated.
    alpha_prior : pair of float or AlphaPrior, default=(0.0, 0.0)
        Shape and rate (a, b) of a Gamma prior on the precision α of each weight of the standardised problem. 0,0 is
        flat. See Tipping (2001, appendix A). With a rate above 0 no α grows to infinity: a vector is deleted if
        evidence and prior together are larger without it. Kernel learning ignores it. ``AlphaPrior(a, b, fixed={"bias":
        1e-6})`` fixes precisions by the name of their basis function ("bias" or another of ``basis_names_``), which
        then stays.
    multi_output : {"shared", "independent"}, default="shared"
        What several targets share: "shared" (vectors and α; each target has its own weights and noise) or "independent"
        (nothing; one fit per target, not available for DATA: ingest each target separately). For y of shape (N, T).
        With "shared", candidates are selected by the sum of squared errors over standardised targets, and a learned
        width maximises the sum of the evidences. With "independent" the fits are in ``estimators_``.
    fit_intercept : bool, default=True
        Add a bias, one basis function with its own α. The target's mean is removed and added back in any case.
    standardize : bool, default=True
        Shift and scale features and numeric targets by their mean and standard deviation.
    max_vectors : int or None, default=None
        Maximum number of relevance vectors.
    max_rounds : int or None, default=None
        Maximum number of rounds of "working-set" or "incremental".
    effort : {"quick", "balanced", "thorough"}, default="balanced"
        When the rounds of "working-set" end: if twice the work would lower the error by less than about 20 % ("quick")
        or 3 % ("balanced"), or if the evidence no longer rises ("thorough").
    time_limit : float, str or None, default=None
        Time after which the fit ends and keeps its model, such as 90s, 15m or 8h; kernel learning and planning count. A
        number is in seconds.
    memory_limit : "auto", int or str, default="auto"
        Maximum resident memory of each process, such as 512MiB or 2GiB; "auto" is 70 % of the memory of the machine,
        container or worker. A number is in bytes.
    tol : float, default=1e-07
        The last fit has converged when the evidence changes by less than this number of nats per row.
    reference : {"auto", "none"}, default="auto"
        After a fit of at least 1,000 rows with a learned kernel: compare the model with boosting and with the nearest
        rows, on rows left out, and warn if one is clearly better ("auto"), or do not ("none").
    kernel_store : {"auto", "memory", "zarr", "none"}, default="auto"
        Where kernel values are kept between passes: "memory" (what the fit leaves of memory_limit), "zarr" (on disk
        beside the job), "none" (evaluated in every pass), or "auto" ("none" for a regression, the fastest by
        measurement for a classification). The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of all random choices: the order of rows in memory, samples and random candidates.
    client : distributed.Client or None, default=None
        Client of the Dask cluster that runs the fit; None runs it in this process.
    verbose : bool, default=False
        Show the progress of ``fit``: a live view on a terminal, HTML in a notebook, otherwise lines on stderr.

    Attributes
    ----------
    n_relevance_vectors_ : int
        M, the number of relevance vectors. The bias and basis functions are not counted.
    relevance_vectors_ : ndarray of shape (M, d), in the units of X
    weights_, alpha_ : ndarray of shape (M,), of the standardised problem
    determinedness_ : ndarray of shape (M,); γ of each weight: 1 if the data determine it, 0 if the prior does
    intercept_ : float, in the target's unit
    noise_variance_ : float, in the target's unit squared (∞ or 0 where that is beyond a double's range, as of targets
        near 1e200; predictions are not). The estimate from the errors of rows left out (``core.left_out``), or the
        value of maximum evidence if no rows were left out. ``model_.evidence_noise`` is always the latter.
        Of T targets ``weights_`` is (M, T), ``intercept_`` and ``noise_variance_`` are (T,).
    log_evidence_ : float, nats, of the target in its own units, of T targets of all together; a prior adds its log
        density in log α and log σ², less the largest value of that
    basis_names_, basis_relevance_ : "bias", then the names of basis functions (B + 1,); the loss of evidence, in nats,
        if the function alone was deleted: 0 if it was pruned, small if other functions can replace it
    basis_weights_, basis_alpha_ : ndarray of shape (B + 1,), of the standardised problem; 0 and ∞ where pruned
    estimators_ : list of RVMRegressor, one fitted for each target, where these are "independent"; then only
        ``intercept_``, ``noise_variance_``, ``log_evidence_``, ``n_relevance_vectors_`` (T,) and what is known of the
        features are here, and all else is there
    kernel_ : kernel with its learned parameters
    gamma_ : float or ndarray of shape (d,); where the kernel has a gamma, or one for each kind of column
    feature_relevance_ : ndarray of shape (d,), gamma times the feature's variance as the kernel sees both, as a
        fraction of the largest; only if the kernel has a gamma
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
        kernel: Any = "auto",
        gamma: Gamma | NDArray[np.float64] = "auto",
        basis: Any = None,
        strategy: StrategyName | Strategy = "auto",
        partition_size: int | Auto = "auto",
        solver: SolverName | Solver = "auto",
        noise_variance: float | Estimate | Noise = "estimate",
        noise: NoiseForm = "auto",
        alpha_prior: tuple[float, float] | AlphaPrior = (0.0, 0.0),
        multi_output: MultiOutput = "shared",
        fit_intercept: bool = True,
        standardize: bool = True,
        max_vectors: int | None = None,
        max_rounds: int | None = None,
        effort: Effort = "balanced",
        time_limit: float | str | None = None,
        memory_limit: int | str = "auto",
        tol: float = 1e-7,
        reference: Reference = "auto",
        kernel_store: KernelStore = "auto",
        random_state: Any = None,
        client: Any = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.basis = basis
        self.strategy = strategy
        self.partition_size = partition_size
        self.solver = solver
        self.noise_variance = noise_variance
        self.noise = noise
        self.alpha_prior = alpha_prior
        self.multi_output = multi_output
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.max_vectors = max_vectors
        self.max_rounds = max_rounds
        self.effort = effort
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.tol = tol
        self.reference = reference
        self.kernel_store = kernel_store
        self.random_state = random_state
        self.client = client
        self.verbose = verbose

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
        self._fit(source, self._held_out_source(validation, source.columns, None), parameters)
        for name in ("estimators_", "_stream"):
            self.__dict__.pop(name, None)
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
        self.determinedness_ = model.determinedness[kernels]
        self.intercept_ = model.intercept
        with np.errstate(over="ignore", under="ignore"):
            variance = np.square(model.design.scaling.t_unit) * model.noise_variance
        self.noise_variance_ = variance if model.n_targets > 1 else float(variance[0])
        self.log_evidence_ = model.log_evidence
        self._take_bases(bases_of(model))
