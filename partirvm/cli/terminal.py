"""Printing of all text of the command line to stdout and stderr."""

from __future__ import annotations

import click

from partirvm.quoting import printable


def echo(text: str, *, err: bool = False) -> None:
    """Print a line to stdout, or to stderr, with its control characters escaped."""
    click.echo(printable(text, keep="\n\t"), err=err)
