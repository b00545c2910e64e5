"""Column maps, which convert features and targets from their units to a model's units."""

from partirvm.scaling.levels import with_folds, without_folds
from partirvm.scaling.maps import AS_IT_IS, FeatureMap, Scaling, TargetMap, unfolded_inputs

__all__ = [
    "AS_IT_IS",
    "FeatureMap",
    "Scaling",
    "TargetMap",
    "unfolded_inputs",
    "with_folds",
    "without_folds",
]
