"""Classification as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from partirvm.core.link import probabilities
from partirvm.data import as_source
from partirvm.data.labels import coded, find_classes
from partirvm.data.weighted import text_of_label
from partirvm.estimators.base import Labels, RelevanceVectorMachine, array_of, in_memory, labels_of, told_by_name
from partirvm.model import ClassModel, bases_of, label_array, plain_labels
from partirvm.options import Request
from partirvm.options.names import Auto, Gamma, KernelStore, MultiClass, SolverName
from partirvm.options.values import AlphaPrior, Solver, Strategy, StrategyName
from partirvm.predict.prediction import ValuesTile, values_of_rows, warn_of_far_rows

Float = NDArray[np.float64]


class RVMClassifier(ClassifierMixin, RelevanceVectorMachine):  # type: ignore[misc]
    """Relevance Vector Machine for classification (Tipping 2001, §3), trained out of core.

    Linear predictors Σ_m w_m k(x, z_m) + bias with few relevance vectors z_m among the training rows, one for two
    classes and one per class for more, go through the logistic sigmoid or the softmax. Weights have a Gaussian prior
    each, whose precisions maximise the evidence of a Laplace approximation; every Newton step is a pass over the rows.

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
        below 20 rows, and means nothing for a kernel that a name and gamma do not describe. A categorical column, of
        DATA or of a pandas frame, has exp(−gamma_j [x_j ≠ z_j]) for its factor: gamma is what another level costs,
        "scale" counts it like a number with a variance of (1 − 1/levels)/2.
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
    multi_class : {"auto", "multinomial", "ovr"}
        Three classes or more: one fit of the softmax, with a prior that a column's weights share (Tipping 2001, eq.
        28); or one fit for each class against the rest, their probabilities divided by their sum.
    moderate : {"auto", True, False}
        Let probabilities allow for the uncertainty of the weights: a linear predictor f of variance σ² counts as
        f/√(1 + πσ²/8) (MacKay 1992, "The evidence framework applied to classification networks"). "auto" does for two
        classes and at most 10,000 rows.
    class_weight : None, "balanced" or dict of label and weight
        Multiplied into the rows' weights; "balanced" is n/(K·count) of each class's count, or of its sum of weights.
        Labels that a dict does not name weigh 1.
    solver : {"auto", "fixed-point", "fast"}, Auto, FixedPoint or Fast
        How precisions α are found on the quadratic of each Newton step (Laplace's approximation). "fixed-point", and
        "auto": MacKay's updates of all candidates together. "fast": one column at a time is added, deleted or estimated
        again, that which raises the evidence most (Tipping & Faul 2003). All candidates are in each of its passes,
        where the fixed point's become cheaper as it prunes. With priors or fixed α it is refused.
        ``FixedPoint(updates="em")`` takes expectation maximisation for MacKay's updates.
    alpha_prior : pair of float or AlphaPrior
        Shape and rate (a, b) of a Gamma prior on each weight's precision α, of the standardised problem (Tipping 2001,
        appendix A). (0, 0) is flat in log α. With a rate above 0 no α runs to infinity: a vector goes where evidence
        and prior together are better off without it. A kernel is learned without it.
        ``AlphaPrior(a, b, fixed={"bias": 1e-6})`` holds precisions by the name of their basis function, which then
        stays: "bias" or another of ``basis_names_``.
    fit_intercept : bool
        Offer a bias, one basis function with its own prior.
    standardize : bool
        Shift and scale X by their training moments.
    max_vectors, max_rounds : int or None
        Limits.
    time_limit : float, str or None
        Seconds, or a text such as "1h"; the model of the last finished round is kept.
    memory_limit : "auto", int or str
        Peak bytes of each process, or a text such as "512MiB"; "auto" is 70 % of what there is.
    tol : float
        The last fit has converged when the evidence changes by less than tol·N nats.
    kernel_store : {"auto", "memory", "zarr", "none"}
        Where blocks of the kernel stay between passes; "auto" measures what is fastest, and takes a quarter of
        an "auto" memory_limit at most.
    random_state : int, RandomState or None
        Shuffles rows in memory and draws random candidates.
    client : distributed.Client or None
        Run on a Dask cluster; None runs in this process.

    Attributes
    ----------
    classes_ : ndarray of shape (K,), of y's own dtype, in the order of the columns of probabilities
    relevance_vectors_ : ndarray of shape (n_relevance_vectors_, d), in the units of X
    n_relevance_vectors_ : int, the bias and basis functions not counted
    weights_ : ndarray of shape (n_relevance_vectors_,) for two classes, otherwise (K, n_relevance_vectors_)
    alpha_ : ndarray of the same shape; infinite where a class has not the vector, whose weight is zero then
    intercept_ : float for two classes, otherwise ndarray of shape (K,)
    log_evidence_ : float, nats; a prior adds its log density in log α, less the largest value of that
    basis_names_, basis_relevance_ : "bias", then the names of basis functions (B + 1,); the evidence, in nats, that the
        loss of each would cost with all else as it is: 0 where it was pruned, little where others can stand in for it
    basis_weights_, basis_alpha_ : ndarray of shape (B + 1,), of K > 2 classes (K, B + 1); 0 and ∞ where pruned
    kernel_ : kernel, with what was learned of it
    gamma_ : float or ndarray of shape (d,); where the kernel has a gamma, or one for each kind of column
    feature_relevance_ : ndarray of shape (d,), gamma times the feature's variance as the kernel sees both, as a
        fraction of the largest; where the kernel has a gamma
    history_ : list of dict, one per fit; ``iterations`` says how many passes it took
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
        kernel: Any = "gaussian",
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
        self.multi_class = multi_class
        self.moderate = moderate
        self.class_weight = class_weight
        self.alpha_prior = alpha_prior
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

    def parameters(self) -> Request:
        """What this estimator asks of a fit, with a seed drawn from ``random_state``."""
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
        self._fit(source, self._held_out_source(validation, source, labels), parameters)
        self.classes_ = label_array(source.columns.classes or ()) if labels is None else labels
        return self

    def _coded(self, y: Any) -> tuple[Any, Labels]:
        y = array_of(y)
        if isinstance(y, np.ndarray):
            with told_by_name():
                check_classification_targets(y)
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
        """Linear predictors (n, C) as the link gets them."""
        check_is_fitted(self)
        model: ClassModel = self.model_
        if in_memory(X):
            f, far = values_of_rows(model.predictors, self._rows(X, model.columns.categories))
        else:
            found = self._each_tile(ValuesTile(model.predictors), as_source(X))
            f, far = found[:, :-1], int(found[:, -1].sum())
        warn_of_far_rows(far, len(f), model)
        return f

    def decision_function(self, X: Any) -> Float:
        """Linear predictors as the link gets them, moderated where the model moderates, at X (n, d).

        Shape (n,) for two classes, where a positive value speaks for ``classes_[1]``; otherwise (n, K). X is of any
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
        approximation, each of the shape of ``decision_function``: (n,) for two classes, else (n, K). They lie about
        φᵀμ, which a model that moderates shrinks before it decides. ``kind="probability"``: of the classes, each
        (n, K). Of two classes these are the link of the former; of more, class k has its own predictor at the end of
        its interval and the others at their means. Raises ``UsageError`` for another level or kind, and as
        ``decision_function`` does.
        """
        check_is_fitted(self)
        ends = self._values(self.model_.interval(level, kind), X)
        lower, upper = np.split(ends, 2, axis=1)
        return (lower[:, 0], upper[:, 0]) if lower.shape[1] == 1 else (lower, upper)

    def predict_log_proba(self, X: Any) -> Float:
        """Logarithms of the probabilities, (n, K); minus infinity where one is too small for a number."""
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
