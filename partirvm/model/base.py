"""Common parts of fitted regression and classification models: columns, values at rows, basis
functions and a digest.

Products are computed for pieces of panels (``core.predictive``), so no prediction depends on the
other rows.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from partirvm.core.predictive import ROWS, products, quadratic_forms
from partirvm.core.priors import log_contribution
from partirvm.core.pruning import conditioned, least_loss
from partirvm.errors import DataError
from partirvm.export import to_c, to_numpy, to_onnx
from partirvm.kernels import KERNELS
from partirvm.kernels.design import Design
from partirvm.kernels.functions import labels_by_name
from partirvm.model.summary import Assessment, Summary, relevant, summarised
from partirvm.options.constraints import Check
from partirvm.process import one_blas_thread
from partirvm.quoting import html_table
from partirvm.storage.codec import Codec
from partirvm.types import BIAS, PANEL_ROWS, Bool, Columns, DeclaredState, Float

HEIGHT = PANEL_ROWS - PANEL_ROWS % ROWS
"""Number of rows of a panel, a multiple of the piece size, so that only the last piece is
copied."""

OfRows: TypeAlias = Callable[[Float], tuple[Float, Float]]
"""A function from raw inputs X (n, d) to values (n, V) and nearness (n,), such as a model's
intervals."""

FAR = 1e-4
"""Nearness (largest kernel value as a fraction of its peak) below which a row is far from all
relevance vectors."""


COPY = 1e-12
"""Relative difference from the peak up to which a kernel value means that the vector equals the
row."""


@dataclass(frozen=True)
class Pruned:
    """The number of vectors that ``prune`` deleted, and the cost.

    Attributes:
        vectors: the number of deleted vectors.
        log_evidence: the loss of log evidence in nats.
        squared_error: the increase in the training rows' mean weighted squared error, in squared
            units of the target (for a warped target, of its map); (T,) for T targets, 0 for
            classes.
    """

    vectors: int = 0
    log_evidence: float = 0.0
    squared_error: float | Float = 0.0

    @property
    def rmse(self) -> float | Float:
        """The error that pruning adds: the new training RMSE is √(old² + this²)."""
        return np.sqrt(np.maximum(self.squared_error, 0.0))


@dataclass(frozen=True)
class FittedModel(DeclaredState):
    """A model of M columns.

    Attributes:
        design: the M columns: bias, basis functions, and kernels at the relevance vectors.
        mean: posterior means of the weights, (M,) or, with C linear predictors or targets, (M, C).
        root: R with Σ = RRᵀ, (M, M) or (C, M, M); (1, M, M) if all predictors share it.
        alpha: prior precisions of the weights, (M,).
        log_evidence: the log evidence in nats.
        n_rows: the number of training rows.
        columns: names of the features and targets, categories and classes.
        pruned: the number of vectors that ``prune`` deleted, and the cost.
        relevance: relevance (d,) of each feature (``model.sensitivity``); None if no rows were
            available.
        marginals: quantiles (q, d) of each feature's values in the training rows
            (``model.feature_effects``); None without an ANOVA kernel.
        assessment: errors on left-out rows and other facts of the fit, for ``summary``; None if
            unknown, as after pruning.
    """

    one_unit: ClassVar[bool] = False
    """True if all predicted values have the same unit, so that their variances can be added."""
    far_values: ClassVar[str]
    """Description of the predictions far from every relevance vector."""
    measures_error: ClassVar[bool] = False
    """True if ``pruned.squared_error`` is the error that pruning adds to the predictions."""
    augmentable: ClassVar[bool] = False
    """True if RVM* (``predict.rvm_star``) applies to the model."""

    design: Design
    mean: Float
    root: Float
    alpha: Float
    log_evidence: float
    n_rows: int
    columns: Columns
    pruned: Pruned = field(default=Pruned(), kw_only=True)
    relevance: Float | None = field(default=None, kw_only=True)
    marginals: Float | None = field(default=None, kw_only=True)
    assessment: Assessment | None = field(default=None, kw_only=True)

    to_onnx, to_c, to_numpy = to_onnx, to_c, to_numpy

    def __repr__(self) -> str:
        text = (
            f"{type(self).__name__} of {self.n_vectors:,} relevance vectors, "
            f"{self.design.kernel.name} kernel"
        )
        return (
            f"<{text}, rows of local residuals in {self.cells_place}>"
            if self.cells_place
            else f"<{text}>"
        )

    def _repr_html_(self) -> str:
        """Return the main facts as HTML, for notebooks."""
        facts = {
            "relevance vectors": f"{self.n_vectors:,} of {self.n_rows:,} rows",
            "kernel": self.design.kernel.name,
        }
        return self.summary()._repr_html_() + html_table(type(self).__name__, facts.items())

    def summary(self) -> Summary:
        """Return a summary of the model in words: its errors on rows left out of the fit and their
        doubts, its size, and the features that matter.

        ``str(model.summary())`` is the text, and ``model.summary().figures`` has the numbers. No
        rows are read: the fit has stored all figures. A pruned model has no errors of left-out
        rows, and neither has a model without its local residuals (``sparse()``).
        """
        if self.assessment is not None:
            return summarised(self.assessment)
        names = self.columns.features
        return summarised(
            Assessment(
                target=self.columns.target,
                rows="training",
                n_scored=0,
                figures={},
                n_rows=self.n_rows,
                n_vectors=self.n_vectors,
                features=relevant(names, self.relevance),
                n_features=len(names),
            )
        )

    def digest(self) -> str:
        """Return a hash of everything that determines predictions; evidence, pruning costs,
        relevance, marginals and assessment are excluded. Models with equal digests make
        bit-identical predictions."""
        codec = Codec((*KERNELS.values(), type(self)))
        tree, arrays = codec.encode(
            replace(
                self.with_cells_at(""),
                log_evidence=0.0,
                pruned=Pruned(),
                relevance=None,
                marginals=None,
                assessment=None,
            )
        )
        for name in ("pruned", "relevance", "marginals", "assessment"):
            del tree["value"]["fields"][name]
        sums = [
            hashlib.blake2b(f"{a.shape} {a.dtype}".encode() + a.tobytes(), digest_size=16)
            for a in arrays
        ]
        text = re.sub(
            r'{"array": (\d+)}', lambda match: sums[int(match[1])].hexdigest(), json.dumps(tree)
        )
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def cells_place(self) -> str:
        """The folder of the model's local residual rows; empty if they are in the model or there
        are none."""
        return ""

    def with_cells_at(self, place: str) -> Self:
        """Return the model with its local residual rows moved to this folder."""
        return self

    def copy_cells(self, folder: str) -> None:
        """Copy the local residual rows to a folder, if the model has any."""

    def sparse(self) -> Self:
        """Return the relevance vector machine alone, without local residuals."""
        return self

    @property
    def n_targets(self) -> int:
        """The number T of target columns of the training rows."""
        return 1

    @property
    def n_vectors(self) -> int:
        """Number of relevance vectors, not counting the bias and basis functions."""
        return len(self.design.centres)

    @property
    def used_features(self) -> Bool:
        """A mask (d,) of the features on which predictions depend according to the model's
        structure."""
        return self.design.scaling.features_of(self._used_inputs())

    def explained_values(self, X: Float) -> Float:
        """Return the predictions (n, V) at raw inputs X (n, d) whose variance ``relevance``
        explains."""
        raise NotImplementedError

    def with_reach_of(self, X: Float) -> Self:
        """Return the model with the reach of training rows X (n, d); classification models have no
        reach."""
        return self

    def _used_inputs(self) -> Bool:
        """Return a mask (d',) of the scaled inputs on which predictions depend."""
        used = self.design.effective
        if self.design.noise is not None:
            used = used | self.design.noise.kernel.effective(len(used))
        return used

    @one_blas_thread()
    def prune(self, max_vectors: int = 50) -> Self:
        """Return the model without the relevance vectors that cost the least evidence when deleted
        one after another.

        At most ``max_vectors`` remain, which may be 0; the bias and basis functions are kept. The
        weights equal those of a fit without the deleted vectors at the same α and noise, but are
        computed from the posterior alone (``core.pruning``); ``pruned`` reports the cost. Raises
        ``UsageError`` for a number below 0 and for a model with local residuals.
        """
        first = self.design.n_leading
        count = self.n_vectors - Check("whole", least=0)("max_vectors", max_vectors)
        if count <= 0:
            return self
        M = len(self.mean)
        roots = self.root if self.root.ndim == 3 else self.root[None]
        posterior = self.alpha, self.mean.reshape(M, -1), roots
        left = np.delete(np.arange(M), least_loss(*posterior, first, count))
        mean, roots, loss, growth = conditioned(*posterior, left)
        design = self.design.take(left[first:] - first)
        root = roots if self.root.ndim == 3 else roots[0]
        mean = mean.reshape(-1, *self.mean.shape[1:])
        done = self.pruned
        pruned = Pruned(done.vectors + count, done.log_evidence + loss, done.squared_error)
        pruned_model = replace(
            self,
            design=design,
            mean=mean,
            root=root,
            alpha=self.alpha[left],
            pruned=pruned,
            assessment=None,
        )
        # keep the unpruned model's relevance; features that only deleted vectors used get 0
        if self.relevance is not None:
            pruned_model = replace(
                pruned_model, relevance=np.where(pruned_model.used_features, self.relevance, 0.0)
            )
        return replace(pruned_model, log_evidence=self.log_evidence - loss)._with_error(growth)

    def _with_error(self, growth: Float) -> Self:
        """Return the model after recording the increase ``growth`` (T,) in β‖t − Φμ‖² due to
        pruning; classification models have no β."""
        return self

    def _require_finite(self, X: Float, mean: Float, variance: Float | None) -> None:
        """Raise a ``DataError`` that names the first row if predictions (n, …) at finite inputs X
        (n, d) are not finite."""
        wrong = ~np.isfinite(mean).reshape(len(X), -1).all(axis=1)
        if variance is not None:
            wrong |= np.isnan(variance).reshape(len(X), -1).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            column = int(np.argmax(np.abs(X[row])))
            raise DataError(
                f"the predictions of {int(wrong.sum()):,} of {len(X):,} rows are not finite, the "
                f"first is row {row:,} (counted from 0) with {self.columns.features[column]!r} = "
                f"{X[row, column]:.3g}: the inputs are too large for the kernel or basis; leave "
                "these rows out, or check their units"
            )


class LinearValues(NamedTuple):
    """Linear predictors at n rows.

    Attributes:
        values: Φw, (n,) or (n, C).
        variances: φᵀΣφ, of the same shape; None without a root of Σ.
        nearness: the largest kernel value of a row as a fraction of the kernel's peak, (n,): below
            ``FAR`` a row is far from all relevance vectors. It is 1 without local kernels.
    """

    values: Float
    variances: Any
    nearness: Float


def linear_values(
    design: Design,
    weights: Float,
    X: Float,
    root: Float | None = None,
    added: Callable[[Float, slice], Float | None] | None = None,
) -> LinearValues:
    """Return the linear predictors of a design at raw inputs.

    Raises ``DataError`` if X and the design differ in the number of features.

    Args:
        design: a design of M columns.
        weights: weights of the columns, (M,) or (M, C).
        X: raw inputs, (n, d).
        root: a root of Σ, (M, M) or (C, M, M); (1, M, M) if all predictors share it.
        added: returns what is added to Φ in the variances φᵀΣφ, or None, given raw inputs (m, d)
            and which rows they are.
    """
    _require_features(design, X)
    n = len(X)
    roots: Any = ()
    if root is not None:
        roots = root[None] if root.ndim == 2 else root
    values = np.empty((n, *weights.shape[1:]))
    variances = np.empty((n, len(roots)))
    near = np.ones(n)
    heights = design.peaks()
    has_nearness = len(design.centres) and design.kernel.local
    # all full panels share this memory: allocation takes as long as computation
    place = np.empty((design.n_columns, HEIGHT)).T if n >= HEIGHT else None
    for start in range(0, n, HEIGHT):
        rows = slice(start, start + HEIGHT)
        block = design.block(X[rows], place if start + HEIGHT <= n else None)
        values[rows] = products(block, weights)
        moved = block
        change = added(X[rows], rows) if added is not None and len(roots) else None
        if change is not None:
            moved = block + change
        for k, root_of_output in enumerate(roots):
            variances[rows, k] = quadratic_forms(moved, root_of_output)
        if has_nearness:
            near[rows] = _nearness(block[:, design.n_leading :], heights)
    if root is None:
        return LinearValues(values, None, near)
    return LinearValues(values, _of_outputs(variances, values.shape), near)


def _of_outputs(variances: Float, shape: tuple[int, ...]) -> Float:
    """Return variances (n, 1) or (n, C) with the shape of the predictors, (n,) or (n, C)."""
    if len(shape) > 1 and variances.shape[1] < shape[1]:
        variances = np.repeat(variances, shape[1], axis=1)
    return variances.reshape(shape)


def _require_features(design: Design, X: Float) -> None:
    n_features = design.centres.shape[1]
    if X.ndim != 2 or X.shape[1] != n_features:
        raise DataError(
            f"the model was trained on {n_features} features, but the given rows have shape "
            f"{X.shape}"
        )


def _nearness(kernels: Float, heights: Float) -> Float:
    """Return the nearness (n,) from kernel values (n, M) and their peaks (M,); may overwrite the
    kernel values."""
    if (heights == heights[0]).all():
        return np.asarray(kernels.max(axis=1) / heights[0])
    kernels /= heights
    return np.asarray(kernels.max(axis=1))


def nearness_to_others(design: Design, X: Float) -> Float:
    """Return the nearness (k,) of those raw inputs X (n, d) for which there is a vector other than
    copies of the input.

    Copies are ignored, as if the row were new. The result is empty without local kernels.
    """
    if not len(design.centres) or not design.kernel.local:
        return np.zeros(0)
    return nearness_in(design, design.block(X))


def nearness_in(design: Design, block: Float) -> Float:
    """Return the nearness (k,) as ``nearness_to_others`` does, given the design at the inputs (n,
    M)."""
    kernels = block[:, design.n_leading :] / design.peaks()
    near = np.max(kernels, axis=1, where=kernels < 1.0 - COPY, initial=-np.inf)
    return np.asarray(near[np.isfinite(near)])


@dataclass(frozen=True)
class Bases:
    """The bias and the B basis functions, including pruned functions, for C outputs or T targets.

    Attributes:
        names: their names (B + 1,), the bias first.
        weights: their weights in the standardised problem, (B + 1,) or (B + 1, C or T); 0 if
            pruned.
        alpha: their precisions in the standardised problem, of the same shape; ∞ if pruned.
        relevance: the loss of log evidence in nats if only that function is deleted (Tipping & Faul
            2003, eq. 27), summed over outputs, (B + 1,): low if functions can replace each other.
    """

    names: tuple[str, ...]
    weights: Float
    alpha: Float
    relevance: Float


def bases_of(model: FittedModel) -> Bases:
    """Return the bias and the basis functions of a model; without a basis, only the bias."""
    design = model.design
    names = labels_by_name(model.design.functions, model.columns.features)
    mine = BIAS - design.leading
    count = design.n_leading
    shape = (len(names), *model.mean.shape[1:])
    weights = np.zeros(shape)
    relevance = np.zeros(shape)
    alpha = np.full((len(names), *model.alpha.shape[1:]), np.inf)
    weights[mine] = model.mean[:count]
    alpha[mine] = model.alpha[:count]
    leading_alpha = model.alpha[:count].reshape(
        count, *[1] * (model.mean.ndim - model.alpha.ndim), *model.alpha.shape[1:]
    )
    variance = np.einsum("...mk,...mk->...m", model.root, model.root)[
        ..., :count
    ].T  # (L,) or (L, C)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = 1.0 / variance
        worth = log_contribution(
            leading_alpha,
            np.maximum(precision - leading_alpha, 0.0),
            model.mean[:count] * precision,
        )
    relevance[mine] = np.where(np.isfinite(leading_alpha) & (variance > 0), worth, 0.0)
    return Bases(tuple(names), weights, alpha, relevance.reshape(len(names), -1).sum(axis=1))
