"""Choose the progress display for a stream."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from partirvm.report.notebook import NotebookProgress, in_notebook
from partirvm.report.progress import PlainProgress, Progress


def progress_for(stream: TextIO | None = None, *, quiet: bool = False, spell: Callable[[str], str] = str) -> Progress:
    """Return the progress display for a stream, default stderr: live on a terminal, otherwise plain, none if ``quiet``.

    In a notebook the display is HTML below the cell.
    ``spell`` converts the names of Python parameters in messages, for example to command-line flags.
    """
    if quiet:
        return Progress()
    if stream is None and in_notebook():
        return NotebookProgress(spell=spell)
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        return PlainProgress(stream, spell=spell)
    from partirvm.report.live import LiveProgress

    return LiveProgress(stream, spell=spell)
