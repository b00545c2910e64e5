"""scikit-learn estimators. Parameters are stored as given and checked in ``fit``."""

from partirvm.core.termination import Termination
from partirvm.estimators.classification import RVMClassifier
from partirvm.estimators.files import load_model, save_model
from partirvm.estimators.jobs import plan, submit
from partirvm.estimators.regression import RVMRegressor

__all__ = ["RVMClassifier", "RVMRegressor", "Termination", "load_model", "plan", "save_model", "submit"]
