"""Boosted trees beside a fit: a prediction is a weighted mean of both.

With the share w, the prediction f of a fit and that h of the trees, a number is predicted as (1 −
w)·f + w·h (stacked generalisation: Wolpert 1992, *Neural Networks* 5; Breiman 1996, "Stacked
regressions", *Machine Learning* 24), and classes by the same mean of logits, up to a constant the
mean of log probabilities (a logarithmic opinion pool: Genest & Zidek 1986, *Statistical Science*
1). Left-out rows determine the share (``core.stacking``).

A fit whose basis functions include left-out predictions of trees is no substitute. Trees that
predict a row without its fold have learned from its neighbours in other folds, so that their
left-out errors are negatively correlated between neighbours. The evidence then deletes kernels, and
local residuals find nothing: a power plant .223 with such a column, .193 with a share of .3.
"""

from dataclasses import dataclass, replace

from partirvm.core.left_out import Calibration
from partirvm.core.stacking import Share
from partirvm.kernels.trees import BoostedTrees
from partirvm.types import DeclaredState, Float


@dataclass(frozen=True, eq=False)
class ShareOfKnown(DeclaredState):
    """The share of boosted trees in predictions for rows of known groups.

    Attributes:
        share: the share w
        spreads: as in ``TreeShare`` (1,)
        calibration: that of the fit alone
    """

    share: Share
    spreads: Float
    calibration: Calibration


@dataclass(frozen=True, eq=False)
class TreeShare(DeclaredState):
    """Boosted trees and their share in predictions.

    Attributes:
        trees: the trees, whose outputs are scaled targets or logits
        share: their share w
        spreads: variances of numbers ÷ (1 − w) ÷ those of the fit (T,); empty for classes. The
            factor is the same for the noise and for the uncertainty of the mean.
        calibration: that of the fit alone; None for classes and for several targets
        known: the same for rows of known groups of numbers, whose effects the fit knows and the
            trees do not; None without groups
    """

    trees: BoostedTrees
    share: Share
    spreads: Float
    calibration: Calibration | None = None
    known: ShareOfKnown | None = None

    def of_known_groups(self) -> "TreeShare":
        """Return the trees and their share for rows of known groups."""
        if self.known is None:
            return self
        return replace(
            self,
            share=self.known.share,
            spreads=self.known.spreads,
            calibration=self.known.calibration,
            known=None,
        )

    def outputs(self, X: Float) -> Float:
        """Return the outputs of the trees, (n, C), or (n,) for one output, at raw inputs X
        (n, d)."""
        values = self.trees(X)
        return values[:, 0] if values.shape[1] == 1 else values
