"""Write the tables of stored results into the benchmark READMEs, with commit and date.

    python -m benchmarks.write [--results FOLDER] [README …]

A README marks a table by two comments, ``<!-- results: NAME -->`` and ``<!-- end -->``. The text
between them is replaced by FOLDER/NAME.md with its headings two levels lower, followed by the date
of the results and the commit at which they were written. NAME may contain folders. Tables without
results in FOLDER stay unchanged and are listed. Without arguments, all benchmark READMEs are
written.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
from pathlib import Path

from benchmarks.measure import say

MARK = re.compile(r"(<!-- results: (?P<name>[\w/.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def written(text: str, results: Path, commit: str) -> tuple[str, list[str]]:
    """Return the text with the tables of the results, and the names of tables without results."""
    missing = []

    def replaced(found: re.Match[str]) -> str:
        path = results / f"{found['name']}.md"
        if not path.exists():
            missing.append(found["name"])
            return found[0]
        date = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).date()
        table = re.sub("^#", "###", path.read_text().strip(), flags=re.MULTILINE)
        return f"{found[1]}\n{table}\n\n{date}, commit {commit}\n\n{found[3]}"

    return MARK.sub(replaced, text), missing


def commit() -> str:
    """Return the short name of the current commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    ).stdout.strip()


def main(arguments: list[str] | None = None) -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "readme", nargs="*", type=Path, help="files to write (default: benchmarks/**/*.md)"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/results"), metavar="FOLDER"
    )
    options = parser.parse_args(arguments)
    at = commit()
    for path in options.readme or sorted(Path(__file__).parent.rglob("*.md")):
        before = path.read_text()
        after, missing = written(before, options.results, at)
        if after != before:
            path.write_text(after)
            say(f"{path}: written")
        for name in missing:
            say(f"{path}: no results of {name} in {options.results}")


if __name__ == "__main__":
    main()
