"""Pages that are files of the repository, such as CONTRIBUTING.md: a line ``<!-- file: PATH -->``
stands for the text.

PATH is relative to the root of the repository. The first heading of the text stays the title of the
page. Its relative links lead to the page of the site that holds the file, or else to the file in
the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/partirvm/partirvm/blob/main/"
MARK = re.compile(r"^<!-- file: (?P<path>\S+) -->$", re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>(?!https?:|#|mailto:)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def pages(source: Path) -> dict[str, str]:
    """Return the pages of the site, relative to its root, by the path of the file that each
    holds."""
    found = {}
    for page in sorted(source.rglob("*.md")):
        if "_build" not in page.parts and (mark := MARK.search(page.read_text())):
            found[mark["path"]] = page.relative_to(source).as_posix()
    return found


def text_of(path: str, page: str, known: dict[str, str]) -> str:
    """Return the text of a file for the page ``page``, with links that work there."""

    def replaced(link: re.Match[str]) -> str:
        target = os.path.normpath(Path(path).parent / link["target"])
        anchor = link["anchor"] or ""
        if target in known:
            return f"]({os.path.relpath(known[target], Path(page).parent)}{anchor})"
        if target.startswith("docs/"):
            return f"]({os.path.relpath(target.removeprefix('docs/'), Path(page).parent)}{anchor})"
        return f"]({REPOSITORY}{target})"

    return LINK.sub(replaced, (ROOT / path).read_text())


def insert(app: Any, docname: str, content: list[str]) -> None:
    """Replace the marks of a page by the texts of the files."""
    page = f"{docname}.md"
    known = pages(Path(app.srcdir))
    for mark in MARK.finditer(content[0]):
        app.env.note_dependency(str(ROOT / mark["path"]), docname=docname)
    content[0] = MARK.sub(lambda mark: text_of(mark["path"], page, known), content[0])


def setup(app: Any) -> dict[str, Any]:
    """Register the replacement."""
    app.connect("source-read", insert)
    return {"parallel_read_safe": True}
