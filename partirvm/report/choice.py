"""Choose the progress display for a stream."""

from __future__ import annotations

import sys
from typing import TextIO

from partirvm.report.progress import PlainProgress, Progress


def progress_for(stream: TextIO | None = None, *, quiet: bool = False) -> Progress:
    """The progress display for a stream, default stderr: live on a terminal, plain elsewhere, none if ``quiet``."""
    if quiet:
        return Progress()
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        return PlainProgress(stream)
    from partirvm.report.live import LiveProgress

    return LiveProgress(stream)
