"""The mutation check draws changes that can be found again."""

from __future__ import annotations

import ast

import pytest

pytest.importorskip("benchmarks", reason="benchmarks are run from a checkout")

from benchmarks.mutants.__main__ import ROOT, SUITES, suites
from benchmarks.mutants.draw import drawn, mutants

SOURCE = '''
def limit(n: int = 3, *, strict=True):
    """Return 2 + 2."""
    if n < 0 and strict:
        raise ValueError(f"{n + 1} is less than {0 + 1}")
    total = -n * 0.5
    print(total)
    return total


class Value:
    def __repr__(self):
        return 1 + 1
'''


def tree(tmp_path, source):
    """A tree of one module, core/limits.py."""
    path = tmp_path / "partirvm" / "core" / "limits.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return tmp_path


def test_mutants_of_a_function(tmp_path):
    """Each kind once; nothing of docstrings, annotations, messages and __repr__."""
    found = {(mutant.kind, mutant.before, mutant.after) for mutant in mutants(tree(tmp_path, SOURCE), "core")}
    assert found == {
        ("number + 1", "3", "4"),
        ("number - 1", "3", "(2)"),
        ("boolean", "True", "False"),
        ("and/or", "n < 0 and strict", "(n < 0 or strict)"),
        ("boundary", "n < 0", "(n <= 0)"),
        ("negation", "n < 0", "(n >= 0)"),
        ("number + 1", "0", "1"),
        ("number - 1", "0", "(-1)"),
        ("operator", "-n * 0.5", "(-n / 0.5)"),
        ("dropped sign", "-n", "(n)"),
        ("doubled number", "0.5", "1.0"),
        ("removed call", "print(total)", "pass"),
        ("returned name", "return total", "return strict"),
    }


def test_mutants_are_found_again_where_lines_have_moved(tmp_path):
    """The same keys; a mutant of an earlier run comes first in a draw."""
    before = mutants(tree(tmp_path, SOURCE), "core")
    after = mutants(tree(tmp_path, "import math\n\nROOT = math.sqrt(2)\n" + SOURCE), "core")
    assert [mutant.key for mutant in after] == [mutant.key for mutant in before]
    for mutant in before:
        assert [again.key for again in drawn(tmp_path, ["core"], 1, 7, {mutant.key})] == [mutant.key]


def test_every_mutant_of_the_tree_can_be_parsed_and_has_tests():
    """Fifteen of each folder; the tests named for them exist."""
    chosen = drawn(ROOT, list(SUITES), 60, 0)
    assert [mutant.folder for mutant in chosen] == list(SUITES) * 15
    assert len({(mutant.file, mutant.function) for mutant in chosen}) == 60
    for mutant in chosen:
        source = (ROOT / mutant.file).read_bytes()
        assert source[mutant.start : mutant.stop].decode() == mutant.before
        ast.parse(source[: mutant.start] + mutant.after.encode() + source[mutant.stop :])
    for mutant in chosen[: len(SUITES)]:
        near, others = suites(ROOT, mutant)
        assert near[0] == mutant.file
        assert others
        assert all((ROOT / path).is_file() for path in near + others)
