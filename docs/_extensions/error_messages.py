"""The directive ``error-messages``: all messages of one class of errors, read from the sources."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from messages import error_messages
from sphinx.util.docutils import SphinxDirective

from partirvm import errors


class ErrorMessages(SphinxDirective):
    """Write the meaning of a class of errors and all its messages."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a paragraph and a list."""
        name = self.arguments[0]
        texts = error_messages().get(name)
        if not texts:
            raise self.error(f"no error of the class {name!r} is raised")
        about = nodes.paragraph(text=(getattr(errors, name).__doc__ or "").split("\n")[0])
        items = [nodes.list_item("", nodes.paragraph(text=text)) for text in texts]
        return [about, nodes.bullet_list("", *items)]


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("error-messages", ErrorMessages)
    return {"parallel_read_safe": True}
