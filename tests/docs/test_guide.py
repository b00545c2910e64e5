"""The guide's snippets run as printed, in order, in an empty folder.

The ``python`` blocks of a chapter share a namespace; in ``sh`` blocks the ``partirvm`` lines run.
``<!-- not run: reason -->`` before a block excludes it, ``<!-- needs NAME -->`` names a package.
"""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from by_default import some
from click.testing import CliRunner
from waiting import PATIENCE

from partirvm.cli.commands import partirvm

DOCS = Path(__file__).parents[2] / "docs"

CHAPTERS = {
    path.stem: path for path in sorted(DOCS.glob("guide/*.md")) if "```" in path.read_text()
}

SLOW = {"coming_from", "data", "ecosystem", "jobs", "kernels", "memory", "notebooks", "settings"}
SLOW |= {"strategies", "targets", "uncertainty", "updates"}
"""Chapters whose calls also occur in other chapters."""

BLOCK = re.compile(
    r"(?P<mark><!-- (not run: [^\n]+|needs (?P<package>\w+)) -->\n+)?^```(?P<language>python|sh)\n(?P<text>.*?)^```$",
    re.M | re.S,
)


class Block(NamedTuple):
    """A snippet and the line of its chapter where it begins."""

    language: str
    text: str
    line: int


def blocks(text):
    """Return those snippets of a chapter that are run.

    >>> blocks("```python\\na = 1\\n```\\n<!-- not run: slow -->\\n```sh\\nls\\n```\\n")
    [Block(language='python', text='a = 1\\n', line=1)]
    """
    snippets = []
    for match in BLOCK.finditer(text):
        if not match["mark"] or (match["package"] and find_spec(match["package"])):
            line = text.count("\n", 0, match.start()) + 1
            snippets.append(Block(match["language"], match["text"], line))
    return snippets


def commands(text):
    """Return the words of each command line.

    >>> commands("partirvm fit a.zarr \\\\\\n  'a b'  # a comment\\n")
    [['partirvm', 'fit', 'a.zarr', 'a b']]
    """
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words):
    """Run a command in this process, or in a new one if it has a memory limit."""
    assert words[0] == "partirvm", f"mark the block of `{shlex.join(words)}` as not run"
    if "--memory-limit" in words:
        subprocess.run([sys.executable, "-m", *words], check=True, timeout=PATIENCE)
        return
    done = CliRunner().invoke(partirvm, words[1:])
    assert done.exit_code == 0, f"{shlex.join(words)}: {done.output}"


def run_chapter(chapter):
    """Run the snippets of a chapter in order."""
    names = {"__name__": "__main__"}
    for block in blocks(chapter.read_text()):
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(chapter), "exec"), names)
        else:
            for words in commands(block.text):
                run_command(words)


@pytest.mark.usefixtures("snippets")
@pytest.mark.usefixtures("without_charts")
@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("chapter", some(CHAPTERS, CHAPTERS.keys() - SLOW))
def test_the_snippets_of_a_chapter_run(chapter, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run_chapter(CHAPTERS[chapter])
