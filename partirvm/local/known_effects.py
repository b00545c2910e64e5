"""Effects of known groups: an intercept, or an intercept and slopes, for each group."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from partirvm.core.group_effects import GroupEffects
from partirvm.kernels.group_columns import effect_terms
from partirvm.types import Float, Int


@dataclass(frozen=True, eq=False)
class KnownEffects:
    """Effects of G groups, in a model's units: c_g(x) = c_gᵀb(x) with K terms b(x), which are 1
    and, if there are slopes, the scaled features.

    Given the weights w of the model's M columns, the coefficients of a group are independent of
    those of other groups, with the mean c_g + H_g(w − μ).

    Attributes:
        means: c_g (G, K)
        covariances: covariances of the coefficients, given w (G, K, K)
        moves: H_g (G, K, M); M is 0 for effects that do not depend on w
    """

    means: Float
    covariances: Float
    moves: Float

    @classmethod
    def of(cls, effects: GroupEffects, groups: Int) -> Self:
        """Return effects that were estimated after a fit, of groups with codes (G,)."""
        means, variances = effects.of_groups(groups)
        return cls(means[:, None], variances[:, None, None], np.zeros((len(groups), 1, 0)))

    def at(self, places: Int, prior_variances: Float) -> Self:
        """Return the effects of groups at these positions (k,), and for −1 those of the prior with
        these variances (K,)."""
        covariances = _at(self.covariances, places)
        covariances[places < 0] = np.diag(prior_variances)
        return replace(
            self,
            means=_at(self.means, places),
            covariances=covariances,
            moves=_at(self.moves, places),
        )

    def scaled(self, factor: float) -> Self:
        """Return the effects with standard deviations multiplied by a factor."""
        return replace(self, covariances=factor**2 * self.covariances)

    def pruned(self, columns: Int, change: Float) -> Self:
        """Return the effects after a change of the weights.

        Args:
            columns: positions of the columns that remain (m,)
            change: change of the weights of all columns (M,)
        """
        if not self.moves.shape[2]:
            return self
        return replace(self, means=self.means + self.moves @ change, moves=self.moves[..., columns])

    def terms(self, points: Float) -> Float:
        """Return b(x) (n, K) at scaled features (n, d)."""
        return effect_terms(points, self.means.shape[1] - 1)

    def means_at(self, points: Float, places: Int) -> Float:
        """Return the means (n,) at scaled features (n, d) of groups at these positions (n,); 0 for
        −1."""
        return np.asarray((self.terms(points) * _at(self.means, places)).sum(axis=1))

    def variances_at(self, points: Float, places: Int) -> Float:
        """Return the variances (n,) given the weights, as ``means_at`` does for means."""
        return np.asarray((self.terms(points) * self._spread(points, places)).sum(axis=1))

    def moves_at(self, points: Float, places: Int) -> Float | None:
        """Return b(x)ᵀH_g (n, M), the change of the effects with the weights; None for effects that
        do not depend on them."""
        if not self.moves.shape[2]:
            return None
        terms = self.terms(points)
        moves = np.zeros((len(points), self.moves.shape[2]))
        for k in range(terms.shape[1]):
            moves += terms[:, k, None] * _at(self.moves[:, k], places)
        return moves

    def slopes_at(self, places: Int) -> Float:
        """Return the gradients (n, s) of the effects in the s scaled features that have slopes."""
        return _at(self.means[:, 1:], places)

    def variance_slopes_at(self, points: Float, places: Int, weights: Float) -> Float:
        """Return the gradients (n, s) of the variances of φᵀw + c_g(x) through the terms b(x).

        Args:
            points: scaled features (n, d)
            places: positions of the groups (n,)
            weights: 2Σ(φ + H_gᵀb) (n, M)
        """
        slopes = 2.0 * self._spread(points, places)[:, 1:]
        for k in range(slopes.shape[1] if self.moves.shape[2] else 0):
            slopes[:, k] += (weights * _at(self.moves[:, 1 + k], places)).sum(axis=1)
        return slopes

    def _spread(self, points: Float, places: Int) -> Float:
        """Return the products (n, K) of the covariances and the terms."""
        products = _at(self.covariances, places) * self.terms(points)[:, None, :]
        return np.asarray(products.sum(axis=2))


def _at(values: Float, places: Int) -> Float:
    """Return the values (n, …) of the groups at these positions (n,), given those of all groups (G,
    …); 0 for −1."""
    of_rows = values[places]
    of_rows[places < 0] = 0.0
    return of_rows
