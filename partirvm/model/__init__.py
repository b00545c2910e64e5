"""Fitted models for regression and classification, and model files."""

from __future__ import annotations

from typing import TypeAlias

from partirvm.model.base import FAR, FittedModel, OfRows
from partirvm.model.classifier import ClassModel
from partirvm.model.files import load_model, save_model
from partirvm.model.fitted import Model

AnyModel: TypeAlias = Model | ClassModel
"""A fitted model for regression or classification."""


__all__ = ["FAR", "AnyModel", "ClassModel", "FittedModel", "Model", "OfRows", "load_model", "save_model"]
