"""Check that the built pages request nothing from other hosts: python .ci/check_site.py docs/_build/html

Links that a reader may follow are not requests. Scripts and styles that come with the pages are read, too.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

FOREIGN = re.compile(r"(https?:)?//", re.IGNORECASE)
LOADED = re.compile(r"""url\(\s*["']?((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)""", re.IGNORECASE)
INERT = {"canonical", "alternate", "next", "prev", "index", "search", "license", "author"}
"""Relations of ``link`` for which a browser loads nothing."""


class Requests(HTMLParser):
    """Collects the addresses on other hosts that a browser loads to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Addresses are in ``src``, ``srcset`` and ``data``, and in ``href`` of most links of the head."""
        values = {name: value or "" for name, value in attrs}
        loaded = [values.get("src"), values.get("srcset"), values.get("data") if tag == "object" else ""]
        if tag == "link" and not {*values.get("rel", "").split()} & INERT:
            loaded.append(values.get("href"))
        self.found += [each for each in loaded if each and FOREIGN.match(each)]
        self.found += ["".join(found) for found in LOADED.findall(values.get("style", ""))]


def requests(path: Path) -> list[str]:
    """Return the addresses on other hosts that a page or a style sheet loads."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".css":
        return ["".join(found) for found in LOADED.findall(text)]
    parser = Requests()
    parser.feed(text)
    return parser.found


def main(site: str) -> int:
    """Print what pages request elsewhere; return the exit status."""
    paths = [path for path in sorted(Path(site).rglob("*")) if path.suffix in (".html", ".css")]
    wrong = [f"{path.relative_to(site)}: {address}" for path in paths for address in requests(path)]
    print(*(wrong or [f"{len(paths)} pages and styles request nothing from other hosts"]), sep="\n")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
