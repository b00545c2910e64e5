"""Jumps of single features as basis functions: φ(x) = 1 if x_j exceeds a threshold, else 0.

A kernel is a smooth function of its centre, or has a kink or a cusp there. A sum of kernels
approaches a jump only as its width shrinks, and then needs many vectors. With a column of its own,
a jump takes one weight.
"""

from dataclasses import dataclass

import numpy as np

from partirvm.types import DeclaredState, Float, Int


@dataclass(frozen=True)
class Jumps(DeclaredState):
    """K jumps; a missing value exceeds no threshold.

    Attributes:
        features: (K,), position of each jump's feature
        thresholds: (K,), in the units of the features
    """

    features: tuple[int, ...]
    thresholds: tuple[float, ...]

    @property
    def size(self) -> int:
        """The number K of jumps."""
        return len(self.features)

    @property
    def positions(self) -> Int:
        """The positions of the features, (K,)."""
        return np.array(self.features, dtype=np.int64)

    def __call__(self, X: Float) -> Float:
        """Return the values (n, K) at raw inputs X (n, d)."""
        return (X[:, self.positions] > np.array(self.thresholds)).astype(np.float64)

    def in_order(self) -> "Jumps":
        """Return the jumps by feature and threshold, each once."""
        jumps = sorted(set(zip(self.features, self.thresholds, strict=True)))
        return Jumps(tuple(j for j, _ in jumps), tuple(threshold for _, threshold in jumps))
