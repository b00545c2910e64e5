"""Fitted models for regression and classification, and model files."""

from partirvm.local.known_groups import KnownGroups
from partirvm.model.base import FAR, FittedModel, OfRows
from partirvm.model.classifier import ClassModel
from partirvm.model.files import AnyModel, load_model, save_model
from partirvm.model.fitted import Model
from partirvm.model.grouped import GroupedModel
from partirvm.model.known_rows import by_groups, known_rows
from partirvm.model.summary import Assessment, summarised

__all__ = [
    "FAR",
    "AnyModel",
    "Assessment",
    "ClassModel",
    "FittedModel",
    "GroupedModel",
    "KnownGroups",
    "Model",
    "OfRows",
    "by_groups",
    "known_rows",
    "load_model",
    "save_model",
    "summarised",
]
