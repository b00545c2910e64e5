"""A fitted model and its on-disk form."""

from __future__ import annotations

from partirvm.model.files import load_model, save_model
from partirvm.model.fitted import FAR, Model

__all__ = ["FAR", "Model", "load_model", "save_model"]
