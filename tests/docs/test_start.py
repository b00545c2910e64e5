"""The page for newcomers: its Python code and commands run in order."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from partirvm.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "start.md"


def without_numbers(text):
    """Return the words of an output without numbers, dates, times and sizes."""
    return re.sub(r"[-−]?\d[\d,.]*( [KMG]iB| m?s\b| [A-Z][a-z]{2}\b)?", "#", text).split()


@pytest.mark.usefixtures("snippets")
@pytest.mark.slow
def test_the_page_for_newcomers_runs(tmp_path, monkeypatch, capsys):
    """Each output has the same words as the page."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [kind for kind, _ in blocks].count("console") == 6
    names = {"__name__": "__main__"}
    for position, (kind, text) in enumerate(blocks):
        if kind == "python":
            exec(compile(text, f"block {position}", "exec"), names)
            shown = blocks[position + 1 : position + 2]
            expected = shown[0][1] if shown and shown[0][0] == "text" else ""
        elif kind == "console":
            command, _, expected = text.partition("\n")
            assert main(shlex.split(command.removeprefix("$ partirvm "))) == 0
        else:
            continue
        assert without_numbers(capsys.readouterr().out) == without_numbers(expected)
    assert Path("report.html").stat().st_size > 10_000
    assert np.isfinite(names["rows"]["mean"]).all()
