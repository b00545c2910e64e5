"""Fitted models for regression and classification, and their files."""

from __future__ import annotations

from typing import Any, TypeAlias

from partirvm.core.laplace import LaplaceState
from partirvm.kernels.design import Design
from partirvm.model.basis_functions import Bases, bases_of
from partirvm.model.classifier import ClassInterval, ClassModel
from partirvm.model.files import load_model, save_model
from partirvm.model.fitted import Interval, Model
from partirvm.model.label_arrays import label_array, plain_labels
from partirvm.model.rows import FAR
from partirvm.types import Columns

AnyModel: TypeAlias = Model | ClassModel
"""A fitted model of either kind."""


def model_of(design: Design, fit: Any, columns: Columns, moderate: bool = False) -> AnyModel:
    """The model of a dense fit; a classifier gives ``moderate`` probabilities or plain ones."""
    if isinstance(fit, LaplaceState):
        return ClassModel.from_fit(design, fit, columns, fit.likelihood, moderate)
    return Model.from_fit(design, fit, columns)


__all__ = [
    "FAR",
    "AnyModel",
    "Bases",
    "ClassInterval",
    "ClassModel",
    "Interval",
    "Model",
    "bases_of",
    "label_array",
    "load_model",
    "model_of",
    "plain_labels",
    "save_model",
]
