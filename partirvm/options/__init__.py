"""What a user asks of a fit: one value, whoever asks."""

from __future__ import annotations

from partirvm.options.request import Request

__all__ = ["Request"]
