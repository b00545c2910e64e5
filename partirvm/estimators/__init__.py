"""scikit-learn estimators. Parameters are stored as given and checked in ``fit``."""

from partirvm.core.termination import Termination
from partirvm.estimators.classification import RVMClassifier
from partirvm.estimators.regression import RVMRegressor
from partirvm.estimators.saving import load_model, save_model

__all__ = ["RVMClassifier", "RVMRegressor", "Termination", "load_model", "save_model"]
