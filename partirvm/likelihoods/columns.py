"""Functions that find columns of a design by their labels."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from partirvm.kernels.design import Design

Int = NDArray[np.int64]


class Labelled(Protocol):
    """A fit whose columns have these labels (M,)."""

    @property
    def labels(self) -> Int: ...


def labels_of(design: Design) -> Int:
    """Return the labels of all columns of a design, the leading columns first."""
    return np.concatenate([design.leading, design.labels])


def positions(selected: Int, labels: Int) -> Int:
    """Return the positions of the labels ``selected`` in ``labels``, which contains all of them.

    >>> positions(np.array([7, -1]), np.array([-1, 3, 7])).tolist()
    [2, 0]
    """
    order = np.argsort(labels, kind="stable")
    return order[np.searchsorted(labels, selected, sorter=order)]


def survivors(design: Design, fit: Labelled) -> Design:
    """Return the columns of ``design`` that remain in the fit, in the order of the fit."""
    labels = fit.labels
    return design.take(positions(labels[labels >= 0], design.labels), leading=labels[labels < 0])
