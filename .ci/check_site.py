"""Check that links between the built pages lead somewhere, and that these request nothing from
other hosts.

    python .ci/check_site.py docs/_build/html

Links to other hosts, which a reader may follow, are not requests, and are not followed. Scripts and
styles that come with the pages are read, too. (linkchecker, which parses a page again for each link
to a part of it, takes minutes.)
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FOREIGN = re.compile(r"(https?:)?//", re.IGNORECASE)
LOADED = re.compile(
    r"""url\(\s*["']?((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)""", re.IGNORECASE
)
INERT = {"canonical", "alternate", "next", "prev", "index", "search", "license", "author"}
"""Relations of ``link`` for which a browser loads nothing."""


class Page(HTMLParser):
    """Collects what a browser loads from other hosts to show a page, the page's own links, and the
    names of parts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: set[str] = set()
        self.parts: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Addresses are in ``src``, ``srcset`` and ``data``, and in ``href`` of most links of the
        head."""
        values = {name: value or "" for name, value in attrs}
        self.parts |= {values.get("id", ""), values.get("name", "") if tag == "a" else ""}
        self.links |= {values[name] for name in ("href", "src") if values.get(name)}
        loaded = [
            values.get("src"),
            values.get("srcset"),
            values.get("data") if tag == "object" else "",
        ]
        if tag == "link" and not {*values.get("rel", "").split()} & INERT:
            loaded.append(values.get("href"))
        self.found += [each for each in loaded if each and FOREIGN.match(each)]
        self.found += ["".join(found) for found in LOADED.findall(values.get("style", ""))]


def missing(path: Path, page: Page, pages: dict[Path, Page]) -> list[str]:
    """Return the links of a page to files that do not exist, or to parts that a page does not
    have."""
    wrong = []
    for link in sorted(page.links):
        split = urlsplit(link)
        if split.scheme or split.netloc:
            continue
        target = (path.parent / unquote(split.path)).resolve() if split.path else path
        target = target / "index.html" if target.is_dir() else target
        part = unquote(split.fragment)
        if not target.exists() or (part and target in pages and part not in pages[target].parts):
            wrong.append(link)
    return wrong


def main(site: str) -> int:
    """Print the links that lead nowhere, and what pages request elsewhere; return the exit
    status."""
    root = Path(site).resolve()
    built = (
        path for path in sorted(root.rglob("*.html")) if path.parent != root / "_static"
    )  # templates of the theme
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in built}
    wrong = []
    for path, page in pages.items():
        wrong += [f"{path.relative_to(root)} requests {address}" for address in page.found]
        wrong += [
            f"{path.relative_to(root)} has a link to nowhere: {link}"
            for link in missing(path, page, pages)
        ]
    for path in sorted(root.rglob("*.css")):
        found = LOADED.findall(path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(root)} requests {''.join(address)}" for address in found]
    print(
        *(
            wrong
            or [f"{len(pages)} pages: links lead somewhere, nothing is requested from other hosts"]
        ),
        sep="\n",
    )
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
