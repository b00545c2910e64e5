"""Fitted models for regression and classification, and model files."""

from __future__ import annotations

from typing import TypeAlias

from partirvm.model.base import FAR, Bases, FittedModel, OfRows, bases_of
from partirvm.model.classifier import ClassModel
from partirvm.model.files import load_model, save_model
from partirvm.model.fitted import Model
from partirvm.model.input_rows import label_array, plain_labels

AnyModel: TypeAlias = Model | ClassModel
"""A fitted model for regression or classification."""


__all__ = [
    "FAR",
    "AnyModel",
    "Bases",
    "ClassModel",
    "FittedModel",
    "Model",
    "OfRows",
    "bases_of",
    "label_array",
    "load_model",
    "plain_labels",
    "save_model",
]
