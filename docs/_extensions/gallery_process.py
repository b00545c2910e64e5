"""What each script of the gallery finds in the process that runs it."""

from __future__ import annotations

import multiprocessing
from typing import Any


def spawn(gallery_conf: dict[str, Any], script: str) -> None:
    """Let scripts start processes as everywhere: joblib's own way, in its workers, fails in their
    children."""
    multiprocessing.set_start_method("spawn", force=True)
