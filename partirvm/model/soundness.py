"""Checks of every model that is read: arrays are finite with valid shapes and ranges, and
predictions are finite.

``require_shapes`` checks that the arrays are consistent; after that, ``require_sound`` checks the
values and the parts specific to a kind of model.

Checksums detect damage, but not deliberately chosen values. Therefore, every array of a model must
be float64 or int64 and finite, positions must be within their ranges, and the model must predict
finite values at a few of its vectors. A model that passes these checks either predicts or raises
one of the package's errors.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.class_groups import ClassGroups
from partirvm.core.link import LINKS
from partirvm.core.local_quantiles import LocalQuantiles
from partirvm.errors import PartirvmError
from partirvm.kernels.design import Design
from partirvm.kernels.jumps import Jumps
from partirvm.kernels.permission import functions_of
from partirvm.kernels.trees import MOST_LEAVES, MOST_LEVELS, BoostedTrees
from partirvm.local.cells import NUMBER, Cells, rows_of_cell
from partirvm.local.known_groups import KnownGroups
from partirvm.local.kriging import CORRELATIONS
from partirvm.local.residuals import LocalResiduals
from partirvm.local.tree_share import TreeShare
from partirvm.model.base import FittedModel
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.options.constraints import MOST_NEIGHBOURS
from partirvm.quoting import quoted
from partirvm.scaling.maps import AS_IT_IS, FeatureMap, Scaling
from partirvm.types import RESIDUAL_COLUMNS, Float, Int, squeezed

TARGET_MAPS = ("none", "log", "asinh")
"""Kinds of ``TargetMap``."""

WITH_GAPS = ("Model.design.centres", "ClassModel.design.centres")
"""Arrays in which NaN marks a missing value."""

SWITCHES = (".missing_left", ".levels")
"""Ends of the names of arrays of truth values."""

NO_LEVELS = ("unknown", "missing")
"""The last rows of each level table."""

LEVEL = 0.95
"""Level of the interval that a model predicts as a check when it is read."""


def require_shapes(model: FittedModel) -> None:
    """Raise ``TypeError`` for a value that is not a model, and ``ValueError`` if its arrays are
    inconsistent."""
    if not isinstance(model, FittedModel):
        raise TypeError(f"it is a {type(model).__name__}")
    scaling = model.design.scaling
    n_vectors, n_features = model.design.centres.shape
    _require_shape("labels", model.design.labels.shape, (n_vectors,))
    _require_shapes_of_weights(model, n_features)
    _require_shapes_of_scaling(scaling, n_features)
    _require_shapes_of_noise(model.design)


def _require_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"the array {name!r} has shape {shape} instead of {expected}")


def _require_shapes_of_weights(model: FittedModel, n_features: int) -> None:
    """Check the means and the precisions of the weights, and the relevance of the features."""
    M = model.design.n_columns
    _require_shape("mean", model.mean.shape[:1], (M,))
    _require_shape("alpha", model.alpha.shape, (M,))
    if model.relevance is not None:
        _require_shape("relevance", model.relevance.shape, (n_features,))
    if model.marginals is not None:
        _require_shape("marginals", model.marginals.shape[1:], (n_features,))


def _require_shapes_of_scaling(scaling: Scaling, n_features: int) -> None:
    """Check the maps of features and targets."""
    _require_shape("t_shift", scaling.t_shift.shape, scaling.t_scale.shape)
    n_inputs = n_features
    features = scaling.features
    if features is not None:
        n_inputs = len(features.sources)
        warps = features.centres.shape + features.spreads.shape
        _require_shape("warps", warps, (n_features, n_features))
        if not all(0 <= feature < n_features for feature in features.sources.tolist()):
            raise ValueError("an input of its kernel comes from an unknown feature")
    _require_shape("x_shift", scaling.x_shift.shape, (n_inputs,))
    _require_shape("x_scale", scaling.x_scale.shape, (n_inputs,))
    if scaling.regressions is not None:
        _require_shape("regressions", scaling.regressions.shape, (n_inputs, n_inputs))


def _require_shapes_of_noise(design: Design) -> None:
    """Check the model of local noise, if there is one."""
    if design.noise is None:
        return
    count = len(design.noise.centres)
    n_inputs = design.scaling.n_inputs
    _require_shape("noise_centres", design.noise.centres.shape, (count, n_inputs))
    _require_shape("noise_weights", design.noise.weights.shape, (count,))


def _require_shapes_of_residuals(residuals: LocalResiduals, scaling: Scaling) -> None:
    """Check the local residuals of a model with this scaling."""
    metric = residuals.metric
    cells = residuals.cells
    n_inputs = scaling.n_inputs
    is_consistent = (
        (cells.records is None) == bool(cells.place)
        and all(kernel.family in CORRELATIONS for kernel in residuals.kernels)
        and all(0 <= feature < n_inputs for feature, *_ in metric.levels)
        and cells.n_rows <= residuals.n_rows
        and 0 < residuals.neighbours <= min(cells.n_rows - 1, MOST_NEIGHBOURS)
    )
    if not is_consistent:
        raise ValueError(
            "its local residuals have wrong rows or neighbours, or an unknown feature or family"
        )
    n_targets = scaling.t_scale.shape
    _require_shape("axes", metric.axes.shape[1:], (n_inputs,))
    _require_shape("kernels", (len(residuals.kernels),), n_targets)
    _require_shape("calibrations", (len(residuals.calibrations),), n_targets)
    width = metric.width + len(scaling.t_scale) + RESIDUAL_COLUMNS
    _require_shape("records", (cells.width,), (width,))
    _require_shapes_of_cells(cells, metric.width)


def _require_shapes_of_cells(cells: Cells, n_coordinates: int) -> None:
    """Check the boxes and the records of the cells, or the hashes of cells in a folder."""
    count = -(-cells.n_rows // rows_of_cell(cells.width))
    _require_shape("boxes", cells.boxes.shape, (count, 2, n_coordinates))
    if cells.records is None:
        _require_shape("hashes", (len(cells.hashes),), (count,))
    else:
        _require_shape("residuals", cells.records.shape, (cells.n_rows, cells.width))


def require_sound(model: Model | ClassModel) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless the model predicts finite values; its shapes
    must have been checked before."""
    for name, array in _arrays(model, type(model).__name__):
        if name in WITH_GAPS:  # a vector may be a row with missing values
            array = np.nan_to_num(array, posinf=np.inf, neginf=-np.inf)
        _require_array(name, array)
    _require_scaling(model.design.scaling, len(model.columns.features))
    _require_design(model.design)
    _require("alpha", (model.alpha > 0).all(), "must be above 0")
    KINDS[type(model)](model)
    # a user's function is not called before the model is used
    if not list(functions_of(model.design)):
        _require_predictions(model)


