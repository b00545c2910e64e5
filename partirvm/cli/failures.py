"""Errors and warnings as one paragraph for the user, and their exit status."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import click

from partirvm.cli.flags import as_flags
from partirvm.cli.terminal import echo
from partirvm.errors import ClusterError, JobFailedError, NumericalError, PartirvmError, PartirvmWarning

TRACEBACK = "PARTIRVM_TRACEBACK"
"""Environment variable that switches tracebacks on."""


class ExitStatus(IntEnum):
    """Exit statuses."""

    DONE = 0
    USAGE = 2
    ABORTED = 3
    FAILED = 4


def status_of(error: BaseException) -> ExitStatus:
    """Return the exit status of an error: 2 if the user can correct it, 4 for a failure.

    >>> status_of(click.UsageError("no such option")).name, status_of(ZeroDivisionError()).name
    ('USAGE', 'FAILED')
    """
    if isinstance(error, JobFailedError | NumericalError):
        return ExitStatus.FAILED
    if isinstance(error, click.ClickException | PartirvmError) or _names_a_file(error):
        return ExitStatus.USAGE
    return ExitStatus.FAILED


def _names_a_file(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.filename is not None


def explain(error: BaseException) -> None:
    """Print an error to stderr, with a traceback if ``TRACEBACK`` is set."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    echo(f"partirvm: error: {message_of(error)}", err=True)


def message_of(error: BaseException) -> str:
    """Return the message of an error as one paragraph.

    >>> message_of(PartirvmError("no row is left: check the weights"))
    'no row is left: check the weights'
    >>> message_of(PartirvmError("raise memory_limit"))
    'raise --memory-limit'

    The notes of the error come last; they say from what the work can continue.
    """
    cause = error.__cause__ if isinstance(error, click.Abort) else error  # click raises Abort for a KeyboardInterrupt
    notes = getattr(cause, "__notes__", [])
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "; ".join(["interrupted", *(notes or ["nothing was left behind"])])
    return "; ".join([_what(error), *notes])


def _what(error: BaseException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{error.format_message()} See `{error.ctx.command_path} --help`."
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, PartirvmError):
        return as_flags(str(error))
    if _names_a_file(error):
        assert isinstance(error, OSError)
        return f"{error.filename}: {error.strerror}"
    return (
        f"{type(error).__name__}: {error}. This is a fault of the program or of its environment, not of your input: "
        f"run the same command with {TRACEBACK}=1 to see where it happened, and report it"
    )


def failed_at_work(error: ClusterError) -> JobFailedError:
    """Return the error of a cluster that failed after the work had begun. It is not a usage error."""
    failed = JobFailedError(str(error))
    for note in getattr(error, "__notes__", []):
        failed.add_note(note)
    return failed


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print warnings to stderr as ``partirvm: warning: …``, each text once, without deprecations."""
    seen: set[str] = set()

    def show(message: Any, category: type[Warning], *place: Any) -> None:
        text = as_flags(str(message)) if issubclass(category, PartirvmWarning) else f"{category.__name__}: {message}"
        if text not in seen and not issubclass(category, DeprecationWarning):
            seen.add(text)
            echo(f"partirvm: warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PartirvmWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield
