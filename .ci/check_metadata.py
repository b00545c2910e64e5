"""Check the README of a built wheel: whole addresses of links and pictures, and code as in
README.md.

``python .ci/check_metadata.py dist/*.whl``
"""

from __future__ import annotations

import re
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

LINK = re.compile(
    r"\]\(([^)\s]+)|(?:src|href|srcset)=\"([^\"]+)\"|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def main(wheel: str) -> int:
    """Print what is wrong, and return the exit status."""
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        readme = BytesParser().parsebytes(files.read(metadata)).get_payload(decode=True).decode()
    source = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    links = ["".join(found) for found in LINK.findall(FENCE.sub("", readme))]
    wrong = [
        f"a relative address: {link}"
        for link in links
        if not re.match(r"https?://|#|mailto:", link)
    ]
    if FENCE.findall(readme) != FENCE.findall(source):
        wrong.append("code differs from README.md")
    if len(links) != len(LINK.findall(FENCE.sub("", source))):
        wrong.append("links are missing")
    if "partirvm/py.typed" not in names:
        wrong.append("the wheel lacks py.typed")
    print(*(wrong or [f"{wheel}: {len(links)} links of the README have whole addresses"]), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
