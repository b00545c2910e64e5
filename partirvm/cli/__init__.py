"""The command line: parse, call the service, print. Results go to stdout, everything else to stderr.

Exit status: 0 done, 2 wrong usage or input, 3 aborted with a usable model, 4 the job failed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from partirvm.cli.failures import explain, shown_warnings, status_of
from partirvm.cli.terminal import echo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on these arguments, ``sys.argv`` unless given, and return the exit status."""
    from partirvm.cli.commands import partirvm

    try:
        with shown_warnings(), _Terminable():
            status = partirvm.main(arguments, prog_name="partirvm", standalone_mode=False)
            sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return 2
    except (Exception, KeyboardInterrupt) as error:
        explain(error)
        return status_of(error)


class _Terminable:
    """A polite kill inside the block is a Ctrl-C, so that what is half-written gets removed."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGTERM, _interrupt)

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGTERM, self._before)


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
