"""The snippets of the guide run as they are printed, in order, in an empty folder.

Blocks ``python`` of a chapter share one namespace. Of blocks ``sh`` the lines of ``partirvm`` run.
A block with other commands, or one that needs a cluster or a network, has the comment ``<!-- not
run: reason -->`` before it, one that runs where a package is installed ``<!-- needs NAME -->``.
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

from partirvm.cli.commands import partirvm

DOCS = Path(__file__).parents[2] / "docs"

CHAPTERS = {
    path.stem: path for path in sorted(DOCS.glob("guide/*.md")) if "```" in path.read_text()
}

SLOW = {
    "coming_from",
    "data",
    "ecosystem",
    "jobs",
    "kernels",
    "memory",
    "notebooks",
    "settings",
    "strategies",
    "targets",
}
SLOW |= {"uncertainty", "updates"}
"""Chapters whose calls are those of other chapters and of the examples of docstrings, with other
values."""

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
    """Return the snippets of a chapter that run.

    >>> blocks("```python\\na = 1\\n```\\n<!-- not run: slow -->\\n```sh\\nls\\n```\\n")
    [Block(language='python', text='a = 1\\n', line=1)]
    """
    found = [
        m
        for m in BLOCK.finditer(text)
        if not m["mark"] or (m["package"] and find_spec(m["package"]))
    ]
    return [
        Block(match["language"], match["text"], text.count("\n", 0, match.start()) + 1)
        for match in found
    ]


def commands(text):
    """Return the words of each command line.

    >>> commands("partirvm fit a.zarr \\\\\\n  'a b'  # a comment\\n")
    [['partirvm', 'fit', 'a.zarr', 'a b']]
    """
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words):
    """Run a command line of ``partirvm`` in this process; with a memory limit, which counts all of
    it, in a new one."""
    assert words[0] == "partirvm", f"mark the block of `{shlex.join(words)}` as not run"
    if "--memory-limit" in words:
        subprocess.run([sys.executable, "-m", *words], check=True, timeout=120)
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


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("chapter", some(CHAPTERS, CHAPTERS.keys() - SLOW))
def test_snippets_run(chapter, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.setattr(
        "partirvm.report.page.find_spec", lambda name: None
    )  # charts of pages: tests/report
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run_chapter(CHAPTERS[chapter])
