"""The command line: parse, call, print. Results go to stdout, everything else to stderr.

Exit status: 0 done, 2 wrong usage or input, 3 aborted with a usable model, 4 the job failed.
"""

from __future__ import annotations

from partirvm.cli.running import main

__all__ = ["main"]
