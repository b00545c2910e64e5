"""The check of the shapes of a model that was read: the arrays of each of its parts fit together.

``model.soundness`` then checks their values.
"""

from partirvm.core.link import LINKS
from partirvm.kernels.design import Design
from partirvm.local.cells import Cells, rows_of_cell
from partirvm.local.kriging import CORRELATIONS
from partirvm.local.residuals import LocalResiduals
from partirvm.model.base import FittedModel
from partirvm.model.classifier import ClassModel
from partirvm.model.fitted import Model
from partirvm.options.constraints import MOST_NEIGHBOURS
from partirvm.quoting import quoted
from partirvm.scaling.maps import Scaling
from partirvm.types import RESIDUAL_COLUMNS


def require_shapes(model: Model | ClassModel) -> None:
    """Raise ``TypeError`` for a value that is not a model, ``ValueError`` if its arrays are
    inconsistent."""
    if not isinstance(model, FittedModel):
        raise TypeError(f"it is a {type(model).__name__}")
    if isinstance(model, ClassModel) and model.likelihood not in LINKS:
        raise ValueError(f"its likelihood {quoted(model.likelihood)} is unknown to this process")
    scaling = model.design.scaling
    n_vectors, n_features = model.design.centres.shape
    _require_shape("labels", model.design.labels.shape, (n_vectors,))
    _require_weights(model, n_features)
    _require_scaling(scaling, n_features)
    _require_noise(model.design)
    if isinstance(model, Model) and model.residuals is not None:
        _require_residuals(model.residuals, scaling)


def _require_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"the array {name!r} has shape {shape} instead of {expected}")


def _require_weights(model: Model | ClassModel, n_features: int) -> None:
    """Check the posterior of the weights, and the relevance of the features."""
    M = model.design.n_columns
    _require_shape("mean", model.mean.shape[:1], (M,))
    _require_shape("alpha", model.alpha.shape, (M,))
    root = (*model.mean.shape[:0:-1], M, M)
    if isinstance(model, ClassModel) and model.ramp is not None:
        root = (1, M, M)
    _require_shape("root", model.root.shape, root)
    if model.relevance is not None:
        _require_shape("relevance", model.relevance.shape, (n_features,))


def _require_scaling(scaling: Scaling, n_features: int) -> None:
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


def _require_noise(design: Design) -> None:
    """Check the model of local noise, if there is one."""
    if design.noise is None:
        return
    count = len(design.noise.centres)
    n_inputs = design.scaling.n_inputs
    _require_shape("noise_centres", design.noise.centres.shape, (count, n_inputs))
    _require_shape("noise_weights", design.noise.weights.shape, (count,))


def _require_residuals(residuals: LocalResiduals, scaling: Scaling) -> None:
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
    _require_cells(cells, metric.width)


def _require_cells(cells: Cells, n_coordinates: int) -> None:
    """Check the boxes and the records of the cells, or the hashes of those in a folder."""
    count = -(-cells.n_rows // rows_of_cell(cells.width))
    _require_shape("boxes", cells.boxes.shape, (count, 2, n_coordinates))
    if cells.records is None:
        _require_shape("hashes", (len(cells.hashes),), (count,))
    else:
        _require_shape("residuals", cells.records.shape, (cells.n_rows, cells.width))
