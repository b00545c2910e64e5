"""Tables of results in README files: replaced between their marks, with date and commit; everything else stays."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.write import main, written


def test_a_table_is_replaced_between_its_marks(tmp_path):
    """Twice is the same as once; a table without results stays and is named."""
    (tmp_path / "part").mkdir()
    file = tmp_path / "part" / "one.md"
    file.write_text("| a |\n|---|\n| 1 |\n")
    os.utime(file, (0, 0))
    text = "# Title\n\n<!-- results: part/one -->\nold\n<!-- end -->\n\n<!-- results: two -->\nkept\n<!-- end -->\n"
    once, missing = written(text, tmp_path, "abc1234")
    assert missing == ["two"]
    assert once.startswith(
        "# Title\n\n<!-- results: part/one -->\n\n| a |\n|---|\n| 1 |\n\n1970-01-01, commit abc1234\n"
    )
    assert once.endswith("<!-- end -->\n\n<!-- results: two -->\nkept\n<!-- end -->\n")
    assert "old" not in once
    assert written(once, tmp_path, "abc1234") == (once, missing)


def test_files_are_written_in_place(tmp_path, capsys):
    """The named README is written, and a missing table is reported."""
    (tmp_path / "one.md").write_text("a table")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- results: one -->\n<!-- end -->\n<!-- results: two -->\n<!-- end -->\n")
    main([str(readme), "--results", str(tmp_path)])
    assert "a table" in readme.read_text()
    assert "no results of two" in capsys.readouterr().err
