"""Predictions of a model with a basis function more at each test input: RVM* (``core.augment``).

The extra function is that of the model's kernel; where centres have several kernels it is the first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partirvm.core.augment import ExtraColumns, augmentation
from partirvm.kernels.design import Design
from partirvm.model.fitted import Model

Float = NDArray[np.float64]


def extra_design(model: Model, X: Float, origin: Float) -> Design:
    """The extra columns of test rows, raw inputs X (g, d).

    With ``origin`` (d,), a point in the kernel's coordinates among the training rows, a test row far away costs the
    others no digits.
    """
    design = model.design
    return Design(design.kernels[0], design.scaling, X, np.arange(len(X)), bias=False, origin=origin)


def augmented_moments(model: Model, X: Float, extra: ExtraColumns, variance: float) -> tuple[Float, Float, Float]:
    """Mean, variance and nearness as ``Model.moments``, of raw inputs X (g, d), with the extra column of each.

    ``extra`` are the statistics of ``extra_design``'s columns over the rows that trained the model, ``variance`` is
    that of their targets; both as the model sees them.
    """
    design, scaling = model.design, model.design.scaling
    scale, square = float(scaling.t_scale[0]), float(scaling.t_variance[0])
    mean, spread, near = model.moments(X)
    assert spread is not None
    heights = design.kernels[0].diagonal(design.scaling.inputs(X))
    noise = model.noise_variance if model.evidence_noise is None else model.evidence_noise  # that of Σ and μ
    beta = square / float(noise)
    added, beyond = augmentation(extra, design.block(X), heights, model.root, beta, variance)
    return mean + scale * added, spread + square * beyond, near
