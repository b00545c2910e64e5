"""scikit-learn estimators. Parameters are stored as given and checked in ``fit``; all work is the service's."""

from partirvm.core.termination import Termination
from partirvm.estimators.classification import RVMClassifier
from partirvm.estimators.jobs import plan, submit
from partirvm.estimators.regression import RVMRegressor

__all__ = ["RVMClassifier", "RVMRegressor", "Termination", "plan", "submit"]
