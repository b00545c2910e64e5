"""Classification as a scikit-learn estimator."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from partirvm.core.link import LINKS
from partirvm.data.arrays import in_process
from partirvm.data.labels import Labels, coded, find_classes, label_array
from partirvm.errors import UsageError
from partirvm.estimators.base import RelevanceVectorMachine
from partirvm.model import ClassModel, OfRows
from partirvm.options.table import Auto, ClassLikelihood
from partirvm.types import Columns, Float


@dataclass(eq=False, repr=False)
class RVMClassifier(ClassifierMixin, RelevanceVectorMachine):
    """Relevance Vector Machine for classification (Tipping 2001, §3), trained out of core.

    A logistic sigmoid or a softmax turns linear predictors Σ_m w_m k(x, z_m) + bias, with few
    relevance vectors z_m among the training rows, into probabilities; two classes have one
    predictor, more classes one each. Weights have Gaussian priors. Their precisions maximise the
    evidence of a Laplace approximation, in which each Newton step is a pass over the rows, or the
    evidence of least squares on class indicators (``likelihood``).

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
    likelihood : {"auto", "pooled", "multinomial"}, default="auto"
        Distribution of the target: "auto"; "gaussian" for numbers; for classes, "pooled" (least
        squares on class indicators, calibrated on left-out rows) or "multinomial" (logistic link or
        softmax). "auto" is "gaussian" for numbers, "multinomial" for two overlapping classes in at
        most 50,000 rows, and "pooled" for other classes. With a given kernel, "auto" is
        "multinomial" for two classes with at most 50,000 rows, whether or not they overlap.
    moderate : {"auto", True, False}, default="auto"
        Take the uncertainty of the weights into account in class probabilities. Has no effect for
        "pooled", whose probabilities are calibrated on left-out rows. A linear predictor f with
        variance σ² is shrunk to f/√(1 + πσ²/8) (MacKay 1992, "The evidence framework applied to
        classification networks"). "auto" is True for two classes and at most 10,000 rows.
    class_weight : None, "balanced" or dict of label and weight, default=None
        Row weights by class: "balanced" (the same total weight for every class), or LABEL=WEIGHT,…
        (1 for classes not listed). These multiply the row weights. "balanced" is n/(K·count); for
        weighted rows, the count is the sum of weights.

    Attributes
    ----------
    classes_ : ndarray of shape (K,), of y's own dtype, in the order of the probability columns
    weights_ : ndarray of shape (M,) for two classes with a logistic link, otherwise (K, M)
    alpha_ : ndarray of shape (M,), shared by the classes
    intercept_ : float for two classes with a logistic link, otherwise ndarray of shape (K,)
    log_evidence_ : float, nats
        A prior adds its log density with respect to log α, minus the maximum of that density.
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
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = np.where(X[:, 0] + 0.3 * rng.normal(size=100) > 0, "right", "left")
    >>> model = RVMClassifier(gamma=0.2).fit(X, y)
    >>> model.predict([[-1.0, 0.0], [1.0, 0.0]]).tolist()
    ['left', 'right']
    >>> bool(model.predict_proba([[1.0, 0.0]])[0, 1] > 0.9), model.n_relevance_vectors_ < 10
    (True, True)
    """

    _: KW_ONLY
    likelihood: ClassLikelihood = "auto"
    moderate: bool | Auto = "auto"
    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None

    def _coded(self, y: Any) -> tuple[Any, Labels]:
        y = in_process("y", y)
        columns = math.prod(getattr(y, "shape", ())[1:])
        if columns != 1:
            raise UsageError(f"y has {columns} columns: a classifier predicts one class per row")
        labels = find_classes(y)
        return coded(y, labels), labels

    def _take_labels(self, columns: Columns, labels: Labels | None) -> None:
        self.classes_ = label_array(columns.classes or ()) if labels is None else labels

    def __call__(self, X: Any) -> Any:
        """Return the result of ``predict_proba``: ``shap.Explainer`` requires a callable."""
        return self.predict_proba(X)

    def _take(self, model: ClassModel, variance: Float) -> None:
        super()._take(model, variance)
        outputs = 0 if model.mean.shape[1] == 1 else slice(None)
        self.weights_ = self.weights_.T[outputs]
        self.basis_weights_ = self.basis_weights_[outputs]
        self.intercept_ = model.mean[: int(model.design.bias)].sum(axis=0)[outputs]

    def _predictors(self, X: Any, groups: Any = None) -> Float:
        """Return the linear predictors (n, C), the inputs of the link."""
        check_is_fitted(self)

        def function(model: Any) -> OfRows:
            predictors: OfRows = model.predictors
            return predictors

        return self._values_by_group(function, X, groups)

    def decision_function(self, X: Any, *, groups: Any = None) -> Float:
        """Return the linear predictors at X (n, d) as passed to the link, i.e. after moderation or
        the ramp if the model uses them.

        The shape is (n,) for two classes, where a positive value predicts ``classes_[1]``;
        otherwise (n, K). X is of any kind that ``fit`` takes. ``groups`` (n,) are as in ``fit``:
        rows of groups that the fit has seen get the effects of these groups and what is unknown of
        them; without it, all rows count as rows of new groups. Raises ``DataError`` or
        ``ValueError`` if the features of X differ.
        """
        f = self._predictors(X, groups)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict_proba(self, X: Any, *, groups: Any = None) -> Float:
        """Return class probabilities (n, K) at X, in the order of ``classes_``; X and ``groups``
        are as in ``decision_function``."""
        f = self._predictors(X, groups)  # this also checks that the estimator is fitted
        return LINKS[self.model_.likelihood].probabilities(f)

    def predict_interval(
        self, X: Any, level: float = 0.95, kind: str = "decision", *, groups: Any = None
    ) -> tuple[Float, Float]:
        """Return the lower and upper ends of central credible intervals.

        Parameters
        ----------
        X : rows (n, d) of any kind that ``fit`` takes
        level : float
            The probability of each interval, between 0 and 1.
        kind : {"decision", "probability"}
            "decision" is for the linear predictors: φᵀμ ± the normal quantile × (φᵀΣφ)^½, before
            moderation or after the ramp, shaped like ``decision_function``. "probability" is for
            the classes, (n, K): for two classes, the link is applied to the ends for the predictor;
            for more classes, the ends for class k are computed from the ends for predictor k and
            the means of the other predictors.
        groups : array-like (n,), str or Groups, optional
            As in ``decision_function``; the uncertainty of levels and groups is included.

        Raises
        ------
        UsageError, DataError
            For an invalid level or kind, or if features differ (a ``ValueError``).
        """
        return self._interval(X, level, kind, groups)

    def predict_log_proba(self, X: Any, *, groups: Any = None) -> Float:
        """Return the logarithms of the probabilities of ``predict_proba``, (n, K); −inf for a
        probability that underflows to 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, groups=groups))

    def predict(self, X: Any, *, groups: Any = None) -> Labels:
        """Return the labels (n,) of the most probable classes at X, of y's type; X and ``groups``
        are as in ``decision_function``."""
        f = self._predictors(X, groups)
        codes = (f[:, 0] > 0).astype(np.int64) if f.shape[1] == 1 else f.argmax(axis=1)
        return np.asarray(self.classes_[codes])
