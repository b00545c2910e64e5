"""Sums over all interactions of terms, up to an order, to which one feature after another is
added (``kernels.anova``)."""

import numpy as np

from partirvm.types import Float

LEAST_TOTAL = 1.0
"""Minimum S at x = z for which S is computed as Π (1 + t) − 1, in a third of the operations: the
error is a few units of the last digit of the kernel's peak."""


class Interactions:
    """The sum S of products of terms, to which one feature after another is added.

    Args:
        order: maximum number of features in a product, or None
        shape: shape of the terms of a feature
        is_product: True if 1 + t is added in place of the terms t, without an order
    """

    def __init__(
        self, order: int | None, shape: tuple[int, ...], *, is_product: bool = False
    ) -> None:
        self.unlimited = order is None
        self.is_product = is_product
        self.sums = np.empty((order or 1, *shape))
        self.work = self.sums if is_product else np.empty(shape)
        self.clear()

    def clear(self) -> None:
        """Remove all features."""
        self.sums.fill(float(self.is_product))

    def add(self, terms: Float) -> None:
        """Add the terms of a feature."""
        first = self.sums[0]
        if self.is_product:
            first *= terms
            return
        if self.unlimited:
            np.add(first, 1.0, out=self.work)
            self.work *= terms
            first += self.work
            return
        for s in range(len(self.sums) - 1, 0, -1):
            np.multiply(self.sums[s - 1], terms, out=self.work)
            self.sums[s] += self.work
        first += terms

    @property
    def total(self) -> Float:
        """The sum S."""
        if self.is_product:
            self.sums[0] -= 1.0
        return self.sums[0] if len(self.sums) == 1 else np.asarray(self.sums.sum(axis=0))


def total_of(terms: Float, order: int | None) -> Float:
    """Return S for the terms (d, …) of all features."""
    interactions = Interactions(order, terms.shape[1:])
    for of_feature in terms:
        interactions.add(of_feature)
    return interactions.total


def slopes_of(terms: Float, order: int | None) -> Float:
    """Return ∂S/∂t_j for the terms t (d, …) of all features.

    It is the product of 1 + t over the other features or, with an order, the sum of their products
    of fewer than ``order`` terms, which is combined from the features before j and after j. The
    product is a quotient unless terms are negative, as those of another radial kernel may be.
    """
    if order is None and terms.min(initial=0.0) >= 0.0:
        slopes = 1.0 + terms
        np.divide(slopes.prod(axis=0), slopes, out=slopes)
        return slopes
    size = 1 if order is None else order
    before = np.zeros((size, *terms.shape[1:]))
    before[0] = 1.0
    after = before.copy()
    sums_before = []
    for of_feature in terms:
        sums_before.append(before.cumsum(axis=0)[::-1])
        before = _with(before, of_feature, order)
    slopes = np.empty(terms.shape)
    for j in range(len(terms) - 1, -1, -1):
        slopes[j] = (sums_before[j] * after).sum(axis=0)
        after = _with(after, terms[j], order)
    return slopes


def _with(sums: Float, terms: Float, order: int | None) -> Float:
    """Return Π (1 + t), or e_0 … e_(order−1), (size, …), with the terms of another feature."""
    if order is None:
        return sums * (1.0 + terms)
    extended = sums.copy()
    extended[1:] += sums[:-1] * terms
    return extended
