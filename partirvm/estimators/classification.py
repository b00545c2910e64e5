"""Classification as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from partirvm.core.link import probabilities
from partirvm.data.labels import coded, find_classes
from partirvm.data.weights import text_of_label
from partirvm.estimators.base import Labels, array_of, labels_of, told_by_name
from partirvm.estimators.diagnosed import Diagnosed
from partirvm.estimators.sklearn_bases import ClassifierMixin
from partirvm.model import ClassModel, bases_of, label_array, plain_labels
from partirvm.options import Request
from partirvm.options.names import Auto, Effort, Gamma, KernelStore, MultiClass, SolverName
from partirvm.options.values import AlphaPrior, Solver, Strategy, StrategyName

Float = NDArray[np.float64]


class RVMClassifier(ClassifierMixin, Diagnosed):
    """Relevance Vector Machine for classification (Tipping 2001, §3), trained out of core.

    Linear predictors Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows, one for two
    classes and one per class for more, go through the logistic sigmoid or the softmax. Weights have a Gaussian prior
    each, whose precisions maximise the evidence of a Laplace approximation; every Newton step is a pass over the rows.

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
        learn all its parameters from their values on. "auto" means "scale" below 20 rows. A categorical column has the
        factor exp(−gamma_j [x_j ≠ z_j]); "scale" treats it as a number of variance (1 − 1/levels)/2.
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
        that raises the evidence). For classification "auto" is the fixed point, on the quadratic approximation of each
        Newton step, and "fast" is refused.
    multi_class : {"auto", "pooled", "multinomial", "ovr"}, default="auto"
        Model of three or more classes: "pooled" (vectors chosen one class against the rest; then one softmax of all
        vectors with one α), "multinomial" (one softmax; all classes share vectors and α), "ovr" (one against the
        rest), or "auto" ("pooled"). The α of "pooled" maximises the evidence of the softmax. With "ovr" probabilities
        are divided by their sum.
    moderate : {"auto", True, False}, default="auto"
        Class probabilities include the uncertainty of the weights. A linear predictor f of variance σ² counts as f/√(1
        + πσ²/8) (MacKay 1992, "The evidence framework applied to classification networks"). "auto" is True for two
        classes and at most 10,000 rows.
    class_weight : None, "balanced" or dict of label and weight, default=None
        Weights of the rows of each class: "balanced" (equal total weight of all classes), or LABEL=WEIGHT,… (1 for
        classes not named). They multiply the rows' weights. "balanced" is n/(K·count), with the sum of weights as count
        if rows have weights.
    alpha_prior : pair of float or AlphaPrior, default=(0.0, 0.0)
        Shape and rate (a, b) of a Gamma prior on the precision α of each weight of the standardised problem. 0,0 is
        flat. See Tipping (2001, appendix A). With a rate above 0 no α grows to infinity: a vector is deleted if
        evidence and prior together are larger without it. Kernel learning ignores it. ``AlphaPrior(a, b, fixed={"bias":
        1e-6})`` fixes precisions by the name of their basis function ("bias" or another of ``basis_names_``), which
        then stays.
    fit_intercept : bool, default=True
        Add a bias, one basis function with its own α.
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
    kernel_store : {"auto", "memory", "zarr", "none"}, default="auto"
        Where kernel values are kept between passes: "memory" (what the fit leaves of memory_limit), "zarr" (on disk
        beside the job), "none" (evaluated in every pass), or "auto" ("none" for a regression, the fastest by
        measurement for a classification). The result does not depend on it. With an "auto" ``memory_limit``, "auto"
        uses at most a quarter of it.
    random_state : int, RandomState or None, default=None
        Seed of all random choices: the order of rows in memory, samples and random candidates.
    client : distributed.Client or None, default=None
        Client of the Dask cluster that runs the fit; None runs it in this process.
    verbose : bool, default=False
        Show the progress of ``fit``: a live view on a terminal, HTML in a notebook, otherwise lines on stderr.

    Attributes
    ----------
    classes_ : ndarray of shape (K,), of y's own dtype, in the order of the columns of probabilities
    n_relevance_vectors_ : int
        M, the number of relevance vectors. The bias and basis functions are not counted.
    relevance_vectors_ : ndarray of shape (M, d), in the units of X
    weights_ : ndarray of shape (M,) for two classes, otherwise (K, M)
    alpha_ : ndarray of the same shape; infinite, with a weight of zero, for a vector that a class does not use
    intercept_ : float for two classes, otherwise ndarray of shape (K,)
    log_evidence_ : float, nats; a prior adds its log density in log α, less the largest value of that
    basis_names_, basis_relevance_ : "bias", then the names of basis functions (B + 1,); the loss of evidence, in nats,
        if the function alone was deleted: 0 if it was pruned, small if other functions can replace it
    basis_weights_, basis_alpha_ : ndarray of shape (B + 1,), of K > 2 classes (K, B + 1); 0 and ∞ where pruned
    kernel_ : kernel with its learned parameters
    gamma_ : float or ndarray of shape (d,); where the kernel has a gamma, or one for each kind of column
    feature_relevance_ : ndarray of shape (d,), gamma times the feature's variance as the kernel sees both, as a
        fraction of the largest; only if the kernel has a gamma
    history_ : list of dict, one per fit; ``iterations`` is the number of passes
    termination_ : Termination, a value with ``advice``
    plan_ : Plan
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X has them

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = np.where(X[:, 0] + 0.3 * rng.normal(size=100) > 0, "right", "left")
    >>> model = RVMClassifier(gamma=0.2).fit(X, y)
    >>> model.predict([[-1.0, 0.0], [1.0, 0.0]]).tolist()
    ['left', 'right']
    >>> bool(model.predict_proba([[1.0, 0.0]])[0, 1] > 0.9), model.n_relevance_vectors_ < 10
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
        multi_class: MultiClass = "auto",
        moderate: bool | Auto = "auto",
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        alpha_prior: tuple[float, float] | AlphaPrior = (0.0, 0.0),
        fit_intercept: bool = True,
        standardize: bool = True,
        max_vectors: int | None = None,
        max_rounds: int | None = None,
        effort: Effort = "balanced",
        time_limit: float | str | None = None,
        memory_limit: int | str = "auto",
        tol: float = 1e-7,
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
        self.multi_class = multi_class
        self.moderate = moderate
        self.class_weight = class_weight
        self.alpha_prior = alpha_prior
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.max_vectors = max_vectors
        self.max_rounds = max_rounds
        self.effort = effort
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.tol = tol
        self.kernel_store = kernel_store
        self.random_state = random_state
        self.client = client
        self.verbose = verbose

    def parameters(self) -> Request:
        """Return the options of a fit of this estimator, with a seed drawn from ``random_state``."""
        asked = super().parameters()
        if not isinstance(asked.class_weight, Mapping):
            return asked
        texts = {text_of_label(label): weight for label, weight in asked.class_weight.items()}
        return replace(asked, class_weight=texts)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, validation: Any = None) -> Self:
        """Train on X (N, d) and labels y (N,).

        Parameters
        ----------
        X : array-like, data frame, Zarr or Dask array (N, d), Dask data frame, or DATA
            Data frames are of pandas, polars or Arrow; their categorical columns are categories, here and where the
            model predicts.
            DATA is the path or URL of what ``ingest`` made with ``classes=True``; it holds y and weights itself. No
            reference to X is kept.
        y : array-like (N,)
            Labels of any type that has an order, of the same kind as X or a NumPy array.
        sample_weight : array-like (N,), optional
            A row of weight 2 counts as two such rows, and one of zero weight is absent.
        validation : pair (X, y) or DATA, optional
            Held-out rows of the same classes: their log loss goes into ``history_`` and ends the fit when it stops
            falling.

        Raises
        ------
        DataError, UsageError, MemoryLimitError, NumericalError
            Data or parameters that cannot be used, or a fit that cannot fit; all are ``ValueError`` or ``MemoryError``
            (data of a type that cannot be used a ``TypeError``, too), and ``ArithmeticError`` where numbers overflow.
        """
        parameters = self.parameters()
        source, labels = self._training_source(X, y, sample_weight, parameters.seed)
        self._fit(source, self._held_out_source(validation, source.columns, labels), parameters)
        self.classes_ = label_array(source.columns.classes or ()) if labels is None else labels
        return self

    def _coded(self, y: Any) -> tuple[Any, Labels]:
        y = array_of(y)
        if isinstance(y, np.ndarray):
            with told_by_name():
                # each value twice: scikit-learn warns of more classes than half of the rows
                check_classification_targets(np.repeat(np.unique(y), 2) if y.ndim == 1 and y.dtype != object else y)
        labels = find_classes(y)
        return coded(y, labels), labels

    def _beside_model(self) -> dict[str, Any]:
        labels = {"dtype": self.classes_.dtype.str, "values": list(plain_labels(self.classes_.tolist()))}
        return {**super()._beside_model(), "classes": labels}

    def _take_saved(self, model: Any, beside: dict[str, Any]) -> None:
        super()._take_saved(model, beside)
        labels = beside["classes"]
        self.classes_ = label_array(labels["values"]).astype(labels["dtype"])

    def _take(self, model: ClassModel) -> None:
        kernels = slice(model.design.n_leading, None)
        outputs = 0 if model.mean.shape[1] == 1 else slice(None)
        self.model_ = model
        self.relevance_vectors_ = model.design.centres
        self.n_relevance_vectors_ = model.n_vectors
        self.weights_ = model.mean[kernels].T[outputs]
        self.alpha_ = model.alpha[kernels].T[outputs]
        self.intercept_ = model.mean[: int(model.design.bias)].sum(axis=0)[outputs]
        self.log_evidence_ = model.log_evidence
        self._take_bases(bases_of(model), outputs)

    def _predictors(self, X: Any) -> Float:
        """Return the linear predictors (n, C), the inputs of the link."""
        check_is_fitted(self)
        return self._values(self.model_.predictors, X)

    def decision_function(self, X: Any) -> Float:
        """Linear predictors at X (n, d), as passed to the link; they are moderated if the model moderates.

        Shape (n,) for two classes, where a positive value predicts ``classes_[1]``; otherwise (n, K). X is of any
        kind that ``fit`` takes. Raises ``DataError`` or ``ValueError`` if it has other features.
        """
        f = self._predictors(X)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict_proba(self, X: Any) -> Float:
        """Probabilities (n, K) of the classes, in the order of ``classes_``, at X as above."""
        f = self._predictors(X)
        return probabilities(self.model_.likelihood, f)

    def predict_interval(self, X: Any, level: float = 0.95, kind: str = "decision") -> tuple[Float, Float]:
        """Central credible intervals at X (n, d) of any kind that ``fit`` takes: lower and upper ends.

        ``kind="decision"``: of the linear predictors, φᵀμ ± the normal quantile × (φᵀΣφ)^½ of the Laplace
        approximation, each of the shape of ``decision_function``: (n,) for two classes, else (n, K). The centre of
        an interval is φᵀμ, before moderation. ``kind="probability"``: of the classes, each
        (n, K). Of two classes these are the link of the former; of more, class k has its own predictor at the end of
        its interval and the others at their means. Raises ``UsageError`` for another level or kind, and as
        ``decision_function`` does.
        """
        check_is_fitted(self)
        ends = self._values(self.model_.interval(level, kind), X)
        lower, upper = np.split(ends, 2, axis=1)
        return (lower[:, 0], upper[:, 0]) if lower.shape[1] == 1 else (lower, upper)

    def predict_log_proba(self, X: Any) -> Float:
        """Return the logarithms of the probabilities, (n, K); minus infinity for a probability that underflows to 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Fraction of the rows of X (n, d), of any kind that ``fit`` takes, whose label y (n,) is predicted.

        Weights are (n,). Raises ``DataError`` for missing labels, labels of several types, and other features or rows.
        """
        predicted, labels = self.predict(X), labels_of(y)
        with told_by_name():
            return float(accuracy_score(labels, predicted, sample_weight=sample_weight))

    def predict(self, X: Any) -> Labels:
        """Labels (n,) of the most probable classes, of y's own type, at X as above."""
        f = self._predictors(X)
        codes = (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)
        labels: Labels = self.classes_[codes]
        return labels
