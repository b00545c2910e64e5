"""The counts in ``.ci/limits.py``, on small sources that were counted by hand."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "limits.py"


@pytest.fixture(scope="module")
def limits():
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("limits", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def source(limits):
    """Return a function that makes a source file in a room."""

    def make(text, path="partirvm/core/example.py"):
        return limits.Source(Path(path), text)

    return make


DOCUMENTED = '''"""A module."""

# A comment.
ROWS = 8  # a comment behind code is on a code line
"""Number
of rows."""


def double(x):
    """Return 2x."""
    return (
        2 * x
    )
'''


def test_code_lines_exclude_blanks_comments_and_docstrings(source):
    """The assignment, the head of the function and the three lines of its return are counted."""
    assert source(DOCUMENTED).code_lines == 5


def test_nodes_per_code_line_are_counted(limits, source):
    """``a = 1`` has five nodes: Module, Assign, Name, Store, Constant; each further line adds 4."""
    assert limits.density([source("a = 1\n")]) == 5
    assert limits.density([source("a = 1\nb = 2\n")]) == (5 + 4) / 2


def test_rooms_are_sub_packages_or_modules(limits, source):
    paths = ["partirvm/core/a.py", "partirvm/core/deep/b.py", "partirvm/errors.py"]
    assert set(limits.rooms(source("", path) for path in paths)) == {"core", "errors"}


@pytest.mark.parametrize(
    ("statement", "counted"),
    [
        ("a, b = 1, x", True),
        ("(a, b), c = pair, 1", True),
        ("self.a, b[0] = x, y", True),
        ("a, b = b, c", True),
        ("a = b, c = 1, 2", True),
        ("a, b = b, a", False),
        ("x[i], x[j] = x[j], x[i]", False),
        ("a, b = pair", False),
        ("a = b = 0", False),
        ("a = 1, 2", False),
        ("for a, b in [(1, 2)]: pass", False),
        ("c = [a for a, b in pairs]", False),
    ],
)
def test_parallel_assignments_of_unlike_values_are_counted(limits, source, statement, counted):
    """The exception is a permutation of the same names."""
    assert limits.parallel_rate([source(statement)]) == (1000 if counted else 0)


def test_local_names_are_those_bound_in_the_body(limits, source):
    """There are sixteen, including a comprehension's and an inner function's, without
    parameters."""
    names = [f"name_{k}" for k in range(14)]
    body = "".join(f"    {name} = x\n" for name in names)
    inner = "    def inner():\n        fifteenth = 1\n"
    small = source(f"def f(x):\n{body}{inner}")
    large = source(f"def f(x):\n{body}{inner}    return [y for y in x]\n")
    assert limits.crowded_functions([small]) == []
    assert limits.crowded_functions([large]) == ["partirvm/core/example.py:1 f: 16 local names"]


def test_functions_above_the_node_limit_are_listed(limits, source):
    """``pass`` is one node; FunctionDef and arguments are two more."""
    assert limits.large_functions([source("def f():\n" + "    pass\n" * 398)]) == []
    found = limits.large_functions([source("def f():\n" + "    pass\n" * 399)])
    assert found == ["partirvm/core/example.py:1 f: 401 nodes"]


def test_lines_above_100_columns_are_listed_widest_first(limits, source):
    text = "\n".join("#" * width for width in (100, 101, 120))
    found = limits.wide_lines([source(text)])
    assert [place.partition(":")[2] for place in found] == ["3: 120 columns", "2: 101 columns"]


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("if n_classes: pass", 1),
        ("if problem.n_classes > 2 and problem.likelihood.dense: pass", 1),
        ("x = 1 if fit.n_targets == 1 else 2", 1),
        ("x = n_classes > 0", 1),
        ("f(not likelihood.dense)", 1),
        ("x = [row for row in rows if n_targets]", 1),
        ("x = isinstance(model, ClassModel)", 1),
        ("match model:\n    case ClassModel(): pass\n    case x if n_classes: pass", 2),
        ("if getattr(state, 'n_classes', 0): pass", 1),
        ("if a:\n    if n_classes: pass\nelif dense: pass", 2),
        ("if isinstance(model, FittedModel): pass", 0),
        ("x = n_classes + 1", 0),
        ("f(n_classes=n_classes)", 0),
        ("if word == 'dense': pass", 0),
    ],
)
def test_conditions_on_the_kind_of_target_count_once(limits, source, statement, count):
    """Likelihoods and exports are excepted."""
    assert len(limits.target_places([source(statement)])) == count
    assert limits.target_places([source(statement, "partirvm/likelihoods/example.py")]) == []


def test_repeated_class_and_file_names_are_listed(limits, source):
    first = source("class A: pass\nclass B: pass", "partirvm/core/a.py")
    second = source("class B: pass", "partirvm/jobs/a.py")
    assert limits.repeated_classes([first, second]) == ["B"]
    assert limits.repeated_files([first, second]) == ["a"]


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("from partirvm import RVMRegressor, kernels", 0),
        ("from partirvm.errors import UsageError", 0),
        ("from partirvm.types import BIAS", 0),
        ("from partirvm.core import Termination", 0),
        ("from partirvm.literature.kth import rvm_star", 0),
        ("import numpy as np\nfrom scipy.linalg import solve", 0),
        ("from partirvm.core.posterior import posterior", 1),
        ("from partirvm.core.updates import maximise, step", 2),
        ("from partirvm.core import ascent", 1),
        ("from partirvm.core import Termination, ascent as climb", 1),
        ("import partirvm.core.posterior", 1),
        ("def f():\n    from partirvm.literature.kth import best_actions", 1),
    ],
)
def test_imports_of_internals_are_counted_by_name(limits, source, statement, count):
    """Rooms and the reference of the programming interface are public; modules inside rooms are
    not."""
    assert len(limits.internal_imports([source(statement, "tests/test_a.py")])) == count


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ('m.setattr("partirvm.core.ascent.MOST", 3)', 1),
        ('m.setattr("distributed.versions.get_versions", f)', 0),
        ("import os\nm.setattr(os, 'link', f)", 0),
        ("import distributed as d\nm.setattr(d.Client, 'sync', f)", 0),
        ("from partirvm.core import ascent\nm.setattr(ascent, 'MOST', 3)", 1),
        ("from partirvm.core import ascent\nfor _ in x:\n    m.setattr(ascent, 'time', f)", 1),
        ("m.setattr(lease._folder, 'write', f)", 1),
        ("make_small(m.setattr)", 1),
        ("from partirvm.storage import Folder\nsetattr(Folder, name, f)", 1),
        ("from partirvm.storage import Folder\nFolder.create = f", 1),
        ("job.name = 3", 0),
        ('with mock.patch("partirvm.data.ingestion.used", f): pass', 1),
        ("m.setitem(SEARCHES, 'numbers', f)", 0),
        ("m.setenv('A', 'b')", 0),
    ],
)
def test_names_patched_in_tests_are_counted(limits, source, statement, count):
    """Replacements in other packages are not counted; those of unknown objects are."""
    assert len(limits.patched_names([source(statement, "tests/test_a.py")])) == count


def test_a_count_above_its_limit_fails(limits, capsys):
    """A count at its limit does not fail."""
    code = limits.Repository([], [], [])
    within = limits.Limit("three", lambda code: 3, 3, 2)
    above = limits.Limit("places", lambda code: ["a.py:1"], 0, 0)
    assert limits.check(within, code, verbose=False)
    assert not limits.check(above, code, verbose=True)
    first, second, place = capsys.readouterr().out.splitlines()
    assert "TOO MANY" not in first
    assert "TOO MANY" in second
    assert place.strip() == "a.py:1"


def test_no_limit_is_below_its_goal(limits):
    """A goal that has been reached becomes the limit."""
    assert [limit.name for limit in limits.LIMITS if limit.limit < limit.goal] == []
