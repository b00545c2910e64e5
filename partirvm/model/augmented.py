"""RVM* predictions: one additional basis function at each test input (``core.predictive``).

The additional function uses the model's kernel; if centres have several kernels, the first one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partirvm.core.predictive import ExtraColumns, augmentation
from partirvm.kernels.design import Design
from partirvm.model.fitted import Model

Float = NDArray[np.float64]


def extra_design(model: Model, X: Float, origin: Float) -> Design:
    """The additional columns of test rows, raw inputs X (g, d).

    ``origin`` (d,), a point in the kernel's coordinates among the training rows, prevents a distant test row from
    reducing the precision of the others.
    """
    design = model.design
    return Design(design.kernels[0], design.scaling, X, np.arange(len(X)), bias=False, origin=origin)


def augmented_moments(model: Model, X: Float, extra: ExtraColumns, variance: float) -> tuple[Float, Float, Float]:
    """Mean, variance and nearness as ``Model.moments``, at raw inputs X (g, d), with the additional column of each row.

    ``extra`` are the statistics of the columns of ``extra_design`` over the training rows, ``variance`` is the target
    variance; both in the model's units.
    """
    design, scaling = model.design, model.design.scaling
    scale, square = float(scaling.t_scale[0]), float(scaling.t_variance[0])
    mean, spread, near = model.predictive.moments(X)
    assert spread is not None
    heights = design.kernels[0].diagonal(design.scaling.inputs(X))
    beta = square / float(model.evidence_noise)
    added, beyond = augmentation(extra, design.block(X), heights, model.root, beta, variance)
    return mean + scale * added, spread + square * beyond, near
