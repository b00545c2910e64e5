"""The command line: parse, call, print. Results go to stdout, everything else to stderr.

Exit status: 0 done, 2 invalid usage or input, 3 aborted with a usable model, 4 the job failed.
"""

import sys
from collections.abc import Sequence

import click

from partirvm.cli.running import Signals, echo, explain, shown_warnings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with these arguments (default: ``sys.argv``) and return the exit status.

    If no arguments are passed, the process exits with this status; until then, repeats of a signal
    that ended the command are ignored.
    """
    from partirvm.cli.commands import partirvm

    with Signals(keep=arguments is None):
        try:
            with shown_warnings():
                status = partirvm.main(arguments, prog_name="partirvm", standalone_mode=False)
                sys.stdout.flush()
            return status if isinstance(status, int) else 0
        except click.exceptions.NoArgsIsHelpError as error:
            echo(error.format_message(), err=True)
            return 2
        except (Exception, KeyboardInterrupt) as error:
            return explain(error)
