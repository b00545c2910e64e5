"""Fitted models, of numbers and of classes, and their on-disk form."""

from __future__ import annotations

from partirvm.model.classifier import ClassModel
from partirvm.model.files import load_model, save_model
from partirvm.model.fitted import Model
from partirvm.model.labels import label_array, plain_labels
from partirvm.model.rows import FAR

__all__ = ["FAR", "ClassModel", "Model", "label_array", "load_model", "plain_labels", "save_model"]