def _require_classes(model: ClassModel) -> None:
    """Raise ``ValueError`` unless there are weights for two or more different classes."""
    classes = model.columns.classes or ()
    K = len(classes)
    _require("classes", K >= 2 and len(set(classes)) == K, "must be two or more labels")
    widths = (K,) if K > 2 or model.ramp is not None else (1, 2)
    is_known = model.mean.ndim == 2 and model.mean.shape[-1] in widths
    _require("mean", is_known, "has another number of classes")
    if model.likelihood not in LINKS:
        raise ValueError(f"its likelihood {quoted(model.likelihood)} is unknown to this process")
    M = model.design.n_columns
    n_roots = model.mean.shape[1] if model.ramp is None else 1
    _require_shape("root", model.root.shape, (n_roots, M, M))
    if model.ramp is not None and model.ramp.correction is not None:
        correction = model.ramp.correction
        _require_shape("slopes", correction.slopes.shape, (K, K))
        _require_shape("offsets", correction.offsets.shape, (K,))
    n_logits = 1 if model.mean.shape[1] == 1 or (K == 2 and model.ramp is not None) else K
    if model.known is not None:
        _require_class_groups(model.known, n_logits)
    if model.trees is not None:
        _require_tree_share(model.trees, 0, n_logits, len(model.columns.features))


