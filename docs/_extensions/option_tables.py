"""The directive ``option-table``: options of a fit, by groups, from the table that the library
itself uses."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from partirvm.options.table import TABLE, Request


class OptionTable(SphinxDirective):
    """Write the options of one group, or of all: name in Python, flag, default and meaning."""

    option_spec = {"group": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Return a definition list."""
        wanted = self.options["group"]
        chosen = [row for row in TABLE.values() if row.group == wanted]
        if not chosen:
            raise self.error(f"{Request.__module__} has no options of the group {wanted!r}")
        return [nodes.definition_list("", *(self._item(row) for row in chosen))]

    def _item(self, row: Any) -> nodes.definition_list_item:
        term = nodes.term(
            "", "", nodes.literal(text=row.name), nodes.Text("  "), nodes.literal(text=row.flag)
        )
        default = nodes.literal(text="none" if row.default is None else str(row.default))
        text = nodes.paragraph("", f"{row.help} Default: ", default, nodes.Text("."))
        return nodes.definition_list_item("", term, nodes.definition("", text))


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("option-table", OptionTable)
    return {"parallel_read_safe": True}
