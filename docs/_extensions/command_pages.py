"""The directive ``command-help``: the help of a command, exactly as a terminal of 100 columns shows
it."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from partirvm.cli.commands import partirvm


class CommandHelp(SphinxDirective):
    """Write the output of ``partirvm COMMAND --help`` or, with ``:all:``, of ``--help-all``."""

    optional_arguments = 1
    option_spec = {"all": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return a literal block."""
        words = [*self.arguments, "--help-all" if "all" in self.options else "--help"]
        done = CliRunner().invoke(partirvm, words, prog_name="partirvm", terminal_width=100)
        if done.exit_code:
            raise self.error(
                f"partirvm {' '.join(words)} ended with status {done.exit_code}: {done.output}"
            )
        return [nodes.literal_block(done.output, done.output, language="text")]


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
