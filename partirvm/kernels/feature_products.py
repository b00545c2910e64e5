"""Effects of features and of pairs of features on sums of products over features (Sobol 1993).

A function is f(x) = Σ_m w_m φ_m(x). Column m is a product over features j, in which an ANOVA kernel
with an order counts factors by a symbol z (``kernels.anova``):

    φ_m(x) = L(Π_j G_mj(x_j)),    G_mj = Σ_s G_mjs z^s,

where L truncates the product at the order and adds its coefficients; without an order, there is one
coefficient, G_mj = 1 + t_mj, and L does nothing. Constants, such as the −1 of the kernel, have no
effect. With independent features, expectations are products over features of the means Ḡ and of
the second moments E[GGᵀ] = C + ḠḠᵀ of their factors, so that for centred factors G̃ = G − Ḡ

    f_j  = Σ_m w_m L(G̃_mj Π_(i≠j) Ḡ_mi),    f_jk = Σ_m w_m L(G̃_mj G̃_mk Π_(i≠j,k) Ḡ_mi),
    V_Tj = wᵀ L(C_j ∘ Π_(i≠j) E[G_iG_iᵀ]) w,
    V    = Σ_j wᵀ L(C_j ∘ Π_(i<j) E[G_iG_iᵀ] ∘ Π_(i>j) Ḡ_iḠ_iᵀ) w

are exact for any finite sample of each feature's values. The products of M × M matrices are formed
in stripes of a few columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np

from partirvm.kernels.base import runs
from partirvm.types import Float

STRIPE = 1 << 22
"""Maximum number of elements of the products of a stripe: 32 MiB."""


class Variances(NamedTuple):
    """Variances of C functions of independent features.

    Attributes:
        total: V_Tj, the mean variance that is left if all other features are known, (d, C).
        whole: V, the variance of the functions, (C,).
    """

    total: Float
    whole: Float


def product_of(first: Float, second: Float) -> Float:
    """Return the truncated product of polynomials with coefficients (K, …)."""
    size = len(first)
    if size == 1:
        return first * second
    shape = np.broadcast_shapes(first.shape, second.shape)
    coefficients = np.zeros(shape)
    for power in range(size):
        coefficients[power:] += first[power] * second[: size - power]
    return coefficients


def product_of_pairs(first: Float, second: Float) -> Float:
    """Return the truncated product of polynomials of two symbols with coefficients (K, K, …)."""
    size = len(first)
    if size == 1:
        return first * second
    coefficients = np.zeros(first.shape)
    for power in range(size):
        for other in range(size - power):
            coefficients[power + other] += product_of(first[power], second[other])
    return coefficients


@dataclass(frozen=True)
class Factors:
    """The factors of M columns at a sample of the values of each of d independent features.

    Attributes:
        samples: G_j (K, q, M) of each feature at its q values, which are equally probable.
        weights: (M, C), of C functions.
    """

    samples: Sequence[Float]
    weights: Float

    @cached_property
    def means(self) -> list[Float]:
        """Ḡ_j (K, M) of each feature."""
        return [sample.mean(axis=1) for sample in self.samples]

    def columns(self, j: int, factors: Float) -> Float:
        """Return the columns (g, M) of f_j, given G_j (K, g, M) at g values."""
        others = self._others(j)
        centred = factors - self.means[j][:, None]
        return np.asarray((centred * others[::-1, None]).sum(axis=0))

    def pair_columns(self, j: int, k: int, first: Float, second: Float) -> Float:
        """Return the columns (g, h, M) of f_jk.

        Args:
            j: the first feature.
            k: the second feature.
            first: G_j, (K, g, M).
            second: G_k, (K, h, M).
        """
        columns = np.zeros((first.shape[1], second.shape[1], first.shape[2]))
        for of_first, of_second, others in self._centred_pairs(j, k, first, second):
            columns += of_first[:, None] * (of_second * others)
        return columns

    def main_variances(self) -> Float:
        """Return the variances V_j (d, C) of all f_j."""
        effects = [self.columns(j, sample) @ self.weights for j, sample in enumerate(self.samples)]
        return np.array([(effect**2).mean(axis=0) for effect in effects])

    def pair_variance(self, j: int, k: int) -> Float:
        """Return the variance V_jk (C,) of f_jk."""
        pairs = self._centred_pairs(j, k, self.samples[j], self.samples[k])
        variances = np.empty(self.weights.shape[1])
        for c, weights in enumerate(self.weights.T):
            effect = sum((first * (weights * others)) @ second.T for first, second, others in pairs)
            variances[c] = np.mean(np.square(effect))
        return variances

    def variances(self, most: int = STRIPE) -> Variances:
        """Return the variances due to each feature, alone or with others, and of everything;
        stripes have at most ``most`` elements, but at least one column."""
        count = len(self.samples)
        M, C = self.weights.shape
        totals = np.zeros((count, C))
        whole = np.zeros(C)
        size = self.samples[0].shape[0] ** 2 * count * M if count else 1
        for stripe in runs(M, max(most // size, 1)):
            of_totals, of_whole = self._of_stripe(stripe)
            totals += of_totals
            whole += of_whole
        return Variances(np.maximum(totals, 0.0), np.maximum(whole, 0.0))

    def _of_stripe(self, stripe: slice) -> Variances:
        """Return the terms of ``variances`` of some columns with all columns."""
        covariances = self._covariances(stripe)
        squares = [mean[:, None, stripe, None] * mean[None, :, None, :] for mean in self.means]
        count = len(covariances)
        totals = np.zeros((count, self.weights.shape[1]))
        whole = np.zeros(self.weights.shape[1])
        if not count:
            return Variances(totals, whole)
        one = np.zeros(covariances[0].shape)
        one[0, 0] = 1.0
        known = [one]  # products of the squared means of later features
        varying = [one]  # products of the second moments of later features
        for covariance, square in zip(covariances[:0:-1], squares[:0:-1], strict=True):
            known.append(product_of_pairs(known[-1], square))
            varying.append(product_of_pairs(varying[-1], covariance + square))
        before = one
        for j in range(count):
            part = product_of_pairs(before, covariances[j])
            totals[j] = self._sum(stripe, product_of_pairs(part, varying[count - 1 - j]))
            whole += self._sum(stripe, product_of_pairs(part, known[count - 1 - j]))
            before = product_of_pairs(before, covariances[j] + squares[j])
        return Variances(totals, whole)

    def _covariances(self, stripe: slice) -> list[Float]:
        """Return C (K, K, b, M) of each feature for the b columns of a stripe with all columns."""
        covariances = []
        for sample, mean in zip(self.samples, self.means, strict=True):
            centred = sample - mean[:, None]
            rows = centred[:, :, stripe].transpose(0, 2, 1)
            covariances.append(rows[:, None] @ centred[None] / sample.shape[1])
        return covariances

    def _sum(self, stripe: slice, coefficients: Float) -> Float:
        """Return wᵀLw (C,) for coefficients (K, K, b, M) of the columns of a stripe."""
        matrix = coefficients.sum(axis=(0, 1))
        return np.asarray(np.einsum("bc,bc->c", self.weights[stripe], matrix @ self.weights))

    def _others(self, *features: int) -> Float:
        """Return the sums (K, M) of the first 1 … K coefficients of the product of the means of all
        other features."""
        size = self.samples[0].shape[0]
        one = np.zeros((size, len(self.weights)))
        one[0] = 1.0
        means = [mean for j, mean in enumerate(self.means) if j not in features]
        return reduce(product_of, means, one).cumsum(axis=0)

    def _centred_pairs(
        self, j: int, k: int, first: Float, second: Float
    ) -> list[tuple[Float, Float, Float]]:
        """Return the terms of f_jk: centred coefficients of both features, (g, M) and (h, M), and
        the matching sums (M,) of the others'.

        Args:
            j: the first feature.
            k: the second feature.
            first: G_j, (K, g, M).
            second: G_k, (K, h, M).
        """
        size = len(first)
        others = self._others(j, k)
        centred_first = first - self.means[j][:, None]
        centred_second = second - self.means[k][:, None]
        return [
            (centred_first[power], centred_second[other], others[size - 1 - power - other])
            for power in range(size)
            for other in range(size - power)
            if centred_first[power].any() and centred_second[other].any()
        ]