def _require_class_groups(groups: ClassGroups, n_logits: int) -> None:
    """Raise ``ValueError`` for effects of groups on this number of logits that are out of range."""
    _require_codes(groups.codes)
    n_groups = len(groups.codes)
    _require_shape("log_shares", groups.log_shares.shape, (n_logits,))
    _require_shape("effects of groups", groups.offsets.shape, (n_groups, n_logits))
    _require_shape("variances of groups", groups.offset_variances.shape, (n_groups,))
    numbers = np.array([groups.variance, groups.slope])
    is_valid = np.isfinite(numbers).all() and groups.variance >= 0 and groups.slope > 0
    _require("variance or slope of groups", is_valid, "is out of range")
    _require("variances of groups", (groups.offset_variances >= 0).all(), "must be 0 or more")


def _arrays(value: Any, name: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield each array of a model with its location in the model."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, tuple | list):
        for position, item in enumerate(value):
            yield from _arrays(item, f"{name}[{position}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name), f"{name}.{field.name}")


def _require(name: str, condition: Any, problem: str) -> None:
    if not condition:
        raise ValueError(f"its {name} {problem}")


def _require_array(name: str, array: NDArray[Any]) -> None:
    """Raise ``ValueError`` unless an array contains only finite numbers."""
    kinds = (np.bool_,) if name.endswith(SWITCHES) else (np.float64, np.int64)
    _require(name, array.dtype in kinds, f"has the type {quoted(str(array.dtype))}")
    _require(name, np.isfinite(array).all(), "has values that are not finite")


def _require_positions(name: str, positions: NDArray[Any], count: int) -> None:
    """Raise ``ValueError`` unless all positions are integers from 0 to ``count`` − 1."""
    _require(
        name, positions.dtype == np.int64 and positions.ndim == 1, "must be a list of integers"
    )
    _require(name, ((positions >= 0) & (positions < count)).all(), f"must be from 0 to {count - 1}")


def _require_scaling(scaling: Scaling, d: int) -> None:
    """Raise ``ValueError`` for a scaling of ``d`` features that cannot be applied."""
    _require("x_scale", (scaling.x_scale > 0).all(), "must be above 0")
    _require(
        "t_scale", scaling.t_scale.ndim == 1 and (scaling.t_scale > 0).all(), "must be above 0"
    )
    _require("target map", scaling.target.kind in TARGET_MAPS, "is of an unknown kind")
    _require(
        "target map",
        scaling.target == AS_IT_IS or scaling.target.spread > 0,
        "must have a spread above 0",
    )
    _require("weight_unit", 0 < scaling.weight_unit < np.inf, "must be above 0")
    if scaling.blank is not None:
        _require(
            "blank", scaling.blank.shape == scaling.x_shift.shape, "has another number of inputs"
        )
    if scaling.features is None:
        _require(
            "x_shift", len(scaling.x_shift) == d, f"has another number of inputs than {d} features"
        )
    else:
        _require_features(scaling.features, d)


def _require_features(features: FeatureMap, d: int) -> None:
    """Raise ``ValueError`` for a map of ``d`` features that cannot be applied."""
    _require("warps", features.spreads.shape == (d,), f"has another number of features than {d}")
    _require("warps", (features.spreads >= 0).all(), "must have spreads of 0 or more")
    _require_positions("gaps", features.gaps, d)
    _require_positions("numbers", features.numbers, d)
    _require(
        "moments",
        features.moments.shape == (2, len(features.numbers)),
        "has another number of features",
    )
    _require("moments", (features.moments[1] > 0).all(), "must have deviations above 0")
    _require_levels("tables", features.tables, d, 3)
    _require_levels("effects", features.effects, d, 3)
    _require_levels("doubts", features.doubts, d, 2)
    _require_levels("variances of levels", features.variances, d, 3)
    group = max(len(features.numbers), 1)
    for _, weights in features.effects:
        _require("effects", (weights.shape[2] - 1) % group == 0, "has another number of functions")
    for _, variances in features.doubts:
        _require("doubts", (variances >= 0).all(), "must be 0 or more")
    share = features.share
    _require(
        "share of the noise",
        isinstance(share, float) and 0.0 < share < np.inf,
        "must be a number above 0",
    )


def _require_levels(
    name: str, pairs: tuple[tuple[int, Float], ...], d: int, dimensions: int
) -> None:
    """Raise ``ValueError`` unless each of ``d`` features has at most one level table.

    Args:
        name: the name of the tables in messages.
        pairs: the position of a feature and its table, by block, level and further dimensions.
        d: the number of features.
        dimensions: the number of dimensions of each table.
    """
    positions = [feature for feature, _ in pairs]
    known = all(type(feature) is int and 0 <= feature < d for feature in positions)
    _require(name, known and len(set(positions)) == len(positions), "belong to unknown features")
    for _, table in pairs:
        _require(
            name,
            table.dtype == np.float64 and table.ndim == dimensions,
            "must be numbers by block and level",
        )
        _require(name, table.size > 0 and table.shape[1] > len(NO_LEVELS), "have an empty table")


def _require_design(design: Design) -> None:
    """Raise ``ValueError`` for columns that do not exist."""
    _require("centres", design.centres.dtype == np.float64, "must be numbers")
    _require_positions("labels", design.labels, 1 << 62)
    _require_positions(
        "active", design.active, 0 if design.functions is None else design.functions.size
    )
    _require("active", (np.diff(design.active) > 0).all(), "must be increasing")
    parts = () if design.functions is None else design.functions.parts
    _require("basis", design.group_columns is None, "has columns of groups")
    for function, size in parts:
        if isinstance(function, Jumps):
            _require_jumps(function, size, design.centres.shape[1])
            continue
        is_known = size >= 0 and (function != "linear" or size == design.centres.shape[1])
        _require("basis", is_known, "has another number of functions than features")
    if design.origin is not None:
        _require(
            "origin",
            design.origin.shape == (design.scaling.n_inputs,),
            "has another number of inputs",
        )


def _require_tree_share(share: TreeShare, n_targets: int, outputs: int, d: int) -> None:
    """Raise ``ValueError`` unless boosted trees have a share in predictions.

    Args:
        share: the trees and their share
        n_targets: number of targets of a regression, 0 for classes
        outputs: number of outputs of the trees
        d: number of features
    """
    _require("share of trees", 0.0 <= share.share.constant <= 1.0, "must be from 0 to 1")
    halves = np.asarray(share.share.halves)
    _require("halves", halves.shape in ((0,), (n_targets,)), "have another number of targets")
    _require("halves", (halves > 0.0).all(), "must be above 0")
    _require_shape("spreads", np.shape(share.spreads), (n_targets,))
    _require("spreads", (np.asarray(share.spreads) > 0.0).all(), "must be above 0")
    _require_trees(share.trees, outputs, d)


def _require_trees(trees: BoostedTrees, outputs: int, d: int) -> None:
    """Raise ``ValueError`` unless boosted trees of ``d`` features give ``outputs`` outputs, and
    their nodes are complete trees in pre-order."""
    m = len(trees.features)
    of_nodes = (trees.thresholds, trees.rights, trees.missing_left, trees.sets)
    _require("nodes of trees", all(part.shape == (m,) for part in of_nodes), "differ in number")
    _require("trees", trees.features.shape == (m,), "have nodes that are no list")
    _require_positions("features of trees", trees.features + 1, d + 1)
    _require_positions("levels of features", trees.counts, MOST_LEVELS + 1)
    _require("levels of features", len(trees.counts) == d, f"are not those of {d} features")
    _require_positions("roots of trees", trees.roots.ravel(), max(m, 1))
    is_forest = trees.roots.ndim == 2 and trees.roots.shape[:1] == trees.constants.shape
    _require("trees", is_forest, "have another number of outputs")
    _require("trees", len(trees.roots) == outputs, "have another number of outputs")
    _require("levels of trees", trees.levels.ndim == 2, "must be a table")
    _require_positions("sets of trees", trees.sets + 1, len(trees.levels) + 1)
    inner = trees.features >= 0
    by_category = np.zeros(m, dtype=np.bool_)
    by_category[inner] = trees.counts[trees.features[inner]] > 0
    _require("sets of trees", ((trees.sets >= 0) == by_category).all(), "are not those of splits")
    width = trees.levels.shape[1]
    _require("levels of trees", not by_category.any() or width == trees.counts.max(), "are missing")
    _require_complete(trees, np.flatnonzero(inner))


def _require_jumps(jumps: Jumps, size: int, d: int) -> None:
    """Raise ``ValueError`` unless jumps of ``d`` features give ``size`` functions."""
    is_complete = len(jumps.features) == len(jumps.thresholds) == size
    _require("jumps", is_complete, "have another number of functions")
    _require_positions("features of jumps", jumps.positions, d)
    _require("thresholds of jumps", np.isfinite(jumps.thresholds).all(), "must be finite")


def _require_complete(trees: BoostedTrees, inner: Int) -> None:
    """Raise ``ValueError`` unless each tree is complete: from its root on, leaves exceed inner
    nodes (positions ``inner``) by one, and so they do left of each right child."""
    m = len(trees.features)
    starts = np.append(trees.roots.ravel(), m)
    _require("roots of trees", m == 0 or starts[0] == 0, "do not begin at the first node")
    leaves = np.append(0, np.cumsum(trees.features < 0))
    excess = 2 * leaves - np.arange(m + 1)
    _require("trees", (np.diff(excess[starts]) == 1).all(), "are not complete")
    counts = np.diff(leaves[starts])
    _require("trees", ((counts > 0) & (counts <= MOST_LEAVES)).all(), "have too many leaves")
    rights = trees.rights[inner]
    ends = starts[np.searchsorted(starts, inner, side="right")]
    _require("nodes of trees", ((rights > inner + 1) & (rights < ends)).all(), "are out of range")
    is_complete = (excess[rights] - excess[inner + 1] == 1).all()
    _require("nodes of trees", is_complete, "are not in pre-order")


def _require_regression(model: Model) -> None:
    """Raise ``ValueError`` for an invalid noise variance, and for local residuals without rows."""
    T = model.n_targets
    shape = np.shape(squeezed(model.design.scaling.t_scale))
    _require("mean", model.mean.shape[1:] == shape, "has another number of targets")
    _require_variance("noise_variance", model.noise_variance, (shape,))
    _require_variance("evidence_noise", model.evidence_noise, (shape,))
    _require_variance("prior_variance", model.prior_variance, ((), (T,)))
    _require("reach", 0 <= model.reach <= 1, "must be from 0 to 1")
    has_local_vectors = model.n_vectors and model.design.kernel.local
    _require("reach", not model.reach or has_local_vectors, "needs local vectors")
    _require_positions("known_alpha", np.array(model.known_alpha, np.int64), model.design.n_columns)
    M = model.design.n_columns
    _require_shape("root", model.root.shape, (*shape, M, M))
    calibrations: tuple[Any, ...] = ()
    if model.residuals is not None:
        calibrations = model.residuals.calibrations
    if model.trees is not None:
        _require_tree_share(model.trees, T, T, len(model.columns.features))
        has_known = (model.trees.known is None) == (model.known is None)
        _require("share of trees", has_known, "is not that of known groups")
        calibrations += (model.trees.calibration,)
    for calibration in (model.calibration, *calibrations):
        if calibration is not None and calibration.local is not None:
            _require_local_quantiles(calibration.local)
    if model.residuals is not None:
        _require_shapes_of_residuals(model.residuals, model.design.scaling)
        _require_residuals(model.residuals)
    if model.known is not None:
        _require_known_groups(model.known, model)
        _require_regression(model.of_known_groups())


def _require_local_quantiles(local: LocalQuantiles) -> None:
    """Raise ``ValueError`` unless quantiles are in order, for standard deviations in order."""
    knots = local.knots
    quantiles = local.quantiles
    is_table = knots.ndim == 1 and quantiles.ndim == 2 and quantiles.shape[1] % 2 == 1
    is_table = is_table and len(knots) == len(quantiles) > 0 and quantiles.shape[1] > 1
    _require("quantiles", is_table, "have another number of levels or deviations")
    finite = np.isfinite(knots).all() and np.isfinite(quantiles).all()
    _require("quantiles", finite, "are not finite")
    in_order = (np.diff(knots) > 0).all() and (np.diff(quantiles, axis=1) >= 0).all()
    _require("quantiles", in_order, "are not in order")


def _require_known_groups(known: KnownGroups, model: Model) -> None:
    """Raise ``ValueError`` for codes that are not different integers in order, and for effects that
    do not belong to these groups and to the model's columns."""
    codes = known.codes
    _require_codes(codes)
    if known.effects is None:
        return
    effects = known.effects
    G = len(codes)
    d = model.design.centres.shape[1]
    is_table = effects.means.ndim == 2 and effects.means.shape[1] in (1, 1 + d)
    _require("effects of groups", is_table, "have another number of slopes than features")
    K = effects.means.shape[1]
    _require_shape("effects of groups", effects.means.shape, (G, K))
    _require_shape("effects of groups", effects.covariances.shape, (G, K, K))
    M = effects.moves.shape[-1] and model.design.n_columns
    _require_shape("effects of groups", effects.moves.shape, (G, K, M))
    parts = (effects.means, effects.covariances, effects.moves)
    _require("effects of groups", all(np.isfinite(part).all() for part in parts), "are not finite")
    variances = np.einsum("gkk->gk", effects.covariances)
    _require("effects of groups", (variances >= 0).all(), "have a variance below 0")


def _require_codes(codes: NDArray[Any]) -> None:
    """Raise ``ValueError`` for codes that are not different integers in order."""
    _require("groups", codes.dtype == np.int64 and codes.ndim == 1, "must be a list of integers")
    _require("groups", (np.diff(codes) > 0).all(), "must be increasing")


KINDS: dict[type, Callable[[Any], None]] = {
    Model: _require_regression,
    ClassModel: _require_classes,
}
"""Checks that are specific to each kind of model."""


def _require_variance(name: str, value: float | Float, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Raise ``ValueError`` unless a variance is finite, not negative, and of one of the shapes."""
    variance = np.asarray(value)
    is_variance = variance.shape in shapes and np.isfinite(variance).all() and (variance >= 0).all()
    _require(name, is_variance, "must be 0 or more for each target")


def _require_residuals(residuals: LocalResiduals) -> None:
    """Raise ``ValueError`` for local residuals with values out of range."""
    boxes = residuals.cells.boxes
    _require("boxes", (boxes[:, 0] <= boxes[:, 1]).all(), "are reversed")
    for kernel in residuals.kernels:
        numbers = [kernel.variance, kernel.length, kernel.noise, kernel.inflation, kernel.least]
        is_valid = np.isfinite(numbers).all() and min(numbers) >= 0
        _require("kernel of residuals", is_valid, "has numbers below 0")
        is_valid = kernel.length > 0 and kernel.freedom > 0
        _require("kernel of residuals", is_valid, "has numbers that are not above 0")
    if residuals.cells.records is not None:
        rows = residuals.cells.records[:, NUMBER]
        _require("row numbers", (rows == np.rint(rows)).all(), "must be integers")
        _require("row numbers", (rows >= 0).all(), "must be 0 or more")


def _require_predictions(model: Model | ClassModel) -> None:
    """Raise ``ValueError`` unless the model predicts finite values at a few of its vectors, and
    numbers for missing values."""
    if model.cells_place:
        model = model.sparse()  # the rows are elsewhere and are checked when they are read
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for one in (model,) if model.known is None else (model, model.of_known_groups()):
                multiples = one.multiples([LEVEL])
                for rows in _rows(one.design):
                    values = one.predictive.values(rows, multiples)[0]
                    _require("predictions", np.isfinite(values).all(), "are not finite")
        except PartirvmError as error:
            raise ValueError(f"it cannot predict: {error}") from error


def _rows(design: Design) -> list[Float]:
    """Return rows in raw units: a few vectors, and a row with all values missing."""
    d = design.centres.shape[1]
    vectors = design.centres[:: max(len(design.centres) - 1, 1)]
    if not len(vectors):
        vectors = np.zeros((1, d))
    return [vectors, np.full((1, d), np.nan)]
